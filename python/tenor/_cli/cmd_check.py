"""Compares operators with independent NumPy references on random shapes, strides, dtypes and options, and sees that
arguments which must be refused are. Operators that a device has no kernel for are counted and named, and fail nothing. Exit
status 1 when a draw fails; it is reproduced by the seed printed."""
from tenor._cli.arguments import UsageError, add_device, add_json, add_threads, at_least, nearest, require_device, use_threads
from tenor._cli.output import Progress, count, paint, print_json

EXAMPLES = [
    "tenor check                              every family, a few seconds",
    "tenor check softmax --draws=10000        one operator",
    "tenor check reduce                       a family",
    "tenor check --device=cuda --draws=10000 --jobs=8    every family, in eight processes",
    "tenor check gelu --seed=17 --draws=1 --only=activations    the draw of a failure again",
]


def configure(parser):
    parser.add_argument("op", nargs="?", metavar="OP", help="an operator or a family; everything when none is named")
    add_device(parser, "where the operators run")
    parser.add_argument("--draws", type=at_least(1), default=2000, metavar="N", help="random calls (default: 2000)")
    parser.add_argument("--seed", type=at_least(0), default=0, metavar="S", help="the first draw's seed (default: 0)")
    parser.add_argument("--only", default="", metavar="NAME", help="properties whose name holds this")
    parser.add_argument("--most", type=at_least(1), default=20, metavar="N", help="stop after so many failures (default: 20)")
    parser.add_argument("--jobs", type=at_least(1), default=1, metavar="N", help="processes that share the draws (default: 1)")
    add_threads(parser)
    add_json(parser)


def execute(args):
    from tenor import checking

    if args.jobs == 1:  # the parent of several needs no place on the device
        require_device(args.device)
    use_threads(args)
    among, op = choose(checking, args.op)
    among = [p for p in among if args.only in p.name]
    if not among:
        raise UsageError(f"--only {args.only}: no property's name holds that; tenor check {args.op or ''} --json names them".replace("  ", " "))
    with Progress(f"check {args.op or ''}".rstrip(), args.draws) as progress:

        def failed(failure):
            progress.clear()
            if not args.json:
                print(f"{paint('FAILED', '31')} {failure}\n       again: {again(args, failure)}", flush=True)

        if args.jobs > 1:
            from tenor._cli.check_jobs import check_in_jobs

            tally = check_in_jobs(args, len(among), failed, progress.at)
        else:
            tally = checking.check(among, args.draws, args.seed, args.most, op, args.device, failed, progress.at)
    return report(args, among, tally)


def choose(checking, name):
    """(properties, the operator or None) for an operator's or a family's name, or for None."""
    from tenor._tenor import _operators

    if name is None:
        return checking.properties(), None
    families = sorted({p.family for p in checking.properties()})
    operators = [o[0] for o in _operators()]
    if name in operators:
        found = checking.covering(name, checking.properties())
        if not found:
            raise UsageError(f"no random check calls {name} yet; the families with checks are {', '.join(families)}")
        return found, name
    if name in families:
        return checking.properties([name]), None
    of_family = [o[0] for o in _operators() if o[1] == name]
    if of_family:  # one that `tenor ops` lists, and whose checks stand among others'
        return checking.covering(of_family, checking.properties()), None
    raise UsageError(f"no operator or family is called {name!r}{nearest(name, operators + families + [o[1] for o in _operators()])}; "
                     f"families: {', '.join(families)}; operators: tenor ops")


def again(args, failure):
    op = f" {args.op}" if args.op else f" {failure.family}"
    device = f" --device={args.device}" if args.device != "cpu" else ""
    return f"tenor check{op} --only={failure.name} --seed={failure.seed} --draws=1{device}"


def report(args, among, tally):
    bad = len(tally.failures)
    if args.json:
        print_json({"op": args.op, "device": args.device, "seed": args.seed, "draws": args.draws, "properties": [f"{p.family}.{p.name}" for p in among],
                    "passed": tally.passed, "refused": tally.refused, "skipped": tally.skipped, "failures": [f._asdict() for f in tally.failures],
                    "missing": tally.missing,
                    "seconds": round(tally.seconds, 3)})
    else:
        word = paint("FAILED", "31") if bad else paint("ok", "32")
        skipped = f", {tally.skipped} had nothing to check" if tally.skipped else ""
        print(f"{word}: {count(tally.passed, 'draw')} passed, {bad} failed{skipped}, {count(tally.refused, 'call')} refused as they must be; "
              f"{count(len(among), 'property')}, {args.device}, {tally.seconds:.1f} s")
        if tally.missing:
            print(f"no kernel on {args.device} yet: " + ", ".join(f"{op} ({count(n, 'draw')})" for op, n in sorted(tally.missing.items())))
    return int(bad > 0)
