"""tenor.fuse: keys, structures, closures, in-place writes, fallbacks and errors; bits are those of the function itself."""
import collections
import dataclasses
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import tenor as tn
from fused_calls import bits, normal, rng, same, softmax

def layer_norm(x, gamma, beta):
    centred = x - x.mean(-1, keepdim=True)
    return centred * ((centred * centred).mean(-1, keepdim=True) + 1e-5).rsqrt() * gamma + beta


def rope(x, cos, sin):
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return tn.cat([a * cos - b * sin, a * sin + b * cos], -1)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_expressions_of_the_article(dtype):
    x = tn.asarray(normal(6, 5, 64)).to(dtype)
    gate, up = (tn.asarray(normal(30, 100)).to(dtype) for _ in range(2))
    gamma, beta = (tn.asarray(normal(64)).to(dtype) for _ in range(2))
    same(softmax, x)
    same(layer_norm, x, gamma, beta)
    same(lambda g, u: g * g.sigmoid() * u, gate, up)
    same(lambda v: v / (v * v).sum(-1, keepdim=True).sqrt(), x)
    same(lambda v: v.logsumexp(-1) - v.amax(-1), x)
    same(lambda v: (v.transpose(-1, -2) * 2 + 1).relu(), x)
    fused = tn.fuse(rope)
    cos, sin = (tn.asarray(normal(5, 32)).to(dtype) for _ in range(2))
    assert bits(fused(x, cos, sin)) == bits(rope(x, cos, sin))


def test_explain_shows_the_kernels_that_run():
    def fn(x, w):
        return softmax(x * 2) @ w + 1

    x, w = normal(33, 65), normal(65, 9)
    planned = [k for k in tn.explain(fn, x, w).kernels if k.strategy == "fused"]
    assert tn.fuse(fn).kernels(x, w) == len(planned) == 1
    assert bits(tn.fuse(fn)(x, w)) == bits(fn(tn.asarray(x), tn.asarray(w)))


def test_results_keep_their_structure_and_library():
    Pair = collections.namedtuple("Pair", "a b")
    fused = tn.fuse(lambda x: {"y": x * 2, "more": [x.sum(), (None, 3)], "pair": Pair(x + 1, "text")})
    x = normal(3, 4)
    got = fused(x)
    assert isinstance(got["y"], np.ndarray) and isinstance(fused(tn.asarray(x))["y"], tn.Tensor)
    assert got["more"][1] == (None, 3) and type(got["pair"]) is Pair and got["pair"].b == "text"
    np.testing.assert_array_equal(got["pair"].a, x + 1)
    assert tn.fuse(lambda x: (x + 1,))(x)[0].shape == (3, 4)


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


def test_captured_arrays_are_read_where_they_lie():
    w = normal(8)
    fused = tn.fuse(lambda x: x * w + 1)
    x = normal(4, 8)
    assert fused.why_not(x) is None and bits(fused(x)) == bits(tn.asarray(x) * tn.asarray(w) + 1)
    w *= 2
    assert bits(fused(x)) == bits(tn.asarray(x) * tn.asarray(w) + 1)


def test_writes_to_arguments_take_effect():
    @tn.fuse
    def step(x, m, g):
        m.mul_(0.9).add_(g * 0.1)
        x.sub_(m * 0.5)
        return x, m.abs().sum()

    x, m, g = normal(40, 30), normal(40, 30), normal(40, 30)
    a, b = [x.copy(), m.copy(), g], [tn.asarray(x.copy()), tn.asarray(m.copy()), tn.asarray(g)]
    got, want = step(*a), step._fn(*b)
    assert got[0] is a[0] and bits(got[1]) == bits(want[1])
    assert bits(a[0]) == bits(b[0]) and bits(a[1]) == bits(b[1])


def test_aliases_and_overlaps_change_nothing():
    def blur(x, y):
        y[1:] = (x[:-1] + x[1:]) * 0.5
        y.mul_(2)
        return y + x

    for views in (lambda m: (m, m), lambda m: (m[:50], m[25:75]), lambda m: (m[::2], m[1::2])):
        memory = normal(100)
        a, b = memory.copy(), tn.asarray(memory.copy())
        got, want = tn.fuse(blur)(*views(a)), blur(*views(b))
        assert bits(got) == bits(want) and bits(a) == bits(b)
    frozen = normal(4)
    frozen.flags.writeable = False
    with pytest.raises(tn.ValueError, match="read-only"):
        tn.fuse(lambda x: x.add_(1))(frozen)


