"""The gated delta rule against its recurrence in float64, and what stands around it."""
import numpy as np

from tenor.checking.draw import FLOATS, tolerance, wide
from tenor.checking.outcome import Each, Refused, Same

BOUND = {"float64": 1e-6, "float32": 2e-4, "float16": 8e-3, "bfloat16": 6e-2}  # of the largest value: absolute and relative


def recurrence(q, k, v, beta, g, s, scale):
    """[B, Hv, T, ...] in float64, line by line as the formula reads."""
    out = np.zeros(v.shape)
    for i in range(v.shape[2]):
        s = s * (np.exp(g[:, :, i])[..., None] if g.ndim == 4 else np.exp(g[:, :, i])[..., None, None])
        v_hat = np.einsum("bhk,bhkv->bhv", k[:, :, i], s)
        delta = beta[:, :, i, None] * (v[:, :, i] - v_hat)
        s = s + np.einsum("bhk,bhv->bhkv", k[:, :, i], delta)
        out[:, :, i] = np.einsum("bhk,bhkv->bhv", scale * q[:, :, i], s)
    return out, s


def operands(draw, batch=None):
    """query, key, value, beta, log_decay: keys of about length 1."""
    b, h, group, t = draw.int(0, 2) if batch is None else batch, draw.int(1, 2), draw.int(1, 3), draw.int(0, 90)
    k, v, dtype = draw.int(1, 40), draw.int(0, 40), draw.pick(FLOATS)
    q = draw.array((b, h, t, k), dtype, special=0, scale=1.0)
    key = draw.array((b, h, t, k), dtype, special=0, scale=k ** -0.5)
    value = draw.array((b, h * group, t, v), dtype, special=0, scale=1.0)
    beta = draw.layout(draw.rng.random((b, h * group, t)).astype(draw.pick([dtype, np.float32])))
    decay = -draw.rng.random((b, h * group, t) + ((k,) if draw.chance(0.4) else ())) * draw.pick([0.1, 1, 40])
    return q, key, value, beta, draw.layout(decay.astype(np.float32))


def repeated(q, k, hv):
    return (np.repeat(wide(x), hv // x.shape[1], 1) for x in (q, k))


def near(got, want, dtype):
    return Same(got, want, BOUND[np.dtype(dtype).name])


def form(tn, draw):
    """Either of the two operators; the chunked one with a size of chunks."""
    if draw.pick(["gated_delta_rule", "chunk_gated_delta_rule"]) == "gated_delta_rule":
        return tn.gated_delta_rule, {}
    return tn.chunk_gated_delta_rule, dict(chunk_size=draw.pick([1, 5, 16, 32, 64, 128]))


def rules(tn, draw):
    q, k, v, beta, g = operands(draw)
    fn, options = form(tn, draw)
    b, hv, K, V = q.shape[0], v.shape[1], q.shape[3], v.shape[3]
    s0 = draw.layout(draw.rng.standard_normal((b, hv, K, V)).astype(np.float32)) if draw.chance(0.5) else None
    scale = draw.pick([None, 1.0, -0.3])
    wq, wk = repeated(q, k, hv)
    if draw.chance(0.3):
        options["qk_normalize"] = True
        wq, wk = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6) for x in (wq, wk))
    o, s = recurrence(wq, wk, wide(v), wide(beta), wide(g), np.zeros((b, hv, K, V)) if s0 is None else wide(s0), K ** -0.5 if scale is None else scale)
    got = fn(q, k, v, beta, g, s0, scale, **options)
    return Each(near(got.output, o, q.dtype), near(got.final_state, s, q.dtype if q.dtype != np.float64 else np.float32))


