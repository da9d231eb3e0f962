"""What the text of tenor.explain is made of, in words: for error texts, and names with dots."""
import ast

from tenor import _explain_names as names
from tenor._tenor import Tensor


class Method:
    """x.name before its call."""

    def __init__(self, owner, name):
        self.owner, self.name = owner, name


def dotted(node):
    """ "a.b.c" of an attribute chain of names, else None."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def short(node):
    try:
        text = " ".join(ast.unparse(node).split())
    except (AttributeError, ValueError, RecursionError):
        return type(node).__name__
    return text if len(text) <= 70 else text[:67] + "..."


def kind(x):
    if isinstance(x, Tensor):
        return f"a tensor of shape {x.shape}"
    if isinstance(x, names.Namespace):
        return f"the namespace {x.name}"
    if isinstance(x, names.Function):
        return f"the function {x.name}"
    if isinstance(x, Method):
        return f"the method {x.name}"
    name = "None" if x is None else type(x).__name__
    return name if x is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def flat(values):
    for v in values:
        if isinstance(v, (list, tuple)):
            yield from flat(v)
        else:
            yield v


def item_count(value, known=None):
    """How many things a nested sequence holds, each as often as it is reached; lists that stand in it twice are gone through once."""
    known = {} if known is None else known
    if not isinstance(value, (list, tuple)):
        return len(value) if isinstance(value, str) else 1
    if id(value) not in known:
        known[id(value)] = 1  # a list may hold itself
        known[id(value)] = sum(item_count(v, known) for v in value)
    return known[id(value)]


def product(shape):
    out = 1
    for s in shape:
        out *= s
    return out
