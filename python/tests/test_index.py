"""Class 4 from Python: values, dtypes, kinds of arrays, out= and errors."""
import numpy as np
import pytest

import tenor as tn


def check(got, want, dtype):
    assert isinstance(got, np.ndarray), "NumPy in, NumPy out"
    assert got.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(got, np.asarray(want))


def test_duplicates_last_write_wins_and_sums_add_up():
    x, i, src = np.arange(1, 8, dtype="float32"), np.array([2, 2, 0, 2]), np.float32([1, 2, 4, 8])
    check(tn.scatter(x, 0, i, src), [4, 2, 8, 4, 5, 6, 7], "float32")
    check(tn.scatter_add(x, 0, i, src), [5, 2, 14, 4, 5, 6, 7], "float32")
    check(tn.scatter(x, 0, i, value=-1), [-1, 2, -1, 4, 5, 6, 7], "float32")
    check(tn.index_put(x, (i,), src), [4, 2, 8, 4, 5, 6, 7], "float32")
    check(tn.index_put(x, (i,), src, accumulate=True), [5, 2, 14, 4, 5, 6, 7], "float32")
    check(tn.index_add(x, 0, i, src, alpha=2), [9, 2, 25, 4, 5, 6, 7], "float32")
    check(x, np.arange(1, 8), "float32")


@pytest.mark.parametrize("reduce, include_self, want", [
    ("sum", True, [10, 2]), ("sum", False, [9, 2]), ("prod", True, [20, 2]), ("mean", True, [10 / 3, 2]), ("mean", False, [4.5, 2]),
    ("amax", True, [5, 2]), ("amin", True, [1, 2]), ("amin", False, [4, 2])])
def test_scatter_reduce(reduce, include_self, want):
    got = tn.scatter_reduce(np.float64([1, 2]), 0, np.array([0, 0]), np.float64([4, 5]), reduce, include_self=include_self)
    check(got, want, "float64")


def test_reads():
    x = np.arange(12, dtype="int16").reshape(3, 4)
    check(tn.index_select(x, 1, np.uint8([3, 0])), x[:, [3, 0]], "int16")
    check(tn.gather(x, 1, np.array([[-1], [0], [1]])), [[3], [4], [9]], "int16")
    check(tn.gather(x, 0, np.array([[2, 1]])), [[8, 5]], "int16")
    check(tn.take_along_dim(x, np.argsort(-x, 1), 1), x[:, ::-1], "int16")
    check(tn.embedding(np.array([[0, -1]]), x), [[x[0], x[2]]], "int16")


def test_masks():
    x = np.arange(6).reshape(2, 3).T
    mask = x > 2
    check(tn.masked_select(x, mask), x[mask], "int64")
    check(tn.masked_scatter(x, mask, np.array([7, 8, 9])), np.where(mask, [[0, 7], [0, 8], [0, 9]], x), "int64")
    check(tn.nonzero(x), np.argwhere(x), "int64")
    for got, want in zip(tn.nonzero(x, as_tuple=True), np.nonzero(x)):
        check(got, want, "int64")
    check(tn.nonzero(np.array(3), as_tuple=True)[0], [0], "int64")


def test_joins():
    a, b = np.int8([[1, 2]]), np.float16([[3, 4], [5, 6]])
    check(tn.cat([a, b]), [[1, 2], [3, 4], [5, 6]], "float16")
    check(tn.cat((a, a), dim=-1), [[1, 2, 1, 2]], "int8")
    check(tn.cat([np.int64([1]), np.zeros(0, "float32")]), [1], "float32")
    check(tn.stack([a[0], a[0] + 2], 1), [[1, 3], [2, 4]], "int8")
    check(tn.tile(a, (2, 1, 2)), np.tile(a, (2, 1, 2)), "int8")
    check(tn.repeat(a, 2, 3), np.tile(a, (2, 3)), "int8")
    check(tn.repeat_interleave(b, 2, 1), np.repeat(b, 2, 1), "float16")
    check(tn.repeat_interleave(b, [0, 3], dim=0), np.repeat(b, [0, 3], 0), "float16")
    check(tn.repeat_interleave(b, np.uint8([2])), np.repeat(b, 2), "float16")
    check(tn.roll(b, 1), np.roll(b, 1), "float16")
    check(tn.roll(b, (1, -1), (0, 1)), np.roll(b, (1, -1), (0, 1)), "float16")
    check(tn.flip(b, (0, 1)), b[::-1, ::-1], "float16")
    check(tn.one_hot(np.int32([1, 0])), [[0, 1], [1, 0]], "int64")
    check(tn.one_hot(np.int32([1]), 4), [[0, 1, 0, 0]], "int64")


