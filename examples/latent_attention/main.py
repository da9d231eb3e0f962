#!/usr/bin/env python3
"""A DeepSeek-style latent-attention layer serves several sequences from a paged cache: prefill, then token by token. Every
output is compared with the same layer computed without weight absorption."""
import argparse
import sys

import numpy as np
import tenor as tn
from layer import Config, LatentAttention, absorb, expand

TOLERANCE = {"float32": 5e-6, "float16": 3e-3, "bfloat16": 2e-2}  # of the largest output


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto", help="cpu, cuda, or auto: a GPU where there is one (default: auto)")
    parser.add_argument("--dtype", default="float32", choices=sorted(TOLERANCE), help="of weights, activations and caches (default: float32)")
    parser.add_argument("--prompts", type=int, nargs="+", default=[5, 37, 64], metavar="N", help="tokens of each prompt (default: 5 37 64)")
    parser.add_argument("--steps", type=int, default=8, help="tokens that each sequence then grows by, one a step (default: 8)")
    parser.add_argument("--page-size", type=int, default=16, help="tokens of a page of the caches (default: 16)")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def random_weights(f, rng, make):
    fan_in = lambda *shape: make(rng.standard_normal(shape, np.float32) * shape[-1] ** -0.5)  # noqa: E731
    return dict(w_q=fan_in(f.heads * (f.nope + f.rope), f.hidden), w_dkv=fan_in(f.rank + f.rope, f.hidden), norm=make(1 + 0.1 * rng.standard_normal(f.rank, np.float32)),
                w_uk=fan_in(f.heads, f.nope, f.rank), w_uv=fan_in(f.heads, f.value, f.rank).transpose(1, 2), w_o=fan_in(f.hidden, f.heads * f.value))


class Server:
    """Sequences whose tokens' latents lie in pages of one pool, handed out as they grow."""

    def __init__(self, layer, sequences, longest, page_size, make, rng):
        f, each = layer.config, -(-longest // page_size)
        self.layer, self.page_size, self.pages = layer, page_size, sequences * each
        self.free = list(rng.permutation(self.pages))
        self.tables, self.lengths = [[] for _ in range(sequences)], [0] * sequences
        # NaN where nothing has been written yet: nothing of it may ever reach a result.
        self.latent, self.kp = (make(np.full((self.pages, page_size, 1, n), np.nan, np.float32)) for n in (f.rank, f.rope))

    def step(self, rows):
        """rows: of each sequence the new tokens' [T, hidden]. One call for all of them, prompts and single tokens alike."""
        ids, positions = [], []
        for s, x in enumerate(rows):
            ids += [s] * x.shape[0]
            positions += range(self.lengths[s], self.lengths[s] + x.shape[0])
            self.lengths[s] += x.shape[0]
            while len(self.tables[s]) * self.page_size < self.lengths[s]:
                self.tables[s].append(int(self.free.pop()))
        host = tn.paged.HostPlan(self.page_size, self.pages, self.tables, self.lengths, ids, positions)
        joint = tn.cat(rows, 0)
        out = self.layer.forward(joint, tn.paged.DevicePlan.upload(host, like=joint), self.latent, self.kp)
        return tn.split(out, [x.shape[0] for x in rows], 0)


def largest_difference(outputs, layer, sequences):
    """Of the served outputs from the unabsorbed layer's on the whole sequences, relative to the largest."""
    worst = 0.0
    for got, x in zip(outputs, sequences):
        want = layer.forward_unabsorbed(x).to(tn.float32)
        difference = tn.amax(tn.abs(tn.cat(got, 0).to(tn.float32) - want)) / tn.amax(tn.abs(want))
        worst = max(worst, difference.item()) if difference.item() == difference.item() else float("nan")
    return worst


def copies_of_absorption(layer, tokens):
    """Copies that explain finds in transpose + bmm + transpose: the products read the views as they lie."""
    f = layer.config
    q = tn.zeros([tokens, f.heads, f.nope + f.rope], dtype=layer.w_q.dtype, device=layer.w_q.device)[..., :f.nope]
    return tn.explain(lambda x, up, down: expand(absorb(x, up), down), q, layer.w_uk, layer.w_uv).copies


def main():
    args = parse()
    device = args.device if args.device != "auto" else "cuda" if tn.cuda_device_count() else "cpu"
    rng, f = np.random.default_rng(args.seed), Config()
    make = lambda x: tn.asarray(x).to(args.dtype).to(device)  # noqa: E731
    layer = LatentAttention(f, random_weights(f, rng, make))
    sequences = [make(rng.standard_normal((n + args.steps, f.hidden), np.float32)) for n in args.prompts]
    server = Server(layer, len(sequences), max(args.prompts) + args.steps, args.page_size, make, rng)
    outputs = [[y] for y in server.step([x[:n] for x, n in zip(sequences, args.prompts)])]
    for i in range(args.steps):
        for served, y in zip(outputs, server.step([x[n + i:n + i + 1] for x, n in zip(sequences, args.prompts)])):
            served.append(y)
    worst, copies = largest_difference(outputs, layer, sequences), copies_of_absorption(layer, 4)
    per_head, latent = f.heads * (f.nope + f.rope + f.value), f.rank + f.rope
    print(f"{len(sequences)} sequences, prompts of {', '.join(map(str, args.prompts))} tokens, then {args.steps} steps of one token each, on {device} in {args.dtype}")
    print(f"cache of a token: {latent} numbers instead of {per_head} (keys and values of {f.heads} heads): {per_head / latent:.1f} times less")
    print(f"absorption (transpose, bmm, transpose): {len(copies)} copies")
    print(f"largest difference from the unabsorbed layer: {worst:.1e} of the largest output (at most {TOLERANCE[args.dtype]:.0e})")
    return 0 if worst <= TOLERANCE[args.dtype] and not copies else 1


if __name__ == "__main__":
    sys.exit(main())