def test_a_write_to_a_part_leaves_the_rest():
    def part(x, first, last):
        y = x - 2
        read = (y * 3).sum()
        y[first:last].fill_(7)
        return read, y

    x = normal(9)
    for first, last in ((0, 0), (0, 1), (2, 5), (4, 9), (0, 9)):
        got, want = tn.fuse(part)(x, first, last), part(tn.asarray(x), first, last)
        assert bits(got[0]) == bits(want[0]) and bits(got[1]) == bits(want[1]), (first, last)


def test_what_reads_values_runs_as_it_is_written():
    def fn(x):
        return x * 2 if float(x.sum()) > 0 else x - 1

    fused = tn.fuse(fn)
    for x in (np.ones(3, np.float32), -np.ones(3, np.float32)):
        assert bits(fused(x)) == bits(fn(tn.asarray(x)))
    assert fused.why_not(np.ones(3, np.float32)) and fused.kernels(np.ones(3, np.float32)) == 0

    class Layer:
        weight = tn.asarray(normal(3))

        @tn.fuse
        def forward(self, x):
            return x * self.weight + 1

    layer, x = Layer(), normal(2, 3)
    assert bits(layer.forward(x)) == bits(tn.asarray(x) * layer.weight + 1)


def test_gathers_feed_kernels():
    ids, weight, gamma = rng.integers(-50, 50, (3, 7)), normal(50, 40), normal(40)

    def embedded(ids, weight, gamma):
        x = weight[ids]
        return x * (x * x).mean(-1, keepdim=True).rsqrt() * gamma

    same(embedded, ids, weight, gamma)
    same(lambda i, w, g: tn.embedding(i, w) * 2 + g, ids, weight, gamma)
    same(lambda x, i: x.logsumexp(-1, keepdim=True) - tn.gather(x, -1, i), normal(6, 9), rng.integers(0, 9, (6, 1)))
    fused = tn.fuse(embedded)
    ids[1, 2] = 50
    with pytest.raises(tn.IndexError, match=r"index_get: indices\[0\] at .*2.* is 50, out of range(.|\n)*test_fuse.py:\d+: x = weight"):
        fused(ids, weight, gamma)


def test_errors_are_the_functions_own_with_its_line():
    fused = tn.fuse(lambda x, y: (x + y).tanh())
    with pytest.raises(tn.ShapeError, match=r"add: .*\(2, 3\)"):
        fused(normal(2, 3), normal(2, 4))
    take = tn.fuse(lambda x, i: tn.index_select(x * 2, 0, i))
    take(normal(4, 3), np.array([1, 3]))
    with pytest.raises(tn.IndexError, match=r"is 9, out of range(.|\n)*test_fuse.py:\d+: take = "):
        take(normal(4, 3), np.array([1, 9]))
    with pytest.raises(tn.DTypeError, match="fast"):
        tn.fuse(lambda x: x, fast=1)
    with pytest.raises(tn.DTypeError, match="function"):
        tn.fuse(3)
    with pytest.raises(tn.DTypeError, match="no argument|unexpected|array"):
        tn.fuse(lambda x: tn.sum(x, axes=1))(normal(3))


def test_empty_and_single():
    for shape in ((), (0,), (1,), (0, 5), (1, 1)):
        x = normal(*shape)
        assert bits(tn.fuse(lambda v: (v * 2 + 1).exp() / 3)(x)) == bits((tn.asarray(x) * 2 + 1).exp() / 3)
    x = normal(3, 0)
    assert bits(tn.fuse(lambda v: v - v.sum(-1, keepdim=True))(x)) == bits(tn.asarray(x))
    assert bits(tn.fuse(lambda v: (v + 1).sum(-1))(x)) == bits(np.zeros(3, np.float32))


