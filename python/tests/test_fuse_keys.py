"""tenor.fuse: what tells one call from another."""
import collections
import dataclasses

import numpy as np
import pytest

import tenor as tn
from fused_calls import bits, normal


def test_python_arguments_are_part_of_the_key():
    fused = tn.fuse(lambda x, s, flag=False: x * s if not flag else x + s)
    x = normal(5)
    ints = np.arange(5)
    for s in (2, 2.0, True, 0.0, -0.0, 3):
        assert bits(fused(ints, s)) == bits(tn.asarray(ints) * s), s
        assert bits(fused(x, s)) == bits(tn.asarray(x) * s), s
    assert bits(fused(x, 2, flag=True)) == bits(tn.asarray(x) + 2)
    dims = tn.fuse(lambda x, dims: x.sum(dims))
    for d in ((0,), (1,), [0, 1]):
        assert bits(dims(normal(1, 2) * 0 + 1, d)) == bits(tn.ones((1, 2)).sum(tuple(d)))
    lists = tn.fuse(lambda xs, by: xs[0] * by["w"] + xs[1])
    assert bits(lists([x, x], {"w": x})) == bits(tn.asarray(x) * tn.asarray(x) + tn.asarray(x))


def test_objects_are_told_apart_by_what_they_hold():
    class Settings:
        def __init__(self, by):
            self.by, self.more = by, {"shift": [1.0]}

        def scale(self, x):
            return x * self.by

    class Slotted:
        __slots__ = ("by",)

    settings, slotted, x = Settings(2.0), Slotted(), normal(3, 4)
    fused = tn.fuse(lambda x, s: x * s.by + 1)
    for by in (2.0, 3.0, 2.0):
        settings.by = slotted.by = by
        for s in (settings, slotted):
            assert bits(fused(x, s)) == bits(tn.asarray(x) * by + 1)
        assert fused.kernels(x, settings) == 1
    deep = tn.fuse(lambda x, s: x + s.more["shift"][0])
    assert bits(deep(x, settings)) == bits(tn.asarray(x) + 1.0)
    settings.more["shift"][0] = 5.0
    assert bits(deep(x, settings)) == bits(tn.asarray(x) + 5.0)
    method = tn.fuse(lambda x, f: f(x) - 1)
    for by in (4.0, 5.0):
        settings.by = by
        assert bits(method(x, settings.scale)) == bits(tn.asarray(x) * by - 1)
    settings.itself = settings
    assert fused.why_not(x, settings) is None
    assert "contents" in fused.why_not(x, iter([1.0]))
    settings.table = normal(3)
    assert "ndarray" in fused.why_not(x, settings)


def test_keys_by_contents():
    @dataclasses.dataclass
    class Options:
        by: float
        parts: list

    x = normal(6, 4)
    fused = tn.fuse(lambda x, o: x[o.parts[0]] * o.by)
    options = Options(2.0, [slice(0, 2)])
    assert bits(fused(x, options)) == bits(x[:2] * np.float32(2))
    options.by = 3.0
    assert bits(fused(x, options)) == bits(x[:2] * np.float32(3))
    options.parts[0] = slice(1, 3)
    assert bits(fused(x, options)) == bits(x[1:3] * np.float32(3))
    assert len(fused._tables) == 3
    cut = tn.fuse(lambda x, s, names: x[s] + len(names))
    for _ in range(5):
        assert bits(cut(x, slice(1, 3), {"a", "b"})) == bits(x[1:3] + np.float32(2))
    assert len(cut._tables) == 1
    assert bits(cut(x, slice(1, 3), {"a"})) == bits(x[1:3] + np.float32(1)) and len(cut._tables) == 2

    by = bytearray(b"\x02")  # it can change, and nothing is known of it
    scaled = tn.fuse(lambda x, b: x * b[0])
    assert bits(scaled(x, by)) == bits(x * np.float32(2)) and "bytearray" in scaled.why_not(x, by)
    by[0] = 3
    assert bits(scaled(x, by)) == bits(x * np.float32(3)) and scaled.kernels(x, by) == 0 and not scaled._tables


