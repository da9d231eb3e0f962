"""Row operators against their formulas in float64."""
import numpy as np
from tenor.checking.draw import FLOATS, tolerance, wide
from tenor.checking.outcome import Each, Refused, Same
from tenor.checking.scipy_free import erf


def row(draw, special=0.0):
    shape = draw.shape(1)
    return draw.array(shape, draw.pick(FLOATS), special=special)


def weights(draw, x):
    t = x.dtype if draw.chance(0.5) or x.dtype == np.float64 else np.dtype(np.float32)
    return draw.array((x.shape[-1],), t, special=0)


def layer_norms(tn, draw):
    x = row(draw)
    gamma, beta = weights(draw, x), weights(draw, x) if draw.chance(0.5) else None
    if x.shape[-1] == 0:
        return Refused(lambda: tn.layer_norm(x, gamma, beta), "ShapeError")
    v = wide(x)
    want = (v - v.mean(-1, keepdims=True)) / np.sqrt(v.var(-1, keepdims=True) + 1e-5) * wide(gamma)
    want = want + wide(beta) if beta is not None else want
    return Same(tn.layer_norm(x, gamma, beta), want, 4 * tolerance(x.dtype))


def rms_norms(tn, draw):
    x = row(draw)
    gamma = weights(draw, x)
    if x.shape[-1] == 0:
        return Refused(lambda: tn.rms_norm(x, gamma), "ShapeError")
    v, offset = wide(x), float(draw.int(0, 1))
    want = v / np.sqrt((v * v).mean(-1, keepdims=True) + 1e-6) * (wide(gamma) + offset)
    return Same(tn.rms_norm(x, gamma, weight_offset=offset), want, 4 * tolerance(x.dtype))


def fused_adds(tn, draw):
    """add_rms_norm has the bits of its two steps."""
    x = row(draw)
    if x.shape[-1] == 0:
        return None
    residual, gamma = draw.array(x.shape, x.dtype, special=0), weights(draw, x)
    y, r = tn.add_rms_norm(x, residual, gamma)
    total = tn.add(x, residual)
    return Each(Same(r, total), Same(y, tn.rms_norm(total, gamma)))


def softmaxes(tn, draw):
    x = row(draw, special=0.2)
    d = draw.int(-x.ndim, x.ndim - 1)
    v = wide(x)
    top = np.max(v, axis=d, keepdims=True, initial=-np.inf)
    e = np.exp(v - top)
    want = e / np.sum(e, axis=d, keepdims=True)
    return Each(Same(tn.softmax(x, d), want, tolerance(x.dtype)),
                Same(tn.log_softmax(x, d), v - top - np.log(np.sum(e, axis=d, keepdims=True)), 2 * tolerance(x.dtype)))


def gates(tn, draw):
    x = row(draw, special=0.1)
    up = draw.array(x.shape, x.dtype, special=0)
    g = wide(x)
    silu = np.where(g == -np.inf, 0, g / (1 + np.exp(-g)))
    gelu = np.where(g == -np.inf, 0, g * (1 + erf(g / np.sqrt(2))) / 2)
    t = tolerance(x.dtype)
    return Each(Same(tn.silu_mul(x, up), (silu * wide(up)).astype(x.dtype), t),
                Same(tn.gelu_mul(x, up), (gelu * wide(up)).astype(x.dtype), t))


def turns(tn, draw):
    s, h, half = draw.int(0, 5), draw.int(1, 3), draw.int(1, 9)
    d = 2 * half + draw.int(0, 4)
    t = draw.pick(FLOATS)
    x = draw.array((draw.int(1, 2), s, h, d), t, special=0)
    angle = draw.rng.standard_normal((s + 3, half)).astype(np.float32)
    cos, sin = np.cos(angle), np.sin(angle)
    positions = draw.rng.integers(0, s + 3, (s,))
    c, n = (wide(v)[positions][:, None, :] for v in (cos, sin))
    v, interleaved = wide(x), draw.chance(0.5)
    a, b = (v[..., 0:2 * half:2], v[..., 1:2 * half:2]) if interleaved else (v[..., :half], v[..., half:2 * half])
    first, second = a * c - b * n, a * n + b * c
    turned = np.stack([first, second], -1).reshape(first.shape[:-1] + (2 * half,)) if interleaved else np.concatenate([first, second], -1)
    want = np.concatenate([turned, v[..., 2 * half:]], -1)
    return Same(tn.rope(x, cos, sin, interleaved=interleaved, rotary_dim=2 * half, positions=positions), want, 2 * tolerance(t))


def bad_options(tn, draw):
    x, g = np.ones((2, 4), np.float32), np.ones(4, np.float32)
    return draw.pick([Refused(lambda: tn.rms_norm(x, g, draw.pick([0.0, -1.0, np.nan, np.inf])), "ValueError"),
                      Refused(lambda: tn.layer_norm(x, np.ones(3, np.float32)), "ShapeError"),
                      Refused(lambda: tn.softmax(x, 2), "IndexError"),
                      Refused(lambda: tn.silu_mul(np.ones((2, 3), np.float32)), "ShapeError")])


PROPERTIES = [layer_norms, rms_norms, fused_adds, softmaxes, gates, turns, bad_options]
