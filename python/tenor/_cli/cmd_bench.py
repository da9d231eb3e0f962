"""Times operators on the shapes of their families' benchmarks, beside PyTorch in the same run where it is installed, with
the share of this machine's limit (on the CPU).

With --targets only the cases of that file's rows are run, and each says whether it meets its bar and its goal. Exit
status 1 when a case fails or a bar is missed."""
from tenor._cli import targets
from tenor._cli.arguments import UsageError, add_device, add_threads, at_least, nearest, require_device, use_threads
from tenor._cli.output import Progress, paint

EXAMPLES = [
    "tenor bench softmax                       one operator's cases",
    "tenor bench norm contract --vs=none       two families, without PyTorch",
    "tenor bench --device=cuda --targets=targets.json",
    "tenor bench matmul --record=out.jsonl     append the records to a file",
    "tenor bench add --json                    one JSON object a line",
]


def configure(parser):
    parser.add_argument("op", nargs="*", metavar="OP", help="operators or families; all when none is named")
    parser.add_argument("--vs", choices=["torch", "none"], help="the peer to time in the same run (default: torch, if installed)")
    add_device(parser, "where to run")
    parser.add_argument("--targets", metavar="F", help="a JSON file of rows with bar and goal")
    add_threads(parser)
    parser.add_argument("--rounds", type=at_least(1), default=5, metavar="N", help="rounds in which the libraries take turns (default: 5)")
    parser.add_argument("--seconds", type=at_least(0, float), default=0.08, metavar="S", help="time for a library in a round (default: 0.08)")
    parser.add_argument("--record", metavar="F", help="append the records to this .jsonl file")
    parser.add_argument("--json", action="store_true", help="print records, one JSON object a line")


def execute(args):
    import json

    from tenor import bench

    rows = targets.load(args.targets) if args.targets else {}
    cases = _cases(bench, args, rows)
    require_device(args.device)
    torch = _peer(args)
    use_threads(args)
    limits = _limits(args)
    stamp, failed, records = bench.stamp(), [], []
    sink = open(args.record, "a") if args.record else None
    with Progress("bench", len(cases)) as progress:
        for number, case in enumerate(cases):
            progress.at(number, f"{case['op']} {case['case']} {case['dtype']}")
            try:
                record = dict(bench.run_case(case, torch, limits, args.rounds, args.seconds, args.device), **stamp)
            except Exception as error:  # one broken case must not hide the others
                record = {"op": case["op"], "case": case["case"], "dtype": case["dtype"], "error": f"{type(error).__name__}: {error}"[:200]}
                failed.append(record)
            progress.clear()
            judged = targets.judge(record, rows[case["target"]]) if rows and "error" not in record else {}
            records.append(dict(record, **judged))
            print(json.dumps(records[-1]) if args.json else show(records[-1]), flush=True)
            if sink and "error" not in record:
                sink.write(json.dumps(record) + "\n")
                sink.flush()
    return _close(args, records, failed)


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
    if args.vs == "none" and args.device == "cpu":
        return None
    try:
        import torch
    except ImportError:
        if args.vs == "torch" or args.device != "cpu":
            raise UsageError("PyTorch is not installed: pip install torch" + ", or --vs=none" * (args.device == "cpu")) from None
        return None
    if args.threads:
        torch.set_num_threads(args.threads)
    return torch if args.vs != "none" else None


def _limits(args):
    import sys

    import tenor

    if args.device != "cpu":
        return None
    with Progress("bench: measuring this machine's limits"):
        limits = tenor.device_limits()
    print(f"threads {tenor.get_num_threads()}, copy {limits.copy_bytes / 1e9:.1f} GB/s (read + written), float32 "
          f"{limits.float32_flops / 1e9:.0f}, bfloat16 {limits.bfloat16_flops / 1e9:.0f} GFLOP/s", file=sys.stderr)
    return limits


def show(record):
    line = f"{record['op']:18} {record['case']:24} {record['dtype']:9}"
    if "error" in record:
        return f"{line} {paint('failed', '31')}: {record['error']}"
    line += f" {record['ms']:10.4f} ms"
    if "value" in record:
        line += f" {record['value']:9.2f} {record['unit']:8}"
    if "share" in record:
        line += f" {100 * record['share']:5.0f}% of {'copy' if record['unit'] == 'GB/s' else 'FLOPs'}"
    if "ratio" in record:
        line += f"   {record['ratio']:6.2f}x {record['peer'].split()[0]} ({record['peer_ms']:.4f} ms)"
    if "bar" in record:
        line += f"   bar {record['bar']:g} {_met(record['bar_met'])}, goal {record['goal']:g} {record['target_unit']} {_met(record['goal_met'])}"
    return line


def _met(yes):
    return paint("met", "32") if yes else paint("missed", "31")


def _close(args, records, failed):
    """The exit status, and with targets what they come to."""
    judged = [r for r in records if "bar" in r]
    missed = [r for r in judged if not r["bar_met"]]
    if judged and not args.json:
        goals = sum(r["goal_met"] for r in judged)
        print(f"bars met: {len(judged) - len(missed)} of {len(judged)}; goals met: {goals} of {len(judged)}")
    return int(bool(failed or missed))