def test_modes_hold_where_they_are():
    x, w = normal(4, 64), normal(64, 8)
    product = tn.fuse(lambda x, w: (x @ w) * 2)
    with tn.batch_invariant():
        assert bits(product(x, w)) == bits((tn.asarray(x) @ tn.asarray(w)) * 2)
    assert bits(product(x, w)) == bits((tn.asarray(x) @ tn.asarray(w)) * 2)

    @tn.fuse
    def inside(x, w):
        with tn.batch_invariant():
            y = x @ w
        return y * 2

    assert "batch_invariant" in inside.why_not(x, w)
    assert bits(inside(x, w)) == bits(inside._fn(tn.asarray(x), tn.asarray(w)))


def test_functions_may_stand_in_each_other():
    inner = tn.fuse(softmax)
    same(lambda x: inner(x * 2) + 1, normal(6, 9))
    assert len(tn.explain(inner, normal(6, 9)).steps) == len(tn.explain(softmax, normal(6, 9)).steps)
    x = normal(3)
    assert bits(tn.fuse(lambda x, s: x * s)(x, np.float32(2.5))) == bits(tn.asarray(x) * np.float32(2.5))


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


def test_whole_arrays_that_are_read_are_not_frozen():
    class Table:
        values = tn.asarray(np.ones(4, np.float32))

    for read in (lambda t: t.numpy()[0], lambda t: np.asarray(t).sum() / 4, lambda t: t.tolist()[0], lambda t: np.from_dlpack(t)[0]):
        fused, x = tn.fuse(lambda x: x * float(read(Table.values)) + 1), normal(3, 4)
        for value in (1.0, 2.0, 3.0):
            Table.values.fill_(value)
            assert bits(fused(x)) == bits(tn.asarray(x) * value + 1)
        assert "holds an array" in fused.why_not(x)


def test_creation_inside():
    fused = same(lambda x: tn.where(x > 0, x, tn.zeros_like(x)) + tn.full((1,), 2.0), normal(5, 6))
    assert fused.why_not(normal(5, 6)) is None


