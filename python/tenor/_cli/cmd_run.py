"""Applies an operator to arrays in files.

Files fill the operator's array parameters in order, other words its remaining ones (tenor run topk x.npy 5), and
--name=value any of them by name. A value is a number, dims as in 0,1, a dtype's name, a file where the operator takes
an array, or a list as in [0, 2]. A flag needs no value: --keepdim. One array of several in a file is x.npz:key; arrays
named like the parameters are taken together. Without -o the results are printed."""
from tenor._cli import files
from tenor._cli.arguments import add_json, add_threads, require_device, use_threads
from tenor._cli.binding import bind
from tenor._cli.output import Progress, print_json
from tenor._cli.signature import signature

EXAMPLES = [
    "tenor run softmax scores.npy --dim=-1 -o p.npy",
    "tenor run matmul a.npy b.npy -o c.npy",
    "tenor run attention qkv.safetensors --causal -o out.npy    arrays named query, key, value",
    "tenor run topk logits.npy 50 -o best.npz                   several results: an archive",
    "tenor run topk logits.npy 50 -o values.npy -o indices.npy  or a file each",
    "tenor run einsum 'bij,bjk->bik' a.npy b.npy",
    "tenor run gather x.npz:x --dim=1 --index=i.npy --json",
    "tenor run softmax --help                                   one operator's own parameters",
]
_OWN = {"-o": 2, "--output": 2, "--threads": 2, "--device": 2, "--json": 1}  # and how many words each takes


def configure(parser):
    parser.usage = "tenor run OP [FILE | VALUE ...] [--name=value ...] [-o FILE ...] [--json]"
    parser.add_argument("op", metavar="OP", help="an operator; tenor ops lists them")
    parser.add_argument("-o", "--output", action="append", default=[], metavar="FILE", help="where a result goes")
    parser.add_argument("--device", metavar="D", help="where to compute: cpu, cuda, cuda:1 (default: cpu)")
    add_threads(parser)
    add_json(parser)


def parse(parser, words):
    """The command's own arguments; `words` of the namespace are the operator's."""
    if not words:
        parser.error("an operator's name is missing, as in tenor run softmax x.npy")
    if words[0] in ("-h", "--help"):
        return parser.parse_args(words)
    if words[0].startswith("-"):
        parser.error(f"an operator's name comes first, as in tenor run softmax x.npy, not {words[0]}")
    own, rest, i = [], [], 1
    while i < len(words):
        name, equals, _value = words[i].partition("=")
        count = 1 if equals else _OWN.get(name, 1)
        (own if name in _OWN else rest).extend(words[i:i + count])
        i += count
    args = parser.parse_args(own + ["--", words[0]])
    args.words = rest
    return args


def execute(args):
    sig = signature(args.op)
    if {"-h", "--help"} & set(args.words):
        from tenor._cli.cmd_ops import describe, show

        return show(describe(sig.name))
    use_threads(args)
    files.check_outputs(args.output)
    with Progress(f"run {sig.name}: reading") as progress:
        bound = bind(sig, args.words)
        if args.device:
            _place(sig, bound, require_device(args.device))
        progress.what = f"run {sig.name}:"
        seconds, strategy, results = call(sig, bound)
        progress.what = f"run {sig.name}: writing"
        written = files.write(results, args.output) if args.output else [None] * len(results)
    _show(args, sig, results, written, seconds, strategy)
    return 0


def _place(sig, bound, device):
    """Arrays go to the device; an operator that makes arrays is told it."""
    import tenor

    move = lambda v: [move(x) for x in v] if isinstance(v, list) else tenor.asarray(v, device=device) if isinstance(v, tenor.Tensor) else v
    bound.update({name: move(value) for name, value in bound.items()})
    if "device" in sig.by_name:
        bound.setdefault("device", device)


def call(sig, bound):
    """(seconds, the strategy taken or "", results by name)."""
    import time

    from tenor._tenor import _strategies_of

    positional, named = [], dict(bound)
    for p in sig.parameters:
        if p.kind == "*" and p.name in named:
            positional.extend(named.pop(p.name))
        elif p.kind == "positional" and p.name in named and len(positional) == sig.parameters.index(p):
            positional.append(named.pop(p.name))
    out = []

    def run():
        start = time.perf_counter()
        out.append(sig.function(*positional, **named))
        out.append(time.perf_counter() - start)

    steps = _strategies_of(run)
    return out[1], next((s for op, s in steps if s), ""), _named(sig.name, out[0])


def _named(op, result):
    import tenor

    if hasattr(result, "_arrays"):
        results = result._arrays()
    elif hasattr(result, "_fields"):
        results = {f: getattr(result, f) for f in result._fields}
    elif isinstance(result, (tuple, list)):
        results = {str(i): r for i, r in enumerate(result)}
    else:
        results = {"result": result}
    import numpy as np

    return {n: r if isinstance(r, (tenor.Tensor, np.ndarray)) else tenor.asarray(np.asarray(r)) for n, r in results.items() if r is not None}


def _show(args, sig, results, written, seconds, strategy):
    rows = [{"name": n, "shape": list(r.shape), "dtype": str(r.dtype), "file": f} for (n, r), f in zip(results.items(), written)]
    if args.json:
        for row, r in zip(rows, results.values()):
            if row["file"] is None:
                row["values"] = r.tolist()
        return print_json({"op": sig.name, "strategy": strategy or None, "ms": round(seconds * 1e3, 4), "results": rows})
    for row, r in zip(rows, results.values()):
        text = f"{row['dtype']}{row['shape']}"
        print(f"{row['name']}: {text} -> {row['file']}" if row["file"] else r if len(rows) == 1 else f"{row['name']}: {r}")
