"""Values typed on the command line, read as an operator's parameter wants them."""
import ast

from tenor._cli.arguments import UsageError

_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_SUFFIXES = (".npy", ".npz", ".safetensors")


def is_file(text):
    """Whether the text names an array file: x.npy, or one array of a file with several, x.npz:key."""
    text = text.strip().rstrip("])'\"")
    return text.lower().endswith(_SUFFIXES) or any(s + ":" in text.lower() for s in _SUFFIXES[1:])


def listed_files(text):
    """The files of "[a.npy, b.npy]"; of anything else, itself."""
    inner = text.strip()
    if inner[:1] + inner[-1:] not in ("[]", "()"):
        return [text]
    return [part.strip().strip("'\"") for part in inner[1:-1].split(",") if part.strip()]


def is_number(text):
    """Whether the text is a number, a truth value, or numbers in brackets or between commas."""
    return text != "" and (text.lower() in _WORDS or all(_is_float(part) for part in text.strip("[]() ").split(",")))


def _is_float(text):
    try:
        float(text)
    except ValueError:
        return text.strip(" []()") == ""
    return True


def option_value(parameter, text):
    """The text as a value for that parameter. UsageError where it cannot be one."""
    said = parameter.annotation
    if text.lower() == "none" and (parameter.accepts("None") or parameter.accepts("object")):
        return None
    if parameter.is_flag and text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if parameter.accepts("bool") and parameter.is_flag and text in ("0", "1"):
        return text == "1"
    if parameter.accepts("str") and parameter.accepts("int"):  # 1  or  (1, 2)  or  ((0, 1), (2, 2))  or  same
        return _literal(text)
    if parameter.accepts("str") or parameter.accepts("DTypeLike"):
        return text
    if parameter.takes_array:
        return _array_or_number(parameter, text)
    if parameter.kind == "*":
        return _integers(parameter, text)
    if "Sequence[int]" in said:
        value = _integers(parameter, text)
        return value[0] if len(value) == 1 and "," not in text and said.startswith("int") else value
    for kind, words in ((int, "an integer"), (float, "a number")):
        if said.split(" ")[0] == kind.__name__:
            return _number(parameter, text, kind, words)
    if said.split(" ")[0] == "bool":
        raise _unfit(parameter, "true or false", text)
    return _literal(text)


def _unfit(parameter, expected, text):
    return UsageError(f"--{parameter.name.replace('_', '-')}: expected {expected}, got {text!r}")


def _number(parameter, text, kind, words):
    try:
        value = kind(text)
    except ValueError:
        raise _unfit(parameter, words, text) from None
    return _within(parameter, value, text)


def _within(parameter, value, text):
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise _unfit(parameter, "an integer of 64 bits", text)
    return value


def _integers(parameter, text):
    """1  or  0,1  or  [0, 1]  or  (2, 3)."""
    inner = text.strip()
    inner = inner[1:-1] if inner[:1] + inner[-1:] in ("[]", "()") else inner
    try:
        return [_within(parameter, int(part), text) for part in inner.split(",") if part.strip()]
    except ValueError:
        raise _unfit(parameter, "integers as in 0,1", text) from None


def _literal(text):
    """A Python literal (true, false and none in any case), else the text itself."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _array_or_number(parameter, text):
    """A number where the operator takes one; a bracketed list is an array of its own."""
    value = float(text) if text.lower().lstrip("+-") in ("nan", "inf", "infinity") else _literal(text)
    if parameter.accepts("float") and isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        import numpy as np

        try:
            array = np.array(value)
        except ValueError:
            array = np.array(None)
        if array.dtype.kind in "biuf":
            return array.astype(np.float32) if array.dtype.kind == "f" else array
    wanted = "a file (.npy, .npz, .safetensors), a list as in [0, 1]" + (" or a number" if parameter.accepts("float") else "")
    raise _unfit(parameter, wanted, text)
