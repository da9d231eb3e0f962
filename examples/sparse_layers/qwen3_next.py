"""A pair of Qwen3-Next layers as Tenor operators: gated delta net + mixture of experts, then gated attention + mixture of experts.

Weights have the names and shapes of the model's checkpoints (Qwen/Qwen3-Next-80B-A3B), experts stacked as transformers
keeps them: mlp.experts.gate_up_proj [E, 2I, hidden], mlp.experts.down_proj [E, hidden, I].
Sources: arXiv 2412.06464 (gated delta rule), arXiv 2505.06708 (gated attention).
"""
from dataclasses import dataclass, field

import tenor as tn
from tenor import moe


@dataclass(frozen=True)
class Config:
    hidden: int = 256
    delta_heads: int = 2          # of keys and queries of the gated delta rule
    delta_value_heads: int = 4
    delta_dim: int = 64           # of those heads
    conv: int = 4                 # taps of the convolution before it
    heads: int = 4                # of attention
    kv_heads: int = 2
    head_dim: int = 64
    rotary: int = 16              # of a head's numbers, those that positions turn
    theta: float = 1e4
    experts: int = 16
    top_k: int = 4
    inner: int = 64               # of an expert
    shared_inner: int = 64        # of the expert that every token passes
    positions: int = 2048
    epsilon: float = 1e-6


def heads_first(x, heads):
    """[B, T, heads * n] -> [B, heads, T, n], a view."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)


@dataclass
class State:
    """What a sequence keeps between calls: of the first layer sums and the last inputs of its convolution, of the second keys and values."""
    delta: object = None
    conv: object = None
    keys: list = field(default_factory=list)
    values: list = field(default_factory=list)
    length: int = 0


class Weights:
    """The weights below a prefix."""

    def __init__(self, weights, prefix):
        self.weights, self.prefix = weights, prefix

    def __getitem__(self, name):
        return self.weights[f"{self.prefix}.{name}"]

    def linear(self, x, name):
        return tn.linear(x, self[name + ".weight"])


class GatedDeltaNet:
    def __init__(self, config, weights):
        self.config, self.w = config, weights

    def project(self, x):
        """x [B, T, hidden] -> the convolution's input [B, channels, T], z [B, T, Hv, V], beta and log decay [B, Hv, T]. The
        projections hold, a key head, its query, key, values and z, and its value heads' b and a."""
        f, (B, T, _) = self.config, x.shape
        group, n = f.delta_value_heads // f.delta_heads, f.delta_dim
        joint = self.w.linear(x, "in_proj_qkvz").reshape(B, T, f.delta_heads, -1)
        q, k, v, z = tn.split(joint, [n, n, group * n, group * n], -1)
        b, a = tn.split(self.w.linear(x, "in_proj_ba").reshape(B, T, f.delta_heads, -1), [group, group], -1)
        channels = tn.cat([part.reshape(B, T, -1) for part in (q, k, v)], -1)
        decay = tn.gated_delta_gate(a.reshape(B, T, -1).transpose(1, 2), self.w["A_log"], self.w["dt_bias"])
        return channels.transpose(1, 2), z.reshape(B, T, -1, n), tn.sigmoid(b.reshape(B, T, -1).transpose(1, 2)), decay

    def forward(self, x, state):
        f, weight = self.config, self.w["conv1d.weight"]
        channels, z, beta, decay = self.project(x)
        mixed, state.conv = tn.causal_conv1d(channels, weight.squeeze(1), initial_state=state.conv, activation="silu")
        keys, values = f.delta_heads * f.delta_dim, f.delta_value_heads * f.delta_dim
        q, k, v = tn.split(mixed.transpose(1, 2), [keys, keys, values], -1)
        rule = tn.gated_delta_rule if x.shape[1] == 1 else tn.chunk_gated_delta_rule
        out, state.delta = rule(heads_first(q, f.delta_heads), heads_first(k, f.delta_heads), heads_first(v, f.delta_value_heads), beta, decay,
                                initial_state=state.delta, qk_normalize=True)
        y = tn.gated_rms_norm(out.transpose(1, 2), z, self.w["norm.weight"], f.epsilon)
        return self.w.linear(y.reshape(*x.shape[:2], -1), "out_proj")


class GatedAttention:
    def __init__(self, config, weights):
        self.config, self.w = config, weights
        device = weights["q_proj.weight"].device
        self.cos, self.sin = (t.to(device) for t in tn.rope_tables(config.positions, config.rotary, config.theta))

    def rotated(self, x, norm, first):
        """x [B, T, heads * D] -> [B, heads, T, D]: each head normalised, then turned by its position."""
        heads = tn.rms_norm(x.reshape(*x.shape[:2], -1, self.config.head_dim), self.w[norm + ".weight"], self.config.epsilon, weight_offset=1.0)
        places = tn.arange(first, first + x.shape[1], device=x.device)
        return tn.rope(heads, self.cos, self.sin, rotary_dim=self.config.rotary, positions=places).transpose(1, 2)

    def forward(self, x, state):
        f, (B, T, _) = self.config, x.shape
        q, gate = tn.chunk(self.w.linear(x, "q_proj").reshape(B, T, f.heads, -1), 2, -1)
        q = self.rotated(q.reshape(B, T, -1), "q_norm", state.length)
        state.keys.append(self.rotated(self.w.linear(x, "k_proj"), "k_norm", state.length))
        state.values.append(heads_first(self.w.linear(x, "v_proj"), f.kv_heads))
        state.length += T
        out = tn.attention(q, tn.cat(state.keys, 2), tn.cat(state.values, 2), causal=True)
        return self.w.linear(out.transpose(1, 2).reshape(B, T, -1) * tn.sigmoid(gate.reshape(B, T, -1)), "o_proj")


