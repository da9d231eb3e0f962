"""Views against NumPy's."""
import numpy as np

from tenor.checking.draw import FLOATS, INTS
from tenor.checking.outcome import Refused, Same


def some(draw, low=0):
    return draw.array(draw.shape(low), draw.pick(FLOATS[:3] + INTS))


def reshaping(tn, draw):
    x = some(draw)
    count = x.size
    factors = [f for f in range(1, count + 1) if count % f == 0] if 0 < count <= 4000 else [1]
    first = draw.pick(factors)
    shape = (first, -1) if count else (0, 3)
    return Same(tn.reshape(x, shape), np.reshape(x, (first, count // first) if count else (0, 3)))


def viewing(tn, draw):
    x = some(draw, 1)
    if x.size == 0:
        return None
    want = x.reshape(-1)
    if np.shares_memory(want, x):
        return Same(tn.view(x, -1), want)
    try:  # NumPy copied: Tenor may only agree by refusing, unless stride-0 dims merge
        return Same(tn.view(x, -1), want)
    except tn.ShapeError:
        return Refused(lambda: tn.view(x, -1), "ShapeError")


def permuting(tn, draw):
    x = some(draw)
    order = [int(d) for d in draw.rng.permutation(x.ndim)]
    signed = [d - x.ndim if draw.chance(0.3) else d for d in order]
    return Same(tn.permute(x, signed), x.transpose(order))


def slicing(tn, draw):
    x = some(draw, 1)
    d = draw.int(0, x.ndim - 1)
    bound = lambda: None if draw.chance(0.3) else draw.int(-x.shape[d] - 3, x.shape[d] + 3)
    start, stop, step = bound(), bound(), draw.int(1, 4)
    index = [slice(None)] * x.ndim
    index[d] = slice(start, stop, step)
    return Same(tn.slice(x, d, start, stop, step), x[tuple(index)])


def narrowing(tn, draw):
    x = some(draw, 1)
    d = draw.int(0, x.ndim - 1)
    start, length = draw.int(-2, x.shape[d] + 1), draw.int(-1, x.shape[d] + 1)
    first = start + x.shape[d] if start < 0 else start
    if first < 0 or first > x.shape[d] or length < 0 or first + length > x.shape[d]:
        return Refused(lambda: tn.narrow(x, d, start, length), "IndexError")
    return Same(tn.narrow(x, d, start, length), np.take(x, range(first, first + length), d))


def expanding(tn, draw):
    shape = draw.shape(0, 4)
    x = draw.array(draw.broadcastable(shape), draw.pick(FLOATS[:3] + INTS))
    return Same(tn.broadcast_to(x, shape), np.broadcast_to(x, shape))


def diagonals(tn, draw):
    x = some(draw, 2)
    a, b = [int(v) for v in draw.rng.permutation(x.ndim)[:2]]
    offset = draw.int(-4, 4)
    return Same(tn.diagonal(x, offset, a, b), np.diagonal(x, offset, a, b))


def unfolding(tn, draw):
    x = some(draw, 1)
    d, size, step = draw.int(0, x.ndim - 1), draw.int(0, 5), draw.int(1, 3)
    if size > x.shape[d]:
        return Refused(lambda: tn.unfold(x, d, size, step), "ShapeError")
    if size == 0:
        return None
    return Same(tn.unfold(x, d, size, step), np.lib.stride_tricks.sliding_window_view(x, size, d)[(slice(None),) * d + (slice(None, None, step),)])


def wrong_dims(tn, draw):
    x = some(draw)
    n = max(x.ndim, 1)
    d = draw.pick([n, -n - 1, n + 5])
    return Refused(lambda: draw.pick([lambda: tn.transpose(x, d, 0), lambda: tn.unbind(x, d), lambda: tn.select(x, d, 0)])(), "IndexError")


PROPERTIES = [reshaping, viewing, permuting, slicing, narrowing, expanding, diagonals, unfolding, wrong_dims]
