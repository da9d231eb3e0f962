"""Writes and reads at places that data names, repetition, one-hot, against NumPy."""
import numpy as np
from tenor.checking.check_index import indices
from tenor.checking.draw import BOOL, FLOATS, INTS, tolerance, wide
from tenor.checking.outcome import Refused, Same

EASY = FLOATS[:3] + INTS


def embeddings(tn, draw):
    table = draw.array((draw.int(1, 20), draw.int(0, 9)), draw.pick(EASY))
    i, wrong = indices(draw, draw.shape(0, 2, 50), len(table))
    return Refused(lambda: tn.embedding(i, table), "IndexError") if wrong else Same(tn.embedding(i, table), table[i.astype(np.int64)])


def taken_along(tn, draw):
    x = draw.array(draw.shape(1, 3, 3000), draw.pick(EASY))
    d = draw.int(0, x.ndim - 1)
    if x.shape[d] == 0:
        return None
    shape = tuple(draw.int(0, 5) if k == d else n if draw.chance(0.5) else 1 for k, n in enumerate(x.shape))
    i, wrong = indices(draw, shape, x.shape[d])
    if wrong:
        return Refused(lambda: tn.take_along_dim(x, i, d), "IndexError") if 0 not in x.shape else None
    wide_i = np.broadcast_to(i.astype(np.int64), tuple(n if k == d else x.shape[k] for k, n in enumerate(shape)))
    return Same(tn.take_along_dim(x, i, d), np.take_along_axis(x, wide_i, d))


def puts(tn, draw):
    n, m = draw.int(1, 9), draw.int(1, 6)
    x = draw.array((n, m), draw.pick(EASY), special=0)
    count = draw.int(0, 8)
    rows, wrong = indices(draw, (count,), n)
    values, add = draw.array((count, m), x.dtype, special=0), draw.chance(0.5)
    if wrong:
        return Refused(lambda: tn.index_put(x, [rows], values, add), "IndexError", untouched=x)
    want = np.array(wide(x))
    for row, value in zip(rows.astype(np.int64), wide(values)):
        want[row] = want[row] + value if add else value
    return Same(tn.index_put(x, [rows], values, add), np.asarray(want).astype(x.dtype), 4 * tolerance(x.dtype))


def masked_writes(tn, draw):
    shape, t = draw.shape(0, 3, 2000), draw.pick(EASY)
    x, mask = draw.array(shape, t), draw.array(shape, BOOL)
    count = int(np.sum(mask))
    source = draw.array((count + draw.int(0, 3),), t)
    want = np.array(x)
    want[mask] = source[:count]
    return Same(tn.masked_scatter(x, mask, source), want)


def reduced_scatters(tn, draw):
    how = draw.pick(["sum", "amax", "amin"])
    n, count = draw.int(1, 9), draw.int(0, 20)
    t = draw.pick([np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.int32)])
    x, src = draw.array((n,), t, special=0), draw.array((count,), t, special=0)
    i, wrong = indices(draw, (count,), n)
    if wrong:
        return Refused(lambda: tn.scatter_reduce(x, 0, i, src, how), "IndexError", untouched=x)
    want = np.array(wide(x))
    {"sum": np.add, "amax": np.maximum, "amin": np.minimum}[how].at(want, i.astype(np.int64), wide(src))
    return Same(tn.scatter_reduce(x, 0, i, src, how), want, 10 * tolerance(t))


def one_hots(tn, draw):
    classes = draw.int(1, 9)
    x = np.array(draw.rng.integers(0, classes, draw.shape(0, 3, 300)))
    if x.size and draw.chance(0.1):
        return Refused(lambda: tn.one_hot(x + classes, classes), "IndexError")
    return Same(tn.one_hot(x, classes), np.eye(classes, dtype=np.int64)[x])


def repetition(tn, draw):
    x = draw.array(draw.shape(0, 3, 300), draw.pick(EASY))
    sizes = [draw.int(0, 3) for _ in range(max(1, draw.int(x.ndim, x.ndim + 1)))]
    return Same(tn.repeat(x, *sizes), np.tile(x, sizes))


PROPERTIES = [embeddings, taken_along, puts, masked_writes, reduced_scatters, one_hots, repetition]
