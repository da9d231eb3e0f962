"""Benchmarks: every family's cases against PyTorch in the same run, with the share of this machine's limit.

    python -m tenor.bench [OP ...] [--vs torch] [--threads N] [--record FILE] [--json]

A family lists its cases in src/ops/<family>/<family>_bench.py as `CASES`, each a dict:

    op, case, dtype   what is run, as it is reported: "softmax", "2048x4096", "bfloat16"
    make(rng)         the NumPy arguments (ml_dtypes for bfloat16); drawn once, converted for each library
    run(tn, *args)    the call, on tenor.Tensors
    peer(torch, *args)  the same with PyTorch, on its tensors (optional)
    bytes, flops      what must move (each input read once, each output written once), or what must be computed
    target            the row's id in targets.json, where there is one (optional)

Each round times both libraries in turn; the medians over the rounds are compared, so that a slow moment of the machine
meets both.
"""
import argparse
import datetime
import glob
import importlib.util
import json
import os
import subprocess
import sys
import time

import numpy as np

import tenor


def bench_files():
    """The families' bench files: of the source tree this package lies in, or installed beside it."""
    here = os.path.dirname(os.path.abspath(__file__))
    found = glob.glob(os.path.join(here, "benches", "*_bench.py"))
    root = os.environ.get("TENOR_SOURCE", os.path.dirname(os.path.dirname(here)))
    return sorted(glob.glob(os.path.join(root, "src", "ops", "*", "*_bench.py")) or found)


def load_cases(wanted=()):
    """Every case whose op (or family) is wanted; all of them for no names. ValueError for an unknown name."""
    cases, known = [], set()
    for path in bench_files():
        family = os.path.basename(path)[: -len("_bench.py")]
        spec = importlib.util.spec_from_file_location(f"tenor_bench_{family}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        known |= {family} | {c["op"] for c in module.CASES}
        cases += [dict(c, family=family) for c in module.CASES if not wanted or c["op"] in wanted or family in wanted]
    for name in wanted:
        if name not in known:
            raise ValueError(f"bench: no case of {name!r}; known: {', '.join(sorted(known))}")
    return cases


def to_torch(torch, x):
    """A torch tensor over a NumPy argument; what is no array passes through."""
    if not isinstance(x, np.ndarray):
        return x
    if x.dtype.name == "bfloat16":
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def to_tenor(x):
    """A tenor.Tensor over a NumPy argument; what is no array passes through."""
    return tenor.from_dlpack(x) if isinstance(x, np.ndarray) else x


def timed(fn, seconds):
    """Times of single calls, for about that long (three at least)."""
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or (time.perf_counter() < end and len(times) < 1000):
        start = time.perf_counter()
        fn()
        times.append(time.perf_counter() - start)
    return times


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


def compare(ours, theirs, rounds, seconds):
    """Median seconds of both, measured in turn; theirs may be None."""
    a, b = [], []
    for fn in (ours, theirs):
        if fn:
            fn()  # warm: caches, threads, lazily built kernels
    for _ in range(rounds):
        a += timed(ours, seconds)
        if theirs:
            b += timed(theirs, seconds)
    return median(a), median(b) if b else None


def run_case(case, torch, limits, args):
    """One record, in the form of bench/results."""
    inputs = case["make"](np.random.default_rng(0))
    inputs = inputs if isinstance(inputs, (list, tuple)) else [inputs]
    ours_args = [to_tenor(x) for x in inputs]
    ours = lambda: case["run"](tenor, *ours_args)
    theirs = None
    if torch is not None and case.get("peer"):
        peer_args = [to_torch(torch, x) for x in inputs]
        theirs = lambda: case["peer"](torch, *peer_args)
    seconds, peer_seconds = compare(ours, theirs, args.rounds, args.seconds)
    work, unit = (case["flops"], "GFLOP/s") if case.get("flops") else (case.get("bytes"), "GB/s")
    record = {"target": case.get("target"), "op": case["op"], "case": case["case"], "dtype": case["dtype"], "device": "cpu",
              "threads": tenor.get_num_threads(), "strategy": "auto", "ms": round(seconds * 1e3, 5)}
    if work:
        record.update(value=round(work / seconds / 1e9, 3), unit=unit)
    if work:
        limit = limits.copy_bytes if unit == "GB/s" else limits.bfloat16_flops if case["dtype"] == "bfloat16" else limits.float32_flops
        record.update(limit=round(limit / 1e9, 2), share=round(work / seconds / limit, 3))
    if peer_seconds:
        record.update(peer=f"torch {torch.__version__}", peer_ms=round(peer_seconds * 1e3, 5),
                      ratio=round(peer_seconds / seconds, 3))
        if work:
            record["peer_value"] = round(work / peer_seconds / 1e9, 3)
    return record


def commit():
    """The source tree's commit, or the version of an installed package."""
    try:
        root = os.path.dirname(os.path.abspath(__file__))
        found = subprocess.run(["git", "-C", root, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
        return found.stdout.strip() or tenor.__version__
    except OSError:
        return tenor.__version__


def show(record):
    line = f"{record['op']:18} {record['case']:24} {record['dtype']:9} {record['ms']:10.4f} ms"
    if "value" in record:
        line += f" {record['value']:9.2f} {record['unit']:8}"
    if "share" in record:
        line += f" {100 * record['share']:5.0f}% of {'copy' if record['unit'] == 'GB/s' else 'FLOPs'}"
    if "ratio" in record:
        line += f"   {record['ratio']:6.2f}x {record['peer'].split()[0]} ({record['peer_ms']:.4f} ms)"
    return line


def main(argv=None):
    parser = argparse.ArgumentParser(prog="tenor bench", description="Times operators, beside PyTorch where it is installed.")
    parser.add_argument("op", nargs="*", help="operators or families; all when none is named")
    parser.add_argument("--vs", choices=["torch", "none"], default="torch", help="the peer to time in the same run")
    parser.add_argument("--threads", type=int, help="threads of both libraries")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.08, help="time spent on a library in each round")
    parser.add_argument("--record", help="append the records to this .jsonl file")
    parser.add_argument("--json", action="store_true", help="print records, one JSON object a line")
    args = parser.parse_args(argv)
    torch = None
    if args.vs == "torch":
        try:
            import torch
        except ImportError:
            print("bench: torch is not installed: no peer", file=sys.stderr)
    if args.threads:
        tenor.set_num_threads(args.threads)
        if torch is not None:
            torch.set_num_threads(args.threads)
    try:
        cases = load_cases(args.op)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    limits = tenor.device_limits()
    print(f"threads {tenor.get_num_threads()}, copy {limits.copy_bytes / 1e9:.1f} GB/s (read + written), float32 "
          f"{limits.float32_flops / 1e9:.0f}, bfloat16 {limits.bfloat16_flops / 1e9:.0f} GFLOP/s", file=sys.stderr)
    stamp = {"commit": commit(), "date": datetime.date.today().isoformat()}
    failed = 0
    for case in cases:
        try:
            record = dict(run_case(case, torch, limits, args), **stamp)
        except Exception as error:  # one broken case must not hide the others
            failed = 1
            print(f"{case['op']:18} {case['case']:24} {case['dtype']:9} failed: {type(error).__name__}: {error}"[:200])
            continue
        print(json.dumps(record) if args.json else show(record), flush=True)
        if args.record:
            with open(args.record, "a") as out:
                out.write(json.dumps(record) + "\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