def test_shared_objects_are_walked_once():
    class Node:
        def __init__(self, *parts):
            self.parts = parts

    x, leaf = normal(4), Node(2.0)
    top = leaf
    for _ in range(60):  # 2^60 ways from the top to the leaf
        top = Node(top, [top])
    leaf.top = top  # and back
    fused = tn.fuse(lambda x, n: x * leaf.parts[0] + 1)
    for by in (2.0, 2.0, 3.0):
        leaf.parts = (by,)
        assert fused.why_not(x, top) is None and bits(fused(x, top)) == bits(x * np.float32(by) + np.float32(1))
    assert len(fused._tables) == 2


def test_objects_that_look_like_numbers_are_told_apart():
    class Number:
        def __init__(self, value):
            self.value = value

        def __float__(self):
            return self.value

        def __repr__(self):
            return "a number"

    fused, x = tn.fuse(lambda x, n: x * float(n)), normal(3)
    for value in (2.0, 3.0):
        assert bits(fused(x, Number(value))) == bits(x * np.float32(value))


def test_tables_are_bounded():
    fused, x = tn.fuse(lambda x, s: x * s), normal(3)
    fused._MOST_TABLES = 4
    for i in range(10):
        assert bits(fused(x, float(i))) == bits(x * np.float32(i))
    assert len(fused._tables) == 4 and bits(fused(x, 0.0)) == bits(x * np.float32(0))


def test_dicts_of_other_types():
    x = normal(3, 4)
    given = collections.defaultdict(list, w=x)
    fused = tn.fuse(lambda d: collections.OrderedDict(y=d["w"] * 2 + 1, none=len(d["missing"])))
    for _ in range(2):
        got = fused(given)
        assert type(got) is collections.OrderedDict and got["none"] == 0 and bits(got["y"]) == bits(x * 2 + 1)
    assert fused.why_not(given) is None and list(given) == ["w"] and given["w"] is x


def test_a_callable_object_keeps_its_attributes_to_itself():
    class Scale:
        def __init__(self):
            self._tables, self.kernels, self._fn, self.by = "mine", 3, None, 2.0

        def __call__(self, x):
            return (x + 1) * self.by

    x, fused = normal(3, 4), tn.fuse(Scale())
    assert bits(fused(x)) == bits((tn.asarray(x) + 1) * 2.0) and fused.kernels(x) == 1


def test_containers_with_constructors_of_their_own():
    class Pair(list):
        def __init__(self, a, b, name):
            super().__init__([a, b])
            self.name = name

    class Row(tuple):
        def __new__(cls, a, b):
            return super().__new__(cls, (a, b))

    x = normal(3, 4)
    for given in (Pair(x, x, "kept"), Row(x, x)):
        fused = tn.fuse(lambda p: (p[0] * 2 + p[1], len(p), getattr(p, "name", None), p))
        for _ in range(2):
            y, n, name, same_kind = fused(given)
            assert bits(y) == bits(x * np.float32(2) + x) and n == 2 and name == getattr(given, "name", None)
            assert type(same_kind) is type(given) and same_kind[0] is x
        assert fused.why_not(given) is None


def test_what_cannot_be_hashed_or_holds_itself():
    class Broken:
        by = 2.0

        def __hash__(self):
            raise ValueError("no hash")

    x, fused = normal(3, 4), tn.fuse(lambda x, s: x * (s.by if isinstance(s, Broken) else s[0]))
    for s in (Broken(), memoryview(bytearray(b"\x02"))):
        assert bits(fused(x, s)) == bits(x * np.float32(2)) and "contents" in fused.why_not(x, s)
    itself = [x]
    itself.append(itself)
    with pytest.raises(tn.ValueError, match="holds itself"):
        tn.fuse(lambda xs: xs[0] * 2)(itself)
