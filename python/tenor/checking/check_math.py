"""Elementwise functions whose domain or rounding asks for care, logic and bits, against NumPy."""
import numpy as np
from tenor.checking.draw import BOOL, FLOATS, INTS, tolerance, wide
from tenor.checking.outcome import Refused, Same
from tenor.checking.scipy_free import erf

INSIDE = {"acos": np.arccos, "asin": np.arcsin, "atanh": np.arctanh}  # defined on [-1, 1]
ANYWHERE = {"acosh": np.arccosh, "sinh": np.sinh, "cosh": np.cosh, "tan": np.tan, "sign": np.sign}
LOGIC = {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}
BITS = {"bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor}


def negative_infinity(f, limit=0.0):
    """f, with its limit where the formula gives NaN."""
    return lambda x: np.where(x == -np.inf, limit, f(x))


ACTIVATIONS = {
    "gelu": (negative_infinity(lambda x: x * (1 + erf(x / np.sqrt(2))) / 2), {}),
    "silu": (negative_infinity(lambda x: x / (1 + np.exp(-x))), {}),
    "mish": (negative_infinity(lambda x: x * np.tanh(np.logaddexp(0, x))), {}),
    "hardswish": (negative_infinity(lambda x: x * np.clip(x + 3, 0, 6) / 6), {}),
    "softplus": (lambda x: np.logaddexp(0, 2 * x) / 2, {"beta": 2.0}),
    "elu": (lambda x: np.where(x > 0, x, 1.5 * np.expm1(np.minimum(x, 0))), {"alpha": 1.5}),
    "leaky_relu": (lambda x: np.where(x > 0, x, 0.25 * x), {"negative_slope": 0.25}),
}


def functions(tn, draw):
    name = draw.pick([*INSIDE, *ANYWHERE])
    x = draw.array(draw.shape(), draw.pick(FLOATS), special=0.1, scale=0.5 if name in INSIDE else 3.0)
    want = np.asarray({**INSIDE, **ANYWHERE}[name](wide(x))).astype(x.dtype)
    return Same(getattr(tn, name)(x), want, 2 * tolerance(x.dtype))


def activations(tn, draw):
    name = draw.pick(list(ACTIVATIONS))
    formula, options = ACTIVATIONS[name]
    x = draw.array(draw.shape(), draw.pick(FLOATS))
    return Same(getattr(tn, name)(x, **options), np.asarray(formula(wide(x))).astype(x.dtype), 2 * tolerance(x.dtype))


def asarray_of(f, x):
    """f(x) as an array: NumPy makes a scalar of what has no dims, which stays on the host where arrays go to a device."""
    return np.asarray(f(x))


# Of two operands: the formula, and how many units of the dtype's tolerance.
PAIRS = {"atan2": (np.arctan2, 2), "pow": (np.power, 10)}


def two_operands(tn, draw):
    name, shape, t = draw.pick([*PAIRS, "fmod", "lerp"]), draw.shape(), draw.pick(FLOATS)
    x, y = draw.array(draw.broadcastable(shape), t, special=0), draw.array(draw.broadcastable(shape), t, special=0)
    if name == "lerp":
        w = draw.array(draw.broadcastable(shape), t, special=0, scale=0.5)
        want, size = wide(x) + wide(w) * (wide(y) - wide(x)), 1 + np.abs(wide(w)) * (np.abs(wide(x)) + np.abs(wide(y)))
        return Same(wide(tn.lerp(x, y, w)) / size, want / size, 2 * tolerance(t))
    if name == "fmod":  # of whole numbers, which have exact remainders in every dtype
        x, y = asarray_of(np.round, x), asarray_of(np.round, y)
        return Same(tn.fmod(x, y), np.fmod(wide(x), wide(y)))
    x = asarray_of(np.abs, x) if name == "pow" else x
    formula, units = PAIRS[name]
    return Same(getattr(tn, name)(x, y), np.asarray(formula(wide(x), wide(y))).astype(t), units * tolerance(t))


def logic(tn, draw):
    name, shape = draw.pick([*LOGIC, "logical_not"]), draw.shape()
    x, y = (draw.array(draw.broadcastable(shape), draw.pick(FLOATS + INTS + [BOOL])) for _ in range(2))
    if name == "logical_not":
        return Same(tn.logical_not(x), ~(wide(x) != 0))
    if {x.dtype.kind, y.dtype.kind} == {"i", "u"} and np.dtype(np.uint64) in (x.dtype, y.dtype):
        return Refused(lambda: getattr(tn, name)(x, y), "DTypeError")
    return Same(getattr(tn, name)(x, y), LOGIC[name](wide(x) != 0, wide(y) != 0))


def bits(tn, draw):
    name, shape, t = draw.pick([*BITS, "bitwise_not"]), draw.shape(), draw.pick(INTS + [BOOL])
    x, y = draw.array(draw.broadcastable(shape), t), draw.array(draw.broadcastable(shape), t)
    if draw.chance(0.05):
        return Refused(lambda: tn.bitwise_and(x, np.ones((), np.float32)), "DTypeError")
    return Same(tn.bitwise_not(x), ~x) if name == "bitwise_not" else Same(getattr(tn, name)(x, y), BITS[name](x, y))


def shifts(tn, draw):
    """By the width or more everything is shifted out."""
    name, shape, t = draw.pick(["bitwise_left_shift", "bitwise_right_shift"]), draw.shape(most=3000), draw.pick(INTS)
    x = draw.array(shape, t, special=0.5)
    width = 8 * t.itemsize
    y = np.array(draw.rng.integers(0, width + 3, shape)).astype(t)
    a, b = x.astype(object).ravel(), y.astype(object).ravel()
    wrap = lambda v: (v + (1 << width - 1)) % (1 << width) - (1 << width - 1) if t.kind == "i" else v % (1 << width)
    want = [wrap(int(p) << int(q)) if name == "bitwise_left_shift" else int(p) >> int(q) for p, q in zip(a, b)]
    return Same(getattr(tn, name)(x, y), np.array(want, t).reshape(x.shape))


def closeness(tn, draw):
    shape, t = draw.shape(), draw.pick([np.dtype(np.float64), np.dtype(np.float32)])
    x = draw.values(shape, t)
    y = np.array(x)
    y[draw.rng.random(shape) < 0.5] += draw.pick([0.0, 1.0, -0.25])
    nan = draw.chance(0.5)
    return Same(tn.isclose(x, y, 0.125, 0.5, nan), np.isclose(wide(x), wide(y), 0.125, 0.5, nan))


PROPERTIES = [functions, activations, two_operands, logic, bits, shifts, closeness]
