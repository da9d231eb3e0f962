"""Says what an expression gives and costs, without running it: each step's class, shape, dtype, bytes, FLOPs and bound on a
device, what a fusing compiler would make one kernel of, which copies and promotions happen, and why.

The text is Python as people write it, with operators, methods and tenor., torch. or F. functions; several assignments are
fine. Each name that it uses is given as name=DTYPE[SHAPE] (bf16, f32, f16, i64, bool, ...) or as name=FILE.npy."""
import sys

from tenor._cli import specs
from tenor._cli.arguments import UsageError, add_json, add_threads, use_threads
from tenor._cli.output import Progress, finite, width

EXAMPLES = [
    'tenor explain "x / x.sum(-1, keepdim=True)" "x=bf16[4096,8192]"',
    'tenor explain "F.silu(x[..., :d]) * x[..., d:]" "x=bf16[64,8192]" d=4096 --device=h200',
    'tenor explain "softmax(q @ k.mT)" "q=f32[8,128,64]" k=keys.npy --measure',
    'tenor explain "x @ w" "x=bf16[64,4096]" "w=bf16[4096,4096]" --device=cuda --measure',
    'tenor explain "x.exp().sum(0)" "x=f32[4096,4096]" --json',
    'tenor explain "a @ b" "a=bf16[4096,4096]" "b=bf16[4096,4096]" --svg=roofline.svg',
    'tenor explain "a @ b" "f32[64,32]" "f32[32,8]"         unnamed: in the order of the names',
    'tenor explain - "x=f32[8,8]" < snippet.py             the text from standard input',
]


def configure(parser):
    parser.add_argument("text", metavar="TEXT", help="the expression; - reads it from standard input")
    parser.add_argument("arrays", nargs="*", metavar="name=VALUE", help="DTYPE[SHAPE], a file, or a Python number")
    parser.add_argument("--device", metavar="D", help="whose limits and kernels: cpu or cuda (of this machine, measured), h200, h100, a100")
    parser.add_argument("--measure", action="store_true", help="also run it on the device: each step's time and share of the limit")
    parser.add_argument("--svg", metavar="F", help="write a roofline with the steps as points")
    add_threads(parser)
    add_json(parser)


def execute(args):
    import tenor
    from tenor._explain import shown

    use_threads(args)
    if args.svg is not None and not args.svg.lower().endswith(".svg"):
        raise UsageError(f"--svg={args.svg}: the roofline is an SVG image, so the name must end in .svg")
    text = _read_stdin() if args.text == "-" else args.text
    inputs = [word for word in args.arrays if specs.is_spec(word)]  # unnamed: they go to the text's names in order
    words = [word for word in args.arrays if not specs.is_spec(word)]
    named = dict(_named(word) for word in words)
    if len(named) < len(words):
        raise UsageError("a name is given twice: each array once, as name=DTYPE[SHAPE]")
    with Progress("explain: measuring"):
        try:
            explanation = tenor.explain(text, *inputs, device=args.device, measure=args.measure, **named)
        except tenor.OutOfMemoryError as error:
            if args.measure:
                raise
            raise UsageError(str(error)) from None  # nothing is allocated: the shapes are what is wrong
    if args.svg:
        explanation.to_svg(args.svg)
        print(f"wrote {args.svg}", file=sys.stderr)
    if args.json:
        print(_json(explanation))
    else:
        print(shown(explanation, min(width(), 100)))
    return 0


def _read_stdin():
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("- reads the text from standard input, which is a terminal: tenor explain - 'x=f32[8,8]' < file")
    return sys.stdin.read()


def _named(word):
    """("x", "bf16[4096,8192]") of a word; files become tensors, numbers numbers."""
    import ast

    from tenor._cli import files, values

    name, equals, value = word.partition("=")
    if not equals or not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"what is {word!r} for? Arrays are given as name=DTYPE[SHAPE], as in 'x=bf16[4096,8192]', or name=FILE.npy")
    if values.is_file(value):
        return name, files.read(value)
    try:
        number = ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return name, value
    return name, number


def _json(explanation):
    import json

    found = explanation.to_json()
    return found if isinstance(found, str) else json.dumps(finite(found), indent=2)
