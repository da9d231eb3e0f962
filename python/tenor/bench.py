"""Benchmarks: every family's cases against PyTorch in the same run, with the share of this machine's limit.

    tenor bench [OP ...] [--vs torch,compile] [--device cuda] [--targets FILE] [--budget SECONDS] [--record FILE] [--json]

A family lists its cases in src/ops/<family>/<family>_bench.py as `CASES`, each a dict:

    op, case, dtype   what is run, as it is reported: "softmax", "2048x4096", "bfloat16"
    make(rng)         the NumPy arguments (ml_dtypes for bfloat16); drawn once, converted for each library
                      (tenor._bench_data draws them)
    run(tn, *args)    the call, on tenor.Tensors
    peer(torch, *args)  the same with PyTorch, on its tensors (optional)
    compiles          whether the peer compiles for each shape, which is then done before the budget begins (optional)
    peer_name         what the peer is where it is not PyTorch itself, "fla 0.5.2" (optional)
    bytes, flops      what must move (each input read once, each output written once), or what must be computed
    target            the row's id in targets.json, where there is one (optional)
    device            "cpu" or "cuda" for a case of one device alone (optional)

Each round times both libraries in turn; the medians over the rounds are compared, so that a slow moment of the machine
meets both. On the CPU a clock times single calls; on CUDA events do, the L2 cache flushed before each. A share is of what the
machine does in the same run: a copy of as many bytes, the vendor's matrix product.

On CUDA PyTorch's convolutions of float32 are in TF32 unless told otherwise, ours never without allow_tf32(True): the peer is
told to do as this library does, and a record of float32 says which it was (`peer_tf32`).
"""
import datetime
import glob
import importlib.util
import os
import subprocess
import sys
import time

import numpy as np

import tenor
from tenor import _bench_timers
from tenor._bench_data import to_tenor, to_torch


def bench_files():
    """The families' bench files: of the source tree this package lies in, or installed beside it."""
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.environ.get("TENOR_SOURCE", os.path.dirname(os.path.dirname(here)))
    found = [path for folder in (("ops", "*"), ("fusion",)) for path in glob.glob(os.path.join(root, "src", *folder, "*_bench.py"))]
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


def run_case(case, torch, limits, rounds=5, seconds=0.08, device="cpu", compiled=False):
    """One record, in the form of bench/results. `torch` is None for no peer, `limits` None where they are not known;
    `compiled`: torch.compile of the peer's call is timed too."""
    ours, theirs = _calls(case, torch, device)
    tf32 = theirs is not None and device != "cpu" and as_exact(torch)
    refused = _refusal(theirs)
    theirs = None if refused else theirs
    runs = [ours] + ([theirs] if theirs else [])
    if theirs and compiled:
        torch._dynamo.reset()
        runs.append(torch.compile(theirs, dynamic=False))
    times = _bench_timers.compare(runs, rounds, seconds, device)
    record = {"target": case.get("target"), "op": case["op"], "case": case["case"], "dtype": case["dtype"], "device": device,
              "threads": tenor.get_num_threads(), "strategy": strategy_of(case["op"], ours), "ms": round(times[0] * 1e3, 5)}
    work, unit, limit = _work(case, limits)
    if work:
        record.update(value=round(work / times[0] / 1e9, 3), unit=unit)
    if limit:
        record.update(limit=round(limit / 1e9, 2), share=round(work / times[0] / limit, 3))
    if refused:
        record.update(peer=_peer_name(case, torch), peer_error=refused)
    if theirs:
        record.update(peer=_peer_name(case, torch), peer_ms=round(times[1] * 1e3, 5), ratio=round(times[1] / times[0], 3))
        if work:
            record["peer_value"] = round(work / times[1] / 1e9, 3)
        if device != "cpu" and case["dtype"] == "float32":
            record["peer_tf32"] = tf32
    if len(times) > 2:
        record.update(compiled_ms=round(times[2] * 1e3, 5), compiled_ratio=round(times[2] / times[0], 3))
    return record


