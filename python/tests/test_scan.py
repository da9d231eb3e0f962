"""Scans from Python: values, dtypes, named tuples, out=, error classes."""
import math

import ml_dtypes
import numpy as np
import pytest

import tenor

nan, inf = math.nan, math.inf


def test_sums_and_products_along_any_dim():
    x = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    assert isinstance(tenor.cumsum(x, 0), np.ndarray)
    for dim in (0, 1, -1):
        np.testing.assert_array_equal(tenor.cumsum(x, dim), np.cumsum(x, dim))
        np.testing.assert_array_equal(tenor.cumprod(x.T, dim), np.cumprod(x.T, dim))
    assert tenor.from_dlpack(x).cumsum(1).tolist() == [[1, 3, 6], [4, 9, 15]]


def test_dtypes():
    assert tenor.cumsum(np.int8([100, 100, 50]), 0).tolist() == [100, 200, 250]
    assert tenor.cumsum(np.uint8([200, 100]), 0).dtype == np.uint64 and tenor.cumprod(np.array([True]), 0).dtype == np.int64
    assert tenor.cumsum(np.int32([1, 2]), 0, dtype="float32").dtype == np.float32
    ones = np.ones(512, ml_dtypes.bfloat16)
    assert [float(v) for v in tenor.cumsum(ones, 0)[[0, 255, 511]]] == [1, 256, 512]
    assert abs(tenor.cumsum(np.full(10**6, 0.1, np.float32), 0)[-1] - 1e5) < 10


def test_running_extremes():
    high = tenor.cummax(np.float32([1, 3, nan, 5, 3]), 0)
    assert high._fields == ("values", "indices") and high.indices.tolist() == [0, 1, 2, 2, 2]
    np.testing.assert_array_equal(high.values, [1, 3, nan, nan, nan])
    low = tenor.cummin(np.int32([[2, 2], [2, 1], [0, 1]]), 0)
    assert low.values.tolist() == [[2, 2], [2, 1], [0, 1]] and low.indices.tolist() == [[0, 0], [0, 1], [2, 1]]


def test_logs_of_sums():
    np.testing.assert_allclose(tenor.logcumsumexp(np.float32([-inf, 0, 0, 1000]), 0), [-inf, 0, math.log(2), 1000], rtol=1e-6)
    np.testing.assert_array_equal(tenor.logcumsumexp(np.float32([inf, -inf, nan]), 0), [inf, inf, nan])


def test_out_and_in_place():
    x = np.float32([1, 2, 3])
    assert tenor.cumsum(x, 0, out=x) is x and x.tolist() == [1, 3, 6]
    values, indices = np.zeros(3, np.float32), np.zeros(3, np.int64)
    assert tenor.cummax(x, 0, out=(values, indices)).indices is indices and indices.tolist() == [0, 1, 2]


def test_errors():
    x = np.float32([1])
    with pytest.raises(tenor.IndexError, match="cumsum: dim 1 is out of range"):
        tenor.cumsum(x, 1)
    with pytest.raises(tenor.DTypeError, match="logcumsumexp: x must be float16"):
        tenor.logcumsumexp(np.int32([1]), 0)
    with pytest.raises(tenor.ShapeError, match=r"cumprod: out must have shape \(1,\), got \(2,\)"):
        tenor.cumprod(x, 0, out=np.zeros(2, np.float32))
