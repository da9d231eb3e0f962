"""Argument parsing whose errors are one line that says what is wrong and how to mend it."""
import argparse


class UsageError(Exception):
    """Bad arguments: exit status 2. `prog` is the command that speaks, where it is not the one being run."""

    def __init__(self, text, prog=None):
        super().__init__(text)
        self.prog = prog


def nearest(name, known, cutoff=0.6):
    """" (did you mean 'softmax'?)" for a name that is nearly one of the known, or begins some of them, else ""."""
    import difflib

    lower = {k.lower(): k for k in known}
    begun = sorted((k for k in lower if len(name) >= 3 and k.startswith(name.lower())), key=lambda k: (len(k), k))
    close = begun[:3] or difflib.get_close_matches(name.lower(), lower, n=1, cutoff=cutoff)
    said = [repr(lower[k]) for k in close]
    return f" (did you mean {' or '.join(filter(None, [', '.join(said[:-1]), said[-1]]))}?)" if said else ""


class Help(argparse.RawDescriptionHelpFormatter):
    """Paragraphs of a description fill the terminal's width, 100 columns at most; indented lines stay as they are."""

    def __init__(self, prog):
        import shutil

        super().__init__(prog, width=min(shutil.get_terminal_size().columns, 102) - 2)

    def _fill_text(self, text, width, indent):
        import textwrap

        blocks = (block.splitlines() for block in text.split("\n\n"))
        return "\n\n".join("\n".join(b) if any(line.startswith(" ") for line in b) else textwrap.fill(" ".join(b), width) for b in blocks)


class Parser(argparse.ArgumentParser):
    """argparse, with errors as UsageError and the examples at the end of --help."""

    def __init__(self, prog, description, examples):
        epilog = "examples:\n" + "\n".join(f"  {line}" for line in examples)
        super().__init__(prog=prog, description=description.strip(), epilog=epilog, allow_abbrev=False,
                         formatter_class=Help)

    def error(self, message):
        head = "the following arguments are required: "
        if message.startswith(head):  # argparse counts those that may be absent
            absent = {a.metavar or a.dest for a in self._actions if a.nargs in ("*", "?")}
            message = ", ".join(n for n in message[len(head):].split(", ") if n not in absent) + " is missing"
        raise UsageError(f"{message}{self._mend(message)}; {self.prog} --help shows examples", prog=self.prog)

    def _mend(self, message):
        options = [s for a in self._actions for s in a.option_strings if s.startswith("--")]
        if message.startswith("unrecognized arguments: "):
            return nearest(message.split(": ", 1)[1].split()[0].split("=")[0], options)
        if "invalid choice" in message:
            wrong = message.split("invalid choice: ", 1)[1].split("'")[1]
            return nearest(wrong, [str(c) for a in self._actions for c in a.choices or ()])
        return ""


def at_least(low, kind=int):
    """A number type for add_argument: numbers of that kind, not below `low`."""

    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value < 1 << 62:
            raise argparse.ArgumentTypeError(f"expected {'an integer' if kind is int else 'a number'} >= {low}, got {text!r}")
        return value

    return parse


def add_json(parser):
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def add_threads(parser):
    parser.add_argument("--threads", type=at_least(1), metavar="N", help="threads of CPU operators (default: OMP_NUM_THREADS, or all cores)")


def add_device(parser, what):
    parser.add_argument("--device", default="cpu", metavar="D", help=f"{what}: cpu, cuda or cuda:1 (default: cpu)")


def use_threads(args):
    if args.threads:
        import tenor

        tenor.set_num_threads(args.threads)


def require_device(name):
    """The device's name, if operators can run there. UsageError else."""
    import tenor

    try:
        tenor.empty(0, device=name)
    except tenor.Error as error:
        raise UsageError(f"--device {name}: {str(error).removeprefix('empty: device: ')}") from None
    return name


def elsewhere(name):
    """" (PyTorch's name; here it is 'conv_forward')" for a function that other libraries call otherwise, else ""."""
    from tenor._explain_names import RENAMED

    here = RENAMED.get(name, "conv_forward" if name in ("conv1d", "conv2d", "conv3d") else
                       "conv_transpose" if name in ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d") else
                       {"scaled_dot_product_attention": "attention", "upsample": "interpolate"}.get(name))
    return f" (another library's name; here it is {here!r})" if here else ""


def operator_info(name):
    """(name, family, class, formula, strategies) of a registered operator. UsageError with the nearest name for others."""
    from tenor._tenor import _operators

    known = {o[0]: o for o in _operators()}
    found = known.get(name) or known.get(name.rpartition(".")[2])
    if found is None:
        raise UsageError(f"no operator is called {name!r}{elsewhere(name) or nearest(name, known)}; tenor ops lists them")
    return found
