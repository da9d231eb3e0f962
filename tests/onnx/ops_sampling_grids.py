import math

import numpy as np

import tenor as tn
from graph import Cannot, ints, op

MODES = {"nearest": "nearest", "linear": ("linear", "bilinear", "trilinear"), "cubic": "bicubic"}
COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric", "tf_crop_and_resize", "tf_half_pixel_for_nn")


def resized_size(node, x, axes, scales, sizes):
    """The sizes of the resized axes, and their factors where the node gives factors."""
    if scales is not None and np.size(scales):
        factors = [float(s) for s in np.asarray(scales).reshape(-1)]
        return [math.floor(x.shape[a] * s) for a, s in zip(axes, factors)], factors
    policy = node.get("keep_aspect_ratio_policy", "stretch")
    sizes = ints(sizes)
    if policy == "stretch":
        return sizes, None
    factor = (min if policy == "not_larger" else max)(s / x.shape[a] for a, s in zip(axes, sizes))
    return [math.floor(x.shape[a] * factor + 0.5) for a in axes], [factor] * len(axes)


def as_image(x, axes):
    """x with the resized axes last and those before them as N and C; and the way back."""
    rest = [a for a in range(x.ndim) if a not in axes]
    order = rest + list(axes)
    moved = tn.permute(x, order)
    image = tn.reshape(moved, (1, math.prod(x.shape[a] for a in rest)) + tuple(x.shape[a] for a in axes))
    return image, lambda y: tn.permute(tn.reshape(y, tuple(x.shape[a] for a in rest) + y.shape[2:]), np.argsort(order).tolist())


def nearest_places(node, n, m, factor):
    """Where ONNX's rounding differs from floor((i + half) / factor): the inputs that each output reads."""
    scale = m / n if factor is None else factor
    i = np.arange(m, dtype=np.float64)
    how = node.get("coordinate_transformation_mode", "half_pixel")
    if how == "asymmetric":
        u = i / scale
    elif how == "align_corners":
        u = i * (n - 1) / (m - 1) if m > 1 else i * 0
    elif how == "half_pixel_symmetric":
        u = n / 2 * (1 - m / (scale * n)) + (i + 0.5) / scale - 0.5
    elif how == "tf_half_pixel_for_nn":
        u = (i + 0.5) / scale
    else:
        u = (i + 0.5) / scale - 0.5 if how == "half_pixel" or m > 1 else i * 0
    rounding = node.get("nearest_mode", "round_prefer_floor")
    at = {"round_prefer_floor": lambda: np.ceil(u - 0.5), "round_prefer_ceil": lambda: np.floor(u + 0.5), "floor": lambda: np.floor(u), "ceil": lambda: np.ceil(u)}
    return np.clip(at[rounding]().astype(np.int64), 0, n - 1)


@op("Resize")
def resize(node, x, roi=None, scales=None, sizes=None):
    if node.opset < 11:
        scales, roi = roi, None
    axes = [a % x.ndim for a in node.get("axes", list(range(x.ndim)))]
    size, factors = resized_size(node, x, axes, scales, sizes)
    how = node.get("coordinate_transformation_mode", "half_pixel") if node.opset >= 11 else "asymmetric"
    kind = node.get("mode", "nearest")
    if kind == "nearest" and how != "tf_crop_and_resize":
        for k, a in enumerate(axes):
            x = tn.index_select(x, a, nearest_places(node, x.shape[a], size[k], factors and factors[k]))
        return x
    # Axes that keep their size are no images' dims.
    kept = [k for k, a in enumerate(axes) if size[k] != x.shape[a] or (factors and factors[k] != 1)]
    axes, size, factors = [axes[k] for k in kept], [size[k] for k in kept], factors and [factors[k] for k in kept]
    if how not in ("half_pixel", "align_corners", "pytorch_half_pixel"):
        raise Cannot(f"Resize by {kind} kernels with coordinates {how}")
    if how == "align_corners" and factors and any((x.shape[i] * f) % 1 for i, f in zip(axes, factors)):
        raise Cannot("Resize with aligned corners of a size that is no integer")
    if how == "pytorch_half_pixel" and 1 in size:
        raise Cannot("Resize to one pixel with coordinates pytorch_half_pixel")
    antialias = bool(node.get("antialias", 0))
    if antialias != bool(node.get("exclude_outside", 0)):
        raise Cannot("Resize antialiased with taps beyond the edge" if antialias else "Resize with exclude_outside: taps beyond the edge repeat it")
    a = node.get("cubic_coeff_a", -0.75)
    if kind == "cubic" and abs(a - (-0.5 if antialias else -0.75)) > 1e-6:
        raise Cannot(f"Resize with a cubic kernel of A = {a}{', antialiased' * antialias}")
    if not axes:
        return x
    image, back = as_image(x, axes)
    mode = MODES[kind]
    if kind == "linear":
        mode = mode[len(axes) - 1]
    if (kind == "cubic" or antialias) and len(axes) == 1:  # two dims, of which one keeps its size
        image, fold = tn.unsqueeze(image, 2), True
        size, factors = [1] + size, factors and [1.0] + factors
        mode = "bicubic" if kind == "cubic" else "bilinear"
    else:
        fold = False
    options = dict(mode=mode, align_corners=how == "align_corners", antialias=antialias)
    y = tn.interpolate(image, scale_factor=tuple(factors), **options) if factors else tn.interpolate(image, tuple(size), **options)
    return back(tn.squeeze(y, 2) if fold else y)


@op("Upsample")
def upsample(node, x, scales=None):
    factors = [float(s) for s in np.asarray(node.get("scales", scales)).reshape(-1)]
    if node.get("mode", "nearest") != "nearest":
        raise Cannot("Upsample by linear kernels: its coordinates are asymmetric")
    axes = [a for a, s in enumerate(factors) if s != 1]
    image, back = as_image(x, axes)
    return back(tn.interpolate(image, scale_factor=tuple(factors[a] for a in axes)))


@op("GridSample")
def grid_sample(node, x, grid):
    mode = {"bilinear": "bilinear", "linear": "bilinear", "nearest": "nearest", "bicubic": "bicubic", "cubic": "bicubic"}[node.get("mode", "bilinear")]
    if mode == "bicubic" and x.ndim == 5:
        raise Cannot("GridSample by cubic kernels in three dims")
    return tn.grid_sample(x, grid, mode, node.get("padding_mode", "zeros"), bool(node.get("align_corners", 0)))


@op("AffineGrid")
def affine_grid(node, theta, size):
    return tn.affine_grid(theta, tuple(ints(size)), bool(node.get("align_corners", 0)))
