"""Measures the strategies of operators that have several, on their benchmarks' shapes or on yours, and remembers the fastest
of each in tuning.json in the cache folder. Programs use it where autotuning is on: tenor.autotune(True) or
TENOR_AUTOTUNE=1. Only strategies that round alike compete. Where a shape was measured before, that is shown. What is
remembered belongs to one version and machine and thread count, or GPU, driver and cuBLASLt."""
from tenor._cli import specs
from tenor._cli.arguments import UsageError, add_device, add_json, add_threads, operator_info, require_device, use_threads
from tenor._cli.output import Progress, print_json, table
from tenor._cli.signature import signature

EXAMPLES = [
    "tenor tune matmul                                   the shapes of its benchmarks",
    'tenor tune linear "bf16[16,4096]" "bf16[14336,4096]"  your own',
    "tenor tune                                          every operator with several strategies",
    "tenor tune matmul --device=cuda                     cuBLASLt, Tenor's own kernels, by events",
    "tenor tune --show                                   what is remembered, by machine or GPU",
    "tenor tune matmul --again                           measure anew what is remembered",
    "tenor tune --forget",
]


def configure(parser):
    parser.add_argument("op", nargs="?", metavar="OP", help="an operator with several strategies")
    parser.add_argument("arrays", nargs="*", metavar="DTYPE[SHAPE]", help="its arguments; its benchmarks' cases when none is given")
    parser.add_argument("--show", action="store_true", help="print what is remembered, measure nothing")
    parser.add_argument("--forget", action="store_true", help="forget what is remembered (of OP, or everything)")
    parser.add_argument("--again", action="store_true", help="measure anew what is remembered")
    add_device(parser, "where the operators run")
    add_threads(parser)
    add_json(parser)


def execute(args):
    use_threads(args)
    if args.show and args.forget:
        raise UsageError("--show and --forget exclude one another")
    strategies = _strategies(args.op)
    if args.show:
        return _show(args, _remembered(args.op))
    if args.forget:
        forgotten = _forget(args.op)
        return print_json({"forgotten": forgotten}) if args.json else print(f"forgotten: {forgotten}")
    require_device(args.device)
    rows = _tune(args, _cases(args, strategies))
    if args.json:
        return print_json(rows)
    table([(r["op"], r["case"], r["dtype"], r["usual"], r["winner"], f"{r['gain']:.2f}x" if r["gain"] else "-", r["note"]) for r in rows],
          ("operator", "case", "dtype", "usual", "fastest", "gain", ""), right=(5,))
    return 0


# Engines are remembered by the direction of the convolution that they compute.
_OF_TRANSPOSED = {
    "conv_transpose": "conv_data_backward",
    "conv_transpose_data_backward": "conv_forward",
    "conv_transpose_weight_backward": "conv_weight_backward",
}


def _strategies(op):
    """{operator: strategies} of those that have several; of one it must be one of them."""
    from tenor._tenor import _operators

    several = {o[0]: o[4] for o in _operators() if len(o[4]) > 1}
    if op is None:
        return several
    name = operator_info(op)[0]
    if name not in several:
        raise UsageError(f"{name} has one way only, so there is nothing to tune; several have {', '.join(sorted(several))}")
    return {name: several[name]}


def _store_name(op):
    """Under which name an operator's problems are remembered: all contractions come down to matmul."""
    family = operator_info(op)[1]
    return "matmul" if family == "contract" else op


def _is_engine(entry):
    """Whether it is the choice among a library's engines, which the strategy "vendor" made."""
    return "'s engine: " in entry["problem"]


def _remembered(op):
    from tenor._tenor import _tunings

    direction = _OF_TRANSPOSED.get(op, op.removesuffix("_nhwc")) if op else None
    return [t for t in _tunings() if op is None or t["op"] == _store_name(op) or _is_engine(t) and t["op"] == direction]


def _forget(op):
    from tenor._tenor import _forget_tunings

    if not op:
        return _forget_tunings("")
    return sum(_forget_tunings(t["op"], t["problem"], t["machine"]) for t in _remembered(op))


def _show(args, entries):
    if args.json:
        return print_json(entries)
    if not entries:
        return print("nothing is remembered" + (f" for {args.op}" if args.op else "") + "; tenor tune measures")
    machines = sorted({(t["machine"], t["version"]) for t in entries})
    for machine, version in machines:
        print(f"{machine}, tenor {version}")
        table([(t["op"], t["problem"], t["winner"], ", ".join(f"{n} {us:.1f}" for n, us in t["microseconds"].items()))
               for t in entries if (t["machine"], t["version"]) == (machine, version)], ("operator", "problem", "fastest", "microseconds"))
    return 0


