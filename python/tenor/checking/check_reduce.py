"""Reductions, scans and orders against NumPy in float64."""
import numpy as np
from tenor.checking.draw import BOOL, FLOATS, INTS, tolerance, wide
from tenor.checking.outcome import Each, Refused, Same


def some_dims(draw, x):
    """(as given to Tenor, as given to NumPy): None, one dim or several, negative ones too."""
    if draw.chance(0.2) or x.ndim == 0:
        return None, None
    count = draw.int(1, x.ndim)
    dims = [int(d) for d in draw.rng.permutation(x.ndim)[:count]]
    given = [d - x.ndim if draw.chance(0.3) else d for d in dims]
    return (given[0], dims[0]) if count == 1 else (given, tuple(dims))


def sums(tn, draw):
    x = draw.array(draw.shape(), draw.pick(FLOATS), special=0.05, scale=1)
    dims, axes = some_dims(draw, x)
    keep = draw.chance(0.5)
    want = np.sum(wide(x), axis=axes, keepdims=keep)
    size = np.sum(np.abs(wide(x)), axis=axes, keepdims=keep)
    got = tn.sum(x, dims, keepdim=keep)
    tol = tolerance(x.dtype)
    # The error of a sum is relative to the sum of sizes.
    scale = np.where(np.isfinite(size), 1 + size, 1)
    return Same(wide(got) / scale, np.asarray(want).astype(x.dtype).astype(np.float64) / scale, tol)


def integer_sums(tn, draw):
    x = draw.array(draw.shape(), draw.pick(INTS + [BOOL]))
    dims, axes = some_dims(draw, x)
    t = np.uint64 if x.dtype.kind == "u" else np.int64
    got = tn.sum(x, dims)
    return Each(Same(got, np.sum(x, axis=axes, dtype=t)), Same(str(got.dtype), np.dtype(t).name))


def extremes(tn, draw):
    x = draw.array(draw.shape(), draw.pick(FLOATS[:3] + INTS))
    dims, axes = some_dims(draw, x)
    name = draw.pick(["amax", "amin"])
    reduced = [x.shape[a] for a in (range(x.ndim) if axes is None else np.atleast_1d(axes))]
    kept = [n for d, n in enumerate(x.shape) if axes is not None and d not in np.atleast_1d(axes)]
    if 0 in reduced and 0 not in kept:
        return Refused(lambda: getattr(tn, name)(x, dims), "ShapeError")
    if x.size == 0:
        return Same(np.shape(getattr(tn, name)(x, dims)), tuple(kept))
    return Same(getattr(tn, name)(x, dims), getattr(np, name)(x, axis=axes))


def places_of_extremes(tn, draw):
    x = draw.array(draw.shape(1), draw.pick(FLOATS[:3] + INTS))
    d = draw.int(0, x.ndim - 1)
    name = draw.pick(["argmax", "argmin"])
    if x.shape[d] == 0:
        return None
    return Same(getattr(tn, name)(x, d), getattr(np, name)(x, axis=d))


def moments(tn, draw):
    x = draw.array(draw.shape(1), draw.pick(FLOATS[:2]), special=0)
    dims, axes = some_dims(draw, x)
    correction = draw.int(0, 2)
    count = x.size if axes is None else int(np.prod([x.shape[a] for a in np.atleast_1d(axes)]))
    mean = tn.mean(x, dims)
    if count - correction <= 0:
        got = np.asarray(tn.var(x, dims, correction=correction))
        return Same(got, np.full(got.shape, np.nan))
    return Each(Same(mean, np.mean(wide(x), axis=axes), tolerance(x.dtype)),
                Same(tn.var(x, dims, correction=correction), np.var(wide(x), axis=axes, ddof=correction), 10 * tolerance(x.dtype)))


def logs_of_sums(tn, draw):
    x = draw.array(draw.shape(1), draw.pick(FLOATS[:3]))
    d = draw.int(0, x.ndim - 1)
    v = wide(x)
    top = np.max(v, axis=d, keepdims=True, initial=-np.inf)
    safe = np.where(np.isfinite(top), top, 0)
    want = np.log(np.sum(np.exp(v - safe), axis=d)) + np.squeeze(safe, d)
    want = np.where(np.squeeze(top, d) == np.inf, np.inf, want)
    want = np.where(np.isnan(v).any(axis=d), np.nan, want)
    return Same(tn.logsumexp(x, d), want, tolerance(x.dtype))


