"""kthvalue, median, unique, searchsorted, bincount. (sort and topk are in check_reduce.py.)"""
import numpy as np

from tenor.checking.draw import BOOL, FLOATS, INTS, wide
from tenor.checking.check_reduce import stable_order
from tenor.checking.outcome import Each, Refused, Same


def is_nan(x):
    v = wide(x)
    return np.isnan(v) if v.dtype.kind == "f" else np.zeros(v.shape, bool)


def bits(x):
    """Elements as their bits, so that -0 and 0 differ."""
    x = np.ascontiguousarray(x)
    return x if x.dtype == BOOL else x.view(f"u{x.dtype.itemsize}")


def picked(x, places, d, keepdim, got):
    values = np.take_along_axis(x, places, d)
    if not keepdim:
        values, places = values.squeeze(d), places.squeeze(d)
    return Each(Same(got.indices, places), Same(bits(got.values), bits(values)))


def kth(tn, draw):
    x = draw.array(draw.shape(1, 3, 6000), draw.pick(FLOATS + INTS + [BOOL]))
    d, keepdim = draw.int(0, x.ndim - 1), draw.chance(0.5)
    k = draw.int(0, x.shape[d] + 1)
    if not 1 <= k <= x.shape[d]:
        return Refused(lambda: tn.kthvalue(x, k, d, keepdim), "ValueError")
    return picked(x, np.take(stable_order(x, d, False), [k - 1], d), d, keepdim, tn.kthvalue(x, k, d, keepdim))


def medians(tn, draw):
    x = draw.array(draw.shape(1, 3, 6000), draw.pick(FLOATS + INTS + [BOOL]))
    d, keepdim = draw.int(0, x.ndim - 1), draw.chance(0.5)
    if x.shape[d] == 0:
        return Refused(lambda: tn.median(x, d), "ShapeError") if np.prod(np.delete(x.shape, d)) > 0 else None
    if x.size == 0:
        return Same(tn.median(x, d, True).values, np.zeros(np.where(np.arange(x.ndim) == d, 1, x.shape)))
    nan = is_nan(x)
    places = np.where(nan.any(d, keepdims=True), nan.argmax(d, keepdims=True), np.take(stable_order(x, d, False), [(x.shape[d] - 1) // 2], d))
    flat = np.ascontiguousarray(x).reshape(-1)
    place = is_nan(flat).argmax() if nan.any() else stable_order(flat, 0, False)[(x.size - 1) // 2]
    return Each(picked(x, places, d, keepdim, tn.median(x, d, keepdim)), Same(tn.median(x), wide(flat)[place]))


def uniques(tn, draw):
    x = draw.array(draw.shape(0, 3, 3000), draw.pick(FLOATS + INTS + [BOOL]))
    flat = np.ascontiguousarray(x).reshape(-1)
    order = stable_order(flat, 0, False)
    v = wide(flat)[order]
    starts = np.array([p == 0 or not v[p] == v[p - 1] for p in range(len(v))], bool)
    group = np.cumsum(starts) - 1
    inverse = np.empty(len(v), np.int64)
    inverse[order] = group
    got = tn.unique(x, return_inverse=True, return_counts=True)
    return Each(Same(bits(got.values), bits(flat[order][starts])), Same(got.inverse_indices, inverse.reshape(x.shape)),
                Same(got.counts, np.bincount(group, minlength=int(starts.sum()))))


def unique_slices(tn, draw):
    x = draw.array(draw.shape(1, 3, 2000), draw.pick(INTS))
    d = draw.int(0, x.ndim - 1)
    if x.size == 0:
        return None
    values, inverse, counts = np.unique(x % 3, return_inverse=True, return_counts=True, axis=d)
    got = tn.unique(x % 3, return_inverse=True, return_counts=True, dim=d)
    return Each(Same(got.values, values), Same(got.inverse_indices, inverse.reshape(-1)), Same(got.counts, counts))


def searches(tn, draw):
    dtype, rows, right = draw.pick(FLOATS + INTS), draw.shape(0, 2, 30), draw.chance(0.5)
    sequence, values = draw.values(rows + (draw.int(0, 200),), dtype), draw.array(rows + (draw.int(0, 300),), dtype)
    sequence = np.take_along_axis(sequence, stable_order(sequence, -1, False), -1)
    if draw.chance(0.1) and rows:
        return Refused(lambda: tn.searchsorted(sequence, values[..., None], right), "ShapeError")
    want = np.empty(values.shape, np.int64)
    for at in np.ndindex(rows):
        want[at] = np.searchsorted(wide(sequence[at]), wide(values[at]), "right" if right else "left")
    return Same(tn.searchsorted(sequence, values, right), want)


def counts(tn, draw):
    x = draw.array(draw.shape(1, 1), draw.pick(INTS))
    least = draw.int(0, 20)
    if x.size and x.astype(object).max() > 100000:
        return None
    if x.size and x.astype(object).min() < 0:
        return Refused(lambda: tn.bincount(x, minlength=least), "ValueError")
    weights = draw.array(x.shape, draw.pick(FLOATS + INTS))
    with np.errstate(all="ignore"):
        sums = np.bincount(x.astype(np.int64), wide(weights).astype(np.float64), minlength=least)
    return Each(Same(tn.bincount(x, minlength=least), np.bincount(x.astype(np.int64), minlength=least)),
                Same(tn.bincount(x, weights, least), sums, 1e-6))


PROPERTIES = [kth, medians, uniques, unique_slices, searches, counts]
