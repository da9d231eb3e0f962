"""Row operators that normalise, from Python."""
import ml_dtypes
import numpy as np
import pytest

import tenor as tn

INF, NAN = np.inf, np.nan
BF16 = np.dtype(ml_dtypes.bfloat16)


def ones(n, dtype=np.float32):
    return np.ones(n, dtype)


def test_layer_norm_keeps_its_variance_under_a_large_mean():
    x = np.float32([[50000, 50001, 50002, 50003], [-3, -2, -1, 0]])
    unit = np.array([-1.5, -0.5, 0.5, 1.5]) / np.sqrt(1.25 + 1e-5)
    y = tn.layer_norm(x, ones(4))
    assert isinstance(y, np.ndarray) and y.dtype == np.float32
    np.testing.assert_allclose(y, [unit, unit], rtol=1e-5)
    gamma, beta = np.float32([2, 0, 1, -1]), np.float32([0, 3, 0, 5])
    np.testing.assert_allclose(tn.layer_norm(x, gamma, beta), [unit * gamma + beta] * 2, rtol=1e-5)


def test_rms_norm_of_half_precision_accumulates_in_float32():
    y = tn.rms_norm(np.full((2, 1000), 400, np.float16), ones(1000))
    assert y.dtype == np.float16
    np.testing.assert_allclose(y, np.ones((2, 1000)), rtol=1e-3)
    x = np.ones(2048, BF16)
    x[5] = 128
    scale = np.sqrt((128 ** 2 + 2047) / 2048 + 1e-6)
    np.testing.assert_allclose(np.float64(tn.rms_norm(x, ones(2048))), np.float64(x) / scale, rtol=4e-3)
    small = tn.rms_norm(np.full((1, 4), 2e-4, np.float32), ones(4), 1e-6)  # epsilon is inside the root
    np.testing.assert_allclose(small, np.full((1, 4), 2e-4 / np.sqrt(4e-8 + 1e-6)), rtol=1e-6)
    np.testing.assert_array_equal(tn.rms_norm(small, np.zeros(4, np.float32), weight_offset=1.0), tn.rms_norm(small, ones(4)))


def test_add_rms_norm_normalises_the_sum_it_stores():
    x, residual = np.float16([[4096, 30]]), np.float16([[1, 2]])  # 4097 is no float16
    y, r = result = tn.add_rms_norm(x, residual, ones(2))
    assert result._fields == ("y", "new_residual")
    np.testing.assert_array_equal(r, np.float16([[4096, 32]]))
    np.testing.assert_array_equal(y, tn.rms_norm(r, ones(2)))
    np.testing.assert_array_equal(x, np.float16([[4096, 30]]))
    a, b = x.copy(), residual.copy()
    back = tn.add_rms_norm(a, b, ones(2), out=(a, b))
    assert back.y is a and back.new_residual is b
    np.testing.assert_array_equal(a, y)
    np.testing.assert_array_equal(b, r)
    fused = tn.add_layer_norm(x, residual, ones(2), beta=ones(2))
    np.testing.assert_array_equal(fused.y, tn.layer_norm(r, ones(2), ones(2)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, BF16])
def test_softmax_of_rows_without_a_distribution(dtype):
    x = np.array([[-INF] * 3, [-INF, 4, -INF], [1, INF, 1], [NAN, 0, -INF], [5, 5, -900]]).astype(dtype)
    want = np.array([[NAN] * 3, [0, 1, 0], [NAN] * 3, [NAN] * 3, [0.5, 0.5, 0]])
    for got in (tn.softmax(x), tn.softmax_last_axis(x), tn.softmax(np.ascontiguousarray(x.T), 0).T):
        np.testing.assert_array_equal(np.float64(got), want)
    logs = np.float64(tn.log_softmax(x))
    np.testing.assert_array_equal(logs[1], [-INF, 0, -INF])
    np.testing.assert_allclose(logs[4], [-np.log(2), -np.log(2), -905 - np.log(2)], rtol=4e-3)