def test_many_threads_share_a_function():
    fused, x = tn.fuse(softmax), [normal(n, 50 + n) for n in range(1, 9)]
    want = [bits(softmax(tn.asarray(v))) for v in x]
    wrong = []

    def run(k):
        for i in range(40):
            if bits(fused(x[(i + k) % 8])) != want[(i + k) % 8]:
                wrong.append((k, i))

    threads = [threading.Thread(target=run, args=(k,)) for k in range(6)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert not wrong


def test_thread_counts_give_the_same_bits():
    before = tn.get_num_threads()
    fused, x = tn.fuse(softmax), normal(70, 9000)
    try:
        got = []
        for n in (1, 2, 5):
            tn.set_num_threads(n)
            got.append(bits(tn.fuse(softmax)(x)))
            got.append(bits(fused(x)))
    finally:
        tn.set_num_threads(before)
    assert len(set(got)) == 1


def test_it_can_be_switched_off():
    code = "import tenor as tn, numpy as np; f = tn.fuse(lambda x: (x * 2 + 1).tanh()); x = np.ones((3, 4), np.float32)\nprint(f.why_not(x), f.kernels(x), f(x).shape)"
    out = subprocess.run([sys.executable, "-c", code], env={**os.environ, "TENOR_FUSE": "0"}, capture_output=True, text=True)
    assert out.stdout.strip() == "TENOR_FUSE=0 is set 0 (3, 4)", out.stderr


def test_a_decorator_keeps_what_it_decorates():
    @tn.fuse
    def scale(x, by=2):
        """x times by."""
        return x * by

    assert scale.__doc__ == "x times by." and scale.__name__ == "scale"
    assert bits(tn.fuse(fast=False)(lambda x: x + 1)(np.ones(2, np.float32))) == bits(np.full(2, 2, np.float32))


def test_torch_in_torch_out():
    torch = pytest.importorskip("torch")
    x = torch.randn(5, 7)
    fused = tn.fuse(softmax)
    got = fused(x)
    assert isinstance(got, torch.Tensor) and bits(got.numpy()) == bits(softmax(tn.asarray(x.numpy())))


def test_functions_of_writes_alone_return_none():
    @tn.fuse
    def step(x, g):
        x.sub_(g * 0.5)
        x.mul_(2)

    for wrap in (np.array, tn.asarray):  # Tensors take the shorter way
        x, g = wrap(normal(4, 5)), wrap(normal(4, 5))
        want = tn.asarray(np.array(x if wrap is np.array else x.numpy()))
        assert step.why_not(x, g) is None
        for _ in range(3):
            assert step(x, g) is None
            step._fn(want, tn.asarray(g))
            assert bits(x) == bits(want)
    assert tn.fuse(lambda x: None)(normal(3)) is None
    empty = tn.fuse(lambda x: [])
    assert empty(normal(3)) == [] and empty(tn.ones(3)) == [] and empty(tn.ones(3)) == []


def test_arrays_in_objects_are_not_frozen_at_the_trace():
    class Layer:
        def __init__(self):
            self.steps, self.scale = tn.zeros((1,)), tn.ones((2,))

        @tn.fuse
        def forward(self, x):
            self.steps.add_(1)
            return x * 2

        @tn.fuse
        def scaled(self, x):
            return x * float(self.scale[0])

        @tn.fuse
        def whole(self, x):
            return x * self.steps.item()

        @tn.fuse
        def held(self, x):
            return x + 1, self.scale

    layer, x = Layer(), normal(3, 4)
    assert "holds an array of its own" in Layer.forward.why_not(layer, x)
    for i in range(1, 4):
        assert bits(layer.forward(x)) == bits(x * 2) and float(layer.steps[0]) == i
        assert bits(layer.whole(x)) == bits(tn.asarray(x) * float(i))
        layer.scale.fill_(i)
        assert bits(layer.scaled(x)) == bits(tn.asarray(x) * float(i))
        assert bits(layer.held(x)[1]) == bits(layer.scale)


def test_interrupts_of_a_trace_go_on():
    kinds = iter((KeyboardInterrupt, SystemExit, MemoryError))

    @tn.fuse
    def fn(x):
        if kind := next(kinds, None):
            raise kind
        return (x + 1).tanh()

    x = normal(3, 4)
    for kind in (KeyboardInterrupt, SystemExit, MemoryError):
        with pytest.raises(kind):
            fn(x)
    assert fn.why_not(x) is None and fn.kernels(x) == 1


def test_an_error_names_no_line_of_another():
    take = tn.fuse(lambda x, i: tn.index_select(x * 2, 0, i))
    take(normal(4, 3), np.array([1, 3]))
    table = next(iter(take._tables.values()))
    with pytest.raises(tn.IndexError):
        table.run([normal(4, 3), np.array([1, 9])])  # nobody asks where
    with pytest.raises(tn.DTypeError) as error:
        tn.fuse(lambda x: x * 2)(np.array(["text"]))
    assert "take = " not in str(error.value)
    with pytest.raises(tn.IndexError, match="take = "):
        take(normal(4, 3), np.array([1, 9]))
    assert table.failed_at() == ""


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


def test_fast_lets_contractions_take_epilogues():
    x, w, b, r = normal(40, 64), normal(48, 64), normal(48), normal(40, 48)
    fn = lambda x, w, b, r: tn.gelu(tn.linear(x, w, b)) * 0.5 + r
    fused = tn.fuse(fn, fast=True)
    assert fused.why_not(x, w, b, r) is None and fused.kernels(x, w, b, r) == 1
    wide = fn(*(tn.asarray(a.astype(np.float64)) for a in (x, w, b, r))).numpy()
    assert np.abs(fused(x, w, b, r) - wide).max() < 1e-4
    explained = tn.explain(fused, x, w, b, r)
    assert len(explained.kernels) == 1 and "epilogue" in explained.kernels[0].strategy and not explained.intermediates
    assert len(tn.explain(tn.fuse(fn), x, w, b, r).kernels) == 2

    @tn.fuse(fast=True)
    def declined(x, w):
        return tn.softmax(tn.linear(x, w).exp())
    cuts = tn.explain(declined, x, w).cuts
    assert "exp is no epilogue step" in cuts[0].reason
    assert bits(declined(x, w)) == bits(tn.softmax(tn.linear(tn.asarray(x), tn.asarray(w)).exp()))


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
