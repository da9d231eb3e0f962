"""sort, argsort, topk, kthvalue, median, unique, searchsorted, bincount from Python."""
import numpy as np
import pytest

import tenor as tn

nan = np.nan


def check(got, want, dtype):
    assert isinstance(got, np.ndarray), "NumPy in, NumPy out"
    assert got.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(got, np.asarray(want))


@pytest.mark.parametrize("bits", [0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF])
def test_a_nan_of_any_sign_is_the_greatest(bits):
    x = np.float32([5, 0, -3, 4])
    x.view(np.uint32)[1] = bits
    values, indices = tn.sort(x)
    check(indices, [2, 3, 0, 1], "int64")
    assert values.view(np.uint32)[3] == bits
    check(tn.argsort(x, descending=True), [1, 0, 3, 2], "int64")
    check(tn.topk(x, 2).indices, [1, 0], "int64")
    check(tn.topk(x, 3, largest=False).values, [-3, 4, 5], "float32")
    check(tn.median(x, 0).indices, 1, "int64")
    check(tn.kthvalue(x, 3).values, 5, "float32")


def test_ties_come_in_index_order_in_both_directions():
    x = (np.arange(5000) % 7).astype(np.int16)
    for descending in (False, True):
        want = np.lexsort((np.arange(5000), -x.astype(int) if descending else x.astype(int)))
        values, indices = tn.sort(x, descending=descending)
        check(indices, want, "int64")
        check(values, x[want], "int16")
        check(tn.topk(x, 40, largest=descending).indices, want[:40], "int64")
    check(tn.argsort(np.float32([0.0, -0.0, 0.0, -1])), [3, 0, 1, 2], "int64")
    check(tn.argsort(np.array([True, False, True]), descending=True, stable=False), [0, 2, 1], "int64")


def test_along_any_dim():
    x = np.random.default_rng(0).integers(0, 9, (4, 50, 3)).astype(np.float64)
    for dim in (0, 1, 2, -2):
        check(tn.sort(x, dim).indices, np.argsort(x, dim, kind="stable"), "int64")
        check(tn.sort(x.transpose(2, 0, 1), dim).values, np.sort(x.transpose(2, 0, 1), dim), "float64")
    assert tn.sort(np.float32(3)).values.shape == ()
    assert tn.sort(np.zeros((0, 3)), 0).indices.shape == (0, 3)


def test_named_results_methods_and_kinds():
    x = tn.from_dlpack(np.float32([3, 1, 2]))
    pair = x.sort()
    assert pair._fields == ("values", "indices") and isinstance(pair.values, tn.Tensor)
    assert x.argsort().tolist() == [1, 2, 0]
    assert x.topk(2).values.tolist() == [3.0, 2.0]
    assert x.kthvalue(1, keepdim=True).values.tolist() == [1.0]
    assert x.median().item() == 2.0
    assert x.unique().tolist() == [1.0, 2.0, 3.0]


def test_topk_writes_out_with_a_step():
    values, indices = np.full(9, nan, np.float32), np.full(9, -1)
    got = tn.topk(np.float32([2, 9, 4, 7]), 3, out=(values[::3], indices[::3]))
    assert got.values.base is values
    check(values, [9, nan, nan, 7, nan, nan, 4, nan, nan], "float32")
    check(indices, [1, -1, -1, 3, -1, -1, 2, -1, -1], "int64")
    x = np.float32([3, 1, 2])
    tn.sort(x, out=(x, np.zeros(3, np.int64)))
    check(x, [1, 2, 3], "float32")


def test_median_is_the_lower_one():
    check(tn.median(np.float32([[4, 1], [3, 2]])), 2, "float32")
    values, indices = tn.median(np.int32([[5, 1, 4, 2], [9, 9, 9, 9]]), 1)
    check(values, [2, 9], "int32")
    check(indices, [3, 1], "int64")
    assert tn.median(np.zeros((2, 3)), 1, keepdim=True).indices.shape == (2, 1)
    out = np.zeros((), np.float32)
    assert tn.median(np.float32([7, nan]), out=out) is out and np.isnan(out)


def test_unique():
    x = np.array([[3, 1], [3, -2]])
    check(tn.unique(x), [-2, 1, 3], "int64")
    values, inverse, counts = tn.unique(x, return_inverse=True, return_counts=True)
    check(inverse, [[2, 1], [2, 0]], "int64")
    check(counts, [1, 1, 2], "int64")
    assert tn.unique(x, return_counts=True)._fields == ("values", "counts")
    check(tn.unique(np.float32([nan, 1, nan])), [1, nan, nan], "float32")
    assert np.signbit(tn.unique(np.float32([-0.0, 0.0]))[0])
    rows = tn.unique(np.array([[1, 2], [0, 3], [1, 2]]), return_inverse=True, dim=0)
    check(rows.values, [[0, 3], [1, 2]], "int64")
    check(rows.inverse_indices, [1, 0, 1], "int64")
    check(tn.unique(np.array([[2, 1, 2]]), dim=1), [[1, 2]], "int64")


