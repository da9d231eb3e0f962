"""New arrays, borders and triangles against NumPy."""
import numpy as np
from tenor.checking.draw import FLOATS, INTS, tolerance
from tenor.checking.outcome import Each, Refused, Same

EASY = FLOATS[:3] + INTS


def filled(tn, draw):
    name, shape, t = draw.pick(["zeros", "ones", "full", "empty"]), draw.shape(), draw.pick(EASY)
    value = {"zeros": 0, "ones": 1, "full": draw.int(0, 9), "empty": 0}[name]
    got = tn.full(shape, value, dtype=t) if name == "full" else getattr(tn, name)(*shape, dtype=t)
    want = np.full(shape, value, t)
    return Each(Same(got if name != "empty" else np.zeros(got.shape), want), Same(str(got.dtype), t.name))


def filled_alike(tn, draw):
    name, x = draw.pick(["zeros_like", "ones_like", "full_like", "empty_like"]), draw.array(draw.shape(), draw.pick(EASY))
    value = {"zeros_like": 0, "ones_like": 1, "full_like": draw.int(0, 9), "empty_like": 0}[name]
    got = tn.full_like(x, value) if name == "full_like" else getattr(tn, name)(x)
    return Each(Same(got if name != "empty_like" else np.zeros(got.shape), np.full(x.shape, value, x.dtype)), Same(str(got.dtype), x.dtype.name))


def ranges(tn, draw):
    if draw.chance(0.3):
        start, end, steps = draw.int(-9, 9) / 4, draw.int(-9, 9) / 4, draw.int(0, 50)
        return Same(tn.linspace(start, end, steps), np.linspace(start, end, steps), tolerance("float32"))
    start, end, step = draw.int(-20, 20), draw.int(-20, 20), draw.int(-4, 4)
    if step == 0 or (end - start) * step < 0:
        return Refused(lambda: tn.arange(start, end, step), "ValueError")
    return Same(tn.arange(start, end, step), np.arange(start, end, step))


def diagonals(tn, draw):
    name = draw.pick(["eye", "tril", "triu"])
    if name == "eye":
        n, m = draw.int(0, 9), draw.int(0, 9)
        return Same(tn.eye(n, m), np.eye(n, m))
    x, k = draw.array(draw.shape(2), draw.pick(EASY)), draw.int(-5, 5)
    return Same(getattr(tn, name)(x, k), getattr(np, name)(x, k))


def borders(tn, draw):
    x = draw.array(draw.shape(1, 3, 3000), draw.pick(EASY))
    sides = [(draw.int(0, 4), draw.int(0, 4)) for _ in range(draw.int(1, x.ndim))]  # of the last dim first
    flat = [n for side in sides for n in side]
    return Same(tn.pad(x, flat, "constant", 1), np.pad(x, [(0, 0)] * (x.ndim - len(sides)) + sides[::-1], constant_values=1))


PROPERTIES = [filled, filled_alike, ranges, diagonals, borders]
