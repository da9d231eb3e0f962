"""Signatures of the compiled functions: for inspect and help(), and for the errors of calls that do not fit them.

nanobind refuses a call by listing its overloads. The module hands such a call to misfit(), which says what is wrong with which
argument. Calls that fit never come here.
"""
import re

from tenor import _tenor

# What other libraries, and other operators, call an argument: the names to look for here.
ALIASES = {"axis": ("dim", "dims"), "axes": ("dims", "dim"), "dims": ("dim",), "dim": ("dims",), "eps": ("epsilon",), "keepdims": ("keepdim",),
           "unbiased": ("correction",), "ddof": ("correction",), "input": ("x", "logits", "probs"), "self": ("x",), "a": ("x",), "b": ("other",),
           "y": ("other",), "weight": ("gamma",), "bias": ("beta",), "scale": ("gamma",), "num_groups": ("groups",), "running_mean": ("mean",),
           "running_var": ("variance",), "attn_mask": ("mask",), "is_causal": ("causal",), "q": ("query",), "k": ("key",), "v": ("value",),
           "size": ("shape",), "repeats": ("repeats", "dims"), "a_min": ("min",), "a_max": ("max",), "p": ("p", "top_p"), "num_classes": ("classes",)}
WORDS = {"int": "an int", "float": "a number", "bool": "True or False", "str": "a str", "ArrayLike": "an array", "DTypeLike": "a dtype",
         "Tensor": "a tenor.Tensor", "collections.abc.Sequence[int]": "a sequence of ints", "collections.abc.Sequence[collections.abc.Sequence[int]]": "a sequence of (lo, hi)",
         "collections.abc.Sequence[ArrayLike]": "a sequence of arrays",
         "None": "None", "tuple[ArrayLike, ...]": "a tuple of arrays"}


class Annotation(str):
    """A type as the documentation writes it; without quotes where a signature is shown."""

    __repr__ = str.__str__

    def options(self):
        """The alternatives of a union."""
        return re.split(r" \| (?![^\[]*\])", self)


def attach():
    """inspect.signature() of the module's functions and methods. The types are nanobind's, which other modules may share."""
    def of_this_module(function):
        if (getattr(function, "__module__", None) or "").startswith("tenor"):
            return overloads(function)[0]
        raise AttributeError("__signature__")

    def of_bound(function):
        found = of_this_module(function)
        return found.replace(parameters=list(found.parameters.values())[1:])

    for example, read in ((_tenor.add, of_this_module), (_tenor.Tensor.__dict__["clone"], of_this_module), (_tenor._BatchInvariant().__enter__, of_bound)):
        _tenor._set_type_attribute(type(example), "__signature__", property(read))


def overloads(function):
    """An inspect.Signature for each way to call it."""
    return [_read(text, defaults or ()) for text, _doc, defaults in (o + (None,) * (3 - len(o)) for o in function.__nb_signature__)]


def _read(text, defaults):
    """nanobind's signature, in which defaults stand as \\0, \\1, ... and what may be None twice may say so twice."""
    import ast
    from inspect import Parameter, Signature

    text = re.sub(r"\\=?(\d+)", r"_[\1]", text).replace("| None | None", "| None").replace("def (", "def _(").replace("tenor._tenor.", "")
    a = ast.parse(text + ": ...").body[0].args

    def made(arg, kind, default=None):
        said = Parameter.empty if arg.annotation is None else Annotation(ast.unparse(arg.annotation))
        return Parameter(arg.arg, kind, annotation=said, default=Parameter.empty if default is None else defaults[default.slice.value])

    positional = a.posonlyargs + a.args
    first = len(positional) - len(a.defaults)
    found = [made(p, Parameter.POSITIONAL_ONLY if i < len(a.posonlyargs) else Parameter.POSITIONAL_OR_KEYWORD,
                  a.defaults[i - first] if i >= first else None) for i, p in enumerate(positional)]
    found += [made(a.vararg, Parameter.VAR_POSITIONAL)] if a.vararg else []
    found += [made(p, Parameter.KEYWORD_ONLY, d) for p, d in zip(a.kwonlyargs, a.kw_defaults)]
    found += [made(a.kwarg, Parameter.VAR_KEYWORD)] if a.kwarg else []
    return Signature(found)


class ArgumentError(_tenor.DTypeError, _tenor.ValueError):
    """A call whose arguments do not fit: one of the wrong Python type, missing or unknown. Python calls that a TypeError, the contract a bad
    option value a ValueError; it is both."""

    __module__ = "tenor"


def misfit(function, args, kwargs):
    """The exception for a call that fits no overload: which argument, and how to mend it. The module calls this."""
    name = _called(function)
    found = [problem(name, s, args, kwargs) for s in overloads(function)]
    return ArgumentError(next(filter(None, found), f"{name}: the arguments do not fit: it takes {_shown(overloads(function)[0])}"))


