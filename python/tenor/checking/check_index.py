"""Data-driven movement against NumPy."""
import numpy as np
from tenor.checking.draw import BOOL, FLOATS, INTS, tolerance, wide
from tenor.checking.outcome import Each, Refused, Same

INDEX_TYPES = [np.int8, np.int16, np.int32, np.int64, np.uint8]


def indices(draw, shape, n, bad=0.1):
    """Indices in -n..n-1 (0..n-1 when unsigned) and whether one of them is out of range."""
    t = np.dtype(draw.pick(INDEX_TYPES))
    low = 0 if t.kind == "u" else -n
    if n == 0:
        return np.zeros(shape, t), int(np.prod(shape)) > 0
    i = draw.rng.integers(max(low, np.iinfo(t).min), min(n, np.iinfo(t).max), shape).astype(t)
    wrong = draw.chance(bad) and i.size > 0 and n <= np.iinfo(t).max
    if wrong:
        i.ravel()[draw.int(0, i.size - 1)] = n
    return i, wrong


def some(draw, low=1, most=20000):
    return draw.array(draw.shape(low, 3, most), draw.pick(FLOATS[:3] + INTS))


def selects(tn, draw):
    x = some(draw)
    d = draw.int(0, x.ndim - 1)
    i, wrong = indices(draw, (draw.int(0, 9),), x.shape[d])
    if wrong:
        return Refused(lambda: tn.index_select(x, d, i), "IndexError")
    return Same(tn.index_select(x, d, i), np.take(x, i.astype(np.int64), d) if x.shape[d] else np.zeros(x.shape, x.dtype))


def gathers(tn, draw):
    x = some(draw)
    d = draw.int(0, x.ndim - 1)
    shape = tuple(draw.int(0, 6) if k == d else draw.int(0, n) for k, n in enumerate(x.shape))
    i, wrong = indices(draw, shape, x.shape[d])
    if wrong:
        return Refused(lambda: tn.gather(x, d, i), "IndexError")
    if 0 in shape:
        return Same(tn.gather(x, d, i), np.zeros(shape, x.dtype))
    part = x[tuple(slice(None) if k == d else slice(0, n) for k, n in enumerate(shape))]
    return Same(tn.gather(x, d, i), np.take_along_axis(part, i.astype(np.int64), d))


def scatters(tn, draw):
    x = some(draw, most=2000)
    d = draw.int(0, x.ndim - 1)
    shape = tuple(draw.int(0, 6) if k == d else draw.int(0, n) for k, n in enumerate(x.shape))
    i, wrong = indices(draw, shape, x.shape[d])
    src = draw.array(shape, x.dtype)
    how = draw.pick(["scatter", "scatter_add"])
    call = lambda: getattr(tn, how)(x, d, i, src)
    if wrong:
        return Refused(call, "IndexError", untouched=x)
    want = np.array(wide(x))
    for at in np.ndindex(shape):
        to = list(at)
        to[d] = int(i[at])
        want[tuple(to)] = wide(src)[at] if how == "scatter" else want[tuple(to)] + wide(src)[at]
    return Same(call(), want.astype(x.dtype), 0 if how == "scatter" else tolerance(x.dtype))


def adds(tn, draw):
    x = draw.array(draw.shape(1, 3, 2000), draw.pick(FLOATS[:2] + INTS), special=0)
    d = draw.int(0, x.ndim - 1)
    n = draw.int(0, 7)
    i, wrong = indices(draw, (n,), x.shape[d])
    source = draw.array(tuple(n if k == d else s for k, s in enumerate(x.shape)), x.dtype, special=0)
    if wrong:
        return Refused(lambda: tn.index_add(x, d, i, source), "IndexError")
    want = np.array(x)
    np.add.at(np.moveaxis(want, d, 0), i.astype(np.int64), np.moveaxis(source, d, 0))
    return Same(tn.index_add(x, d, i, source), want, tolerance(x.dtype))


