"""Convolutions from Python: paddings, keywords, arrays of any library, results, errors."""
import ml_dtypes
import numpy as np
import pytest

import tenor as tn


def row(*values, dtype=np.float32):
    """A 1-d image [1, 1, W]."""
    return np.array(values, dtype).reshape(1, 1, -1)


@pytest.mark.parametrize("padding,want", [
    (0, [21, 32]), ("valid", [21, 32]), ("same", [21, 32, 3]), (1, [10, 21, 32, 3]), ((1,), [10, 21, 32, 3]), ([1], [10, 21, 32, 3]),
    (((0, 1),), [21, 32, 3]), ([[2, 0]], [0, 10, 21, 32]), (np.int64(1), [10, 21, 32, 3]), (np.array([1]), [10, 21, 32, 3])])
def test_every_form_of_padding(padding, want):
    y = tn.conv_forward(row(1, 2, 3), row(1, 10), padding=padding)
    assert isinstance(y, np.ndarray) and y.dtype == np.float32 and y.ravel().tolist() == want


def test_sides_of_two_dims():
    ones = np.ones((1, 1, 2, 2), np.float32)
    np.testing.assert_array_equal(tn.conv_forward(ones, ones, padding=((0, 1), (2, 0)))[0, 0], [[0, 2, 4], [0, 1, 2]])
    np.testing.assert_array_equal(tn.conv_forward(ones, ones, padding=(1, 0))[0, 0], [[2], [4], [2]])


@pytest.mark.parametrize("padding,kind,text", [
    (-1, "ValueError", "conv_forward: padding must be at least 0"), ((1, 1, 1), "ValueError", "conv_forward: padding must be one number or 2"),
    ("full", "ValueError", "conv_forward: padding must be numbers, 'valid' or 'same', got 'full'"), (((1, 2, 3), (1, 1)), "ValueError", "padding must have"),
    (1.5, "DTypeError", "conv_forward: padding"), (None, "DTypeError", "conv_forward: padding"), ((), "ValueError", "conv_forward: padding")])
def test_bad_padding(padding, kind, text):
    x = np.ones((1, 1, 4, 4), np.float32)
    with pytest.raises(getattr(tn, kind)) as e:
        tn.conv_forward(x, x, padding=padding)
    assert text in str(e.value)


def test_gradients_of_a_strided_convolution():
    x, w, g = row(1, 2, 3, 4, 5, 6), row(1, 2, 3), row(1, 10)
    assert tn.conv_forward(x, w, stride=2).ravel().tolist() == [14, 26]
    assert tn.conv_data_backward(g, w, (1, 1, 6), stride=2).ravel().tolist() == [1, 2, 13, 20, 30, 0]
    assert tn.conv_weight_backward(x, g, (1, 1, 3), stride=2).ravel().tolist() == [31, 42, 53]
    assert tn.conv_bias_backward(g).tolist() == [11]


def test_transposed():
    x, w = row(1, 10), row(1, 2, 3)
    y = tn.conv_transpose(x, w, np.float32([100]), stride=2, output_padding=1)
    assert y.ravel().tolist() == [101, 102, 113, 120, 130, 100]
    for more in (1, (1,), None):
        assert tn.conv_transpose_data_backward(y, w, x.shape, stride=2, output_padding=more).shape == x.shape
        assert tn.conv_transpose_weight_backward(x, y, w.shape, stride=2, output_padding=more).shape == w.shape
    with pytest.raises(tn.ValueError, match="output_padding must be below max"):
        tn.conv_transpose(x, w, stride=2, output_padding=2)
    with pytest.raises(tn.ShapeError, match="grad_output must have shape"):
        tn.conv_transpose_data_backward(y, w, x.shape, stride=2, output_padding=0)


def test_bfloat16_and_channels_last():
    bf16 = np.dtype(ml_dtypes.bfloat16)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 16, 9, 8)).astype(bf16), rng.standard_normal((32, 16, 3, 3)).astype(bf16)
    y = tn.conv_forward(x, w, padding=1)
    assert y.dtype == bf16
    last = tn.conv_forward_nhwc(np.ascontiguousarray(x.transpose(0, 2, 3, 1)), np.ascontiguousarray(w.transpose(0, 2, 3, 1)), padding=1)
    np.testing.assert_allclose(np.float32(last.transpose(0, 3, 1, 2)), np.float32(y), rtol=2**-7, atol=2**-4)
    seen = tn.conv_forward(np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2), w, padding=1)
    assert seen.strides == np.ascontiguousarray(seen.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2).strides


def test_columns():
    x = np.arange(9, dtype=np.int32).reshape(1, 1, 3, 3)
    columns = tn.im2col(x, 2)
    assert columns.dtype == np.int32 and columns.tolist() == [[[0, 1, 3, 4], [1, 2, 4, 5], [3, 4, 6, 7], [4, 5, 7, 8]]]
    counts = tn.col2im(np.ones_like(columns), 3, 2)  # a lone int: of both of two dims
    assert counts.tolist() == [[[[1, 2, 1], [2, 4, 2], [1, 2, 1]]]]
    assert tn.col2im(np.ones((1, 2, 2), np.float32), (3,), 2).tolist() == [[[1, 2, 1]]]
    assert tn.col2im(np.ones((1, 8, 8), np.float32), 3, (2, 2, 2)).shape == (1, 1, 3, 3, 3)


