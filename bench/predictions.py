"""Holds the times that `explain` predicts of kernels, fused and of one operator, against measured ones, for functions that move more than a megabyte.

    python bench/predictions.py [--device cuda] [--threads N] [--rounds N] [--within 1.5] [--json]

Predicted is the sum over the plan's kernels; measured is the call of `tenor.fuse(fn)`, compiled before: on the CPU by the clock,
on CUDA by events with the L2 cache flushed before each. Cases take turns and keep their least median, because another program on the
machine makes runs slower and never faster. Exit status 1 when a case stays outside.
"""
import argparse
import json
import sys

import numpy as np

import tenor as tn
from tenor import _bench_timers

MIB = 1 << 20
ROWS = (256, 1024, 8192, 32768)


def chain(x, y):
    return ((x * 2 + y).relu() - 0.5) * y + x


def functions(x):
    for _ in range(2):
        x = (tn.sigmoid(tn.tanh(x)) * 1.5).relu()
    return x


def share(x):
    return x / x.sum(-1, keepdim=True)


def softmax(x):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def rms(x, w):
    return x * (x * x).mean(-1, keepdim=True).add(1e-6).rsqrt() * w


def add_rms(x, y, w):
    s = x + y
    return s * (s * s).mean(-1, keepdim=True).add(1e-6).rsqrt() * w, s


def silu_mul(x, y):
    return tn.silu(x) * y


def total(x, y):
    return (x * y).sum(-1)


def named(name, fn):
    fn.__name__ = name
    return fn


ALONE = [(named(name, fn), names) for name, fn, names in (
    ("x + y", lambda x, y: x + y, "xy"), ("relu", lambda x: x.relu(), "x"), ("sum", lambda x: x.sum(-1), "x"), ("softmax", lambda x: tn.softmax(x, -1), "x"),
    ("rms_norm", lambda x, w: tn.rms_norm(x, w), "xw"), ("clone", lambda x: x.clone(), "x"))]
CASES = [(fn, names, dtype) for dtype in ("float32", "bfloat16") for fn, names in (
    (chain, "xy"), (functions, "x"), (share, "x"), (softmax, "x"), (rms, "xw"), (add_rms, "xyw"), (silu_mul, "xy"), (total, "xy"), *ALONE)]


class Case:
    def __init__(self, fn, names, dtype, rows, device):
        self.what, self.shape = f"{fn.__name__} {dtype}", (rows, 1024)
        rng = np.random.default_rng(rows)
        make = lambda shape: tn.asarray(rng.random(shape, np.float32) + 0.5, device=device).to(dtype)
        self.inputs = [make((1024,) if n == "w" else self.shape) for n in names]
        self.fused, self.plan = tn.fuse(fn), tn.explain(fn, *self.inputs, device=device)
        self.predicted_us, self.time_us = sum(k.predicted_us for k in self.plan.kernels), float("inf")
        self.moved = sum(k.bytes_read + k.bytes_written for k in self.plan.kernels)

    def run(self):
        return self.fused(*self.inputs)


def measured(args):
    cases = [Case(fn, names, dtype, rows, args.device) for fn, names, dtype in CASES for rows in ROWS]
    cases = [c for c in cases if c.moved >= MIB]
    for _ in range(args.rounds):
        for case, seconds in zip(cases, _bench_timers.compare([c.run for c in cases], 1, args.seconds, args.device)):
            case.time_us = min(case.time_us, 1e6 * seconds)
    return [{"function": c.what, "shape": list(c.shape), "kernels": len(c.plan.kernels), "moved": c.moved, "predicted_us": c.predicted_us,
             "time_us": c.time_us, "ratio": c.time_us / c.predicted_us, "within": 1 / args.within <= c.time_us / c.predicted_us <= args.within}
            for c in cases]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.02, help="for a case in a round")
    parser.add_argument("--within", type=float, default=1.5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.threads:
        tn.set_num_threads(args.threads)
    rows = measured(args)
    for row in rows:
        print(json.dumps(row) if args.json else
              f"{row['function']:18} {str(row['shape']):14} {row['kernels']} kernels {row['moved'] / MIB:7.1f} MiB  predicted {row['predicted_us']:9.1f} us  "
              f"time {row['time_us']:9.1f} us  {row['ratio']:5.2f}x" + ("" if row["within"] else "  outside"))
    good = sum(row["within"] for row in rows)
    if not args.json:
        print(f"{good} of {len(rows)} within {args.within:g}x")
    return int(good < len(rows))


if __name__ == "__main__":
    sys.exit(main())
