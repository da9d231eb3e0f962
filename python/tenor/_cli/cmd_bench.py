"""Times operators on the shapes of their families' benchmarks, beside PyTorch in the same run where it is installed, with
the share of this machine's limit, measured in the same run.

With --targets only the cases of that file's rows are run, and each says whether it meets its bar and its goal; rows
without a case are counted. Exit status 1 when a case fails or a bar is missed."""
import sys

from tenor._cli import targets
from tenor._cli.arguments import UsageError, add_device, add_threads, at_least, nearest, require_device, use_threads
from tenor._cli.output import Progress, paint

EXAMPLES = [
    "tenor bench softmax                       one operator's cases",
    "tenor bench norm contract --vs=none       two families, without PyTorch",
    "tenor bench --device=cuda --targets=targets.json --budget=100",
    "tenor bench norm --device=cuda --vs=torch,compile   torch.compile too",
    "tenor bench matmul --record=out.jsonl     append the records to a file",
    "tenor bench add --json                    one JSON object a line",
]


def configure(parser):
    parser.add_argument("op", nargs="*", metavar="OP", help="operators or families; all when none is named")
    parser.add_argument("--vs", type=peers, metavar="P", help="peers to time in the same run: torch, compile (torch.compile), both as torch,compile, or none "
                        "(default: torch, if installed)")
    add_device(parser, "where to run")
    parser.add_argument("--targets", metavar="F", help="a JSON file of rows with bar and goal")
    add_threads(parser)
    parser.add_argument("--rounds", type=at_least(1), default=5, metavar="N", help="rounds in which the libraries take turns (default: 5)")
    parser.add_argument("--seconds", type=at_least(0, float), default=0.08, metavar="S", help="time for a library in a round (default: 0.08)")
    parser.add_argument("--budget", type=at_least(1, float), metavar="S", help="time for all cases: shorter rounds, and torch.compile where time is left")
    parser.add_argument("--record", metavar="F", help="append the records to this .jsonl file")
    parser.add_argument("--json", action="store_true", help="print records, one JSON object a line")


def peers(text):
    """torch, compile, both with a comma, or none, as a set."""
    import argparse

    chosen = set(text.split(","))
    for name in sorted(chosen - {"torch", "compile", "none"}):
        raise argparse.ArgumentTypeError(f"no peer is called {name!r}{nearest(name, ['torch', 'compile', 'none'])}; known: torch, compile, none")
    if "none" in chosen and len(chosen) > 1:
        raise argparse.ArgumentTypeError("none and a peer exclude one another")
    return chosen


def execute(args):
    import json

    import tenor
    from tenor import bench

    rows = targets.load(args.targets) if args.targets else {}
    cases = _cases(bench, args, rows)
    require_device(args.device)
    torch = _peer(args)
    use_threads(args)
    limits = _limits(args, torch)
    if torch is not None and args.vs != {"none"}:
        _warm_peers(cases, args.device)
    stamp, records = dict(bench.stamp(), **_machine(args, torch)), []
    budget = bench.Budget(args.budget, len(cases), bool(args.vs and "compile" in args.vs))
    sink = open(args.record, "a") if args.record else None
    with Progress("bench", len(cases)) as progress:
        for number, case in enumerate(cases):
            progress.at(number, f"{case['op']} {case['case']} {case['dtype']}")
            record = _measured(bench, args, case, torch, limits, budget)
            if args.device == "cpu" and record.get("share", 0) > 1.05 and tenor._tenor._raise_limits():  # they came from a busier hour
                limits = tenor.device_limits()
                record = _measured(bench, args, case, torch, limits, budget)
            record.update(stamp)
            progress.clear()
            whole = not record.keys() & {"error", "skipped"}
            judged = targets.judge(record, rows[case["target"]], case) if rows and whole else {}
            records.append(dict(record, **judged))
            print(json.dumps(records[-1]) if args.json else show(records[-1]), flush=True)
            if sink and whole:
                sink.write(json.dumps(record) + "\n")
                sink.flush()
    return _close(args, records, rows)


def _measured(bench, args, case, torch, limits, budget):
    """The record of a case, or what it is called with `error` or `skipped`."""
    import time

    from tenor.checking.outcome import missing_kernel

    named = {"op": case["op"], "case": case["case"], "dtype": case["dtype"]}
    compiled = bool(args.vs and "compile" in args.vs and case.get("peer") and budget.may_compile())
    affordable = budget.next(args.rounds, args.seconds, 2 + compiled)
    if affordable is None:
        return dict(named, skipped="no time was left")
    start = time.monotonic()
    try:
        record = bench.run_case(case, torch if args.vs != {"none"} else None, limits, *affordable, args.device, compiled)
    except Exception as error:  # one broken case must not hide the others
        if missing_kernel(error):
            return dict(named, skipped=f"no kernel on {args.device} yet")
        return dict(named, error=f"{type(error).__name__}: {error}"[:200])
    if compiled:
        budget.compiled(time.monotonic() - start)
    return record


