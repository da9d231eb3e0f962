"""Contractions against NumPy in float64."""
import numpy as np
from tenor.checking.draw import FLOATS, INTS, tolerance, wide
from tenor.checking.outcome import Refused, Same

LENGTHS = [0, 1, 1, 2, 3, 5, 8, 17, 33, 64, 130]


def scaled(got, want, x, y, t):
    """Compared relative to the norms of the operands: a product's error grows with them, not with the result."""
    size = max(np.linalg.norm(wide(x).ravel()) * np.linalg.norm(wide(y).ravel()), 1e-30)
    return Same(wide(got) / size, np.asarray(want, np.float64) / size, tolerance(t) / 4)


def products(tn, draw):
    m, k, n = draw.pick(LENGTHS), draw.pick(LENGTHS), draw.pick(LENGTHS)
    batch = draw.shape(0, 2, 6)
    t = draw.pick(FLOATS)
    x = draw.array(draw.broadcastable(batch) + (m, k), t, special=0, scale=1)
    y = draw.array(draw.broadcastable(batch) + (k, n), t, special=0, scale=1)
    if draw.chance(0.3):
        y = draw.array(y.shape[:-2] + (n, k), t, special=0, scale=1).swapaxes(-1, -2)
    return scaled(tn.matmul(x, y), np.matmul(wide(x), wide(y)), x, y, t)


def integer_products(tn, draw):
    m, k, n, t = draw.int(0, 9), draw.int(0, 9), draw.int(0, 9), draw.pick(INTS)
    x, y = draw.array((m, k), t), draw.array((k, n), t)
    return Same(tn.matmul(x, y), np.matmul(x, y))


def vectors(tn, draw):
    k, t = draw.pick(LENGTHS), draw.pick(FLOATS)
    x, y = draw.array((k,), t, special=0), draw.array((k,), t, special=0)
    return scaled(tn.dot(x, y), np.dot(wide(x), wide(y)), x, y, t)


def layers(tn, draw):
    m, k, n, t = draw.pick(LENGTHS), draw.pick(LENGTHS), draw.pick(LENGTHS), draw.pick(FLOATS)
    x, w, b = (draw.array(s, t, special=0, scale=1) for s in ((m, k), (n, k), (n,)))
    want = wide(x) @ wide(w).T + wide(b)
    size = 1 + np.linalg.norm(wide(x).ravel()) * np.linalg.norm(wide(w).ravel()) + np.abs(wide(b)).max(initial=0)
    return Same(wide(tn.linear(x, w, b)) / size, want / size, tolerance(t) / 2)


def sums_of_products(tn, draw):
    """einsum with random subscripts: kept, summed, repeated, broadcast, with an ellipsis or without."""
    letters = "abcde"
    sizes = {c: draw.pick([1, 2, 3, 4]) for c in letters}
    operands, terms = [], []
    for _ in range(draw.int(1, 3)):
        term = "".join(draw.pick(letters) for _ in range(draw.int(0, 3)))
        terms.append(term)
        operands.append(draw.array(tuple(sizes[c] for c in term), np.float64, special=0))
    used = sorted(set("".join(terms)))
    out = "".join(c for c in used if draw.chance(0.5))
    text = ",".join(terms) + ("->" + out if draw.chance(0.8) else "")
    want = np.einsum(text, *[np.array(o) for o in operands])
    return Same(tn.einsum(text, *operands), want, 1e-9, text)


def mismatches(tn, draw):
    k, l = draw.int(2, 5), draw.int(6, 9)
    return Refused(lambda: tn.matmul(np.zeros((3, k)), np.zeros((l, 2))), "ShapeError")


PROPERTIES = [products, integer_products, vectors, layers, sums_of_products, mismatches]
