"""DeepSeek-V3's mixture-of-experts layer (arXiv 2412.19437, section 2.1.2) as Tenor operators.

Scores are sigmoids; a bias without gradients steers the choice, which the best groups of experts limit; weights are the unbiased
scores, normalised and scaled. Weights have the names of the model's checkpoints, experts stacked as transformers keeps them.
"""
from dataclasses import dataclass

import tenor as tn
from tenor import moe


@dataclass(frozen=True)
class Config:
    hidden: int = 256
    experts: int = 32
    top_k: int = 4
    groups: int = 8
    selected_groups: int = 4
    inner: int = 64           # of an expert
    shared_experts: int = 1   # that every token passes, as one of so many times the width
    scale: float = 2.5


class MixtureOfExperts:
    """`weights` maps the names of shapes_of to arrays of one dtype (gate.e_score_correction_bias float32)."""

    def __init__(self, config, weights):
        self.config, self.w = config, weights
        gate_up = weights["experts.gate_up_proj"]
        inner = gate_up.shape[1] // 2
        self.experts = moe.SwiGluExperts(gate_up[:, :inner], gate_up[:, inner:], weights["experts.down_proj"])
        self.router = weights["gate.weight"].to(tn.float32)
        self.plan = None  # of the last call

    def forward(self, x):
        """x [T, hidden] -> [T, hidden]."""
        f, linear = self.config, lambda y, name: tn.linear(y, self.w[f"shared_experts.{name}_proj.weight"])
        shared = linear(tn.silu_mul(linear(x, "gate"), linear(x, "up")), "down")
        logits = tn.linear(x.to(tn.float32), self.router)
        self.plan = moe.route_sigmoid_grouped(logits, self.w["gate.e_score_correction_bias"], top_k=f.top_k, groups=f.groups,
                                              selected_groups=f.selected_groups, scale=f.scale)
        return self.experts.forward_routed(x, self.plan, shared=shared)


def shapes_of(f):
    """The weights' names and shapes."""
    shared = f.shared_experts * f.inner
    return {"gate.weight": (f.experts, f.hidden), "gate.e_score_correction_bias": (f.experts,),
            "experts.gate_up_proj": (f.experts, 2 * f.inner, f.hidden), "experts.down_proj": (f.experts, f.hidden, f.inner),
            "shared_experts.gate_proj.weight": (shared, f.hidden), "shared_experts.up_proj.weight": (shared, f.hidden),
            "shared_experts.down_proj.weight": (f.hidden, shared)}
