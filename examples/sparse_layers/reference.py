"""The same layers as their formulas read, in NumPy and float64: whole sequences, step by step, an expert and token at a time.

`choices`: the experts to take, [T, k] a layer, instead of those that the scores choose; so that results of coarser dtypes, whose
scores may tie otherwise, can be compared at all."""
import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def rms_norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + epsilon) * weight


def swiglu(x, gate, up, down):
    return (silu(x @ gate.T) * (x @ up.T)) @ down.T


def best(scores, count):
    """The places of the largest, the lower on ties."""
    return np.argsort(-scores, -1, kind="stable")[..., :count]


def add_experts(out, x, ids, weights, gate_up, down):
    """out[t] += sum_k weights[t, k] * the output of expert ids[t, k] for x[t]."""
    inner = gate_up.shape[1] // 2
    for t, (row, scales) in enumerate(zip(ids, weights)):
        for e, scale in zip(row, scales):
            out[t] += scale * swiglu(x[t], gate_up[e, :inner], gate_up[e, inner:], down[e])
    return out


def qwen_mlp(f, w, x, ids=None):
    scores = x @ w["gate.weight"].T
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    ids = best(scores, f.top_k) if ids is None else ids
    chosen = np.take_along_axis(scores, ids, -1)
    shared = swiglu(x, *(w[f"shared_expert.{n}_proj.weight"] for n in ("gate", "up", "down"))) * sigmoid(x @ w["shared_expert_gate.weight"].T)
    return add_experts(shared, x, ids, chosen / chosen.sum(-1, keepdims=True), w["experts.gate_up_proj"], w["experts.down_proj"])


def deepseek_ids(f, w, x):
    biased = sigmoid(x @ w["gate.weight"].T) + w["gate.e_score_correction_bias"]
    size = f.experts // f.groups
    groups = biased.reshape(len(x), f.groups, size)
    kept = best(np.sort(groups, -1)[..., -2:].sum(-1), f.selected_groups)
    closed = np.ones((len(x), f.groups), bool)
    np.put_along_axis(closed, kept, False, -1)
    return best(np.where(np.repeat(closed, size, -1), -np.inf, biased), f.top_k)


def deepseek_moe(f, w, x, ids=None):
    ids = deepseek_ids(f, w, x) if ids is None else ids
    chosen = np.take_along_axis(sigmoid(x @ w["gate.weight"].T), ids, -1)
    shared = swiglu(x, *(w[f"shared_experts.{n}_proj.weight"] for n in ("gate", "up", "down")))
    return add_experts(shared, x, ids, f.scale * chosen / chosen.sum(-1, keepdims=True), w["experts.gate_up_proj"], w["experts.down_proj"])


def convolve(x, weight):
    """x [T, C], weight [C, W]: each channel with what came before it."""
    taps = weight.shape[1]
    padded = np.concatenate([np.zeros((taps - 1, x.shape[1])), x])
    return silu(sum(padded[i:i + len(x)] * weight[:, i] for i in range(taps)))


def delta_rule(q, k, v, beta, decay):
    """q, k [T, K], v [T, V], beta, decay [T] of one head -> [T, V]."""
    unit = lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)  # noqa: E731
    q, k, state, out = unit(q) * q.shape[-1] ** -0.5, unit(k), np.zeros((k.shape[-1], v.shape[-1])), np.empty_like(v)
    for t in range(len(q)):
        state *= np.exp(decay[t])
        state += np.outer(k[t], beta[t] * (v[t] - k[t] @ state))
        out[t] = q[t] @ state
    return out


def delta_net(f, w, x):
    """x [T, hidden] -> [T, hidden]."""
    T, n, group = len(x), f.delta_dim, f.delta_value_heads // f.delta_heads
    joint = (x @ w["in_proj_qkvz.weight"].T).reshape(T, f.delta_heads, -1)
    q, k, v, z = np.split(joint, np.cumsum([n, n, group * n]), -1)
    b, a = (part.reshape(T, -1) for part in np.split((x @ w["in_proj_ba.weight"].T).reshape(T, f.delta_heads, -1), 2, -1))
    decay = -np.exp(w["A_log"]) * np.log1p(np.exp(a + w["dt_bias"]))
    mixed = convolve(np.concatenate([p.reshape(T, -1) for p in (q, k, v)], -1), w["conv1d.weight"][:, 0])
    keys = f.delta_heads * n
    q, k, v = (p.reshape(T, -1, n) for p in np.split(mixed, [keys, 2 * keys], -1))
    out = np.stack([delta_rule(q[:, j // group], k[:, j // group], v[:, j], sigmoid(b[:, j]), decay[:, j]) for j in range(f.delta_value_heads)], 1)
    y = rms_norm(out, w["norm.weight"], f.epsilon) * silu(z.reshape(T, -1, n))
    return y.reshape(T, -1) @ w["out_proj.weight"].T


def rotate(f, x):
    """x [T, H, D]: pairs (i, i + rotary / 2) turned by position / theta^(2i / rotary)."""
    half = f.rotary // 2
    angles = np.arange(len(x))[:, None, None] * f.theta ** (-np.arange(half) / half)
    a, b, rest = np.split(x, [half, f.rotary], -1)
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles), rest], -1)


def gated_attention(f, w, x):
    """x [T, hidden] -> [T, hidden]."""
    T, group = len(x), f.heads // f.kv_heads
    q, gate = np.split((x @ w["q_proj.weight"].T).reshape(T, f.heads, -1), 2, -1)
    k, v = ((x @ w[f"{n}_proj.weight"].T).reshape(T, f.kv_heads, -1) for n in "kv")
    q, k = (rotate(f, rms_norm(y, 1 + w[f"{n}_norm.weight"], f.epsilon)) for y, n in ((q, "q"), (k, "k")))
    scores = np.einsum("thd,shd->hts", q, np.repeat(k, group, 1)) * f.head_dim ** -0.5
    scores = np.where(np.tri(T, dtype=bool), scores, -np.inf)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    out = np.einsum("hts,shd->thd", scores / scores.sum(-1, keepdims=True), np.repeat(v, group, 1))
    return (out * sigmoid(gate)).reshape(T, -1) @ w["o_proj.weight"].T


def below(weights, prefix):
    return {name[len(prefix) + 1:]: w for name, w in weights.items() if name.startswith(prefix + ".")}


def qwen_pair(f, weights, x, choices=(None, None)):
    """x [T, hidden] of one sequence -> [T, hidden]."""
    for i, (mixer, name) in enumerate([(delta_net, "linear_attn"), (gated_attention, "self_attn")]):
        w = below(weights, f"layers.{i}")
        x = x + mixer(f, below(w, name), rms_norm(x, 1 + w["input_layernorm.weight"], f.epsilon))
        x = x + qwen_mlp(f, below(w, "mlp"), rms_norm(x, 1 + w["post_attention_layernorm.weight"], f.epsilon), choices[i])
    return x
