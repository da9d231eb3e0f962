"""grid_sample, its gradients and affine_grid from Python."""
import numpy as np
import pytest

import tenor as tn

X = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
IDENTITY = np.array([[[1, 0, 0], [0, 1, 0]]], np.float32)


def test_the_identity_gives_the_image():
    for align in (False, True):
        grid = tn.affine_grid(IDENTITY, X.shape, align)
        for mode in ("bilinear", "nearest", "bicubic"):
            assert np.allclose(tn.grid_sample(X, grid, mode, align_corners=align), X, atol=1e-5)


def test_volumes():
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5, 6)).astype(np.float32)
    theta = np.broadcast_to(np.eye(3, 4, dtype=np.float32), (2, 3, 4))
    grid = tn.affine_grid(theta, x.shape)
    assert grid.shape == (2, 4, 5, 6, 3) and np.allclose(tn.grid_sample(x, grid), x, atol=1e-5)
    with pytest.raises(tn.UnsupportedError, match="grid_sample: mode 'bicubic'"):
        tn.grid_sample(x, grid, "bicubic")


def test_padding():
    grid = np.array([[[[-3, 0.25], [0.25, 3]]]], np.float32)
    assert tn.grid_sample(X, grid).ravel().tolist() == [0, 0]
    assert tn.grid_sample(X, grid, padding_mode="border").ravel().tolist() == [8, 14]
    assert tn.grid_sample(X, grid, "nearest", "reflection").shape == (1, 1, 1, 2)


def test_gradients_by_hand():
    grid = np.array([[[[0, 0]]]], np.float32)
    r = tn.grid_sample_backward(np.full((1, 1, 1, 1), 4, np.float32), X, grid)
    want = np.zeros((4, 4))
    want[1:3, 1:3] = 1
    assert np.array_equal(r.grad_x[0, 0], want)
    assert r.grad_grid.ravel().tolist() == [8, 32]  # 4 a value, 2 pixels a coordinate, 1 and 4 a pixel
    out = (np.empty_like(X), np.empty_like(grid))
    again = tn.grid_sample_backward(np.full((1, 1, 1, 1), 4, np.float32), X, grid, out=out)
    assert again.grad_x is out[0] and np.array_equal(out[1], r.grad_grid)


def test_bfloat16_with_a_float32_grid():
    import ml_dtypes
    x = X.astype(ml_dtypes.bfloat16)
    grid = tn.affine_grid(IDENTITY, X.shape)
    y = tn.grid_sample(x, grid)
    assert y.dtype == x.dtype and np.array_equal(y.astype(np.float32), X)
    assert tn.grid_sample_backward(y, x, grid).grad_grid.dtype == np.float32


@pytest.mark.parametrize("call,error,text", [
    (lambda: tn.grid_sample(X, np.zeros((1, 2, 2, 3), np.float32)), tn.ShapeError, "grid must have shape (1, Ho, Wo, 2)"),
    (lambda: tn.grid_sample(X, np.zeros((1, 2, 2, 2), np.int64)), tn.DTypeError, "grid must be float32 or x's dtype"),
    (lambda: tn.grid_sample(X[0], np.zeros((1, 2, 2, 2), np.float32)), tn.ShapeError, "x must be [N, C, H, W] or [N, C, D, H, W]"),
    (lambda: tn.grid_sample(X, np.zeros((1, 2, 2, 2), np.float32), "linear"), tn.ValueError, "mode must be"),
    (lambda: tn.grid_sample_backward(X, X, np.zeros((1, 2, 2, 2), np.float32)), tn.ShapeError, "grad_output must have shape (1, 1, 2, 2)"),
    (lambda: tn.affine_grid(IDENTITY, (1, 1, 4)), tn.ShapeError, "size must be (N, C, H, W)"),
    (lambda: tn.affine_grid(IDENTITY, (2, 1, 4, 4)), tn.ShapeError, "theta must have shape (2, 2, 3)"),
])
def test_errors(call, error, text):
    with pytest.raises(error) as raised:
        call()
    assert text in str(raised.value)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_one_pixel_in_memory(dtype):
    """Images of one element, and of one that is repeated: nothing is read beside it."""
    for x in (np.full((1, 1, 1, 1), 3, dtype), np.broadcast_to(np.array(3, dtype), (1, 1, 4, 5))):
        np.testing.assert_array_equal(tn.grid_sample(x, np.zeros((1, 1, 9, 2), np.float32)), np.full((1, 1, 1, 9), 3, dtype))


def test_nearest_rounds_the_place_once():
    """-0.6 of 10 pixels lies at 1.49999988, a float32; a product rounded on its own makes a tie of it, which goes to 2."""
    x = np.arange(10, dtype=np.float32).reshape(1, 1, 1, 10)
    assert tn.grid_sample(x, np.array([[[[-0.6, 0]]]], np.float32), mode="nearest")[0, 0, 0, 0] == 1