def test_searchsorted():
    s = np.float32([1, 3, 3, 5])
    check(tn.searchsorted(s, np.float32([[0, 3], [4, nan]])), [[0, 1], [3, 4]], "int64")
    check(tn.searchsorted(s, np.float32([3, 5]), right=True), [3, 4], "int64")
    check(tn.searchsorted(s, 3), 1, "int64")
    check(tn.searchsorted(s, 3.5), 3, "int64")
    check(tn.searchsorted(np.array([1, 2, 4]), 2.5), 2, "int64")
    check(tn.searchsorted(np.array([[1, 3], [2, 4]]), np.array([[3], [3]])), [[1], [1]], "int64")
    check(tn.searchsorted(np.float32([1, nan]), np.float32([nan]), right=True), [2], "int64")


def test_bincount():
    x = np.array([1, 1, 4], np.uint8)
    check(tn.bincount(x), [0, 2, 0, 0, 1], "int64")
    check(tn.bincount(x, minlength=7), [0, 2, 0, 0, 1, 0, 0], "int64")
    check(tn.bincount(x, np.float32([.5, 1, 2])), [0, 1.5, 0, 0, 2], "float32")
    check(tn.bincount(x, np.array([1, 2, 3])), [0, 3, 0, 0, 3], "float64")
    check(tn.bincount(np.zeros(0, np.int64)), [], "int64")


@pytest.mark.parametrize("error, words, call", [
    (tn.ValueError, ("topk", "k", "5", "4"), lambda x: tn.topk(x, 5)),
    (tn.ValueError, ("kthvalue", "k", "0"), lambda x: tn.kthvalue(x, 0)),
    (tn.IndexError, ("sort", "dim", "1"), lambda x: tn.sort(x, 1)),
    (tn.ShapeError, ("median", "empty"), lambda x: tn.median(x.reshape(4, 1)[:, :0], 1)),
    (tn.ShapeError, ("searchsorted", "sorted_sequence"), lambda x: tn.searchsorted(x.reshape(2, 2), x)),
    (tn.ShapeError, ("topk", "out", "(2,)", "(3,)"), lambda x: tn.topk(x, 2, out=(x[:3], np.zeros(3, np.int64)))),
    (tn.DTypeError, ("sort", "out", "int64", "int32"), lambda x: tn.sort(x, out=(x, np.zeros(4, np.int32)))),
    (tn.ValueError, ("sort", "out"), lambda x: tn.sort(x, out=x)),
    (tn.ValueError, ("bincount", "-1"), lambda x: tn.bincount(np.array([-1]))),
    (tn.DTypeError, ("bincount", "float32"), lambda x: tn.bincount(x)),
])
def test_errors(error, words, call):
    x = np.float32([4, 2, 1, 3])
    with pytest.raises(error) as caught:
        call(x)
    for word in words:
        assert word in str(caught.value)
    assert x.tolist() == [4, 2, 1, 3]


@pytest.mark.parametrize("call", [
    lambda x, out: tn.sort(x, out=out), lambda x, out: tn.topk(x, 4, out=out), lambda x, out: tn.cummax(x, 0, out=out),
    lambda x, out: tn.kthvalue(np.stack([x] * 4), 1, out=out), lambda x, out: tn.median(np.stack([x] * 4), 1, out=out),
    lambda x, out: tn.max(np.stack([x] * 4), 1, out=out)])
def test_results_must_not_overlap_partly(call):
    buffer = np.arange(8)
    with pytest.raises(tn.ValueError, match="share memory"):
        call(np.array([3, 1, 2, 0]), (buffer[:4], buffer[2:6]))
    assert buffer.tolist() == list(range(8))
    call(np.array([3, 1, 2, 0]), (buffer[:4], buffer[4:]))


def test_named_results_can_be_pickled_and_copied():
    import copy
    import pickle

    x = tn.asarray([[3.0, 1.0, 2.0]])
    for result in (tn.sort(x), tn.max(x, 1), tn.unique(x, return_counts=True), tn.cummax(x, 1)):
        for again in (pickle.loads(pickle.dumps(result)), copy.copy(result), copy.deepcopy(result)):
            assert type(again) is type(result) and again._fields == result._fields
            assert [a.tolist() for a in again] == [a.tolist() for a in result]
