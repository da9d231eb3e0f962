"""Creation, asarray, pad, tril and triu from Python."""
import numpy as np
import pytest

import tenor as tn


def check(got, want, dtype):
    got = got.numpy() if isinstance(got, tn.Tensor) else got
    assert got.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(got, np.asarray(want))


def test_sizes_are_arguments_or_a_tuple():
    for size in ((2, 3), ((2, 3),), ([2, 3],)):
        check(tn.zeros(*size), np.zeros((2, 3)), "float32")
        check(tn.ones(*size, dtype=tn.int8), np.ones((2, 3)), "int8")
        assert tn.empty(*size, dtype="float16").shape == (2, 3)
    assert tn.zeros(()).shape == () and tn.zeros(0).shape == (0,)


def test_dtypes_follow_the_values():
    check(tn.full((2,), 3), [3, 3], "int64")
    check(tn.full((2,), 3.5), [3.5, 3.5], "float32")
    check(tn.full((), True), True, "bool")
    check(tn.arange(4), [0, 1, 2, 3], "int64")
    check(tn.arange(4, 0, -2), [4, 2], "int64")
    check(tn.arange(0, 1, 0.25), [0, 0.25, 0.5, 0.75], "float32")
    check(tn.arange(3, dtype="float64"), [0, 1, 2], "float64")
    check(tn.linspace(0, 1, 3), [0, 0.5, 1], "float32")
    check(tn.eye(2, 3, dtype=bool), [[1, 0, 0], [0, 1, 0]], "bool")


def test_like_keeps_kind_dtype_and_order():
    x = np.asfortranarray(np.zeros((3, 2), "int16"))
    for y in (tn.zeros_like(x), tn.ones_like(x), tn.full_like(x, 7), tn.empty_like(x)):
        assert isinstance(y, np.ndarray) and y.dtype == np.int16 and y.strides == x.strides
    check(tn.ones_like(x, dtype="float32"), np.ones((3, 2)), "float32")
    t = tn.asarray(x)
    check(t.new_zeros(2), [0, 0], "int16")
    check(t.new_ones((1, 2), dtype="bool"), [[1, 1]], "bool")
    check(t.new_full((2,), 5), [5, 5], "int16")
    assert t.new_empty(4, 5).shape == (4, 5)


def test_asarray():
    check(tn.asarray([[1, 2], [3, 4]]), [[1, 2], [3, 4]], "int64")
    check(tn.asarray([1, 2.5]), [1, 2.5], "float32")
    check(tn.asarray([True, False]), [1, 0], "bool")
    check(tn.asarray([]), [], "float32")
    check(tn.asarray(0.1, dtype="float64"), 0.1, "float64")
    check(tn.asarray([0.1], dtype=np.float64), [0.1], "float64")
    check(tn.asarray([tn.asarray(1), tn.asarray(2)]), [1, 2], "int64")
    x = np.arange(3)
    assert np.shares_memory(tn.asarray(x).numpy(), x) and not np.shares_memory(tn.asarray(x, dtype="int32").numpy(), x)
    with pytest.raises(tn.ShapeError):
        tn.asarray([[1], [2, 3]])
    with pytest.raises(tn.ValueError, match="300"):
        tn.asarray([1, 300], dtype="uint8")
    with pytest.raises(tn.DTypeError):
        tn.asarray("text")
    with pytest.raises(tn.DeviceError):
        tn.asarray([1], device="cuda")


@pytest.mark.parametrize("mode, numpy_mode", [("constant", "constant"), ("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")])
def test_pad_counts_from_the_last_dim(mode, numpy_mode):
    x = np.arange(24.0).reshape(2, 3, 4)
    check(tn.pad(x, (1, 2, 2, 0), mode=mode), np.pad(x, [(0, 0), (2, 0), (1, 2)], mode=numpy_mode), "float64")
    check(tn.pad(x.transpose(2, 0, 1), (1, 1), mode), np.pad(x.transpose(2, 0, 1), [(0, 0), (0, 0), (1, 1)], mode=numpy_mode), "float64")


def test_pad_cuts_and_fills():
    check(tn.pad(np.arange(5), (-1, 2), value=9), [1, 2, 3, 4, 9, 9], "int64")
    check(tn.pad(np.zeros((0, 2)), (0, 0, 1, 1), value=3), [[3, 3], [3, 3]], "float64")
    with pytest.raises(tn.ValueError, match="mode"):
        tn.pad(np.arange(5), (1, 1), "wrap")
    with pytest.raises(tn.ShapeError, match="reflect"):
        tn.pad(np.arange(2), (2, 0), "reflect")
    with pytest.raises(tn.ValueError, match="value"):
        tn.pad(np.int8([1]), (1, 1), value=1000)


def test_triangles():
    x = np.arange(1, 13).reshape(3, 4)
    for k in range(-4, 5):
        check(tn.tril(x, k), np.tril(x, k), "int64")
        check(tn.triu(x.T, diagonal=k), np.triu(x.T, k), "int64")


def test_errors():
    for call, error in [(lambda: tn.zeros(-1), tn.ShapeError), (lambda: tn.zeros(2, device="cuda"), tn.DeviceError), (lambda: tn.zeros(1.5), tn.DTypeError),
                        (lambda: tn.full((1,), 256, dtype="uint8"), tn.ValueError), (lambda: tn.arange(0, 3, 0), tn.ValueError),
                        (lambda: tn.arange(0, 3, -1), tn.ValueError), (lambda: tn.linspace(0, 1, -2), tn.ValueError), (lambda: tn.eye(-1), tn.ShapeError),
                        (lambda: tn.tril(np.arange(3)), tn.ShapeError), (lambda: tn.zeros(2, dtype="complex64"), tn.DTypeError)]:
        with pytest.raises(error):
            call()


def test_asarray_keeps_integers_beyond_int64():
    wide = tn.asarray([1, 2**63])
    assert wide.dtype == tn.uint64 and wide.tolist() == [1, 2**63]
    assert tn.asarray([1.0, 2**63]).dtype == tn.float32
    with pytest.raises(tn.ValueError, match="18446744073709551616"):
        tn.asarray([1, 2**64])
    with pytest.raises(tn.ValueError, match="-1 and 9223372036854775808"):
        tn.asarray([-1, 2**63])


def test_an_integer_that_fits_no_dtype_is_named_with_its_argument():
    with pytest.raises(tn.ValueError, match="full: fill_value: the integer 1180591620717411303424"):
        tn.full((3,), 2**70, dtype="float32")
