"""Products, norms, spreads, pairs of extremes and their scans against NumPy in float64."""
import numpy as np
from tenor.checking.check_reduce import some_dims, stable_order
from tenor.checking.draw import BOOL, FLOATS, INTS, tolerance, wide
from tenor.checking.outcome import Each, Refused, Same


def products(tn, draw):
    x = draw.array(draw.shape(most=2000), draw.pick(FLOATS), special=0, scale=1)
    dims, axes = some_dims(draw, x)
    want = np.prod(wide(x), axis=axes)
    return Same(tn.prod(x, dims), np.asarray(want).astype(x.dtype), 30 * tolerance(x.dtype))


def running_products(tn, draw):
    x = draw.array(draw.shape(1, 3, 2000), draw.pick(FLOATS), special=0, scale=0.7)
    d = draw.int(0, x.ndim - 1)
    return Same(tn.cumprod(x, d), np.cumprod(wide(x), d).astype(x.dtype), 30 * tolerance(x.dtype))


def running_logsumexps(tn, draw):
    x = draw.array(draw.shape(1, 3, 2000), draw.pick(FLOATS), special=0)
    d = draw.int(0, x.ndim - 1)
    return Same(tn.logcumsumexp(x, d), np.logaddexp.accumulate(wide(x), d), 10 * tolerance(x.dtype))


def lengths(tn, draw):
    x = draw.array(draw.shape(), draw.pick(FLOATS), special=0)
    dims, axes = some_dims(draw, x)
    keep, p = draw.chance(0.5), draw.pick([0, 1, 2, 3])
    v = np.abs(wide(x))
    want = np.sum(v != 0, axis=axes, keepdims=keep) if p == 0 else np.sum(v**p, axis=axes, keepdims=keep) ** (1 / p)
    return Same(tn.norm(x, p, dims, keep), np.asarray(want, np.float64).astype(x.dtype), 10 * tolerance(x.dtype))


def spreads(tn, draw):
    x = draw.array(draw.shape(1), draw.pick(FLOATS), special=0)
    d, correction = draw.int(0, x.ndim - 1), draw.int(0, 1)
    if x.shape[d] <= correction:
        return Same(np.isnan(wide(np.asarray(tn.std(x, d, correction=correction)))), np.ones(np.delete(x.shape, d), bool))
    return Same(tn.std(x, d, correction=correction), wide(x).std(d, ddof=correction), 10 * tolerance(x.dtype))


def pairs_of_extremes(tn, draw):
    """(values, indices) along a dim: the first NaN, else the first of equals."""
    x = draw.array(draw.shape(1, 3, 3000), draw.pick(FLOATS + INTS + [BOOL]))
    name, d, keep = draw.pick(["max", "min"]), draw.int(0, x.ndim - 1), draw.chance(0.5)
    if x.shape[d] == 0:
        return Refused(lambda: getattr(tn, name)(x, d), "ShapeError") if np.prod(np.delete(x.shape, d)) > 0 else None
    got = getattr(tn, name)(x, d, keep)
    places = np.expand_dims(np.argmax(wide(x), d) if name == "max" else np.argmin(wide(x), d), d)
    values = np.take_along_axis(x, places, d)
    return Each(Same(got.indices, places if keep else places.squeeze(d)), Same(got.values, values if keep else values.squeeze(d)))


def orders(tn, draw):
    x = draw.array(draw.shape(1, 3, 3000), draw.pick(FLOATS + INTS))
    d, descending = draw.int(0, x.ndim - 1), draw.chance(0.5)
    return Same(tn.argsort(x, d, descending), stable_order(x, d, descending))


PROPERTIES = [products, running_products, running_logsumexps, lengths, spreads, pairs_of_extremes, orders]
