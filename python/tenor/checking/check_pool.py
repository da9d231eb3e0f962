"""Pooling against lists of what each window reads, in float64; gradients against what the windows give back."""
import itertools

import numpy as np
from tenor.checking.draw import FLOATS, INTS, tolerance, wide
from tenor.checking.outcome import Each, Refused, Same, host


def windows(size, kernel, stride, padding, dilation, ceil_mode):
    """For each output of a line, the inputs that it reads and how many of its taps lie in the padded line."""
    span, end = dilation * (kernel - 1) + 1, size + padding
    count = (size + 2 * padding - span + (stride - 1 if ceil_mode else 0)) // stride + 1
    starts = [o * stride - padding for o in range(count) if o * stride < end]
    taps = [[start + k * dilation for k in range(kernel)] for start in starts]
    return [([t for t in w if 0 <= t < size], sum(t < end for t in w)) for w in taps]


def bins(size, count):
    return [(list(range(i * size // count, -(-(i + 1) * size // count))), 1) for i in range(count)]


def boxes(axes, sizes):
    """Per output of a plane: the flat places that it reads, and the taps in the padded plane."""
    for box in itertools.product(*axes):
        grid = np.ix_(*[w for w, _ in box]) if all(w for w, _ in box) else None
        flat = np.ravel_multi_index(grid, sizes).ravel() if grid else np.zeros(0, np.int64)
        yield flat, int(np.prod([c for _, c in box]))


class Image:
    """A drawn image and one way to pool it."""

    def __init__(self, draw, dtypes, dilated=False, padded=True):
        self.dims = draw.int(1, 3)
        self.sizes = tuple(draw.int(1, 40 if self.dims == 1 else 9) for _ in range(self.dims))
        lead = (draw.int(0, 3), draw.pick([1, 3, 8, 16]))[draw.int(0, 1):]
        self.dtype = draw.pick(dtypes)
        self.shape = lead + self.sizes
        x = draw.values(self.shape, self.dtype, special=0.2 if dilated else 0)
        self.x = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, len(lead) - 1, -1)), -1, len(lead) - 1) if draw.chance(0.3) else draw.layout(x)
        one = lambda low, high: tuple(draw.int(low, high) for _ in range(self.dims))
        self.kernel, self.stride, self.ceil = one(1, 4), one(1, 4), draw.chance(0.5)
        self.dilation = one(1, 3) if dilated and draw.chance(0.4) else (1,) * self.dims
        self.padding = tuple(draw.int(0, ((k - 1) * d + 1) // 2) for k, d in zip(self.kernel, self.dilation)) if padded else (0,) * self.dims
        self.axes = [windows(*a, self.ceil) for a in zip(self.sizes, self.kernel, self.stride, self.padding, self.dilation)]

    def fits(self):
        return all(self.axes)

    def flat(self, x):
        return wide(x).reshape(int(np.prod(self.shape[: -self.dims])), int(np.prod(x.shape[-self.dims:])))

    def pooled(self, axes):
        return self.shape[: -self.dims] + tuple(map(len, axes))

    def name(self, what, suffix=""):
        return f"{what}{self.dims}d{suffix}"


def largest(image, axes):
    v, lowest = image.flat(image.x), -np.inf if image.dtype in FLOATS else np.iinfo(image.dtype).min
    values, places = [], []
    for flat, _ in boxes(axes, image.sizes):
        best = v[:, flat].argmax(1) if len(flat) else None  # the first NaN, else the first of equals
        values.append(np.full(len(v), lowest) if best is None else v[np.arange(len(v)), flat[best]])
        places.append(np.full(len(v), -1) if best is None else flat[best])
    shape = image.pooled(axes)
    return np.stack(values, 1).reshape(shape), np.stack(places, 1).reshape(shape)


def maxima(tn, draw):
    image = Image(draw, FLOATS + INTS, dilated=True)
    pool = getattr(tn, image.name("max_pool"))
    arguments = (image.x, image.kernel, image.stride, image.padding, image.dilation, image.ceil)
    if not image.fits():
        return Refused(lambda: pool(*arguments), "ShapeError")
    values, places = largest(image, image.axes)
    got = pool(*arguments, return_indices=True)
    count = tuple(draw.int(1, 6) for _ in range(image.dims))
    in_bins = largest(image, [bins(*a) for a in zip(image.sizes, count)])
    adaptive = getattr(tn, image.name("adaptive_max_pool"))(image.x, count, True)
    return Each(Same(got.values, values), Same(got.indices, places), Same(pool(*arguments), values), Same(adaptive.values, in_bins[0]),
                Same(adaptive.indices, in_bins[1]))


def averages(tn, draw):
    """avg_pool, its adaptive form and both gradients."""
    image = Image(draw, FLOATS)
    include, override = draw.chance(0.5), draw.pick([None, None, 3, -2])
    options = (image.kernel, image.stride, image.padding, image.ceil, include, override)
    if not image.fits():
        return Refused(lambda: getattr(tn, image.name("avg_pool"))(image.x, *options), "ShapeError")
    plain = list(boxes(image.axes, image.sizes))
    divisors = [override or (padded if include else len(flat)) for flat, padded in plain]
    count = tuple(draw.int(1, 6) for _ in range(image.dims))
    in_bins = [bins(*a) for a in zip(image.sizes, count)]
    adaptive = list(boxes(in_bins, image.sizes))
    tol = 2 * tolerance(image.dtype)
    return Each(*averaged(tn, draw, image, "avg_pool", options, image.axes, list(zip(plain, divisors)), tol),
                *averaged(tn, draw, image, "adaptive_avg_pool", (count,), in_bins, [(b, len(b[0])) for b in adaptive], tol))


def averaged(tn, draw, image, name, options, axes, weighed, tol):
    v, shape = image.flat(image.x), image.pooled(axes)
    want = np.stack([v[:, flat].sum(1) / by for (flat, _), by in weighed], 1).reshape(shape)
    grad = draw.array(shape, image.dtype, special=0)
    back, g = np.zeros(v.shape), image.flat(grad)
    for o, ((flat, _), by) in enumerate(weighed):
        back[:, flat] += g[:, o, None] / by
    arguments = options if name == "avg_pool" else ()
    got = getattr(tn, image.name(name, "_backward"))(grad, image.shape, *arguments)
    return Same(getattr(tn, image.name(name))(image.x, *options), want, tol), Same(got, back.reshape(image.shape), tol)


def norms(tn, draw):
    """lp_pool and its gradient, of orders whose slopes stay small."""
    image = Image(draw, FLOATS, padded=False)
    if not image.fits():
        return None
    p, tol = draw.pick([1, 2, 3, 1.5]), 4 * tolerance(image.dtype)
    v, windows_of = image.flat(image.x), [flat for flat, _ in boxes(image.axes, image.sizes)]
    want = np.stack([np.linalg.norm(v[:, flat], p, axis=1) for flat in windows_of], 1)
    shape = image.pooled(image.axes)
    grad = draw.array(shape, image.dtype, special=0)
    back, g = np.zeros(v.shape), image.flat(grad)
    for o, flat in enumerate(windows_of):
        w, norm = v[:, flat], want[:, o, None]
        part = np.divide(np.abs(w), norm, out=np.zeros(w.shape), where=norm != 0)
        back[:, flat] += g[:, o, None] * np.sign(w) * part ** (p - 1)
    options = (p, image.kernel, image.stride, image.ceil)
    pool = getattr(tn, image.name("lp_pool"))
    got = getattr(tn, image.name("lp_pool", "_backward"))(grad, image.x, *options)
    sides = []
    if image.dtype == "float64" and p in (2, 3):  # along one direction, as the norms themselves change; away from kinks
        x, step = wide(image.x), draw.rng.standard_normal(image.shape)
        if np.abs(x).min(initial=np.inf) > 1e-2 and np.abs(x).max(initial=0) < 1e2:
            change = (host(pool(x + 1e-5 * step, *options)) - host(pool(x - 1e-5 * step, *options))) / 2e-5
            sides.append(Same(np.sum(host(got) * step), np.sum(wide(grad) * change), 1e-5 * (1 + np.abs(wide(grad)).sum())))
    return Each(Same(pool(image.x, *options), want.reshape(shape), tol), Same(got, back.reshape(image.shape), tol), *sides)


def returned(tn, draw):
    """max_pool's gradient by any indices."""
    image = Image(draw, FLOATS, dilated=True)
    if not image.fits():
        return None
    shape, size = image.pooled(image.axes), int(np.prod(image.sizes))
    grad = draw.array(shape, image.dtype, special=0)
    at = draw.rng.integers(-1, size, shape).astype(draw.pick([np.int64, np.int32]))
    back = getattr(tn, image.name(draw.pick(["max_pool", "adaptive_max_pool"]), "_backward"))
    if at.size and draw.chance(0.2):
        at.flat[draw.int(0, at.size - 1)] = draw.pick([-2, size])
        return Refused(lambda: back(grad, at, image.shape), "IndexError")
    want = np.zeros((int(np.prod(image.shape[: -image.dims])), size + 1))
    for row, to, g in zip(want, image.flat(at), image.flat(grad)):
        np.add.at(row, to, g)
    return Same(back(grad, at, image.shape), want[:, :size].reshape(image.shape), 4 * tolerance(image.dtype))


PROPERTIES = [maxima, averages, norms, returned]
