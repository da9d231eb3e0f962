"""attention against its formula in float64, options in any combination."""
import numpy as np
from tenor.checking.draw import BOOL, FLOATS, tolerance, wide
from tenor.checking.outcome import Each, Refused, Same


def reference(q, k, v, mask, bias, scale, causal, window, softcap, sinks):
    """(out, lse), float64."""
    (b, hq, sq, d), (hk, sk) = q.shape, k.shape[1:3]
    q, k, v = wide(q), np.repeat(wide(k), hq // hk, 1), np.repeat(wide(v), hq // hk, 1)
    see = np.ones((b, hq, sq, sk), bool)
    i, j = np.arange(sq)[:, None], np.arange(sk)[None]
    diagonal = i if causal == "top_left" else i + sk - sq
    if causal:
        see &= j <= diagonal
    if window is not None:
        left, right = window
        see &= (left < 0) | (j >= diagonal - left)
        see &= (right < 0) | (j <= diagonal + right)
    if mask is not None:
        see &= np.broadcast_to(mask, see.shape)
    s = np.einsum("bhid,bhjd->bhij", q, k) * (scale or d ** -0.5)
    s = softcap * np.tanh(s / softcap) if softcap else s
    s = s + wide(bias) if bias is not None else s
    s = np.where(see, s, -np.inf)
    see = s > -np.inf
    top = np.max(s, -1, initial=-np.inf)
    safe = np.where(np.isfinite(top), top, 0)
    if sinks is not None:
        safe = np.maximum(safe, wide(sinks)[None, :, None])
    e = np.where(see, np.exp(s - safe[..., None]), 0)
    total = e.sum(-1)
    lse = np.where(total > 0, np.log(total) + safe, -np.inf)
    whole = total + (np.exp(wide(sinks)[None, :, None] - safe) if sinks is not None else 0)
    out = np.einsum("bhij,bhje->bhie", e, np.where(see.any((1, 2))[:, None, :, None], v, 0)) / np.where(whole > 0, whole, 1)[..., None]
    return out, lse


def dense(tn, draw):
    b, hk, group = draw.int(0, 2), draw.int(1, 3), draw.int(1, 3)
    sq, sk, d, dv = draw.pick([0, 1, 2, 5, 17, 70]), draw.pick([0, 1, 3, 16, 33, 130]), draw.pick([1, 3, 8, 16, 64, 65]), draw.pick([1, 5, 8, 64])
    t = draw.pick(FLOATS)
    q, k, v = (draw.array(s, t, special=0, scale=1) for s in ((b, hk * group, sq, d), (b, hk, sk, d), (b, hk, sk, dv)))
    full = (b, hk * group, sq, sk)
    options = dict(
        mask=draw.array(draw.broadcastable(full), BOOL) if draw.chance(0.4) else None,
        bias=draw.array(draw.broadcastable(full), draw.pick([t, np.dtype(np.float32)]) if t != np.float64 else t, special=0) if draw.chance(0.3) else None,
        scale=draw.pick([None, 0.3]), causal=draw.pick([False, True, "top_left"]),
        window=(draw.int(-1, 6), draw.int(-1, 6)) if draw.chance(0.3) else None,
        softcap=draw.pick([None, None, 2.0]),
        sinks=draw.array((hk * group,), np.dtype(np.float32) if t != np.float64 else t, special=0) if draw.chance(0.2) else None)
    out, lse = tn.attention(q, k, v, **options, return_lse=True)
    want, want_lse = reference(q, k, v, **options)
    return Each(Same(out, want, 2 * tolerance(t), "out"), Same(lse, want_lse, 10 * tolerance(np.float32), "lse"))


def bad_arguments(tn, draw):
    z = lambda *s: np.zeros(s, np.float32)
    q, k, v = z(1, 4, 3, 8), z(1, 2, 5, 8), z(1, 2, 5, 8)
    return draw.pick([
        Refused(lambda: tn.attention(z(1, 3, 3, 8), k, v), "ShapeError"),
        Refused(lambda: tn.attention(q, z(1, 2, 5, 7), v), "ShapeError"),
        Refused(lambda: tn.attention(q, k, z(1, 2, 4, 8)), "ShapeError"),
        Refused(lambda: tn.attention(q, k, v, z(3, 5)), "DTypeError"),
        Refused(lambda: tn.attention(q, k, v, scale=draw.pick([0.0, -1.0, np.nan])), "ValueError"),
        Refused(lambda: tn.attention(q, k, v, softcap=draw.pick([0.0, -2.0, np.inf])), "ValueError"),
        Refused(lambda: tn.attention(q, k, v, window=(-2, 0)), "ValueError"),
        Refused(lambda: tn.attention(q, k, v, causal="left"), "ValueError"),
        Refused(lambda: tn.attention(q, k, v, strategy="best"), "ValueError"),
        Refused(lambda: tn.attention(q.astype(np.float16), k, v), "DTypeError"),
        Refused(lambda: tn.attention(q[0], k, v), "ShapeError")])


PROPERTIES = [dense, bad_arguments]
