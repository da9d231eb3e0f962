"""DeepSeek-V2's multi-head latent attention (arXiv 2405.04434, section 2.1) over a paged cache, and the form it comes from.

A token's keys and values of all heads are low-rank: c = rms_norm(x W_DKV) of `rank` numbers, beside one rotated key kp
of `rope` numbers that the heads share. The cache holds c and kp alone. Head h's key is [W_UK[h] c, kp] and its value
W_UV[h]^T c, so that

    q . k = q_nope . (W_UK c) + q_rope . kp = (q_nope W_UK) . c + q_rope . kp
    sum_j p_j v_j = (sum_j p_j c_j) W_UV

and the up-projections need never be applied to the cache: W_UK joins the query, W_UV the result ("weight absorption").
"""
from dataclasses import dataclass

import tenor as tn


@dataclass(frozen=True)
class Config:
    hidden: int = 512
    heads: int = 16
    nope: int = 64     # of a head's query and key: the part without positions
    rope: int = 32     # the rotated part
    value: int = 64    # of a head's value
    rank: int = 256    # of the latent
    positions: int = 4096
    epsilon: float = 1e-6

    @property
    def scale(self):
        """The model's own, of a head's query and key before absorption."""
        return (self.nope + self.rope) ** -0.5


def absorb(q_nope, w_uk):
    """[T, H, nope], [H, nope, rank] -> [T, H, rank]: a matrix a head, on views alone."""
    return tn.bmm(q_nope.transpose(0, 1), w_uk).transpose(0, 1)


def expand(context, w_uv):
    """[T, H, rank], [H, rank, value] -> [T, H, value]."""
    return tn.bmm(context.transpose(0, 1), w_uv).transpose(0, 1)


class LatentAttention:
    """One layer. `weights` maps w_q [heads (nope + rope), hidden], w_dkv [rank + rope, hidden], norm [rank], w_uk [heads, nope, rank],
    w_uv [heads, rank, value], w_o [hidden, heads value] to arrays of one dtype."""

    def __init__(self, config, weights):
        self.__dict__ = {"config": config, **weights}
        self.cos, self.sin = (t.to(self.w_q.device) for t in tn.rope_tables(config.positions, config.rope))

    def project(self, x, positions):
        """x [T, hidden] -> q_nope [T, H, nope], q_rope [T, H, rope], c [T, rank], kp [T, 1, rope]."""
        f = self.config
        q = tn.linear(x, self.w_q).reshape(-1, f.heads, f.nope + f.rope)
        joint = tn.linear(x, self.w_dkv)
        c = tn.rms_norm(joint[:, :f.rank], self.norm, f.epsilon)
        rotate = lambda part: tn.rope(part, self.cos, self.sin, interleaved=True, positions=positions)  # noqa: E731
        return q[..., :f.nope], rotate(q[..., f.nope:]), c, rotate(joint[:, f.rank:].unsqueeze(1))

    def forward(self, x, plan, latent, kp):
        """x [T, hidden], the step's rows in the plan's order -> [T, hidden]. Writes their c and kp into the caches latent [pages,
        page_size, 1, rank] and kp [pages, page_size, 1, rope] first."""
        f = self.config
        q_nope, q_rope, c, rotated = self.project(x, plan.positions)
        plan.append_(c.unsqueeze(1), rotated, latent, kp)
        context = plan.mla(absorb(q_nope, self.w_uk), q_rope, latent, kp, f.scale, True)
        return tn.linear(expand(context, self.w_uv).reshape(-1, f.heads * f.value), self.w_o)

    def forward_unabsorbed(self, x):
        """The layer as the formula reads: keys and values of every head, one whole sequence x [T, hidden]."""
        f, T = self.config, x.shape[0]
        q_nope, q_rope, c, rotated = self.project(x, tn.arange(T, device=x.device))
        keys = tn.einsum("tr,hnr->thn", c, self.w_uk)
        k = tn.cat([keys, rotated.expand(T, f.heads, f.rope)], -1)
        v = tn.einsum("tr,hrv->thv", c, self.w_uv)
        q = tn.cat([q_nope, q_rope], -1)
        heads_first = lambda y: y.transpose(0, 1).unsqueeze(0)  # noqa: E731
        out = tn.attention(heads_first(q), heads_first(k), heads_first(v), scale=f.scale, causal=True)
        return tn.linear(out[0].transpose(0, 1).reshape(T, f.heads * f.value), self.w_o)