class SparseMlp:
    """Routed experts beside one that every token passes, as far as its own gate lets it."""

    def __init__(self, config, weights):
        self.config, self.w = config, weights
        gate_up = weights["experts.gate_up_proj"]
        inner = gate_up.shape[1] // 2
        self.experts = moe.SwiGluExperts(gate_up[:, :inner], gate_up[:, inner:], weights["experts.down_proj"])
        self.plan = None  # of the last call

    def forward(self, x):
        """x [T, hidden] -> [T, hidden]."""
        gate, up = self.w.linear(x, "shared_expert.gate_proj"), self.w.linear(x, "shared_expert.up_proj")
        shared = self.w.linear(tn.silu_mul(gate, up), "shared_expert.down_proj")
        shared = tn.sigmoid(self.w.linear(x, "shared_expert_gate")) * shared
        self.plan = moe.route(self.w.linear(x, "gate"), self.config.top_k)
        return self.experts.forward_routed(x, self.plan, shared=shared)


class Layer:
    def __init__(self, config, weights, prefix, mixer, name):
        self.config, self.w = config, Weights(weights, prefix)
        self.mixer = mixer(config, Weights(weights, f"{prefix}.{name}"))
        self.mlp = SparseMlp(config, Weights(weights, f"{prefix}.mlp"))

    def forward(self, x, state):
        norm = dict(epsilon=self.config.epsilon, weight_offset=1.0)
        y = tn.rms_norm(x, self.w["input_layernorm.weight"], **norm)
        y, residual = tn.add_rms_norm(self.mixer.forward(y, state), x, self.w["post_attention_layernorm.weight"], **norm)
        return residual + self.mlp.forward(y.reshape(-1, y.shape[-1])).reshape(*y.shape)


class Pair:
    """The two layers. `weights` maps the names of shapes_of to arrays of one dtype (A_log and dt_bias may be float32)."""

    def __init__(self, config, weights):
        self.layers = [Layer(config, weights, "layers.0", GatedDeltaNet, "linear_attn"), Layer(config, weights, "layers.1", GatedAttention, "self_attn")]

    def forward(self, x, state=None):
        """x [B, T, hidden], the sequences' next T tokens -> [B, T, hidden]. `state` (State) is updated."""
        state = State() if state is None else state
        for layer in self.layers:
            x = layer.forward(x, state)
        return x


def shapes_of(f):
    """The weights' names and shapes."""
    keys, values = f.delta_heads * f.delta_dim, f.delta_value_heads * f.delta_dim
    mixers = {
        "layers.0.linear_attn": {
            "in_proj_qkvz.weight": (2 * keys + 2 * values, f.hidden), "in_proj_ba.weight": (2 * f.delta_value_heads, f.hidden),
            "conv1d.weight": (2 * keys + values, 1, f.conv), "A_log": (f.delta_value_heads,), "dt_bias": (f.delta_value_heads,),
            "norm.weight": (f.delta_dim,), "out_proj.weight": (f.hidden, values)},
        "layers.1.self_attn": {
            "q_proj.weight": (2 * f.heads * f.head_dim, f.hidden), "k_proj.weight": (f.kv_heads * f.head_dim, f.hidden),
            "v_proj.weight": (f.kv_heads * f.head_dim, f.hidden), "o_proj.weight": (f.hidden, f.heads * f.head_dim),
            "q_norm.weight": (f.head_dim,), "k_norm.weight": (f.head_dim,)}}
    both = {
        "mlp.gate.weight": (f.experts, f.hidden), "mlp.experts.gate_up_proj": (f.experts, 2 * f.inner, f.hidden),
        "mlp.experts.down_proj": (f.experts, f.hidden, f.inner), "mlp.shared_expert.gate_proj.weight": (f.shared_inner, f.hidden),
        "mlp.shared_expert.up_proj.weight": (f.shared_inner, f.hidden), "mlp.shared_expert.down_proj.weight": (f.hidden, f.shared_inner),
        "mlp.shared_expert_gate.weight": (1, f.hidden), "input_layernorm.weight": (f.hidden,), "post_attention_layernorm.weight": (f.hidden,)}
    shapes = {f"{prefix}.{name}": shape for prefix, own in mixers.items() for name, shape in own.items()}
    return shapes | {f"layers.{i}.{name}": shape for i in (0, 1) for name, shape in both.items()}