def truths(tn, draw):
    x = draw.array(draw.shape(), draw.pick(FLOATS[:3] + INTS + [BOOL]))
    dims, axes = some_dims(draw, x)
    return Each(Same(tn.any(x, dims), np.any(x != 0, axis=axes)), Same(tn.all(x, dims), np.all(x != 0, axis=axes)),
                Same(tn.count_nonzero(x, dims), np.count_nonzero(x, axis=axes)))


def scans(tn, draw):
    x = draw.array(draw.shape(1), draw.pick(FLOATS[:3]), special=0.05, scale=0.5)
    d = draw.int(0, x.ndim - 1)
    want = np.cumsum(wide(x), axis=d)
    scale = 1 + np.cumsum(np.abs(np.where(np.isfinite(wide(x)), wide(x), 0)), axis=d)
    return Same(wide(tn.cumsum(x, d)) / scale, np.asarray(want).astype(x.dtype).astype(np.float64) / scale, tolerance(x.dtype))


def running_extremes(tn, draw):
    x = draw.array(draw.shape(1), draw.pick(FLOATS[:3] + INTS))
    d = draw.int(0, x.ndim - 1)
    if x.shape[d] == 0:
        return None
    name, fn = draw.pick([("cummax", np.maximum), ("cummin", np.minimum)])
    values, indices = getattr(tn, name)(x, d)
    return Each(Same(values, fn.accumulate(x, axis=d)), Same(np.take_along_axis(x, np.asarray(indices), d), fn.accumulate(x, axis=d)))


def key_of(x, descending):
    """NaN greatest, -0 equal to 0, in float64 or the integer itself."""
    v = wide(x)
    if v.dtype.kind == "f":
        v = np.where(np.isnan(v), np.inf, v) + 0.0
        rank = np.where(np.isnan(wide(x)), 1, 0)
        return (-v, -rank) if descending else (v, rank)
    v = v.astype(object)
    return ((-v).astype(object), None) if descending else (v, None)


def stable_order(x, d, descending):
    moved = np.moveaxis(x, d, -1)
    out = np.empty(moved.shape, np.int64)
    for at in np.ndindex(moved.shape[:-1]):
        first, second = key_of(moved[at], descending)
        pairs = [(first[i], 0 if second is None else second[i], i) for i in range(len(first))]
        out[at] = [i for _, _, i in sorted(pairs)]
    return np.moveaxis(out, -1, d)


def orders(tn, draw):
    x = draw.array(draw.shape(1, 3, 3000), draw.pick(FLOATS + INTS + [BOOL]))
    d, descending = draw.int(0, x.ndim - 1), draw.chance(0.5)
    want = stable_order(x, d, descending)
    values, indices = tn.sort(x, d, descending)
    return Each(Same(indices, want), Same(values, np.take_along_axis(x, want, d)))


def tops(tn, draw):
    x = draw.array(draw.shape(1, 3, 3000), draw.pick(FLOATS + INTS))
    d, largest = draw.int(0, x.ndim - 1), draw.chance(0.5)
    k = draw.int(-1, x.shape[d] + 1)
    if not 0 <= k <= x.shape[d]:
        return Refused(lambda: tn.topk(x, k, d, largest=largest), "ValueError")
    want = np.take(stable_order(x, d, largest), range(k), d)
    values, indices = tn.topk(x, k, d, largest=largest)
    return Each(Same(indices, want), Same(values, np.take_along_axis(x, want, d)))


def wrong_dims(tn, draw):
    x = np.zeros((2, 3))
    return draw.pick([Refused(lambda: tn.sum(x, 2), "IndexError"), Refused(lambda: tn.sum(x, (0, -2)), "ValueError"),
                      Refused(lambda: tn.cumsum(x, -3), "IndexError"), Refused(lambda: tn.sort(x, 5), "IndexError")])


PROPERTIES = [sums, integer_sums, extremes, places_of_extremes, moments, logs_of_sums, truths, scans, running_extremes, orders, tops, wrong_dims]
