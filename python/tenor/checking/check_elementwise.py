"""Elementwise operators against NumPy in float64."""
import numpy as np
from tenor.checking.draw import BOOL, FLOATS, INTS, tolerance, wide
from tenor.checking.outcome import Each, Refused, Same
from tenor.checking.scipy_free import erf

UNARY = {
    "neg": lambda x: -x, "abs": np.abs, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "exp": np.exp, "exp2": np.exp2,
    "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "sin": np.sin, "cos": np.cos,
    "tanh": np.tanh, "atan": np.arctan, "asinh": np.arcsinh, "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.where(x < 0, 0.0, x), "floor": np.floor, "ceil": np.ceil, "round": np.round, "trunc": np.trunc,
    "reciprocal": lambda x: 1 / x, "erf": erf, "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
}
BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide, "maximum": np.maximum, "minimum": np.minimum}
COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}


def unary_floats(tn, draw):
    name = draw.pick(list(UNARY))
    x = draw.array(draw.shape(), draw.pick(FLOATS))
    want = UNARY[name](wide(x))
    if name in ("tanh", "atan") or want.dtype == bool:
        return Same(getattr(tn, name)(x), want, tolerance(x.dtype))
    # One rounding to x's dtype, and its overflow to infinity.
    return Same(getattr(tn, name)(x), np.asarray(want).astype(x.dtype), tolerance(x.dtype))


def binary_floats(tn, draw):
    name, shape = draw.pick(list(BINARY)), draw.shape()
    t = draw.pick(FLOATS)
    x, y = draw.array(draw.broadcastable(shape), t), draw.array(draw.broadcastable(shape), t)
    want = BINARY[name](wide(x), wide(y))
    return Same(getattr(tn, name)(x, y), np.asarray(want).astype(t), tolerance(t))


def binary_integers(tn, draw):
    name, shape = draw.pick(["add", "sub", "mul", "maximum", "minimum"]), draw.shape()
    t = draw.pick(INTS)
    x, y = draw.array(draw.broadcastable(shape), t), draw.array(draw.broadcastable(shape), t)
    got = getattr(tn, name)(x, y)
    return Each(Same(got, BINARY[name](x, y)), Same(str(got.dtype), str(t)))


def division_never_traps(tn, draw):
    shape, t = draw.shape(), draw.pick(INTS)
    x, y = draw.array(draw.broadcastable(shape), t, special=0.6), draw.array(draw.broadcastable(shape), t, special=0.6)
    a, b = [v.astype(object) for v in np.broadcast_arrays(x, y)]
    info = np.iinfo(t)
    wrap = lambda v: (v - info.min) % (info.max - info.min + 1) + info.min
    div = np.array([wrap(p // q) if q else 0 for p, q in zip(a.ravel(), b.ravel())], t).reshape(a.shape)
    mod = np.array([p % q if q else 0 for p, q in zip(a.ravel(), b.ravel())], t).reshape(a.shape)
    return Each(Same(tn.floor_divide(x, y), div), Same(tn.remainder(x, y), mod))


def comparing(tn, draw):
    name, shape = draw.pick(list(COMPARE)), draw.shape()
    types = FLOATS[:3] + [t for t in INTS if t != np.uint64]
    x, y = draw.array(draw.broadcastable(shape), draw.pick(types)), draw.array(draw.broadcastable(shape), draw.pick(types))
    if (x.dtype.kind == "f") != (y.dtype.kind == "f"):
        return None  # mixed kinds meet in the float dtype: compared elsewhere
    return Same(getattr(tn, name)(x, y), COMPARE[name](x, y))


def scalars(tn, draw):
    t = draw.pick(FLOATS + INTS)
    x = draw.array(draw.shape(), t, special=0)
    if t in INTS and draw.chance(0.5):
        info = np.iinfo(t)
        s = draw.pick([info.min - 1, info.max + 1, info.min, info.max])
        if not info.min <= s <= info.max:
            return Refused(lambda: tn.add(x, s), "ValueError")
        return Same(tn.add(x, s), x + np.array(s, t))
    s = draw.int(-3, 3) if t in INTS and t.kind == "i" else draw.int(0, 3)
    got = tn.mul(x, s)
    return Each(Same(got, (wide(x) * s).astype(t), tolerance(t)), Same(str(got.dtype), str(t)))


def casting(tn, draw):
    x = draw.array(draw.shape(), draw.pick(FLOATS + INTS + [BOOL]))
    t = draw.pick(FLOATS + INTS + [BOOL])
    if x.dtype in FLOATS and t in INTS:
        info, v = np.iinfo(t), wide(x)
        flat = [0 if np.isnan(e) else info.min if e <= info.min else info.max if e >= info.max else int(e) for e in v.ravel()]
        return Same(tn.to(x, str(t)), np.array(flat, t).reshape(x.shape))
    return Same(tn.to(x, str(t)), x.astype(t))


def selecting(tn, draw):
    shape, t = draw.shape(), draw.pick(FLOATS + INTS)
    c = draw.array(draw.broadcastable(shape), BOOL)
    x, y = draw.array(draw.broadcastable(shape), t), draw.array(draw.broadcastable(shape), t)
    return Each(Same(tn.where(c, x, y), np.where(c, x, y)), Same(tn.masked_fill(x, c, 1), np.where(c, np.ones((), t), x)))


def clamping(tn, draw):
    t = draw.pick(FLOATS)
    x = draw.array(draw.shape(), t)
    low, high = sorted([float(draw.int(-4, 4)), float(draw.int(-4, 4))])
    return Same(tn.clamp(x, low, high), np.clip(x, np.array(low, t), np.array(high, t)))


def writing_into_out(tn, draw):
    shape, t = draw.shape(), draw.pick(FLOATS)
    x, y = draw.array(draw.broadcastable(shape), t), draw.array(draw.broadcastable(shape), t)
    shape = np.broadcast_shapes(x.shape, y.shape)
    out = draw.layout(np.full(shape, np.nan, t))
    call = lambda: tn.add(x, y, out=out)
    if any(s == 0 and n > 1 for s, n in zip(out.strides, out.shape)) and out.size:
        return Refused(call, "ValueError", untouched=out)
    assert call() is out
    return Same(out, (wide(x) + wide(y)).astype(t), tolerance(t))


def in_place_over_itself(tn, draw):
    """A write that overlaps its own input ends as if everything had been read first."""
    n, t = draw.int(3, 200), draw.pick(FLOATS[:2] + INTS)
    buf = draw.values((n,), t, special=0)
    lag = draw.int(1, 2)
    want = np.array(buf)
    want[lag:] = want[lag:] + np.array(buf)[:-lag]
    x = tn.from_dlpack(buf)
    x[lag:].add_(x[:-lag])
    return Same(x, want, tolerance(t))


def shapes_that_do_not_meet(tn, draw):
    a, b = (draw.int(2, 5), 3), (4,)
    return Refused(lambda: tn.add(np.zeros(a), np.zeros(b)), "ShapeError")


PROPERTIES = [unary_floats, binary_floats, binary_integers, division_never_traps, comparing, scalars, casting, selecting,
              clamping, writing_into_out, in_place_over_itself, shapes_that_do_not_meet]
