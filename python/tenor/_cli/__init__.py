"""The command line `tenor`, written over the package. One file a command: cmd_<name>.py with

    EXAMPLES                command lines with what they show, for --help
    configure(parser)       its arguments
    parse(parser, words)    only where argparse alone cannot read its command line
    execute(args)           runs it; the exit status

Nothing but the chosen command's file is imported, and NumPy only where arrays are touched: `tenor --help` stays quick.
"""
import importlib
import os
import sys

COMMANDS = {
    "demo": "every operator family on real shapes: error, time, share of the limit",
    "info": "devices, features, versions, measured limits, cache folders",
    "ops": "the list of operators; one operator's signature, formula, dtypes, cost",
    "run": "apply an operator to .npy, .npz or .safetensors files",
    "explain": "shapes, bytes, FLOPs and bounds of an expression, nothing run",
    "check": "random calls against independent references",
    "bench": "times beside PyTorch's, with the share of the machine's limit",
    "tune": "measure strategies once and remember the fastest",
    "completion": "tab completion for bash, zsh or fish",
}

_USAGE = """usage: tenor COMMAND [arguments]
       tenor COMMAND --help

Neural-network operators for CPUs and NVIDIA GPUs.

commands:
{commands}

examples:
  tenor ops softmax                                    what an operator takes and gives
  tenor run softmax scores.npy --dim=-1 -o p.npy       apply it to a file
  tenor explain "x / x.sum(-1, keepdim=True)" "x=bf16[4096,8192]"
  tenor check attention                                compare it with its reference

Exit status: 0, 1 (a check failed), 2 (bad arguments). Every command has --json.
"""


def main(argv=None):
    """Runs the command line; the exit status. Whatever goes wrong is one line on stderr, never a traceback."""
    argv = list(sys.argv[1:] if argv is None else argv)
    for name in ("stdout", "stderr"):  # Python has None for what the caller closed
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))
    for stream in (sys.stdout, sys.stderr):  # file names and arrays' names may be no text, and terminals ASCII
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    name = argv[0] if argv else "--help"
    try:
        status = _dispatch(name, argv[1:])
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("tenor: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader (head, less) has seen enough; nothing more may be written at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except Exception as error:
        return _report(name, error)


def _dispatch(name, rest):
    from tenor._cli.arguments import Parser, UsageError

    if name in ("--help", "-h", "help") and not rest:
        print(_USAGE.format(commands="\n".join(f"  {c:12}{text}" for c, text in COMMANDS.items())), end="")
        return 0
    if name in ("--help", "-h", "help"):
        name, rest = rest[0], ["--help"]
    if name in ("--version", "-V"):
        import tenor

        print(f"tenor {tenor.__version__}")
        return 0
    if name not in COMMANDS:
        raise UsageError(_unknown(name), prog="tenor")
    command = importlib.import_module(f"tenor._cli.cmd_{name}")
    parser = Parser(prog=f"tenor {name}", description=command.__doc__, examples=command.EXAMPLES)
    command.configure(parser)
    parse = getattr(command, "parse", Parser.parse_args)
    return command.execute(parse(parser, rest)) or 0


def _unknown(name):
    """What to say of a word that is no command: perhaps it is an operator."""
    from tenor._cli.arguments import nearest
    from tenor._tenor import _operators

    kind = "option" if name.startswith("-") else "command"
    if name in (o[0] for o in _operators()):
        return f"{name} is an operator, not a command: tenor run {name} FILE, tenor ops {name}"
    return f"no {kind} is called {name!r}{nearest(name, [*COMMANDS, '--help', '--version'])}; tenor --help lists the commands"


def _report(name, error):
    """One line that says what is wrong; the exit status."""
    import tenor
    from tenor._cli.arguments import UsageError

    if os.environ.get("TENOR_DEBUG"):
        import traceback

        traceback.print_exc()
    prog = getattr(error, "prog", None) or (f"tenor {name}" if name in COMMANDS else "tenor")
    text = printable("; ".join(" ".join(line.split()) for line in str(error).splitlines() if line.strip())) or type(error).__name__
    text = text[len(name) + 2:] if text.startswith(f"{name}: ") else text  # the command's own name stands before it
    if isinstance(error, (MemoryError, tenor.OutOfMemoryError)):
        print(f"{prog}: out of memory: {text}", file=sys.stderr)
        return 1
    if isinstance(error, OSError) and error.filename is not None:
        text = printable(f"{error.filename}: {error.strerror or text}")
    elif isinstance(error, OSError) and not isinstance(error, (UsageError, tenor.Error)):  # a full disk: nobody's arguments
        print(f"{prog}: {error.strerror or text}", file=sys.stderr)
        return 1
    elif not isinstance(error, (UsageError, tenor.Error, OSError)):
        print(f"{prog}: internal error: {type(error).__name__}: {text} (TENOR_DEBUG=1 shows where)", file=sys.stderr)
        return 1
    print(f"{prog}: {text}", file=sys.stderr)
    return 2


def printable(text):
    """The text without what steers a terminal: names in files and arguments may hold anything."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
