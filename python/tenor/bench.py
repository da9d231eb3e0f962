"""Benchmarks: every family's cases against PyTorch in the same run, with the share of this machine's limit.

    tenor bench [OP ...] [--vs torch] [--device cuda] [--targets FILE] [--record FILE] [--json]

A family lists its cases in src/ops/<family>/<family>_bench.py as `CASES`, each a dict:

    op, case, dtype   what is run, as it is reported: "softmax", "2048x4096", "bfloat16"
    make(rng)         the NumPy arguments (ml_dtypes for bfloat16); drawn once, converted for each library
    run(tn, *args)    the call, on tenor.Tensors
    peer(torch, *args)  the same with PyTorch, on its tensors (optional)
    bytes, flops      what must move (each input read once, each output written once), or what must be computed
    target            the row's id in targets.json, where there is one (optional)
    device            "cpu" or "cuda" for a case of one device alone (optional)

Each round times both libraries in turn; the medians over the rounds are compared, so that a slow moment of the machine
meets both. On the CPU a clock times single calls; on CUDA events do, the L2 cache flushed before each.
"""
import datetime
import glob
import importlib.util
import os
import subprocess
import sys

import numpy as np

import tenor
from tenor import _bench_timers


def bench_files():
    """The families' bench files: of the source tree this package lies in, or installed beside it."""
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.environ.get("TENOR_SOURCE", os.path.dirname(os.path.dirname(here)))
    found = glob.glob(os.path.join(root, "src", "ops", "*", "*_bench.py"))
    return sorted(found or glob.glob(os.path.join(here, "benches", "*_bench.py")))


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
            raise UnknownCase(name, sorted(known))
    return cases


class UnknownCase(ValueError):
    """No case has that name; `known` are those that have."""

    def __init__(self, name, known):
        super().__init__(f"no case of {name!r}; known: {', '.join(known)}")
        self.name, self.known = name, known


def to_torch(torch, x, device="cpu"):
    """A torch tensor of a NumPy argument, over its memory on the CPU; what is no array passes through."""
    if not isinstance(x, np.ndarray):
        return x
    t = torch.from_numpy(x.view(np.int16)).view(torch.bfloat16) if x.dtype.name == "bfloat16" else torch.from_numpy(x)
    return t.to(device)


def to_tenor(x, device="cpu"):
    """A tenor.Tensor of a NumPy argument, over its memory on the CPU; what is no array passes through."""
    if not isinstance(x, np.ndarray):
        return x
    return tenor.from_dlpack(x) if device == "cpu" else tenor.asarray(x, device=device)


def run_case(case, torch, limits, rounds=5, seconds=0.08, device="cpu"):
    """One record, in the form of bench/results. `torch` is None for no peer, `limits` None where they are not known."""
    inputs = case["make"](np.random.default_rng(0))
    inputs = inputs if isinstance(inputs, (list, tuple)) else [inputs]
    ours_args = [to_tenor(x, device) for x in inputs]
    ours = lambda: case["run"](tenor, *ours_args)
    theirs = None
    if torch is not None and case.get("peer"):
        peer_args = [to_torch(torch, x, device) for x in inputs]
        theirs = lambda: case["peer"](torch, *peer_args)
    taken, peer_taken = _bench_timers.compare(ours, theirs, rounds, seconds, device)
    record = {"target": case.get("target"), "op": case["op"], "case": case["case"], "dtype": case["dtype"], "device": device,
              "threads": tenor.get_num_threads(), "strategy": strategy_of(case["op"], ours), "ms": round(taken * 1e3, 5)}
    work, unit = (case["flops"], "GFLOP/s") if case.get("flops") else (case.get("bytes"), "GB/s")
    if work:
        record.update(value=round(work / taken / 1e9, 3), unit=unit)
    if work and limits:
        limit = limits.copy_bytes if unit == "GB/s" else limits.bfloat16_flops if case["dtype"] == "bfloat16" else limits.float32_flops
        record.update(limit=round(limit / 1e9, 2), share=round(work / taken / limit, 3))
    if peer_taken:
        record.update(peer=f"torch {torch.__version__}", peer_ms=round(peer_taken * 1e3, 5), ratio=round(peer_taken / taken, 3))
        if work:
            record["peer_value"] = round(work / peer_taken / 1e9, 3)
    return record


def strategy_of(op, run):
    """The strategy that "auto" took, as the operator states it; "auto" where there is one way."""
    steps = tenor._tenor._strategies_of(run)
    return next((taken for name, taken in steps if taken and name == op), "auto")


def stamp():
    """The commit of the source tree, or the version of an installed package, and the day."""
    try:
        root = os.path.dirname(os.path.abspath(__file__))
        found = subprocess.run(["git", "-C", root, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
        commit = found.stdout.strip() or tenor.__version__
    except OSError:
        commit = tenor.__version__
    return {"commit": commit, "date": datetime.date.today().isoformat()}


def main(argv=None):
    """`python -m tenor.bench` is `tenor bench`."""
    from tenor._cli import main as command_line

    return command_line(["bench", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    sys.exit(main())