def test_softmax_is_a_method_and_takes_any_dim():
    x = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    for dim in range(-3, 3):
        e = np.exp(x - x.max(dim, keepdims=True))
        np.testing.assert_allclose(tn.from_dlpack(x).softmax(dim).numpy(), e / e.sum(dim, keepdims=True), rtol=1e-6)
        np.testing.assert_allclose(tn.normalize(x, 2, dim), x / np.linalg.norm(x, axis=dim, keepdims=True), rtol=1e-6)
    with pytest.raises(tn.IndexError, match="softmax: dim 3"):
        tn.softmax(x, 3)
    with pytest.raises(IndexError):
        tn.log_softmax(x, -4)
    with pytest.raises(tn.ShapeError, match="softmax_last_axis"):
        tn.softmax_last_axis(np.zeros((2, 0), np.float32))


def test_odd_lengths_at_odd_addresses():
    for n in (1, 5, 33, 1001):
        buffer = np.random.default_rng(n).standard_normal(n + 1).astype(np.float16)
        view, x = buffer[1:], buffer[1:].astype(np.float64)
        np.testing.assert_allclose(tn.rms_norm(view, ones(n)), x / np.sqrt((x * x).mean() + 1e-6), rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(tn.softmax(view), np.exp(x) / np.exp(x).sum(), rtol=1e-3, atol=1e-7)


def test_channel_norms_agree_with_their_formulas_in_both_layouts():
    x = np.random.default_rng(1).standard_normal((2, 6, 4, 5)).astype(np.float32)
    gamma, beta = np.float32(range(1, 7)), np.float32([0, 1, 0, -1, 0, 2])
    per_channel = lambda v: v[:, None, None]
    groups = x.reshape(2, 3, -1)
    want = (groups - groups.mean(-1, keepdims=True)) / np.sqrt(groups.var(-1, keepdims=True) + 1e-5)
    want = want.reshape(x.shape) * per_channel(gamma) + per_channel(beta)
    batch = (x - per_channel(beta)) / np.sqrt(per_channel(gamma) + 1e-3) * per_channel(gamma)
    instance = (x - x.mean((2, 3), keepdims=True)) / np.sqrt(x.var((2, 3), keepdims=True) + 1e-5)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    for image in (x, last):
        y = tn.group_norm(image, 3, gamma, beta)
        assert y.strides == image.strides
        np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(tn.batch_norm(image, beta, gamma, gamma, epsilon=1e-3), batch, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(tn.instance_norm(image), instance, rtol=1e-5, atol=1e-5)
    with pytest.raises(tn.ValueError, match="group_norm: groups"):
        tn.group_norm(x, 4)


def test_arguments_are_checked():
    x = np.ones((2, 4), np.float16)
    out = np.full((2, 4), 7, np.float16)
    for call, error, words in [
        (lambda: tn.rms_norm(x, np.ones(4)), tn.DTypeError, "rms_norm: gamma"),
        (lambda: tn.rms_norm(x, ones(5), out=out), tn.ShapeError, "rms_norm: gamma"),
        (lambda: tn.layer_norm(x, ones(4), ones(3), out=out), tn.ShapeError, "layer_norm: beta"),
        (lambda: tn.layer_norm(np.ones((2, 0), np.float32), ones(0)), tn.ShapeError, "layer_norm: x"),
        (lambda: tn.rms_norm(np.ones((2, 4), np.int64), ones(4)), TypeError, "rms_norm: x"),
        (lambda: tn.add_rms_norm(x, x[:1], ones(4)), ValueError, "add_rms_norm: residual"),
        (lambda: tn.rms_norm(x, ones(4), out=np.ones((2, 4), np.float32)), tn.DTypeError, "rms_norm: out"),
        *((lambda e=e: tn.rms_norm(x, ones(4), e, out=out), tn.ValueError, "rms_norm: epsilon") for e in (0.0, -1e-6, NAN, INF)),
    ]:
        with pytest.raises(error, match=words):
            call()
    np.testing.assert_array_equal(out, 7)
