#!/usr/bin/env python3
"""A pair of Qwen3-Next layers serves prompts and then tokens one by one, and DeepSeek-V3's mixture of experts runs beside it,
both with random weights. Every output is compared with NumPy's in float64 and, where it is installed, with transformers'."""
import argparse
import importlib.util
import sys

import deepseek_v3
import numpy as np
import qwen3_next
import reference
import tenor as tn

TOLERANCE = {"float32": 5e-6, "float16": 3e-3, "bfloat16": 2e-2}  # relative error, root mean square; of the worst number ten times that


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto", help="cpu, cuda, or auto: a GPU where there is one (default: auto)")
    parser.add_argument("--dtype", default="float32", choices=sorted(TOLERANCE), help="of weights and activations (default: float32)")
    parser.add_argument("--batch", type=int, default=2, help="sequences (default: 2)")
    parser.add_argument("--prompt", type=int, default=100, help="tokens of their prompts (default: 100)")
    parser.add_argument("--steps", type=int, default=8, help="tokens that follow, one a step (default: 8)")
    parser.add_argument("--peer", default="auto", choices=["auto", "transformers", "none"], help="auto: transformers where installed, for float32")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def random_weight(name, shape, rng):
    """Float32. Matrices keep lengths; decays are between strong and weak."""
    if name.endswith("A_log"):
        return np.log(rng.uniform(0.01, 16, shape)).astype(np.float32)
    if name.endswith("dt_bias"):
        return rng.uniform(-4, 1, shape).astype(np.float32)
    if name.endswith("gate.weight"):  # the routers' logits differ enough that no rounding of float32 decides
        return (2 * rng.standard_normal(shape) * shape[-1] ** -0.5).astype(np.float32)
    if len(shape) == 1:
        return (0.1 * rng.standard_normal(shape) + name.endswith("linear_attn.norm.weight")).astype(np.float32)
    return (rng.standard_normal(shape) * shape[-1] ** -0.5).astype(np.float32)


class Model:
    """Random weights as a library keeps them: arrays of the dtype asked for, and the same numbers in float32 and float64."""

    def __init__(self, shapes, args, rng):
        keep = lambda name: name.endswith(("A_log", "dt_bias", "e_score_correction_bias"))  # noqa: E731
        host = {name: random_weight(name, shape, rng) for name, shape in shapes.items()}
        self.tensors = {name: tn.asarray(w).to("float32" if keep(name) else args.dtype) for name, w in host.items()}
        self.float32 = {name: w.to(tn.float32).numpy() for name, w in self.tensors.items()}
        self.float64 = {name: w.astype(np.float64) for name, w in self.float32.items()}
        self.tensors = {name: w.to(args.device) for name, w in self.tensors.items()}


def inputs(shape, args, rng):
    """On the device, and the same numbers in float32."""
    x = tn.asarray(rng.standard_normal(shape, np.float32)).to(args.dtype)
    return x.to(args.device), x.to(tn.float32).numpy()


def ids_of(mlp):
    return mlp.plan.expert_indices("int64").numpy()


def serve(pair, x, prompt):
    """Outputs [B, T, hidden] of prompts, then of tokens one by one, and the experts chosen, [B, T, k] a layer."""
    state, outputs, choices = qwen3_next.State(), [], [[], []]
    for first in (0, *range(prompt, x.shape[1])):
        part = x[:, :prompt] if first == 0 else x[:, first:first + 1]
        outputs.append(pair.forward(part, state).to(tn.float32).numpy())
        for layer, chosen in zip(pair.layers, choices):
            chosen.append(ids_of(layer.mlp).reshape(*part.shape[:2], -1))
    return np.concatenate(outputs, 1), [np.concatenate(chosen, 1) for chosen in choices]


class Report:
    def __init__(self, tolerance):
        self.tolerance, self.failed = tolerance, False

    def compare(self, name, got, want):
        scale = np.sqrt(np.mean(np.square(want, dtype=np.float64)))
        error, worst = np.sqrt(np.mean(np.square(got - want, dtype=np.float64))) / scale, np.abs(got - want).max() / scale
        good = error <= self.tolerance and worst <= 10 * self.tolerance
        self.failed |= not good
        print(f"  {name}: relative error {error:.1e} (at most {self.tolerance:.0e}), the worst number {worst:.1e}{'' if good else '  FAILED'}")

    def agree(self, name, got, want):
        """Shares of slots; in float32 all of them."""
        same = np.mean(np.sort(got, -1) == np.sort(want, -1))
        good = same == 1 if self.tolerance < 1e-4 else same > 0.9
        self.failed |= not good
        print(f"  {name}: {same:.2%} of the choices of experts{'' if good else '  FAILED'}")


def run_qwen(args, peers, report, rng):
    f = qwen3_next.Config()
    model = Model(qwen3_next.shapes_of(f), args, rng)
    x, host = inputs((args.batch, args.prompt + args.steps, f.hidden), args, rng)
    got, choices = serve(qwen3_next.Pair(f, model.tensors), x, args.prompt)
    print(f"Qwen3-Next layer pair, {args.batch} sequences, prompts of {args.prompt} tokens, then {args.steps} steps, on {args.device} in {args.dtype}")
    forced = choices if args.dtype != "float32" else None
    want = [reference.qwen_pair(f, model.float64, host[b].astype(np.float64), [c[b] for c in forced] if forced else (None, None)) for b in range(args.batch)]
    report.compare("from NumPy in float64", got, np.stack(want))
    if peers:
        report.compare("from transformers", got, peers.qwen_pair(f, model.float32, args.device)(host))


def run_deepseek(args, peers, report, rng):
    f = deepseek_v3.Config()
    model = Model(deepseek_v3.shapes_of(f), args, rng)
    layer = deepseek_v3.MixtureOfExperts(f, model.tensors)
    x, host = inputs((args.batch * args.prompt, f.hidden), args, rng)
    got, wide = layer.forward(x).to(tn.float32).numpy(), host.astype(np.float64)
    print(f"DeepSeek-V3 mixture of experts, {len(host)} tokens, on {args.device} in {args.dtype}")
    report.agree("NumPy in float64", ids_of(layer), reference.deepseek_ids(f, model.float64, wide))
    report.compare("from NumPy in float64", got, reference.deepseek_moe(f, model.float64, wide, ids_of(layer)))
    if peers:
        report.compare("from transformers", got, peers.deepseek_moe(f, model.float32, args.device)(host))


def find_peers(args):
    """The module peers, or None."""
    installed = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
    if args.peer == "none" or (args.peer == "auto" and (not installed or args.dtype != "float32")):
        return None
    import peers
    return peers


def main():
    args = parse()
    if args.device == "auto":
        args.device = "cuda" if tn.cuda_device_count() else "cpu"
    rng, report, peers = np.random.default_rng(args.seed), Report(TOLERANCE[args.dtype]), find_peers(args)
    run_qwen(args, peers, report, rng)
    run_deepseek(args, peers, report, rng)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
