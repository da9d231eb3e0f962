"""Reductions from Python: values, dtypes, named tuples, out=, kinds of arrays, error classes."""
import math

import ml_dtypes
import numpy as np
import pytest

import tenor

nan, inf = math.nan, math.inf


def f32(*values):
    return np.float32(values)


def test_numpy_in_numpy_out_and_methods():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert isinstance(tenor.sum(x, 0), np.ndarray)
    np.testing.assert_array_equal(tenor.sum(x, (0, 1), keepdim=True), [[66]])
    np.testing.assert_array_equal(tenor.mean(x, dim=-1), [1.5, 5.5, 9.5])
    t = tenor.from_dlpack(x)
    assert isinstance(t.sum(0), tenor.Tensor) and t.sum().item() == 66
    assert t.amax(1).tolist() == [3, 7, 11] and t.argmin().item() == 0 and t.std(0).tolist() == [4, 4, 4, 4]
    np.testing.assert_array_equal(tenor.sum(x.T, 0), x.sum(1))


def test_dtypes_of_totals():
    assert tenor.sum(np.uint8([200, 100])).dtype == np.uint64
    assert tenor.sum(np.array([True, True])) == 2
    assert tenor.sum(np.int8([127, 127]), dtype=tenor.int8) == -2
    assert tenor.prod(np.int8([[50, 50], [-1, 5]]), 1).tolist() == [2500, -5]
    assert tenor.mean(np.int32([1, 2])).dtype == np.float32
    assert tenor.mean(np.int64([1, 2, 2]), dtype="float64") == 5 / 3
    half = np.full(4, 40000, np.float16)
    assert tenor.sum(half) == inf and tenor.mean(half) == 40000 and tenor.sum(half, dtype=np.float32) == 160000
    ones = np.ones(512, ml_dtypes.bfloat16)
    assert tenor.sum(ones) == 512 and tenor.sum(ones).dtype == ml_dtypes.bfloat16


def test_extremes_give_named_tuples():
    x = np.float32([[3, nan, 1, nan], [2, 1, 0, 0]])
    low = tenor.min(x, 1)
    assert type(low).__name__ == "min" and low._fields == ("values", "indices")
    np.testing.assert_array_equal(low.values, f32(nan, 0))
    assert low.indices.tolist() == [1, 2] and low.indices.dtype == np.int64
    values, indices = tenor.max(x, dim=0, keepdim=True)
    assert values.shape == indices.shape == (1, 4)
    assert math.isnan(tenor.max(x)) and tenor.argmax(x) == 1 and tenor.argmax(np.ones(50)) == 0


def test_max_of_two_arrays_is_elementwise():
    x, y = f32(1, nan, 3), f32(2, 0, 1)
    np.testing.assert_array_equal(tenor.max(x, y), [2, nan, 3])
    assert tenor.from_dlpack(x).min(tenor.from_dlpack(y)).tolist()[::2] == [1, 1]
    with pytest.raises(tenor.ValueError, match="max: keepdim needs a dim"):
        tenor.max(x, y, keepdim=True)
    with pytest.raises(tenor.ValueError, match="min: dim must be one int"):
        tenor.min(x, (0,))


@pytest.mark.parametrize("n", [1, 5, 32, 33, 1000, 4097])
def test_a_nan_is_found_wherever_it_stands(n):
    for at in {0, n // 2, n - 1}:
        x = np.arange(n, dtype=np.float32)
        x[at] = nan
        assert all(math.isnan(f(x)) for f in (tenor.max, tenor.min, tenor.amax, tenor.amin, tenor.sum, tenor.logsumexp))
        assert tenor.argmax(x) == at and tenor.argmin(x) == at


def test_moments():
    for mean in (1e4, 1e7):
        x = np.float32(mean + np.arange(3))
        assert abs(tenor.var(x, correction=0) - 2 / 3) < 1e-6
    assert math.isnan(tenor.var(f32(5))) and math.isnan(tenor.std(f32(5), correction=2))
    assert abs(tenor.var(np.int32([[1, 3], [2, 8]]), (0, 1), keepdim=True)[0, 0] - 29 / 3) < 1e-5
    assert tenor.var(np.float16([60000, 59968]), correction=0) == 256


def test_norms():
    x = f32(3, -4, 0)
    assert tenor.norm(x) == 5 and tenor.norm(x, 1) == 7 and tenor.norm(x, 0) == 2 and tenor.norm(x, "fro") == 5
    assert tenor.norm(x, inf) == 4 and tenor.norm(x, -inf) == 0 and abs(tenor.norm(x, 3) - 91 ** (1 / 3)) < 1e-6
    assert tenor.norm(np.float16([300, 400])) == 500 and tenor.norm(np.int32([3, 4]), dtype="float64").dtype == np.float64


def test_logsumexp_of_infinities():
    x = f32([-inf, -inf], [inf, 0], [1000, 1000], [-inf, 0], [nan, -inf])
    np.testing.assert_allclose(tenor.logsumexp(x, 1), [-inf, inf, 1000 + math.log(2), 0, nan], rtol=1e-6)


def test_empty_axes():
    e = np.zeros((0, 3), np.float32)
    for fn, want in ((tenor.sum, 0), (tenor.prod, 1), (tenor.mean, nan), (tenor.logsumexp, -inf), (tenor.all, True), (tenor.any, False)):
        np.testing.assert_array_equal(fn(e, 0), np.full(3, want))
    for name in ("amax", "amin", "argmax", "argmin", "max", "min"):
        with pytest.raises(tenor.ShapeError, match=f"^{name}: dim 0 of x is empty"):
            getattr(tenor, name)(e, 0)
        assert np.shape(getattr(tenor, name)(e, 1)[0] if name in ("max", "min") else getattr(tenor, name)(e, 1)) == (0,)


def test_no_dims_reduce_nothing():
    x = f32(1, -2)
    np.testing.assert_array_equal(tenor.sum(x, ()), x)
    assert tenor.sum(np.float32(3), 0) == 3 and tenor.any(x, ()).tolist() == [True, True]


def test_out():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = np.full(6, nan, np.float32)
    assert tenor.sum(x, 0, out=out[::2]) is not None
    np.testing.assert_array_equal(out, [3, nan, 5, nan, 7, nan])
    values, indices = np.zeros(2, np.float32), np.zeros(2, np.int64)
    result = tenor.max(x, 1, out=(values, indices))
    assert result.values is values and values.tolist() == [2, 5] and indices.tolist() == [2, 2]


def test_errors():
    x = f32(1, 2)
    with pytest.raises(tenor.IndexError, match="sum: dim 1 is out of range"):
        tenor.sum(x, 1)
    with pytest.raises(tenor.ValueError, match="mean: dim -1 is given twice"):
        tenor.mean(x, (0, -1))
    with pytest.raises(tenor.DTypeError, match="mean: dtype must be"):
        tenor.mean(x, dtype="int32")
    with pytest.raises(tenor.DTypeError, match="sum: out must be float32, got int64"):
        tenor.sum(x, out=np.zeros((), np.int64))
    with pytest.raises(tenor.ValueError, match="norm: p must be"):
        tenor.norm(x, "nuc")
    with pytest.raises(tenor.DTypeError, match="sum: x must be an array"):
        tenor.sum([1, 2])
    with pytest.raises(tenor.ValueError, match="max: out= must be a tuple of 2"):
        tenor.max(x, 0, out=x)
