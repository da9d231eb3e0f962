"""The fuzzer: random shapes, strides, dtypes and options, each ending in the reference's result or the contract's error.

    python tests/fuzz/fuzz.py [FAMILY ...] [--draws 10000] [--seed 0] [--only NAME] [--jobs 1]

The properties and what runs them are the package's (python/tenor/checking, also behind `tenor check`). A draw is
reproduced by its seed: `--seed S --draws 1 --only NAME`. With --jobs N as many processes take a range of seeds each; one
that dies (a sanitizer's finding, a crash) is a failure of the draw that it was at, and its range ends there.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time


def parse(argv):
    parser = argparse.ArgumentParser(description="Fuzzes the operators against NumPy references.")
    parser.add_argument("family", nargs="*")
    parser.add_argument("--draws", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="properties whose name holds this")
    parser.add_argument("--most", type=int, default=20, help="stop (each process) after so many failures")
    parser.add_argument("--jobs", type=int, default=1, help="processes; 0 for one a core")
    parser.add_argument("--report", help=argparse.SUPPRESS)  # where a process of several leaves its place and its tally
    args = parser.parse_args(argv)
    args.jobs = args.jobs or len(os.sched_getaffinity(0))
    if args.draws < 0 or args.seed < 0 or args.jobs < 0:
        parser.error("draws, seed and jobs must be >= 0")
    return parser, args


def chosen(parser, args):
    from tenor import checking

    try:
        among = [p for p in checking.properties(args.family) if args.only in p.name]
    except ValueError as error:
        parser.error(str(error))
    if not among:
        parser.error(f"no property's name holds {args.only!r}")
    return among


def run_here(args, among):
    """The draws in this process: [passed, failed, refused]."""
    from tenor import checking

    place = open(args.report, "w") if args.report else None

    def at(i):
        if place:
            place.seek(0)
            place.write(f"{i:20d}")
            place.flush()

    at(0)
    tally = checking.check(among, args.draws, args.seed, args.most, on_failure=lambda f: print(f"FAILED {f}", flush=True), on_draw=at)
    counts = [tally.passed, len(tally.failures), tally.refused]
    if place:
        place.seek(0)
        place.write(json.dumps(counts).ljust(64))
        place.close()
    return counts


def ranges(args, step):
    """(seed, draws) of each process, in whole rounds of the `step` properties, so that every draw is that of one process alone."""
    share = -(-args.draws // args.jobs)
    share = -(-share // step) * step
    return [(args.seed + start, min(share, args.draws - start)) for start in range(0, args.draws, share)]


def run_processes(args, among):
    environment = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive", **os.environ}
    total = [0, 0, 0]
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for k, (seed, draws) in enumerate(ranges(args, len(among))):
            report = os.path.join(folder, str(k))
            command = [sys.executable, __file__, *args.family, f"--draws={draws}", f"--seed={seed}", f"--only={args.only}",
                       f"--most={args.most}", f"--report={report}"]
            started.append((subprocess.Popen(command, env=environment), report, seed))
        for process, report, seed in started:
            status = process.wait()
            counts = tally_of(report, seed, status, among)
            total = [a + b for a, b in zip(total, counts)]
    return total


def tally_of(report, seed, status, among):
    text = open(report).read().strip() if os.path.exists(report) else ""
    if text.startswith("["):
        return json.loads(text)
    done = int(text or 0)
    prop = among[done % len(among)]
    print(f"FAILED {prop.family}.{prop.name} seed {seed + done}: the process died with status {status}", flush=True)
    return [done, 1, 0]  # failures before that have been printed; draws before it count as passed


def main(argv=None):
    parser, args = parse(argv)
    among, start = chosen(parser, args), time.perf_counter()
    alone = args.jobs <= 1 or args.report
    passed, failed, refused = run_here(args, among) if alone else run_processes(args, among)
    if not args.report:
        print(f"fuzz: {passed} passed, {failed} failed ({refused} calls refused as they must be) in {time.perf_counter() - start:.0f} s, "
              f"seeds {args.seed} to {args.seed + args.draws - 1}, {1 if alone else args.jobs} processes")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
