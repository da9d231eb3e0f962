"""The sampling family's cases for tenor.bench. The peer is what PyTorch users write: softmax, sort, cumsum, multinomial."""
import numpy as np

from tenor._bench_data import normal


def logits(rows, tokens):
    return lambda rng: (normal(rng, "float32", (rows, tokens))[0] * 2,)


def torch_sample(torch, x, top_k=None, top_p=None, temperature=1.0):
    p, i = torch.softmax(x / temperature, -1).sort(-1, descending=True)
    if top_k is not None:
        p[:, top_k:] = 0
    if top_p is not None:
        p[(p.cumsum(-1) - p) > top_p] = 0
    return i.gather(1, torch.multinomial(p, 1))


def case(name, rows, tokens, target=None, **options):
    return dict(target=target, op="sample", case=f"{name} {rows}x{tokens}", dtype="float32", make=logits(rows, tokens),
                run=lambda tn, x: tn.sample(x, seed=1, **options), peer=lambda torch, x: torch_sample(torch, x, **options),
                bytes=4 * rows * tokens, flops=0)


BOTH = dict(top_k=50, top_p=0.9, temperature=0.8)
CASES = [case("top-p", 16, 32000, top_p=0.9)] + [case("top-k top-p", rows, 151936, f"sample/{rows}x151936-f32", **BOTH) for rows in (1, 16, 128, 512)] + [
    case("multinomial", 16, 151936),
    dict(target=None, op="speculative_accept", case="8x5x151936", dtype="float32", flops=0, bytes=4 * 8 * 5 * 151936 * 2, peer=None,
         make=lambda rng: (rng.random((8, 6, 151936), np.float32) / 75968, rng.random((8, 5, 151936), np.float32) / 75968, rng.integers(0, 151936, (8, 5))),
         run=lambda tn, p, q, ids: tn.speculative_accept(p, q, ids, 1)),
]
