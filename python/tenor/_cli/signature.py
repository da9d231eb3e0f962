"""Operators' signatures, as `tenor run` and `tenor ops` read them."""
import re

from tenor._cli.arguments import UsageError, elsewhere, nearest

_REQUIRED = object()


class Parameter:
    """One parameter: name, kind ("positional", "keyword", "*" or "**"), annotation as text, default."""

    def __init__(self, name, kind, annotation, default=_REQUIRED):
        self.name, self.kind, self.annotation, self.default = name, kind, annotation, default

    @property
    def required(self):
        return self.default is _REQUIRED and self.kind not in "**"

    @property
    def takes_array(self):
        return self.annotation.startswith("ArrayLike") or self.takes_arrays

    @property
    def takes_arrays(self):
        """A sequence of arrays, or *operands."""
        return "Sequence[ArrayLike]" in self.annotation or (self.kind == "*" and self.name == "operands")

    @property
    def takes_file(self):
        """An array may be given, by itself or in a list: also where anything may be, as for index_put's indices."""
        return self.takes_array or (self.annotation == "object" and self.required)

    @property
    def takes_literal(self):
        """Something that can be typed: a number, dims, a name."""
        return not self.takes_array or "float" in self.annotation

    @property
    def is_flag(self):
        """On where it is named without a value: --keepdim."""
        return isinstance(self.default, bool)

    def accepts(self, word):
        return word in re.findall(r"\w+", self.annotation)

    def __str__(self):
        text = {"*": "*", "**": "**"}.get(self.kind, "") + self.name
        text += f": {readable(self.annotation)}" if self.annotation else ""
        return text if self.required or self.kind in "**" else f"{text} = {self.default!r}"


def readable(annotation):
    """The annotation in the words of the documentation."""
    words = {"ArrayLike": "array", "collections.abc.Sequence": "sequence", "DTypeLike": "dtype", "object": "any"}
    for full, short in words.items():
        annotation = annotation.replace(full, short)
    return annotation.replace("array | bool | int | float", "array | number")


class Signature:
    """An operator: its function, docstring, parameters in order (out and workspace left away)."""

    def __init__(self, name, function):
        self.name, self.function = name, function
        overloads = getattr(function, "__nb_signature__", None)
        self.doc = overloads[0][1] if overloads else function.__doc__ or ""
        self.every = _of_function(function)
        self.parameters = [p for p in self.every if p.name not in ("out", "workspace")]
        self.by_name = {p.name: p for p in self.parameters}

    @property
    def open(self):
        """Whether it takes options that its signature does not list (**named)."""
        return any(p.kind == "**" for p in self.parameters)

    @property
    def hint(self):
        """What it takes, for an error's end."""
        return f"it takes {self}" if len(str(self)) < 120 else f"tenor ops {self.name} shows what it takes"

    def __str__(self):
        return self._written(self.parameters)

    def full(self):
        """With out= and workspace=, which Python has and the command line has not."""
        return self._written(self.every)

    def _written(self, parameters):
        parts, starred = [], False
        for p in parameters:
            if p.kind == "keyword" and not starred:
                parts.append("*")
            starred = starred or p.kind in ("keyword", "*")
            if p.kind != "**":
                parts.append(str(p))
        return f"{self.name}({', '.join(parts)})"


def _of_function(function):
    import inspect

    kinds = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**", "KEYWORD_ONLY": "keyword"}
    return [Parameter(p.name, kinds.get(p.kind.name, "positional"), "" if p.annotation is p.empty else str(p.annotation),
                      _REQUIRED if p.default is p.empty else p.default)
            for p in inspect.signature(function).parameters.values()]


def _indexing(x: "ArrayLike", index: "object"):
    """x[index], in Python: integers, slices, None, ... and integer or boolean arrays, as PyTorch places their dimensions."""
    return x[index]


def signature(name):
    """The operator's signature. UsageError with the nearest name where there is none of that name."""
    import tenor
    from tenor._tenor import _operators

    names = {o[0] for o in _operators()}
    function = tenor
    for part in name.split("."):
        function = getattr(function, part, None) if not part.startswith("_") else None
    if name not in names and not hasattr(function, "__nb_signature__"):
        function = None
    if name in names and function is None:
        return Signature(name, _indexing)
    found = Signature(name, function) if callable(function) and not isinstance(function, type) else None
    if found is None or not (name in names or any(p.takes_array for p in found.parameters)):
        raise UsageError(f"no operator is called {name!r}{elsewhere(name) or nearest(name, names)}; tenor ops lists them")
    return found