def _cases(args, strategies):
    """(operator, case, dtype, run) of what is to be tuned."""
    import numpy as np

    rng = np.random.default_rng(0)
    if args.arrays:
        import tenor

        needed = [p.name for p in signature(args.op).parameters if p.required]
        tensors = [tenor.to(specs.draw(text, rng), device=args.device) for text in args.arrays]
        if len(tensors) < len(needed):
            raise UsageError(f"{args.op}: {needed[len(tensors)]} is missing: it takes {', '.join(needed)}")
        function = getattr(tenor, args.op)
        return [(args.op, ", ".join(args.arrays), str(tensors[0].dtype), lambda: function(*tensors))]
    from tenor import bench

    kind = args.device.partition(":")[0]
    cases = [c for c in bench.load_cases() if c["op"] in strategies and c.get("device", kind) == kind]
    if not cases:
        raise UsageError(f'{args.op} has no benchmark cases: give its arguments, as in tenor tune {args.op} "f32[64,64]" ...')
    return [(c["op"], c["case"], c["dtype"], _lazy(bench, c, args.device)) for c in cases]


def _lazy(bench, case, device):
    """The case's call; its arrays are drawn at the first."""
    import numpy as np

    import tenor

    made = []

    def run():
        if not made:
            inputs = case["make"](np.random.default_rng(0))
            made.extend(bench.to_tenor(x, device) for x in (inputs if isinstance(inputs, (list, tuple)) else [inputs]))
        return case["run"](tenor, *made)

    return run


def _tune(args, cases):
    import tenor

    rows = []
    with Progress("tune", len(cases)) as progress:
        for number, (op, case, dtype, run) in enumerate(cases):
            progress.at(number, f"{op} {case} {dtype}")
            previous = tenor.autotune(True)
            try:
                entries = _measured(run, args.again, args.device)
            finally:
                tenor.autotune(previous)
            rows.append(_row(op, case, dtype, entries or _taken(op, run)))
    return rows


def _measured(run, again, device):
    """The store's entries of the choices that a call makes, measured now where they were not known (or again)."""
    from tenor import __version__
    from tenor._tenor import _forget_tunings, _tuned_by, _tunings

    machine = _machine(device)
    problems = set(_tuned_by(run))
    if again:
        for problem in problems:
            _forget_tunings(*problem, machine)
        run()
    return [t for t in _tunings() if (t["op"], t["problem"]) in problems and (t["machine"], t["version"]) == (machine, __version__)]


def _machine(device):
    from tenor._tenor import _machine_key

    return _machine_key(device)


def _row(op, case, dtype, found):
    """What came of a case: entries of the store, or the one strategy that takes it. Gain: the usual one's time over the
    fastest's."""
    row = {"op": op, "case": case, "dtype": dtype, "usual": found, "winner": found, "gain": None, "microseconds": {}, "note": "one strategy takes it"}
    if isinstance(found, str):
        return row
    engines = [t for t in found if _is_engine(t)]
    found = [t for t in found if not _is_engine(t)] or engines
    if len(found) > 1:
        return dict(row, usual="-", winner="-", note=f"{len(found)} products, see --show")
    times, winner = found[0]["microseconds"], found[0]["winner"]
    usual = next(iter(times))
    return dict(row, usual=usual, winner=winner, gain=times[usual] / times[winner], microseconds=times,
                note=", ".join([f"{n} {_shown(us)}" for n, us in times.items()] + [_engine_note(t) for t in engines if t not in found]))


def _engine_note(t):
    """Of the choice among a library's engines: "cuDNN 9.19.0 engine 67 of 23"."""
    library = t["problem"].partition("'s engine: ")[0]
    return f"{library} engine {t['winner'].partition(' ')[0]}, of {len(t['microseconds'])} measured"


def _shown(us):
    """A time with three digits in a unit that fits."""
    value, unit = (us / 1000, "ms") if us >= 1000 else (us, "us")
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f} {unit}"


def _taken(op, run):
    """The strategy taken, as the operator states it."""
    from tenor._tenor import _strategies_of

    return next((s for _name, s in _strategies_of(run) if s), "-")
