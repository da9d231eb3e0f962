"""Pooling from Python."""
import numpy as np
import pytest

import tenor as tn

INF, NAN = np.inf, np.nan


def row(*values, dtype=np.float32):
    return np.array(values, dtype).reshape(1, 1, -1)


def test_max_pool_returns_values_or_the_pair():
    x = np.float32([[[[1, 9, 2, 8], [3, 7, 4, 6]]]])
    y = tn.max_pool2d(x, 2)
    assert isinstance(y, np.ndarray)
    np.testing.assert_array_equal(y, [[[[9, 8]]]])
    both = tn.max_pool2d(x, 2, return_indices=True)
    assert both._fields == ("values", "indices") and both.indices.dtype == np.int64
    np.testing.assert_array_equal(both.indices, [[[[1, 3]]]])
    out = np.zeros((1, 1, 1, 2), np.float32), np.zeros((1, 1, 1, 2), np.int64)
    given = tn.max_pool2d(x, 2, return_indices=True, out=out)
    assert given.values is out[0] and given.indices is out[1]
    np.testing.assert_array_equal(out[1], both.indices)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_max_pool_keeps_integers(dtype):
    info = np.iinfo(dtype)
    x = row(info.min, info.max, info.min, info.min, dtype=dtype)
    y, at = tn.max_pool1d(x, 2, return_indices=True)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, row(info.max, info.min, dtype=dtype))
    np.testing.assert_array_equal(at, [[[1, 2]]])
    np.testing.assert_array_equal(tn.max_pool1d(row(3, dtype=dtype), 2, 1, 1, 2), row(info.min, dtype=dtype))  # padding alone


def test_the_first_nan_and_the_first_of_equals_are_named():
    _, at = tn.max_pool1d(row(1, NAN, 5, 6, NAN, NAN), 3, return_indices=True)
    np.testing.assert_array_equal(at, [[[1, 4]]])
    _, at = tn.max_pool1d(row(-INF, -INF, 2, 2), 2, return_indices=True)
    np.testing.assert_array_equal(at, [[[0, 2]]])


def test_averages_count_what_the_options_say():
    x = row(1, 2, 3, 4, 5)
    np.testing.assert_array_equal(tn.avg_pool1d(x, 2, 2, 1, True), row(0.5, 2.5, 4.5))
    np.testing.assert_array_equal(tn.avg_pool1d(x, 2, 2, 1, True, False), row(1, 2.5, 4.5))
    np.testing.assert_array_equal(tn.avg_pool1d(x, 2, divisor_override=-1), row(-3, -7))
    np.testing.assert_array_equal(tn.avg_pool1d(x, 3, 2, ceil_mode=True), row(2, 4))
    np.testing.assert_array_equal(tn.avg_pool1d(x, 2, 2, ceil_mode=True), row(1.5, 3.5, 5))  # what reaches past the end never counts


def test_adaptive_sizes_may_be_none():
    x = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    assert tn.adaptive_avg_pool2d(x, (None, 1)).shape == (1, 3, 1)
    assert tn.adaptive_avg_pool2d(x, None).shape == x.shape
    assert tn.adaptive_max_pool2d(x, 2).shape == (1, 2, 2)
    np.testing.assert_array_equal(tn.adaptive_avg_pool2d(x, (None, None)), x)


def test_norms_of_large_and_small_numbers():
    for scale in (1e30, 1e-30, 1):
        np.testing.assert_allclose(tn.lp_pool1d(row(-3 * scale, 4 * scale), 2, 2), row(5 * scale), rtol=1e-6)
        np.testing.assert_allclose(tn.lp_pool1d(row(-3 * scale, 4 * scale), INF, 2), row(4 * scale), rtol=1e-6)
    np.testing.assert_array_equal(tn.lp_pool1d_backward(row(5), row(0, 0), 2, 2), row(0, 0))


def test_gradients_of_any_indices():
    g, at = row(1, 2, 4), np.int64([[[3, -1, 3]]])
    np.testing.assert_array_equal(tn.max_pool1d_backward(g, at, (1, 1, 5)), row(0, 0, 0, 5, 0))
    out = np.full((1, 1, 5), 7, np.float32)
    for bad in (5, -2, 2**40):
        at[0, 0, 1] = bad
        with pytest.raises(tn.IndexError, match=rf"max_pool1d_backward: indices holds {bad} at \(0, 0, 1\)"):
            tn.max_pool1d_backward(g, at, (1, 1, 5), out=out)
    assert (out == 7).all()
    with pytest.raises(tn.IndexError, match=str(2**64 - 1)):
        tn.max_pool1d_backward(g, np.full((1, 1, 3), 2**64 - 1, np.uint64), (1, 1, 5))


def test_errors_name_operator_and_argument():
    x = np.ones((1, 1, 4, 4), np.float32)
    for error, text, call in [
        (tn.ValueError, "max_pool2d: padding must be at most half", lambda: tn.max_pool2d(x, 2, padding=2)),
        (tn.ValueError, "max_pool2d: stride must be at least 1", lambda: tn.max_pool2d(x, 2, 0)),
        (tn.ValueError, "adaptive_max_pool2d: output_size must be at least 1", lambda: tn.adaptive_max_pool2d(x, (-1, None))),
        (tn.ValueError, "avg_pool2d: divisor_override must not be 0", lambda: tn.avg_pool2d(x, 2, divisor_override=0)),
        (tn.ValueError, "lp_pool2d: norm_type must be > 0", lambda: tn.lp_pool2d(x, NAN, 2)),
        (tn.ShapeError, "avg_pool3d: x must have 5 dims, or 4 without a batch", lambda: tn.avg_pool3d(x[0, 0], 2)),
        (tn.ShapeError, "max_pool2d: x has shape", lambda: tn.max_pool2d(x, 5)),
        (tn.DTypeError, "avg_pool2d: x must be float16", lambda: tn.avg_pool2d(x.astype(np.int32), 2)),
        (tn.DTypeError, "max_pool2d: x must be of integers", lambda: tn.max_pool2d(x > 0, 2)),
        (tn.ShapeError, r"max_pool2d: out\.indices must have shape", lambda: tn.max_pool2d(x, 2, return_indices=True, out=(x[..., :2, :2].copy(), x.astype(np.int64)))),
        (tn.ValueError, "max_pool2d: out= must hold 2 arrays", lambda: tn.max_pool2d(x, 2, return_indices=True, out=(x,))),
        (tn.ShapeError, "avg_pool2d_backward: grad_output must have shape", lambda: tn.avg_pool2d_backward(x, (1, 1, 4, 4), 2)),
    ]:
        with pytest.raises(error, match=text.replace("(", r"\(")):
            call()


def test_explain_counts_windows():
    e = tn.explain("F.max_pool2d(x, 3, stride=2, padding=1)", x="bf16[64,256,56,56]")
    step, = e.steps
    assert (step.op, step.shape, step.op_class) == ("max_pool2d", (64, 256, 28, 28), 3)
    assert e.bytes_needed == 2 * 64 * 256 * (56 * 56 + 28 * 28) and step.flops == 9 * 64 * 256 * 28 * 28
    e = tn.explain("adaptive_avg_pool2d(x, (1, 1)).flatten(1)", x="f32[8,32,7,7]")
    assert e.steps[0].flops == 8 * 32 * 49


def test_a_divisor_beyond_64_bits_is_refused():
    for divisor in (2**63, -2**70):
        with pytest.raises(ValueError, match="divisor_override must be within 64 bits"):
            tn.avg_pool1d(np.ones((1, 1, 4), np.float32), 2, divisor_override=divisor)
