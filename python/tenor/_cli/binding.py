"""From the words of a command line to an operator's arguments."""
from tenor._cli import files, values
from tenor._cli.arguments import UsageError, nearest
from tenor._cli.signature import Parameter

_OPEN = "int | Sequence[int]"  # what options of an open signature (**named) are


def bind(sig, words):
    """The operator's arguments as a dict by parameter name. UsageError with the mend."""
    bound, words = {}, list(words)
    while words:
        word = words.pop(0)
        if word.startswith("--"):
            _option(sig, bound, word[2:], words)
        elif values.is_file(word):
            _files(sig, bound, word)
        elif word[:1] == "-" and word[1:2].isalpha() and not values.is_number(word):
            raise UsageError(f"no option is called {word}: {sig.name}'s options are written --name=value; {sig.hint}")
        else:
            _literal(sig, bound, word)
    missing = [p for p in sig.parameters if p.required and p.name not in bound]
    if missing:
        p = missing[0]
        if p.name == "self":
            raise UsageError(f"{sig.name} is called on an object that Python code makes, and here are only arrays; tenor ops {sig.name} shows it")
        ways = ["a file"] * p.takes_file + [f"--{p.name.replace('_', '-')}=..."] * p.takes_literal
        raise UsageError(f"{sig.name}: {p.name} is missing: give {' or '.join(ways)}; {sig.hint}")
    return bound


def _option(sig, bound, text, words):
    name, equals, value = text.partition("=")
    name = name.replace("-", "_")
    p = sig.by_name.get(name)
    if p is None and name.startswith("no_") and sig.by_name.get(name[3:]) and sig.by_name[name[3:]].is_flag and not equals:
        return _set(sig, bound, name[3:], False)
    if p is None and sig.open and name != "out":
        p = Parameter(name, "keyword", _OPEN)
    if p is None or p.kind == "**":
        known = [q.name.replace("_", "-") for q in sig.parameters if q.kind != "**"]
        wrong = name.replace("_", "-")
        mend = "; results go to -o FILE" if name in ("out", "workspace") else nearest(wrong, known) or f"; it has --{', --'.join(known)}"
        raise UsageError(f"{sig.name} has no option --{wrong}{mend}")
    if not equals and p.is_flag:
        return _set(sig, bound, p.name, True)
    if not equals:
        if not words or words[0].startswith("--"):
            raise UsageError(f"--{name.replace('_', '-')} needs a value, as in --{name.replace('_', '-')}=...: {p}")
        value = words.pop(0)
    if p.takes_file and values.is_file(value):
        return _files(sig, bound, value, p)
    _set(sig, bound, p.name, values.option_value(p, value))


def _set(sig, bound, name, value):
    if name in bound:
        raise UsageError(f"{sig.name}: {name} is given twice")
    bound[name] = value


def _files(sig, bound, word, p=None):
    """A file, or the files of "[a.npy, b.npy]": a list where the parameter takes anything, else one after another."""
    listed, wants = values.listed_files(word), p or _unfilled(sig, bound)
    if wants and not wants.takes_array and (listed != [word] or wants.name == "indices"):  # one of these is a list of one
        return _set(sig, bound, wants.name, [files.read(file, []) for file in listed])
    for file in listed:
        _file(sig, bound, file, p)


def _unfilled(sig, bound):
    """The parameter that the next file is for: the array parameters in order; a list of arrays takes all that follow."""
    return next((q for q in sig.parameters if q.takes_file and (q.name not in bound or q.takes_arrays)), None)


def _file(sig, bound, word, p=None):
    arrays = [q for q in sig.parameters if q.takes_file]
    p = p or _unfilled(sig, bound)
    if p is None:
        takes = f"it takes {', '.join(q.name for q in arrays)}" if arrays else "it takes no arrays"
        raise UsageError(f"{sig.name}: what is {word} for? {takes}")
    found = files.read(word, [] if p.takes_arrays else [q.name for q in arrays])
    if p.takes_arrays:
        bound.setdefault(p.name, []).append(found)
    elif isinstance(found, dict):
        for name, tensor in found.items():
            _set(sig, bound, name, tensor)
    else:
        _set(sig, bound, p.name, found)


def _literal(sig, bound, word):
    free = lambda q: q.kind == "*" or (q.kind == "positional" and q.name not in bound)
    p = next((q for q in sig.parameters if free(q) and q.takes_literal), None)
    hungry = any(q.takes_array and q.required and q.name not in bound for q in sig.parameters)
    if p is None or (hungry and not p.accepts("str") and not values.is_number(word)):
        raise UsageError(f"{sig.name}: what is {word!r} for? A file ends in .npy, .npz or .safetensors; {sig.hint}")
    value = values.option_value(p, word)
    if p and p.kind == "*" and p.name in bound:  # zeros 2 3, beside zeros 2,3
        return bound[p.name].extend(value)
    _set(sig, bound, p.name, value)
