"""Writes _tenor.pyi: the signatures and docstrings of the built module, for editors and type checkers.

nanobind's generator does the work. Added here: the methods of Tensor that are attached as instancemethods, the error
classes, and the names that signatures use for arrays and dtypes.

    python stub.py FOLDER_OF_THE_MODULE OUTPUT
"""
import importlib
import re
import sys
import types

from nanobind.stubgen import StubGen

# Methods whose result is no single tensor.
SEVERAL = {"split", "chunk", "unbind", "max", "min", "median", "sort", "topk", "kthvalue", "unique", "cummax", "cummin",
           "nonzero", "allclose"}

HEADER = '''
import builtins
from typing import Any, Protocol, TypeAlias

import numpy

__version__: str

class SupportsDLPack(Protocol):
    """An array of any library: NumPy, PyTorch, JAX, CuPy, tenor."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

ArrayLike: TypeAlias = SupportsDLPack | numpy.generic
DTypeLike: TypeAlias = DType | str | type | numpy.dtype | Any
'''


# Methods of Tensor whose result is one, though the binding passes it on as an object.
ONE = {"float", "double", "half", "bfloat16", "bool", "byte", "char", "short", "int", "long", "detach", "clip", "clamp_min", "clamp_max"}


class Generator(StubGen):
    def put(self, value, name=None, parent=None):
        if type(value).__name__ == "instancemethod":
            self.put_instance_method(value.__func__, name)
        elif isinstance(value, type) and issubclass(value, Exception):
            self.put_error(value)
        elif isinstance(value, types.ModuleType) and name:
            pass  # where the functions of tenor.moe and tenor.paged live: they follow under names of their own
        elif getattr(value, "__module__", None) in ("tenor.moe", "tenor.paged") and hasattr(value, "__nb_signature__"):
            self.put_nb_func(value, name)
        else:
            super().put(value, name, parent)

    def put_instance_method(self, function, name):
        result = "Any" if name in SEVERAL else "Tensor"
        for text, doc, defaults in function.__nb_signature__:
            text = with_self(text)
            if text.endswith("-> object"):
                text = text[: -len("object")] + result
            self.put_nb_overload(None, (text, doc, defaults), name)

    def put_nb_overload(self, fn, sig, name=None, is_classmethod=False):
        text = sig[0]
        if self.depth == 0 and text.endswith("-> object"):  # the library of the first argument decides
            text = text[: -len("object")] + "Any"
        if name and self.depth == 0:  # tenor.moe's route is _moe_route here
            text = re.sub(r"^def \w+\(", f"def {name}(", text)
        super().put_nb_overload(fn, (text, sig[1], sig[2]), name, is_classmethod)

    def put_error(self, error):
        bases = [b.__name__ if b.__module__ == "tenor" else f"builtins.{b.__name__}" for b in error.__bases__]
        self.write_ln(f"class {error.__name__}({', '.join(bases)}):")
        self.depth += 1
        self.put_docstr(error.__doc__)
        self.depth -= 1
        self.write("\n")


def with_self(signature):
    """The signature with its first parameter replaced by self; annotations may hold commas inside brackets."""
    start = signature.index("(") + 1
    depth = 0
    for end in range(start, len(signature)):
        c = signature[end]
        if depth == 0 and c in ",)":
            return signature[:start] + "self" + signature[end:]
        depth += (c in "([{") - (c in ")]}")
    raise ValueError(signature)


def with_builtins(text):
    """In a class with methods called float, int and bool their types are builtins', written so."""
    lines, inside = [], False
    for line in text.splitlines(keepends=True):
        if line[:1].strip():
            inside = line.startswith("class Tensor")
        if inside and line.startswith("    def "):
            if re.match(r" +def (\w+)", line)[1] in ONE:
                line = line.replace("-> object:", "-> Tensor:")
            line = re.sub(r"(?<=[ \[])(float|int|bool)(?=[,)\]: ]|\n)(?!\()", r"builtins.\1", line)
        lines.append(line)
    return "".join(lines)


def main(folder, output):
    sys.path.insert(0, folder)
    module = importlib.import_module("_tenor")
    generator = Generator(module, include_private=True)
    generator.put(module)
    text = with_builtins(generator.get().replace(" | None | None", " | None"))
    # After the imports: before the first definition.
    at = min(i for i in (text.find("\nclass "), text.find("\ndef ")) if i >= 0)
    with open(output, "w") as file:
        file.write(text[:at] + HEADER + text[at:])


if __name__ == "__main__":
    main(*sys.argv[1:])