def test_methods_and_in_place_forms_return_x():
    x = tn.asarray([[1.0, 2.0], [3.0, 4.0]])
    i = np.array([[0, 0]])
    assert x.scatter_(0, i, 9.0) is x and x.tolist() == [[9, 9], [3, 4]]
    assert x.scatter_add_(1, i, np.float32([[1, 1]])) is x and x.tolist() == [[11, 9], [3, 4]]
    assert x.index_add_(0, np.array([1]), np.float32([[1, 1]]), alpha=-1) is x and x.tolist() == [[11, 9], [2, 3]]
    assert x.index_put_((np.array([0]), np.array([1])), 0.0) is x and x.tolist() == [[11, 0], [2, 3]]
    assert x.scatter_reduce_(0, i, np.float32([[5, 5]]), "amax") is x and x.tolist() == [[11, 5], [2, 3]]
    assert x.masked_scatter_(np.array([[True, False], [True, False]]), np.float32([1, 2])) is x and x.tolist() == [[1, 5], [2, 3]]
    assert x.repeat(2, 1).shape == (4, 2) and x.tile(3).shape == (2, 6) and x.flip(0).tolist() == [[2, 3], [1, 5]]
    assert x.index_select(1, np.array([1])).tolist() == [[5], [3]]
    y = np.zeros(3, "float32")
    assert tn.scatter_(y, 0, np.array([1]), 2.0) is y and y.tolist() == [0, 2, 0]


def test_sixteen_bit_sums_are_kept_in_float32():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for dtype in (np.float16, ml_dtypes.bfloat16):
        ones, zero = np.ones((4096, 64), dtype), np.zeros((1, 64), dtype)
        index = np.zeros(4096, "int64")
        assert (tn.index_add(zero, 0, index, ones).astype("float32") == 4096).all()
        assert (tn.index_put(zero, (index,), ones, accumulate=True).astype("float32") == 4096).all()
        assert (tn.scatter_add(zero, 0, np.broadcast_to(index[:, None], (4096, 64)), ones).astype("float32") == 4096).all()
        assert (tn.scatter_add(zero.T.copy(), 1, np.zeros((64, 4096), "int64"), ones.T.copy()).astype("float32") == 4096).all()


def test_out():
    x, i = np.arange(6.0).reshape(3, 2), np.array([2, 0])
    out = np.full((2, 4), np.nan)[:, ::2]
    assert tn.index_select(x, 0, i, out=out) is out
    check(out, x[i], "float64")
    assert tn.cat([x, x], out=np.empty((6, 2))).shape == (6, 2)
    y = x.copy()
    tn.flip(y, (0,), out=y)
    check(y, x[::-1], "float64")
    with pytest.raises(tn.ShapeError, match="gather: out must have shape"):
        tn.gather(x, 0, np.array([[0, 0]]), out=np.empty((3, 2)))
    with pytest.raises(tn.DTypeError, match="stack: out"):
        tn.stack([x, x], out=np.empty((2, 3, 2), "float32"))


@pytest.mark.parametrize("call, error, words", [
    (lambda x, i: tn.index_select(x, 2, i), IndexError, ("index_select", "dim 2")),
    (lambda x, i: tn.index_select(x, 0, i + 3), IndexError, ("index_select", "(0,)", "3")),
    (lambda x, i: tn.gather(x, 0, i.astype("float32")), TypeError, ("gather", "index", "float32")),
    (lambda x, i: tn.gather(x, 0, i), ValueError, ("gather", "index", "(2,)")),
    (lambda x, i: tn.scatter(x, 0, i[None], np.zeros((1, 2), "int32")), TypeError, ("scatter", "src", "int32")),
    (lambda x, i: tn.scatter(x, 0, i[None]), ValueError, ("scatter", "src", "value")),
    (lambda x, i: tn.scatter_reduce(x, 0, i[None], 1.0, "max"), ValueError, ("scatter_reduce", "reduce", "max")),
    (lambda x, i: tn.index_put(x, (i, i, i), 1.0), IndexError, ("index_put", "3")),
    (lambda x, i: tn.index_put(x, i, 1.0), TypeError, ("index_put", "indices")),
    (lambda x, i: tn.masked_select(x, i), TypeError, ("masked_select", "mask")),
    (lambda x, i: tn.cat(x), TypeError, ("cat", "tensors")),
    (lambda x, i: tn.cat([x, i]), ValueError, ("cat", "tensors[1]")),
    (lambda x, i: tn.roll(x, (1, 2), (0,)), ValueError, ("roll", "shifts")),
    (lambda x, i: tn.flip(x, (0, 0)), ValueError, ("flip", "dims")),
    (lambda x, i: tn.one_hot(i - 1), IndexError, ("one_hot", "class", "-1")),
    (lambda x, i: tn.repeat(x, 2), ValueError, ("repeat", "sizes")),
    (lambda x, i: tn.repeat_interleave(x, -2), ValueError, ("repeat_interleave", "-2")),
])
def test_errors(call, error, words):
    with pytest.raises(error) as caught:
        call(np.zeros((2, 3), "float32"), np.array([0, 1]))
    assert isinstance(caught.value, tn.Error)
    for word in words:
        assert word in str(caught.value)


def test_no_option_is_ignored():
    x = tn.ones(2, 3)
    for call in (lambda: tn.flip(x, 0, dims=(1,)), lambda: tn.tile(x, 2, dims=(1,)), lambda: tn.repeat(x, 2, 2, sizes=(1, 1))):
        with pytest.raises(tn.DTypeError, match="both by position and by name"):
            call()
    with pytest.raises(tn.UnsupportedError, match="pow: a modulus"):
        pow(x, 2, 5)