def masks(tn, draw):
    x = some(draw, 0)
    m = draw.array(x.shape, BOOL)
    return Each(Same(tn.masked_select(x, m), x[m]), Same(tn.nonzero(m), np.argwhere(m)))


def joins(tn, draw):
    x = some(draw, most=3000)
    d = draw.int(0, x.ndim - 1)
    y = draw.array(tuple(draw.int(0, 5) if k == d else n for k, n in enumerate(x.shape)), x.dtype)
    return Each(Same(tn.cat([x, y, x], d), np.concatenate([x, y, x], d)), Same(tn.stack([x, x], d), np.stack([x, x], d)))


def repeats(tn, draw):
    x = some(draw, most=500)
    counts = [draw.int(0, 3) for _ in range(x.ndim + draw.int(0, 1))]
    shift, d = draw.int(-9, 9), draw.int(0, x.ndim - 1)
    return Each(Same(tn.tile(x, counts), np.tile(x, counts)), Same(tn.roll(x, shift, d), np.roll(x, shift, d)),
                Same(tn.flip(x, [d]), np.flip(x, d)), Same(tn.repeat_interleave(x, 2, d), np.repeat(x, 2, d)))


def random_index(draw, shape):
    """An index tuple of ints, slices, None, an ellipsis and arrays, valid for that shape."""
    out, dots = [], False
    for n in shape:
        how = draw.int(0, 5)
        if draw.chance(0.15):
            out.append(None)
        if how == 0 and n > 0:
            out.append(draw.int(-n, n - 1))
        elif how == 1 and n > 0:
            out.append(np.asarray(draw.rng.integers(-n, n, draw.pick([(2,), (1,), (3, 2), (2, 1)]))))
        elif how == 2:
            out.append(slice(draw.pick([None, draw.int(-n - 1, n + 1)]), draw.pick([None, draw.int(-n - 1, n + 1)]), draw.int(1, 3)))
        elif how == 3 and not dots:
            out.append(Ellipsis)
            dots = True
            break
        else:
            out.append(slice(None))
    return tuple(out)


def in_two_steps(index, ndim):
    """PyTorch's reading of a mixed index: integers, slices and None first, then the arrays on what they leave.

    NumPy counts an integer beside an array as an array, which can move the result's dims to the front.
    """
    if not any(isinstance(i, np.ndarray) for i in index):
        return index, ()
    used = sum(i is not None and i is not Ellipsis for i in index)
    first, second = [], []
    for i in index:
        if i is Ellipsis:
            second += [slice(None)] * (ndim - used)
        elif not isinstance(i, int):
            second.append(i if isinstance(i, np.ndarray) else slice(None))
        first.append(slice(None) if isinstance(i, np.ndarray) else i)
    return tuple(first), tuple(second)


def on_device(tn, x, index):
    """The key with its arrays where x is: as they are on the CPU."""
    if str(x.device) == "cpu":
        return index
    if isinstance(index, tuple):
        return tuple(on_device(tn, x, i) for i in index)
    return tn.asarray(index) if isinstance(index, np.ndarray) else index


def indexing(tn, draw):
    x = some(draw, 1, 4000)
    index = random_index(draw, x.shape)
    first, second = in_two_steps(index, x.ndim)
    try:
        want = x[first][second]
    except IndexError:
        return None  # index arrays that do not broadcast
    y = tn.asarray(x)
    return Same(y[on_device(tn, y, index)], want)


def assigning(tn, draw):
    x = np.array(some(draw, 1, 4000))
    index = random_index(draw, x.shape)
    first, second = in_two_steps(index, x.ndim)
    want = np.array(x)
    try:
        if second:
            want[first][second] = 1  # x[first] is a view
        else:
            want[first] = 1
    except IndexError:
        return None
    y = tn.asarray(np.array(x))
    y[on_device(tn, y, index)] = 1
    return Same(y, want)


PROPERTIES = [selects, gathers, scatters, adds, masks, joins, repeats, indexing, assigning]