def _warm_peers(cases, device):
    """What peers compile is no part of the budget; says how long it took, and for which cases it is not done."""
    from tenor import _bench_warm

    compiling = [c for c in cases if c.get("compiles") and c.get("peer")]
    if not compiling:
        return
    with Progress("bench: compiling the peers of {} cases".format(len(compiling))):
        seconds, missed = _bench_warm.warm(compiling, device)
    names = "; not done: " + ", ".join(f"{c['op']} {c['case']}" for c in missed) if missed else ""
    print(f"peers of {len(compiling)} cases compiled in {seconds:.0f} s, outside of any budget{names}", file=sys.stderr)


def _machine(args, torch):
    """What a record says of the GPU."""
    return {} if args.device == "cpu" else {"gpu": torch.cuda.get_device_name(args.device)}


def _cases(bench, args, rows):
    try:
        cases = bench.load_cases(args.op)
    except bench.UnknownCase as error:
        raise UsageError(f"no benchmark is called {error.name!r}{nearest(error.name, error.known)}; known: {', '.join(error.known)}") from None
    kind = args.device.partition(":")[0]
    cases = [c for c in cases if c.get("device", kind) == kind]
    if rows:
        cases = [c for c in cases if c.get("target") in rows]
    if not cases:
        what = f"none of the cases is a row of {args.targets}" if rows else "there are no cases"
        raise UsageError(f"{what} (device {args.device}{', ' + ' '.join(args.op) if args.op else ''})")
    return cases


def _peer(args):
    """PyTorch, or None. Asked for by name it must be there; on CUDA its events do the timing."""
    if args.vs == {"none"} and args.device == "cpu":
        return None
    try:
        import torch
    except ImportError:
        if args.vs not in (None, {"none"}) or args.device != "cpu":
            raise UsageError("PyTorch is not installed: pip install torch" + ", or --vs=none" * (args.device == "cpu")) from None
        print("PyTorch is not installed: times without a peer", file=sys.stderr)
        return None
    if args.threads:
        torch.set_num_threads(args.threads)
    return torch


def _limits(args, torch):
    import tenor

    with Progress("bench: measuring this machine's limits"):
        if args.device == "cpu":
            limits = tenor.device_limits()
        else:
            from tenor._bench_limits import CudaLimits

            limits = CudaLimits(torch, args.device)
        where = f"threads {tenor.get_num_threads()}" if args.device == "cpu" else torch.cuda.get_device_name(args.device)
        line = (f"{where}, copy {limits.copy_bytes / 1e9:.1f} GB/s (read + written), float32 {limits.float32_flops / 1e9:.0f}, "
                f"bfloat16 {limits.bfloat16_flops / 1e9:.0f} GFLOP/s")
    print(line, file=sys.stderr)
    return limits


def show(record):
    line = f"{record['op']:18} {record['case']:24} {record['dtype']:9}"
    if "error" in record:
        return f"{line} {paint('failed', '31')}: {record['error']}"
    if "skipped" in record:
        return f"{line} {paint('not measured', '2')}: {record['skipped']}"
    line += f" {record['ms']:10.4f} ms"
    if "value" in record:
        line += f" {record['value']:9.2f} {record['unit']:8}"
    if "share" in record:
        line += f" {100 * record['share']:5.0f}% of {'copy' if record['unit'] == 'GB/s' else 'FLOPs'}"
    if "peer_error" in record:
        line += f"   {record['peer'].split()[0]}: {record['peer_error']}"
    if "ratio" in record:
        line += f"   {record['ratio']:6.2f}x {record['peer'].split()[0]} ({record['peer_ms']:.4f} ms)"
    if "compiled_ratio" in record:
        line += f"   {record['compiled_ratio']:6.2f}x compiled"
    if "bar" in record:
        line += f"   bar {record['bar']:g} {_met(record['bar_met'])}, goal {record['goal']:g} {record['target_unit']} {_met(record['goal_met'])}"
    return line


def _met(yes):
    return paint("met", "32") if yes else paint("missed", "31")


def _close(args, records, rows):
    """The exit status, and with targets what they come to."""
    judged = [r for r in records if "bar" in r]
    missed = [r for r in judged if not r["bar_met"]]
    skipped = [r for r in records if "skipped" in r]
    if not args.json and rows:
        goals = sum(r["goal_met"] for r in judged)
        served = {r.get("target") for r in judged}
        print(f"bars met: {len(judged) - len(missed)} of {len(judged)}; goals met: {goals} of {len(judged)}; "
              f"rows of the file that were not measured: {len(rows.keys() - served)}")
    if not args.json and skipped:
        print("not measured: " + ", ".join(f"{r['op']} {r['case']}" for r in skipped))
    return int(bool(missed or any("error" in r for r in records)))
