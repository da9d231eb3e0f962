"""tenor.fuse: in-place writes, aliases, and arrays that a function captures, holds or reads."""
import numpy as np
import pytest

import tenor as tn
from fused_calls import bits, normal


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


def test_whole_arrays_that_are_read_are_not_frozen():
    class Table:
        values = tn.asarray(np.ones(4, np.float32))

    for read in (lambda t: t.numpy()[0], lambda t: np.asarray(t).sum() / 4, lambda t: t.tolist()[0], lambda t: np.from_dlpack(t)[0]):
        fused, x = tn.fuse(lambda x: x * float(read(Table.values)) + 1), normal(3, 4)
        for value in (1.0, 2.0, 3.0):
            Table.values.fill_(value)
            assert bits(fused(x)) == bits(tn.asarray(x) * value + 1)
        assert "holds an array" in fused.why_not(x)


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


def test_arrays_in_results_that_are_objects():
    class Holder:
        def __init__(self, y):
            self.y = y

    def generate(x):
        yield x * 2

    x = normal(3, 4)
    want = bits(tn.asarray(x) * 2)
    for read, fn in ((lambda r: r.y, lambda x: Holder(x * 2)), (next, generate), (lambda r: r["a"][0].y, lambda x: {"a": [Holder(x * 2)]})):
        fused = tn.fuse(fn)
        assert bits(read(fused(x))) == want and bits(read(fused(x))) == want
        assert "whose contents are not known" in fused.why_not(x)
    plain = tn.fuse(lambda x: (x * 2 + 1, x.dtype, x.shape, "text", 1.5, range(3), int))
    assert plain.why_not(x) is None and plain(x)[1:] == (tn.float32, (3, 4), "text", 1.5, range(3), int)
