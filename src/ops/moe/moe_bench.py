"""The moe family's cases for tenor.bench: a layer with its routing. The peer is what PyTorch users write: topk, a stable argsort,
torch._grouped_mm (on the CPU an expert at a time) and index_add."""
import numpy as np

from tenor._bench_data import bytes_of, normal


class Weights:
    """An experts' weights of each library: made of a few numbers where they are used, and only of the layer asked for last."""

    made = {}

    @classmethod
    def of(cls, library, key, make):
        if cls.made.get(library, (None,))[0] != key:
            cls.made.pop(library, None)
            cls.made[library] = key, make()
        return cls.made[library][1]


def tenor_layer(tn, base, e, i, h):
    def tensor(*shape):
        n = int(np.prod(shape))
        return tn.tile(base, [-(-n // base.shape[0])])[:n].reshape(*shape)

    return Weights.of("tenor", (e, i, h, str(base.device), str(base.dtype)), lambda: tn.moe.SwiGluExperts(tensor(e, i, h), tensor(e, i, h), tensor(e, h, i)))


def torch_weights(base, e, i, h):
    def tensor(*shape):
        n = int(np.prod(shape))
        return base.repeat(-(-n // base.shape[0]))[:n].reshape(shape)

    return Weights.of("torch", (e, i, h, str(base.device), str(base.dtype)), lambda: (tensor(e, 2 * i, h), tensor(e, h, i)))


def torch_layer(torch, base, x, logits, e, k, i):
    h = x.shape[1]
    w13, w2 = torch_weights(base, e, i, h)
    weights, ids = torch.topk(torch.softmax(logits, -1), k, -1)
    weights = weights / weights.sum(-1, keepdim=True)
    order = torch.argsort(ids.reshape(-1), stable=True)
    counts = torch.bincount(ids.reshape(-1), minlength=e)
    rows = x[order // k]
    if x.is_cuda:
        offsets = torch.cumsum(counts, 0).to(torch.int32)
        products = lambda a, w: torch._grouped_mm(a, w.transpose(1, 2), offsets)
    else:
        parts = counts.tolist()
        products = lambda a, w: torch.cat([p @ m.T for p, m in zip(a.split(parts), w)])
    both = products(rows, w13)
    y = products(torch.nn.functional.silu(both[:, :i]) * both[:, i:], w2)
    y = y * weights.reshape(-1)[order].to(x.dtype)[:, None]
    return torch.zeros_like(x).index_add_(0, order // k, y)


def skew(logits, kind):
    """Logits that send tokens to few experts: all to the same ones ("one"), or by Zipf's law (expert e's odds as 1 / (e + 1))."""
    odds = np.arange(1, logits.shape[1] + 1, dtype=np.float32)
    return {"": logits, "one": logits * 1e-3 - odds, "zipf": logits - np.log(odds)}[kind]


def active_experts(e, k, tokens, kind):
    """How many some token goes to: as expected, or for skewed logits counted."""
    if not kind:
        return min(e, round(e * (1 - (1 - k / e) ** tokens)))
    logits = skew(np.random.default_rng(0).standard_normal((tokens, e), np.float32), kind)
    return len(np.unique(np.argpartition(-logits, k - 1, axis=-1)[:, :k]))


def layer_case(e, k, h, i, tokens, dtype="bfloat16", device=None, kind=""):
    def make(rng):
        base, x = normal(rng, dtype, (1 << 20,), (tokens, h))
        return base * base.dtype.type(0.02), x, skew(normal(rng, "float32", (tokens, e))[0], kind)

    active = active_experts(e, k, tokens, kind)
    case = dict(
        target=f"moe/E{e}-k{k}-H{h}-I{i}-T{tokens}-bf16" if device and not kind else None, op="moe.forward",
        case=f"E{e} k{k} H{h} I{i} T{tokens}{' ' + kind if kind else ''}", dtype=dtype, make=make,
        run=lambda tn, base, x, logits: tenor_layer(tn, base, e, i, h).forward(x, logits, k),
        peer=lambda torch, base, x, logits: torch_layer(torch, base, x, logits, e, k, i),
        bytes=active * bytes_of(dtype, (3, h, i)) + 2 * bytes_of(dtype, (tokens, h)), flops=6 * tokens * k * h * i)
    return dict(case, device=device) if device else case


CASES = [
    *(layer_case(16, 2, 1024, 512, t, dtype, "cpu") | dict(target=None) for dtype in ("float32", "bfloat16") for t in (1, 256)),
    *(layer_case(128, 8, 2048, 768, t, device="cuda") for t in (1, 16, 256, 4096, 16384)),
    *(layer_case(8, 2, 4096, 14336, t, device="cuda") for t in (1, 16, 256, 4096)),
    *(layer_case(256, 8, 7168, 2048, t, device="cuda") for t in (1, 16, 128, 4096)),
    *(layer_case(128, 8, 2048, 768, t, device="cuda", kind=kind) for kind in ("one", "zipf") for t in (16, 4096)),
]