def test_deformable():
    x, w = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3), np.ones((1, 1, 1, 1), np.float32)
    offset = np.zeros((1, 2, 3, 3), np.float32)
    offset[0, 1] = 0.5
    y = tn.deform_conv2d(x, offset, w)
    np.testing.assert_array_equal(y[0, 0], [[0.5, 1.5, 1], [3.5, 4.5, 2.5], [6.5, 7.5, 4]])
    grads = tn.deform_conv2d_backward(np.ones_like(y), x, offset, w)
    assert grads.grad_mask is None and grads.grad_bias is None
    np.testing.assert_array_equal(grads.grad_input[0, 0], [[0.5, 1, 1]] * 3)
    mask, bias = np.full((1, 1, 3, 3), 2, np.float32), np.float32([7])
    np.testing.assert_array_equal(tn.deform_conv2d(x, offset, w, mask, bias), 2 * y + 7)
    out = tuple(np.empty_like(a) for a in (x, offset, w, mask, bias))
    grads = tn.deform_conv2d_backward(np.ones_like(y), x, offset, w, mask, bias, out=out)
    assert all(a is b for a, b in zip(grads, out)) and grads.grad_bias.tolist() == [9]
    np.testing.assert_array_equal(grads.grad_mask, y)
    with pytest.raises(tn.ShapeError, match="deform_conv2d: offset must have shape"):
        tn.deform_conv2d(x, offset[:, :1], w)


def test_deformable_just_below_a_pixel():
    """A place one rounding below pixel 4 lies between 3 and 4, whatever pixel 5 holds."""
    x = np.array([0, 1, 2, 3, 4, np.nan, 6, 7], np.float32).reshape(1, 1, 1, 8)
    offset = np.zeros((1, 2, 1, 8), np.float32)
    offset[0, 1, 0, 0] = np.nextafter(np.float32(4), np.float32(0))
    y = tn.deform_conv2d(x, offset, np.ones((1, 1, 1, 1), np.float32))
    np.testing.assert_allclose(y[0, 0, 0, 0], 4, rtol=1e-6)



def test_out_and_strategies():
    x, w, out = row(1, 2, 3), row(1, 10), np.zeros((1, 1, 2), np.float32)
    assert set(tn.strategies("conv_forward")) == {"direct", "implicit_gemm", "vendor"}
    for strategy in ("auto", "direct", "implicit_gemm"):
        assert tn.conv_forward(x, w, strategy=strategy, out=out) is out and out.ravel().tolist() == [21, 32]
    with pytest.raises(tn.UnsupportedError, match="strategy 'vendor' cannot do this"):
        tn.conv_forward(x.astype(np.float64), w.astype(np.float64), strategy="vendor")
    with pytest.raises(tn.ShapeError, match="conv_forward: out must have shape"):
        tn.conv_forward(x, w, padding=1, out=out)


@pytest.mark.parametrize("strategy", ["auto", "direct", "implicit_gemm"])
def test_taps_on_padding_reach_nothing(strategy):
    """An infinite factor spoils what reads it, and no result whose window has it on padding or between strides."""
    w, o = row(np.inf, 1, np.inf), dict(strategy=strategy)
    assert tn.conv_forward(row(5), w, padding=1, **o).tolist() == [[[5]]]
    assert tn.conv_data_backward(row(7), w, (1, 1, 1), padding=1, **o).tolist() == [[[7]]]
    assert tn.conv_transpose(row(2, 3), w, stride=3, padding=1, output_padding=2, **o).tolist() == [[[2, np.inf, np.inf, 3, np.inf, 0]]]
    assert tn.conv_weight_backward(row(5), row(np.inf, 1, np.inf), (1, 1, 3), padding=2, **o).tolist() == [[[np.inf, 5, np.inf]]]


def test_torch_in_torch_out():
    torch = pytest.importorskip("torch")
    x, w = torch.randn(2, 4, 9, 7), torch.randn(6, 2, 3, 3)
    y = tn.conv_forward(x, w, stride=2, padding=1, groups=2)
    assert isinstance(y, torch.Tensor)
    torch.testing.assert_close(y, torch.nn.functional.conv2d(x, w, None, 2, 1, 1, 2), rtol=1e-5, atol=1e-5)


def test_autotuning_agrees(monkeypatch, tmp_path):
    monkeypatch.setenv("TENOR_CACHE_DIR", str(tmp_path))
    x, w = (np.random.default_rng(1).integers(-2, 3, s).astype(np.float32) for s in ((1, 8, 9, 9), (8, 8, 3, 3)))
    want = tn.conv_forward(x, w)
    tn.autotune(True)
    try:
        for _ in range(2):
            np.testing.assert_array_equal(tn.conv_forward(x, w), want)
    finally:
        tn.autotune(False)


@pytest.mark.parametrize("call, text", [
    (lambda x: tn.conv_data_backward(x, x, (1, 1, 2)), "but input_shape has 2 there"),
    (lambda x: tn.conv_data_backward(np.zeros((0, 1, 3), np.float32), x, (0, 1, 2**63 - 1), padding=5), "input_shape must be smaller than 2^60 in every dim"),
])
def test_errors_name_the_shape_that_was_given(call, text):
    with pytest.raises(tn.ShapeError) as raised:
        call(np.ones((1, 1, 3), np.float32))
    assert text in str(raised.value)