def _called(function):
    """What people call: moe.route; HostPlan, where the compiled module has HostPlan.__init__."""
    name = function.__name__ if function.__name__ != "__init__" else function.__qualname__.split(".")[0]
    name = re.sub("^_(moe|paged)_", r"\1.", name)
    part = (getattr(function, "__module__", None) or "").removeprefix("tenor.")
    return f"{part}.{name}" if part in ("moe", "paged") else name


def problem(name, signature, args, kwargs):
    """What is wrong with these arguments, as a line; None where they fit."""
    parameters = list(signature.parameters.values())
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    kinds = {p.kind: p for p in parameters}
    for key in kwargs:
        if key not in named and _KEYWORDS not in kinds:
            return f"{name}: no argument {key!r}{_mend(key, kwargs[key], named)}"
    if len(args) > len(places) and _PLACES not in kinds:
        return _too_many(name, places, parameters, len(args))
    bound = dict(zip((p.name for p in places), args))
    twice = [key for key in kwargs if key in bound]
    if twice:
        return f"{name}: {twice[0]} is given both by position and by name"
    bound.update(kwargs)
    for p in places + [p for p in parameters if p.kind == p.KEYWORD_ONLY]:
        if p.name not in bound and p.default is p.empty:
            return f"{name}: {p.name} is missing"
        if p.name in bound and not _takes(p, bound[p.name]):
            return f"{name}: {p.name} must be {_expected(p)}, got {_said(bound[p.name])}"
    return None


_PLACES, _KEYWORDS = 2, 4  # inspect.Parameter.VAR_POSITIONAL and VAR_KEYWORD


def _mend(key, value, named):
    for other in ALIASES.get(key, ()):
        if other in named and other != key:
            meant = f" ({key}={value!r} is correction={int(value)})" if key == "unbiased" and isinstance(value, bool) else ""
            return f"; did you mean {other!r}?{meant}"
    import difflib

    longer = [n for n in named if len(n) > 2 and (key.startswith(n) or n.startswith(key))]
    close = longer or difflib.get_close_matches(key, list(named), 1, 0.7)
    if close:
        return f"; did you mean {close[0]!r}?"
    known = ", ".join(n for n in named if n != "self" and n[0] != "_")
    return f"; it takes {known}" if known else "; it takes none by name"


def _too_many(name, places, parameters, count):
    own = places[0].name == "self" if places else False
    most = len(places) - own
    takes = f"{most} argument{'s' * (most != 1)}" + (f" by position ({', '.join(p.name for p in places[own:])})" if most else "")
    later = [p.name for p in parameters if p.kind == p.KEYWORD_ONLY]
    return f"{name}: takes {'at most ' * bool(most)}{takes}, got {count - own}" + (f"; {', '.join(later)} by name only" if later else "")


def _takes(parameter, value):
    """Whether the value can be of the parameter's type; True where only the call itself can tell."""
    if not isinstance(parameter.annotation, Annotation):
        return True
    options = parameter.annotation.options()
    if value is None:
        return bool({"None", "object", "Any", "typing.Any"} & set(options))
    return any(_CHECKS.get(o, lambda _: True)(value) for o in options)


def _is_int(value):
    if isinstance(value, bool):
        return False
    try:
        value.__index__()
    except (AttributeError, TypeError):
        return False
    except Exception:  # its own error, which it raises where it is used
        return True
    return True


def _is_number(value):
    if isinstance(value, (str, bytes, complex)) or getattr(getattr(value, "dtype", None), "kind", None) == "c":
        return False  # float() of NumPy's complex numbers only warns
    try:
        float(value)
    except OverflowError:
        return True
    except Exception:  # of arrays of several elements, each library raises its own
        return False
    return True


_CHECKS = {"int": _is_int, "float": _is_number, "bool": lambda v: isinstance(v, bool), "None": lambda v: v is None,
           "str": lambda v: isinstance(v, str), "Tensor": lambda v: isinstance(v, _tenor.Tensor)}


def _expected(parameter):
    said = [WORDS.get(o, o) for o in parameter.annotation.options()]
    return said[0] if len(said) == 1 else f"{', '.join(said[:-1])} or {said[-1]}"


def _said(value):
    if value is None or isinstance(value, (bool, int, float, str)):
        text = repr(value)
        return text if len(text) <= 60 else text[:57] + "..."
    shape = getattr(value, "shape", None)
    return f"{type(value).__name__}" + (f" of shape {tuple(shape)}" if isinstance(shape, tuple) else "")


def _shown(signature):
    return ", ".join(signature.parameters)
