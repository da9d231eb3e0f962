"""The contractions' other forms, packed attention and its merging, rope's tables, against their formulas in float64."""
import numpy as np
from tenor.checking.check_attention import reference
from tenor.checking.check_contract import LENGTHS, scaled
from tenor.checking.draw import FLOATS, tolerance, wide
from tenor.checking.outcome import Each, Refused, Same


def batches(tn, draw):
    b, m, k, n, t = draw.int(0, 4), draw.pick(LENGTHS), draw.pick(LENGTHS), draw.pick(LENGTHS), draw.pick(FLOATS)
    x, y = draw.array((b, m, k), t, special=0, scale=1), draw.array((b, k, n), t, special=0, scale=1)
    return scaled(tn.bmm(x, y), np.matmul(wide(x), wide(y)), x, y, t)


def outers(tn, draw):
    t = draw.pick(FLOATS)
    x, y = draw.array((draw.pick(LENGTHS),), t, special=0), draw.array((draw.pick(LENGTHS),), t, special=0)
    return Same(tn.outer(x, y), np.outer(wide(x), wide(y)).astype(t), tolerance(t))


def tensordots(tn, draw):
    t, shared = draw.pick(FLOATS), tuple(draw.int(1, 4) for _ in range(draw.int(0, 2)))
    x = draw.array((draw.int(1, 4),) + shared, t, special=0, scale=1)
    y = draw.array(shared + (draw.int(1, 4),), t, special=0, scale=1)
    if shared and draw.chance(0.1):
        return Refused(lambda: tn.tensordot(x, np.zeros((9,) + y.shape[1:], t), len(shared)), "ShapeError")
    return scaled(tn.tensordot(x, y, len(shared)), np.tensordot(wide(x), wide(y), len(shared)), x, y, t)


def packed_attention(tn, draw):
    hk, group, d, dv, t = draw.int(1, 2), draw.int(1, 2), draw.pick([1, 8, 17]), draw.pick([1, 8]), draw.pick(FLOATS)
    lengths = [(draw.int(0, 9), draw.int(0, 20)) for _ in range(draw.int(1, 3))]
    starts_q, starts_k = (np.cumsum([0] + [pair[i] for pair in lengths]) for i in (0, 1))
    q = draw.array((int(starts_q[-1]), hk * group, d), t, special=0, scale=1)
    k, v = (draw.array((int(starts_k[-1]), hk, size), t, special=0, scale=1) for size in (d, dv))
    causal = draw.pick([False, True])
    out, lse = tn.attention_varlen(q, k, v, starts_q, starts_k, causal=causal, return_lse=True)
    want, want_lse = np.zeros((q.shape[0], hk * group, dv)), np.full(q.shape[:2], -np.inf)
    for a, b, c, e in zip(starts_q, starts_q[1:], starts_k, starts_k[1:]):
        one = lambda x, first, last: x[first:last].swapaxes(0, 1)[None]
        o, l = reference(one(q, a, b), one(k, c, e), one(v, c, e), None, None, None, causal, None, None, None)
        want[a:b], want_lse[a:b] = o[0].swapaxes(0, 1), l[0].T
    return Each(Same(out, want, 2 * tolerance(t), "out"), Same(lse, want_lse, 10 * tolerance(np.float32), "lse"))


def merged_states(tn, draw):
    t, shape, dv = draw.pick(FLOATS), draw.shape(1, 2, 60), draw.int(1, 9)
    out_a, out_b = (draw.array(shape + (dv,), t, special=0) for _ in range(2))
    lse_a, lse_b = (draw.array(shape, np.float32, special=0) for _ in range(2))
    out, lse = tn.merge_states(out_a, lse_a, out_b, lse_b)
    total = np.logaddexp(wide(lse_a), wide(lse_b))
    parts = [wide(o) * np.exp(wide(l) - total)[..., None] for o, l in ((out_a, lse_a), (out_b, lse_b))]
    return Each(Same(out, sum(parts), 4 * tolerance(t)), Same(lse, total, 4 * tolerance(np.float32)))


def tables(tn, draw):
    positions, half, theta = draw.int(1, 40), draw.int(1, 16), float(draw.pick([1e4, 5e5]))
    cos, sin = tn.rope_tables(positions, 2 * half, theta)
    angle = np.arange(positions)[:, None] * theta ** (-np.arange(half) / half)
    return Each(Same(cos, np.cos(angle), 1e-6), Same(sin, np.sin(angle), 1e-6))


PROPERTIES = [batches, outers, tensordots, packed_attention, merged_states, tables]
