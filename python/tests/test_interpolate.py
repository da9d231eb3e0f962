"""interpolate and its gradient from Python."""
import numpy as np
import pytest

import tenor as tn

X = np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4)


def test_sizes_and_factors_for_all_dims_or_each():
    assert tn.interpolate(X, 8).shape == tn.interpolate(X, (8, 8)).shape == tn.interpolate(X, scale_factor=2).shape == (1, 2, 8, 8)
    assert tn.interpolate(X, scale_factor=(0.5, 1.3)).shape == (1, 2, 2, 5)
    assert np.array_equal(tn.interpolate(X, [4, 4]), X)
    assert np.array_equal(tn.interpolate(X, scale_factor=np.float32(2)), X.repeat(2, 2).repeat(2, 3))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_bilinear_by_hand(dtype):
    y = tn.interpolate(np.array([[[[1, 2], [3, 4]]]], dtype), 4, mode="bilinear")
    assert y.dtype == dtype
    assert np.allclose(y[0, 0], [[1, 1.25, 1.75, 2], [1.5, 1.75, 2.25, 2.5], [2.5, 2.75, 3.25, 3.5], [3, 3.25, 3.75, 4]])


def test_what_the_gradient_adds_up():
    g = np.ones((1, 1, 8), np.float32)
    assert np.array_equal(tn.interpolate_backward(g, (1, 1, 4), 8), np.full((1, 1, 4), 2))
    for mode in ("bilinear", "bicubic", "area", "lanczos3"):  # every output's weights sum to 1
        dx = tn.interpolate_backward(np.ones((1, 1, 7, 9), np.float32), (1, 1, 5, 4), (7, 9), mode=mode)
        assert np.isclose(dx.sum(), 63)


def test_channels_last_stays_so():
    x = np.ascontiguousarray(X.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    y = tn.interpolate(x, 6, mode="bicubic")
    assert y.strides[1] == 4 and np.allclose(y, tn.interpolate(X, 6, mode="bicubic"), atol=1e-5)


@pytest.mark.parametrize("factor", [np.array(2.0), np.float32(2), np.array([2.0, 2.0]), np.array(2)])
def test_factors_from_numpy(factor):
    assert np.array_equal(tn.interpolate(X, scale_factor=factor), tn.interpolate(X, scale_factor=2.0))


def test_out():
    out = np.empty((1, 2, 2, 2), np.float32)
    assert tn.interpolate(X, 2, mode="area", out=out) is out
    assert np.array_equal(out[0, 0], [[2.5, 4.5], [10.5, 12.5]])
    with pytest.raises(tn.ShapeError, match="interpolate: out must have shape"):
        tn.interpolate(X, 3, out=out)


@pytest.mark.parametrize("options,error,text", [
    ({}, tn.ValueError, "exactly one of size and scale_factor must be given, got neither"),
    ({"size": 2, "scale_factor": 2}, tn.ValueError, "got both"),
    ({"size": (2, 2, 2)}, tn.ValueError, "size must have an entry for each of 2 spatial dims, got 3"),
    ({"size": ()}, tn.ValueError, "size must have an entry"),
    ({"scale_factor": (2.0,)}, tn.ValueError, "scale_factor must have an entry"),
    ({"scale_factor": "2"}, tn.DTypeError, "scale_factor must be a number or a sequence of numbers, got '2'"),
    ({"scale_factor": (2, True)}, tn.DTypeError, "scale_factor must be a number"),
    ({"scale_factor": np.array("two")}, tn.DTypeError, "scale_factor must be a number or a sequence of numbers"),
    ({"scale_factor": np.array([[2.0, 2.0]])}, tn.DTypeError, "scale_factor must be a number"),
    ({"scale_factor": np.array(-2.0)}, tn.ValueError, "scale_factor must be finite and > 0"),
    ({"scale_factor": float("inf")}, tn.ValueError, "scale_factor must be finite and > 0, got inf"),
    ({"size": 10**30}, tn.Error, "interpolate: "),
    ({"size": 2, "mode": "cubic"}, tn.ValueError, "mode must be 'nearest'"),
    ({"size": 2, "mode": "trilinear"}, tn.ShapeError, "mode 'trilinear' needs x with 5 dims"),
])
def test_errors(options, error, text):
    with pytest.raises(error) as raised:
        tn.interpolate(X, **options)
    assert text in str(raised.value) and str(raised.value).startswith("interpolate: ")


def test_integers_are_refused_but_for_bytes_that_move():
    assert tn.interpolate(X.astype(np.uint8), 8).dtype == np.uint8
    for dtype, mode in ((np.uint8, "bilinear"), (np.int64, "nearest")):
        with pytest.raises(tn.DTypeError, match="x must be float16, bfloat16, float32 or float64"):
            tn.interpolate(X.astype(dtype), 8, mode=mode)


@pytest.mark.parametrize("mode", ["nearest", "linear", "area"])
def test_the_same_size_is_the_image_itself(mode):
    x = np.array([[[1, np.inf, 2, -np.inf, np.nan]]], np.float32)
    np.testing.assert_array_equal(tn.interpolate(x, size=5, mode=mode), x)
    np.testing.assert_array_equal(tn.interpolate(x, scale_factor=1.0, mode=mode), x)


@pytest.mark.parametrize("mode", ["bicubic", "lanczos3"])
@pytest.mark.parametrize("antialias", [False, True])
def test_the_same_size_of_images(mode, antialias):
    if antialias and mode == "lanczos3":
        pytest.skip("lanczos3 widens its kernel in no case")
    x = np.random.default_rng(5).standard_normal((1, 2, 4, 6)).astype(np.float32)
    x[0, 0, 1, 2] = np.inf
    np.testing.assert_array_equal(tn.interpolate(x, size=(4, 6), mode=mode, antialias=antialias), x)
    np.testing.assert_array_equal(tn.interpolate_backward(x, x.shape, size=(4, 6), mode=mode, antialias=antialias), x)
