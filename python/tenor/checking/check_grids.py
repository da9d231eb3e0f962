"""interpolate, grid_sample, their gradients and affine_grid against their formulas in float64."""
import itertools
import math

import numpy as np

from tenor.checking.draw import FLOATS, wide
from tenor.checking.outcome import Each, Refused, Same

BOUND = {"float64": 1e-9, "float32": 2e-4, "float16": 8e-3, "bfloat16": 5e-2}
MODES = {1: ("nearest", "nearest-exact", "linear", "area"), 2: ("nearest", "nearest-exact", "bilinear", "bicubic", "area", "lanczos3"),
         3: ("nearest", "nearest-exact", "trilinear", "area")}


def keys(t, a):
    t = abs(t)
    return ((a + 2) * t - (a + 3)) * t * t + 1 if t <= 1 else (((t - 5) * t + 8) * t - 4) * a if t < 2 else 0.0


def lanczos(t):
    return float(np.sinc(t) * np.sinc(t / 3)) if abs(t) < 3 else 0.0


def matrix(mode, n, m, scale, align, antialias):
    """[m, n]: what every output reads of every input."""
    out = np.zeros((m, n))
    edge = lambda j: min(max(j, 0), n - 1)
    step = ((n - 1) / (m - 1) if m > 1 else 0.0) if align else n / m if scale is None else 1 / scale
    for i in range(m):
        u = i * step if align else (i + 0.5) * step - 0.5
        if mode in ("nearest", "nearest-exact"):
            half = 0.5 if mode == "nearest-exact" else 0
            at = math.floor((i + half) / scale) if scale is not None else int((2 * i + 2 * half) * n) // (2 * m)
            out[i, edge(at)] = 1
        elif mode == "area":
            out[i, i * n // m:-(-(i + 1) * n // m)] = 1
        elif antialias or mode == "lanczos3":
            spread, centre = (max(step, 1.0), (i + 0.5) * step - 0.5) if antialias else (1.0, u)
            kernel = {"bicubic": lambda t: keys(t, -0.5), "lanczos3": lanczos}.get(mode, lambda t: max(0.0, 1 - abs(t)))
            out[i] = [kernel((j - centre) / spread) for j in range(n)]
        elif mode == "bicubic":
            j = math.floor(u)
            for k in range(j - 1, j + 3):
                out[i, edge(k)] += keys(u - k, -0.75)
        else:
            j = int(max(u, 0))
            out[i, edge(j)] += 1 - (max(u, 0) - j)
            out[i, edge(j + 1)] += max(u, 0) - j
    return out / out.sum(1, keepdims=True)


def resizing(draw):
    """The shape of an image, what interpolate is told, and the matrices of its dims."""
    dims = draw.int(1, 3)
    mode = draw.pick(MODES[dims])
    smooth = mode in ("linear", "bilinear", "bicubic", "trilinear", "lanczos3")
    align, antialias = smooth and draw.chance(0.4), mode in ("bilinear", "bicubic", "lanczos3") and draw.chance(0.4)
    shape = (draw.int(0, 2), draw.int(0, 9)) + tuple(draw.int(1, (40, 20, 8)[dims - 1]) for _ in range(dims))
    if draw.chance(0.5):
        size = tuple(draw.int(1, (40, 20, 8)[dims - 1]) for _ in range(dims))
        options, scales = dict(size=size), [None] * dims
    else:
        factors = tuple(max(float(draw.rng.uniform(0.3, 3)), 1 / n) for n in shape[2:])
        factors = tuple(1.0 if math.floor(n * f) < 1 else f for n, f in zip(shape[2:], factors))
        size = tuple(math.floor(n * f) for n, f in zip(shape[2:], factors))
        options, scales = dict(scale_factor=factors), [None] * dims if mode == "area" else factors
    options.update(mode=mode, align_corners=align, antialias=antialias)
    return shape, options, [matrix(mode, n, m, s, align, antialias) for n, m, s in zip(shape[2:], size, scales)]


def applied(x, matrices):
    for axis, a in enumerate(matrices, 2):
        x = np.moveaxis(np.tensordot(a, x, (1, axis)), 0, axis)
    return x


def near(got, want, dtype, factor=1):
    return Same(got, want, factor * BOUND[np.dtype(dtype).name])


def resampled(tn, draw):
    shape, options, matrices = resizing(draw)
    dtype = draw.pick(FLOATS)
    x = draw.array(shape, dtype, special=0, scale=1.0)
    if draw.chance(0.1):
        return Refused(lambda: tn.interpolate(x, **{**options, "mode": "cubic"}), "ValueError")
    return near(tn.interpolate(x, **options), applied(wide(x), matrices), dtype)


def resampled_backward(tn, draw):
    shape, options, matrices = resizing(draw)
    dtype = draw.pick(FLOATS)
    g = draw.array(shape[:2] + tuple(a.shape[0] for a in matrices), dtype, special=0, scale=1.0)
    return near(tn.interpolate_backward(g, shape, **options), applied(wide(g), [a.T for a in matrices]), dtype, 4)


def reflected(u, n, align):
    low, span = (0.0, n - 1.0) if align else (-0.5, float(n))
    if span == 0:
        return 0.0, 0.0
    turns, rest = divmod(abs(u - low), span)
    sign = -1.0 if u < low else 1.0
    return (rest + low, sign) if turns % 2 == 0 else (span - rest + low, -sign)


def taps(g, n, mode, padding, align):
    """(pixel or None, weight, slope) of one coordinate."""
    slope = (n - 1 if align else n) / 2
    u = (g + 1) * slope - (0 if align else 0.5)
    clip = lambda u: (0.0, 0.0) if u <= 0 else (n - 1.0, 0.0) if u >= n - 1 else (u, 1.0)
    inside = lambda i: i if 0 <= i < n else None
    if mode == "bicubic":
        j, found = math.floor(u), []
        for k in (-1, 0, 1, 2):
            i = float(j + k)
            i = reflected(i, n, align)[0] if padding == "reflection" else i
            i = clip(i)[0] if padding != "zeros" else i
            found.append((inside(int(i)), keys(u - j - k, -0.75), (keys(u - j - k + 1e-6, -0.75) - keys(u - j - k - 1e-6, -0.75)) / 2e-6 * slope))
        return found
    for change in ([reflected(u, n, align)] if padding == "reflection" else []):
        u, slope = change[0], slope * change[1]
    if padding != "zeros":
        u, kept = clip(u)
        slope *= kept
    if mode == "nearest":
        return [(inside(int(np.rint(u))), 1.0, 0.0)]
    j = math.floor(u)
    return [(inside(j), 1 - (u - j), -slope), (inside(j + 1), u - j, slope)]


def places(draw):
    """An image's shape, a grid and what grid_sample is told."""
    dims = 3 if draw.chance(0.3) else 2
    mode, padding, align = draw.pick(["bilinear", "nearest"] if dims == 3 else ["bilinear", "nearest", "bicubic"]), draw.pick(["zeros", "border", "reflection"]), draw.chance(0.5)
    shape = (draw.int(0, 2), draw.int(0, 6)) + tuple(draw.int(1, 9) for _ in range(dims))
    grid = draw.rng.standard_normal((shape[0],) + tuple(draw.int(0, 5 if dims == 2 else 3) for _ in range(dims)) + (dims,)) * 0.8
    for k in range(dims):  # off the places where values jump, by more than a coordinate is rounded
        n = shape[-1 - k]
        span = (n - 1 if align else n) / 2
        if span:
            u = (grid[..., k] + 1) * span - (0 if align else 0.5)
            u = np.where(abs(u * 2 - np.rint(u * 2)) < 0.02, u + 0.1, u)
            grid[..., k] = (u + (0 if align else 0.5)) / span - 1
    return shape, draw.layout(grid.astype(np.float32)), (mode, padding, align)


def sums(shape, grid, how):
    """Calls of (image, place) -> [(pixel, weight, slopes x first)]."""
    for at in np.ndindex(grid.shape[:-1]):
        axes = [taps(float(g), n, *how) for g, n in zip(grid[at][::-1], shape[2:])]
        for combo in itertools.product(*axes):
            if all(i is not None for i, _, _ in combo):
                w = [c[1] for c in combo]
                slopes = [c[2] * math.prod(w[:k] + w[k + 1:]) for k, c in enumerate(combo)]
                yield at, tuple(c[0] for c in combo), math.prod(w), slopes[::-1]


def sampled(tn, draw):
    shape, grid, how = places(draw)
    dtype = draw.pick(FLOATS)
    x = draw.array(shape, dtype, special=0, scale=1.0)
    want, image = np.zeros(shape[:2] + grid.shape[1:-1]), wide(x)
    for (b, *at), pixel, w, _ in sums(shape, grid, how):
        want[(b, slice(None), *at)] += w * image[(b, slice(None), *pixel)]
    return near(tn.grid_sample(x, grid, *how), want, dtype)


def sampled_backward(tn, draw):
    shape, grid, how = places(draw)
    dtype = draw.pick(FLOATS)
    x = draw.array(shape, dtype, special=0, scale=1.0)
    g = draw.array(shape[:2] + grid.shape[1:-1], dtype, special=0, scale=1.0)
    dx, dgrid, image, up = np.zeros(shape), np.zeros(grid.shape), wide(x), wide(g)
    for (b, *at), pixel, w, slopes in sums(shape, grid, how):
        row = up[(b, slice(None), *at)]
        dx[(b, slice(None), *pixel)] += w * row
        if how[0] != "nearest":
            dgrid[(b, *at)] += (row * image[(b, slice(None), *pixel)]).sum() * np.array(slopes)
    got = tn.grid_sample_backward(g, x, grid, *how)
    return Each(near(got.grad_x, dx, dtype, 4), Same(got.grad_grid, dgrid, 5e-3 if dtype != np.float64 else 2e-4))


def affine(tn, draw):
    dims, dtype, align = draw.pick([2, 3]), draw.pick(FLOATS), draw.chance(0.5)
    size = (draw.int(0, 2), draw.int(0, 3)) + tuple(draw.int(1, 8) for _ in range(dims))
    theta = draw.array((size[0], dims, dims + 1), dtype, special=0, scale=1.0)
    axes = [np.zeros(1) if n == 1 else np.linspace(-1, 1, n) * (1 if align else (n - 1) / n) for n in size[2:]]
    base = np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(size[2:])], -1)
    return near(tn.affine_grid(theta, size, align), np.einsum("bij,...j->b...i", wide(theta), base), dtype)


PROPERTIES = [resampled, resampled_backward, sampled, sampled_backward, affine]
