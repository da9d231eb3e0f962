"""Every operator family on real shapes: the strategy taken, the error against a float64 reference, the time, and the share
of this machine's limit, measured anew. Exit status 1 when a result is wrong."""
from tenor._cli.arguments import UsageError, add_threads, nearest, require_device, use_threads
from tenor._cli.output import Progress, count, paint

EXAMPLES = [
    "tenor demo                  every family; about half a minute",
    "tenor demo norm attention   some of them",
    "tenor demo --device=cpu     on the CPU, where there is a GPU too",
    "tenor demo --threads=1",
    "tenor demo --json           one JSON object a line",
]


def configure(parser):
    parser.add_argument("family", nargs="*", metavar="FAMILY", help="norm, attention, ...; all when none is named")
    parser.add_argument("--device", default="auto", metavar="D", help="cpu, cuda, cuda:1, or auto: a GPU where there is one (default: auto)")
    add_threads(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")


def execute(args):
    import json

    from tenor import demo

    for name in args.family:
        if name not in demo.FAMILIES:
            raise UsageError(f"no family is called {name!r}{nearest(name, demo.FAMILIES)}; known: {', '.join(demo.FAMILIES)}")
    use_threads(args)
    demo.PLACE = _place(args.device)
    limits = _limits(args.json)
    failed = 0
    with Progress("demo:") as progress:
        for family in args.family or demo.FAMILIES:
            progress.at(note=family)
            for case in demo.FAMILIES[family]():
                progress.at(note=f"{case.family} {case.op}")
                row = demo.measure(case, limits)
                failed |= demo.wrong(row)
                progress.clear()
                print(json.dumps(row) if args.json else demo.show(row) + paint("  WRONG", "31") * demo.wrong(row), flush=True)
    return int(failed)


def _place(device):
    """The device meant; "auto" is a GPU where this build and machine have one."""
    import tenor

    if device == "auto":
        return "cuda" if tenor.cuda_device_count() else "cpu"
    return require_device(device)


def _limits(silent):
    import tenor
    from tenor import demo

    with Progress("demo: measuring this machine's limits"):
        limits = tenor.device_limits(device=demo.PLACE)
        if demo.PLACE == "cpu" and tenor._tenor._raise_limits():  # the kept figure came from a busier hour
            limits = tenor.device_limits()
    if not silent:
        where = count(tenor.get_num_threads(), "thread") if demo.PLACE == "cpu" else demo.PLACE
        print(f"{where}; limits: copy {limits.copy_bytes / 1e9:.1f} GB/s, float32 "
              f"{limits.float32_flops / 1e9:.0f} GFLOP/s, bfloat16 {limits.bfloat16_flops / 1e9:.0f} GFLOP/s")
        print(paint(demo.COLUMNS.format(*demo.TITLES), "1"))
    return limits
