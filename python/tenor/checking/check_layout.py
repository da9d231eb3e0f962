"""Pieces and reshapes against NumPy's."""
import numpy as np
from tenor.checking.draw import FLOATS, INTS
from tenor.checking.outcome import Each, Refused, Same


def some(draw, low=1):
    return draw.array(draw.shape(low), draw.pick(FLOATS[:3] + INTS))


def pieces(tn, draw):
    x = some(draw)
    d = draw.int(0, x.ndim - 1)
    n = x.shape[d]
    if draw.chance(0.5):
        size = draw.int(1, 5)
        got, bounds = tn.split(x, size, d), list(range(size, n, size))
    else:
        parts = draw.int(1, 5)
        size = max(-(-n // parts), 1)
        got, bounds = tn.chunk(x, parts, d), list(range(size, n, size))
    want = np.split(x, bounds, d)
    if n == 0:  # PyTorch gives one empty piece, or as many as were asked for
        return Each(*(Same(p, want[0]) for p in got))
    return Each(Same(len(got), len(want)), *(Same(g, w) for g, w in zip(got, want)))


def merging_and_parting(tn, draw):
    x = some(draw)
    first = draw.int(0, x.ndim - 1)
    last = draw.int(first, x.ndim - 1)
    merged = int(np.prod(x.shape[first:last + 1], dtype=np.int64))
    flat = tn.flatten(x, first, last)
    want = x.reshape(x.shape[:first] + (merged,) + x.shape[last + 1:])
    return Each(Same(flat, want), Same(tn.unflatten(want, first, x.shape[first:last + 1]), x))


def moving(tn, draw):
    x = some(draw)
    a, b = draw.int(-x.ndim, x.ndim - 1), draw.int(-x.ndim, x.ndim - 1)
    return Each(Same(tn.movedim(x, a, b), np.moveaxis(x, a, b)), Same(tn.swapdims(x, a, b), np.swapaxes(x, a, b)))


def lone_dims(tn, draw):
    x = some(draw, 0)
    d = draw.int(-x.ndim - 1, x.ndim)
    ones = [k for k, n in enumerate(x.shape) if n == 1]
    squeezed = Same(tn.squeeze(x), np.squeeze(x))
    one = Same(tn.squeeze(x, draw.pick(ones)), np.squeeze(x, ones[0])) if len(ones) == 1 else None
    return Each(squeezed, *([one] if one else []), Same(tn.unsqueeze(x, d), np.expand_dims(x, d)))


def widening(tn, draw):
    shape = draw.shape(0, 4)
    x = draw.array(draw.broadcastable(shape), draw.pick(FLOATS[:3] + INTS))
    kept = [-1 if k >= len(shape) - x.ndim and x.shape[k - len(shape)] == n and draw.chance(0.3) else n for k, n in enumerate(shape)]
    if shape and x.ndim and x.shape[-1] > 1 and draw.chance(0.2):
        return Refused(lambda: tn.expand(x, *shape[:-1], x.shape[-1] + 1), "ShapeError")
    return Same(tn.expand(x, *kept), np.broadcast_to(x, shape))


PROPERTIES = [pieces, merging_and_parting, moving, lone_dims, widening]
