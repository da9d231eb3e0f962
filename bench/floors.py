"""Holds the floors that `explain` prints against measured times, for operators that move more than a megabyte.

    python bench/floors.py [--device cuda] [--threads N] [--rounds N] [--within 2] [--json]

Of a step that memory bounds, a kernel that keeps up with memory takes at most twice its floor (--within); of one that arithmetic
bounds the floor is what the device can do at most, and is only not to be above the time. Another program on the machine makes
single runs slower and never faster, and measured limits lower and never higher. So the cases take turns, each keeps its least
time of several rounds until it is within the bounds, and between rounds the limits are measured once more and raised. With
--threads=1 a busy machine disturbs least. Exit status 1 when a case stays outside.
"""
import argparse
import json
import os
import sys

import tenor

MIB = 1 << 20
ABOVE = 1.05  # a floor above the time by more than what times scatter is wrong
# The text, its inputs' dtype and names (w is a row, the rest are ROWS of 1024): from the caches' sizes to far beyond.
CASES = [
    ("x + y", "f32", "x y"), ("x * 2", "f32", "x"), ("x.clone()", "f32", "x"), ("x.exp()", "f32", "x"), ("where(x > y, x, y)", "f32", "x y"),
    ("x + y", "bf16", "x y"), ("silu(x)", "bf16", "x"), ("x.sum(-1)", "f32", "x"), ("x.amax(-1)", "bf16", "x"), ("softmax(x, -1)", "f32", "x"),
    ("rms_norm(x, w)", "bf16", "x w"), ("x.T.contiguous()", "f32", "x"), ("x.to(float32)", "bf16", "x"), ("cat([x, y])", "f32", "x y"),
    ("x / y", "f32", "x y"), ("x.relu()", "bf16", "x"), ("x.to(bfloat16)", "f32", "x"), ("x.mean(-1)", "bf16", "x"), ("gelu(x)", "bf16", "x"),
    ("silu_mul(x)", "bf16", "x"), ("x.T + y.T", "f32", "x y"), ("layer_norm(x, w, w)", "f32", "x w"), ("x.tanh()", "f32", "x"), ("x.sum(0)", "f32", "x"),
    ("x.sum(0)", "bf16", "x"), ("x.cumsum(-1)", "f32", "x"), ("x.argmax(-1)", "f32", "x"), ("x.var(-1)", "f32", "x"), ("log(x)", "f32", "x"),
]
ROWS = (1024, 8192, 32768)


class Case:
    def __init__(self, text, dtype, names, rows):
        self.text, self.inputs = text, {name: f"{dtype}[1024]" if name == "w" else f"{dtype}[{rows},1024]" for name in names.split()}
        self.step, self.time_us = None, float("inf")

    def look(self, device, measure):
        """The step that moves most, which is what the case is about; its floor is the newest, its time the least."""
        tenor.empty_cache()  # blocks of other sizes would leave no room, and fresh pages cost more than the step
        steps = tenor.explain(self.text, device=device, measure=measure, **self.inputs).steps
        self.step = max((s for s in steps if not s.view), key=lambda s: s.bytes_read + s.bytes_written)
        self.time_us = min(self.time_us, self.step.time_us or float("inf"))

    @property
    def moved(self):
        return self.step.bytes_read + self.step.bytes_written

    @property
    def ratio(self):
        return self.time_us / self.step.floor_us

    def is_within(self, factor):
        return 1 / ABOVE <= self.ratio < float("inf") and (self.step.bound != "memory" or self.ratio <= factor)

    def row(self, factor):
        return {"text": self.text, "input": next(iter(self.inputs.values())), "op": self.step.op, "moved": self.moved, "bound": self.step.bound,
                "floor_us": self.step.floor_us, "time_us": self.time_us, "ratio": self.ratio, "within": self.is_within(factor)}


def measured_cases(args):
    cases = [Case(*case, rows) for case in CASES for rows in ROWS]
    for case in cases:
        case.look(args.device, False)
    cases = [case for case in cases if case.moved >= MIB]
    for number in range(args.rounds):
        if number and args.device == "cpu":
            tenor._tenor._raise_limits()
        for case in cases:
            if not case.is_within(args.within) or case.ratio > args.within:
                case.look(args.device, True)
    for case in cases:
        case.look(args.device, False)  # by the limits as they ended
    return [case.row(args.within) for case in cases]


def shown(row):
    line = (f"{row['text']:20} {row['input']:16} {row['moved'] / MIB:7.1f} MiB  {row['bound']:8} floor {row['floor_us']:9.1f} us  "
            f"time {row['time_us']:9.1f} us  {row['ratio']:5.2f}x")
    return line if row["within"] else line + "  outside"


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument("--threads", type=int, help="threads of CPU operators (default: all)")
    parser.add_argument("--rounds", type=int, default=8, help="tries of a case that is outside (default: 8)")
    parser.add_argument("--within", type=float, default=2.0, help="largest factor between the time and a floor of memory (default: 2)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    args = parser.parse_args(argv)
    if args.threads:
        tenor.set_num_threads(args.threads)
    if args.device == "cpu" and os.getloadavg()[0] > os.cpu_count():
        print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors: times are those of a shared machine", file=sys.stderr)
    rows = measured_cases(args)
    for row in rows:
        print(json.dumps(row) if args.json else shown(row))
    memory = [row for row in rows if row["bound"] == "memory"]
    print(f"bounded by memory: {sum(r['within'] for r in memory)} of {len(memory)} within {args.within:g}x of their floor; by arithmetic: "
          f"{sum(r['within'] for r in rows) - sum(r['within'] for r in memory)} of {len(rows) - len(memory)} not below it", file=sys.stderr)
    return int(not all(row["within"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
