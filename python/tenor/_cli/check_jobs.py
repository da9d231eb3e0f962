"""`tenor check --jobs=N`: the draws dealt to N processes, each a `tenor check` of its own, and what they came to as one tally."""
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

from tenor._cli.arguments import UsageError
from tenor.checking import Failure, Tally


def blocks(draws, seed, jobs, properties):
    """(first seed, draws) for every process. Each begins with the first property, so that a draw's property and seed are those
    that one process would have given it."""
    rounds = -(-draws // properties)  # of all properties
    each = -(-rounds // jobs) * properties
    return [(seed + first, min(each, draws - first)) for first in range(0, draws, each)]


def check_in_jobs(args, properties, on_failure, on_done):
    """The Tally of all. UsageError with a process's own words where one could not run."""
    tally, start, done = Tally(), time.perf_counter(), 0
    parts = blocks(args.draws, args.seed, args.jobs, properties)
    with ThreadPoolExecutor(len(parts)) as pool:
        for finished in as_completed([pool.submit(_run, args, *part) for part in parts]):
            facts = finished.result()
            tally.passed += facts["passed"]
            tally.refused += facts["refused"]
            tally.skipped += facts["skipped"]
            for op, count in facts["missing"].items():
                tally.missing[op] = tally.missing.get(op, 0) + count
            for failure in facts["failures"]:
                tally.failures.append(Failure(**failure))
                on_failure(tally.failures[-1])
            done += facts["draws"]
            on_done(done)
    tally.seconds = time.perf_counter() - start
    return tally


def _run(args, seed, draws):
    words = [sys.executable, "-m", "tenor", "check", *([args.op] if args.op else []), f"--device={args.device}", f"--draws={draws}", f"--seed={seed}",
             f"--only={args.only}", f"--most={args.most}", f"--threads={args.threads or 1}", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "PYTHONFAULTHANDLER": "1"})
    if done.returncode < 0 or not done.stdout and done.returncode == 1:
        return dict(_NOTHING, draws=draws, failures=[_crash(args, seed, done)])
    if done.returncode not in (0, 1):
        said = done.stderr.strip().splitlines() or [f"a process ended with status {done.returncode}"]
        raise UsageError(f"draws {seed} to {seed + draws - 1}: {said[-1].removeprefix('tenor check: ')}")
    return json.loads(done.stdout)


_NOTHING = {"passed": 0, "refused": 0, "skipped": 0, "missing": {}}


def _crash(args, seed, done):
    """A process that a signal ended: a failure, with the property that Python's fault handler saw it in."""
    place = re.search(r'check_(\w+)\.py", line \d+ in (\w+)', done.stderr)
    family, name = place.groups() if place else (args.op or "all", "unknown")
    signal = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
    return {"family": family, "name": name, "seed": seed, "error": f"a process that began with this seed ended with {signal}: {done.stderr.strip()[:200]}"}