def packed(tn, draw):
    q, k, v, beta, g = operands(draw, 1)
    fn, options = form(tn, draw)
    t, hv, K, V = q.shape[2], v.shape[1], q.shape[3], v.shape[3]
    cu = np.sort(np.r_[0, draw.rng.integers(0, t + 1, draw.int(0, 4))]).astype(draw.pick([np.int32, np.int64]))
    if draw.chance(0.2):
        bad = cu.copy()
        bad[-1] = t + 1 if len(bad) > 1 else 1
        return Refused(lambda: fn(q, k, v, beta, g, cu_seqlens=bad, **options), "ValueError")
    n, pool = len(cu) - 1, draw.rng.standard_normal((6, hv, K, V)).astype(np.float32)
    slots = draw.rng.permutation(6)[:n]
    slots[draw.rng.random(n) < 0.3] = -1
    kept = draw.rng.random(n) < 0.7
    want_o, want_s = np.zeros(v.shape), wide(pool)
    wq, wk = repeated(q, k, hv)
    for i in range(n):
        if slots[i] >= 0:
            at = np.s_[:, :, cu[i]:cu[i + 1]]
            s = wide(pool)[slots[i]][None] * kept[i]
            want_o[at], want_s[slots[i]] = recurrence(wq[at], wk[at], wide(v)[at], wide(beta)[at], wide(g)[at], s, K ** -0.5)
    state = tn.asarray(pool)  # a copy on the device: the operator writes to it
    state = tn.add(state, 0)
    got = fn(q, k, v, beta, g, cu_seqlens=cu, state=state, state_indices=slots, has_initial_state=kept, **options)
    return Each(near(got.output, want_o, q.dtype), near(state, want_s, q.dtype if q.dtype != np.float64 else np.float32))


def gates(tn, draw):
    b, hv, t, k = draw.int(0, 2), draw.int(1, 4), draw.int(0, 50), draw.int(1, 30)
    channels, dtype = draw.chance(0.5), draw.pick(FLOATS)
    a = draw.array((b, hv, t, k) if channels else (b, hv, t), dtype, special=0)
    A_log, bias = draw.array((hv,), np.float32, special=0, scale=1.0), draw.array((hv, k) if channels else (hv,), np.float32, special=0)
    bound = draw.pick([None, -5.0])
    rate = np.exp(wide(A_log)).reshape((hv, 1, 1) if channels else (hv, 1))
    x = wide(a) + (wide(bias)[:, None] if channels else wide(bias)[:, None])
    want = -rate * np.logaddexp(0, x) if bound is None else bound / (1 + np.exp(-rate * x))
    return Same(tn.gated_delta_gate(a, A_log, bias, bound), want, 3e-5)


def convolutions(tn, draw):
    b, c, t, w, dtype = draw.int(0, 2), draw.int(1, 40), draw.int(0, 90), draw.int(1, 5), draw.pick(FLOATS)
    x, weight = draw.array((b, c, t), dtype, special=0), draw.array((c, w), draw.pick([dtype, np.float32]), special=0)
    bias = draw.array((c,), np.float32, special=0) if draw.chance(0.5) else None
    before = draw.array((b, c, w - 1), dtype, special=0) if draw.chance(0.5) else None
    padded = np.concatenate([np.zeros((b, c, w - 1)) if before is None else wide(before), wide(x)], -1)
    want = sum(wide(weight)[:, i, None] * padded[..., i:i + t] for i in range(w)) + (0 if bias is None else wide(bias)[:, None])
    activation = draw.pick([None, "silu"])
    if activation:
        want = want / (1 + np.exp(-want))
    got = tn.causal_conv1d(x, weight, bias, before, activation=activation)
    return Each(near(got.y, want, dtype), Same(got.final_state, padded[..., t:].astype(dtype)))


def norms(tn, draw):
    shape = draw.shape(1, 3)[:-1] + (draw.int(1, 200),)
    dtype = draw.pick(FLOATS)
    x, gate = draw.array(shape, dtype, special=0), draw.array(shape, dtype, special=0)
    gamma = draw.array(shape[-1:], draw.pick([dtype, np.float32]), special=0)
    v, z = wide(x), wide(gate)
    want = v / np.sqrt((v * v).mean(-1, keepdims=True) + 1e-5) * wide(gamma) * z / (1 + np.exp(-z))
    return Same(tn.gated_rms_norm(x, gate, gamma, 1e-5), want, tolerance(dtype))


PROPERTIES = [rules, packed, gates, convolutions, norms]
