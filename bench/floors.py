"""Holds the floors that `explain` prints against measured times, for memory-bound operators that move more than a megabyte.

    python bench/floors.py [--device cuda] [--threads N] [--rounds N] [--within 2] [--json]

A step of a kernel that keeps up with memory takes between half and twice its floor (--within). Another program on the machine
makes single runs slower and never faster, so each case keeps its best of several rounds, a pause between them, and goes on to the
next one as soon as it is within the bounds; limits that were measured in a busier hour are raised where work beats them. Exit
status 1 when a case stays outside.
"""
import argparse
import json
import os
import sys
import time

import tenor

MIB = 1 << 20
# The text, its inputs' dtype and names (w is a row, the rest are ROWS of 1024): from the caches' sizes to far beyond.
CASES = [
    ("x + y", "f32", "x y"), ("x * 2", "f32", "x"), ("x.clone()", "f32", "x"), ("x.exp()", "f32", "x"), ("where(x > y, x, y)", "f32", "x y"),
    ("x + y", "bf16", "x y"), ("silu(x)", "bf16", "x"), ("x.sum(-1)", "f32", "x"), ("x.amax(-1)", "bf16", "x"), ("softmax(x, -1)", "f32", "x"),
    ("rms_norm(x, w)", "bf16", "x w"), ("x.T.contiguous()", "f32", "x"), ("x.to(float32)", "bf16", "x"), ("cat([x, y])", "f32", "x y"),
]
ROWS = (1024, 8192, 32768)


def slowest_step(explanation):
    """The step that moves most, which is what the case is about."""
    return max((s for s in explanation.steps if not s.view), key=lambda s: s.bytes_read + s.bytes_written)


def measure(text, inputs, args):
    """(ratio of time to floor, step) of the best round."""
    best = None
    for number in range(args.rounds):
        if number:
            time.sleep(0.2)
        tenor.empty_cache()  # blocks of other sizes would leave no room, and fresh pages cost more than the step
        step = slowest_step(tenor.explain(text, device=args.device, measure=True, **inputs))
        ratio = step.time_us / step.floor_us
        if best is None or abs(ratio - 1) < abs(best[0] - 1):
            best = (ratio, step)
        if 1 / args.within <= ratio <= args.within:
            break
    return best


def rows_of(args):
    for text, dtype, names in CASES:
        for rows in ROWS:
            inputs = {name: f"{dtype}[1024]" if name == "w" else f"{dtype}[{rows},1024]" for name in names.split()}
            step = slowest_step(tenor.explain(text, device=args.device, **inputs))
            if step.bound != "memory" or step.bytes_read + step.bytes_written < MIB:
                continue
            ratio, step = measure(text, inputs, args)
            yield {"text": text, "input": next(iter(inputs.values())), "op": step.op, "moved": step.bytes_read + step.bytes_written,
                   "floor_us": step.floor_us, "time_us": step.time_us, "ratio": ratio, "within": 1 / args.within <= ratio <= args.within}


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument("--threads", type=int, help="threads of CPU operators (default: all)")
    parser.add_argument("--rounds", type=int, default=8, help="tries of a case that is outside (default: 8)")
    parser.add_argument("--within", type=float, default=2.0, help="largest factor between time and floor (default: 2)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    args = parser.parse_args(argv)
    if args.threads:
        tenor.set_num_threads(args.threads)
    if args.device == "cpu" and os.getloadavg()[0] > os.cpu_count():
        print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors: times are those of a shared machine", file=sys.stderr)
    outside = count = 0
    for row in rows_of(args):
        count, outside = count + 1, outside + (not row["within"])
        line = f"{row['text']:22} {row['input']:16} {row['moved'] / MIB:7.1f} MiB  floor {row['floor_us']:9.1f} us  time {row['time_us']:9.1f} us  {row['ratio']:5.2f}x"
        print(json.dumps(row) if args.json else line + ("" if row["within"] else "  outside"), flush=True)
    print(f"{count - outside} of {count} cases within {args.within:g}x of their floor", file=sys.stderr)
    return int(outside > 0)


if __name__ == "__main__":
    sys.exit(main())