def _peer_name(case, torch):
    return case.get("peer_name") or f"torch {torch.__version__}"


def peer_call(case, torch, device):
    """The peer's call alone, on arguments drawn as `run_case` draws them."""
    theirs = [to_torch(torch, x, device) for x in _drawn(case)]
    return lambda: case["peer"](torch, *theirs)


def _drawn(case):
    inputs = case["make"](np.random.default_rng(0))
    return inputs if isinstance(inputs, (list, tuple)) else [inputs]


def as_exact(torch):
    """Lets PyTorch multiply float32 in TF32 where this library would, and nowhere else. Returns whether it may now."""
    allowed = tenor.allow_tf32(False)
    tenor.allow_tf32(allowed)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = allowed
    return allowed


def _refusal(call):
    """What the peer says to a call that it has not got (integer products on a GPU, say); None where it runs."""
    try:
        if call:
            call()
    except Exception as error:  # whatever it is, it is not ours
        return f"{type(error).__name__}: {error}".splitlines()[0][:120]
    return None


def _calls(case, torch, device):
    """Tenor's call and the peer's, or None for none. On a GPU both read the same memory."""
    inputs = _drawn(case)
    theirs = [to_torch(torch, x, device) for x in inputs] if torch is not None else None
    shared = theirs is not None and device != "cpu"
    ours = [tenor.from_dlpack(x) for x in theirs] if shared else [to_tenor(x, device) for x in inputs]
    peer = (lambda: case["peer"](torch, *theirs)) if theirs and case.get("peer") else None
    return (lambda: case["run"](tenor, *ours)), peer


def _work(case, limits):
    """(bytes or FLOPs, their unit, the limit for them or None): of the two what takes this machine longer."""
    flops, moved = case.get("flops"), case.get("bytes")
    if not limits:
        return (flops, "GFLOP/s", None) if flops else (moved, "GB/s", None)
    copy = limits.copy_bytes_of(moved) if moved and hasattr(limits, "copy_bytes_of") else limits.copy_bytes
    if not flops:
        return moved, "GB/s", copy if moved else None
    rate = limits.bfloat16_flops if case["dtype"] in ("bfloat16", "float16") else limits.float32_flops
    memory_bound = moved and hasattr(limits, "copy_bytes_of") and moved / copy > flops / rate
    return (moved, "GB/s", copy) if memory_bound else (flops, "GFLOP/s", rate)


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


class Budget:
    """Seconds for a number of cases. Each may take its part of what is left; what one saves the others have. Half of them is
    torch.compile's where it is asked for: `compiles`. It takes seconds a case, so the first cases have it."""

    def __init__(self, seconds, cases, compiles=False):
        self.end = None if seconds is None else time.monotonic() + seconds
        self.left, self.compiling = cases, 8.0  # seconds that torch.compile takes, as far as is known
        self.for_compiling = seconds / 2 if seconds and compiles else 0.0

    def next(self, rounds, seconds, libraries):
        """(rounds, seconds a round) for the next case, as asked for or fewer; None when no time is left."""
        part = self.part()
        self.left -= 1
        if part is None:
            return rounds, seconds
        if part <= 0:
            return None
        afford = part / 2 / (rounds * libraries)  # half of it goes into making the arguments
        return rounds, min(seconds, max(afford, 0.003))

    def part(self):
        """Seconds of the next case; None without a budget."""
        return None if self.end is None else (self.end - self.for_compiling - time.monotonic()) / max(self.left, 1)

    def may_compile(self):
        """Whether torch.compile of one more case fits in its half."""
        return self.end is None or self.for_compiling >= self.compiling

    def compiled(self, seconds):
        """A case with torch.compile took so long."""
        self.for_compiling = max(0.0, self.for_compiling - seconds)
        self.compiling = max(2.0, (self.compiling + seconds) / 2)


def main(argv=None):
    """`python -m tenor.bench` is `tenor bench`."""
    from tenor._cli import main as command_line

    return command_line(["bench", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    sys.exit(main())
