"""Evaluates the text given to tenor.explain: a closed subset of Python over tensors without memory.

Allowed is what people paste: names, attributes of known namespaces and of tensors, subscripts, arithmetic, comparisons, calls
with keywords, assignments, tuples, returns. Loops, imports, comprehensions, lambdas and attributes that start with an
underscore are refused by name. Nothing here reaches Python's own eval.
"""
import ast
import operator

from tenor import _tenor
from tenor import _explain_names as names
from tenor._explain_calls import Calls
from tenor._explain_parse import INSTEAD, REFUSED
from tenor._explain_words import Method, dotted, item_count, kind, product, short
from tenor._tenor import Tensor, _traced

BINARY = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv,
          ast.Mod: operator.mod, ast.Pow: operator.pow, ast.MatMult: operator.matmul, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
          ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift}
METHODS = {*names.CASTS, *names.SAME, *names.NEEDS_DATA, "to", "type", "astype", "type_as", "size", "dim", "numel", "is_contiguous", "stride",
           "nelement", "view_as", "reshape_as", "expand_as", "contiguous", "clone", "new_zeros", "new_ones", "new_empty", "new_full"}
INPLACE = {ast.Add: "add_", ast.Sub: "sub_", ast.Mult: "mul_", ast.Div: "div_"}
UNARY = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_, ast.Invert: operator.invert}
COMPARE = {ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
           ast.Is: operator.is_, ast.IsNot: operator.is_not, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b}


class Evaluator(Calls):
    """Runs statements with these inputs, which are on that device; "meta" when they are shapes alone."""

    def __init__(self, inputs, recorder, device):
        self.variables = dict(inputs)
        self.inputs = inputs
        self.recorder = recorder
        self.device = device
        self.traced = device == "meta"
        self.sources = []  # of each step so far
        self.remarks = []  # on how the text was read
        self.origin = {}   # what a tensor was written as, for error texts
        self.called = set()  # names of functions in the text, for error texts: their nodes' ids

    # ---- statements

    def run(self, tree):
        several = len(tree.body) > 1
        result = None
        for statement in tree.body:
            result = self.statement(statement)
            text = ast.get_source_segment(tree.text, statement) or ""
            self.sources += [" ".join(text.split()) if several else ""] * (len(self.recorder) - len(self.sources))
        if isinstance(result, (Method, names.Function, names.Namespace)):
            raise _tenor.ValueError(f"explain: the text ends in {kind(result)}; call it")
        return result

    def statement(self, s):
        if isinstance(s, (ast.Expr, ast.Return)):
            return None if s.value is None else self.value(s.value)
        if isinstance(s, ast.Assign):
            value = self.value(s.value)
            for target in s.targets:
                self.assign(target, value)
            return self.value(s.targets[0].value) if isinstance(s.targets[0], ast.Subscript) else value  # what x[i] = v changed
        if isinstance(s, ast.AnnAssign) and s.value is not None:
            value = self.value(s.value)
            self.assign(s.target, value)
            return value
        if isinstance(s, ast.AugAssign):
            return self.augment(s)
        if isinstance(s, (ast.Pass, ast.AnnAssign)):
            return None
        raise self.refusal(s)

    def refusal(self, node):
        what = REFUSED.get(type(node), type(node).__name__)
        return _tenor.ValueError(f"explain: {what} is not evaluated{INSTEAD.get(type(node), '')}: {short(node)}")

    def assign(self, target, value):
        if isinstance(target, ast.Name):
            self.variables[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            self.unpack(target, value)
        elif isinstance(target, ast.Subscript):
            box, key = self.value(target.value), self.key(target.slice)
            self.guarded(target, "setitem", lambda: operator.setitem(box, key, value), [box, value])
        elif isinstance(target, ast.Attribute):
            self.variables[dotted(target) or short(target)] = value
        else:
            raise self.refusal(target)

    def unpack(self, target, value):
        if isinstance(value, Tensor):
            value = self.guarded(target, "unbind", lambda: _tenor.unbind(value, 0), [value])
        items = list(value) if isinstance(value, (tuple, list)) else None
        if items is None or len(items) != len(target.elts):
            have = "no sequence" if items is None else f"{len(items)} values"
            raise _tenor.ValueError(f"explain: {short(target)} takes {len(target.elts)} values, the right side has {have}")
        for part, item in zip(target.elts, items):
            self.assign(part, item)

    def augment(self, s):
        old = self.value(ast.copy_location(_as_load(s.target), s.target))
        other = self.value(s.value)
        name = INPLACE.get(type(s.op))
        if isinstance(old, Tensor) and name:
            value = self.guarded(s, name, lambda: getattr(old, name)(other), [old, other])
            if isinstance(s.target, ast.Subscript):
                return value
        else:
            value = self.guarded(s, "", lambda: BINARY[type(s.op)](old, other), [old, other])
        self.assign(s.target, value)
        return value

    # ---- expressions

    def value(self, node):
        method = getattr(self, "on_" + type(node).__name__, None)
        if method is None:
            raise self.refusal(node)
        result = method(node)
        if isinstance(result, Tensor):
            self.origin[id(result)] = (short(node), result)
        return result

    def on_Constant(self, node):
        if isinstance(node.value, (bytes, complex)):
            raise self.refusal(node)
        return node.value

    def on_Name(self, node):
        if node.id in self.variables:
            return self.variables[node.id]
        if node.id in names.NAMESPACES:
            return names.NAMESPACES[node.id]
        if node.id in names.BUILTINS:
            return names.BUILTINS[node.id]
        if node.id.startswith("_"):
            raise _tenor.ValueError(f"explain: unknown name {node.id!r}")
        try:
            return names.lookup(node.id)
        except _tenor.ValueError:
            known = list(self.variables) + names.operator_names()
            instead = "; no operator has that name" if id(node) in self.called else f"; if it is an input, give it: {node.id}=\"bf16[...]\""
            raise names.unknown(node.id, known, instead) from None

    def on_Tuple(self, node):
        return tuple(self.on_List(node))

    def on_List(self, node):
        made = list(self.items(node.elts))
        if item_count(made) > names.MOST_ITEMS:
            raise _tenor.ValueError(f"explain: {short(node)} is too large to evaluate")
        return made

    def items(self, nodes):
        out = []
        for n in nodes:
            if isinstance(n, ast.Starred):
                out += list(self.value(n.value))
            else:
                out.append(self.value(n))
        return out

    def on_UnaryOp(self, node):
        x = self.value(node.operand)
        if isinstance(x, Tensor) and isinstance(node.op, ast.Not):
            raise _tenor.ValueError(f"explain: {short(node)} asks for the truth of a tensor; use logical_not, or ~ of a comparison")
        return self.guarded(node, "", lambda: UNARY[type(node.op)](x), [x])

    def on_BinOp(self, node):
        a, b = self.value(node.left), self.value(node.right)
        if not isinstance(a, (Tensor, int, float, tuple, list, str)) or not isinstance(b, (Tensor, int, float, tuple, list, str)):
            raise _tenor.DTypeError(f"explain: {short(node)} combines {kind(a)} with {kind(b)}")
        if not isinstance(a, Tensor) and not isinstance(b, Tensor):
            self.check_size(node, a, b)
        return self.guarded(node, "", lambda: BINARY[type(node.op)](a, b), [a, b])

    def check_size(self, node, a, b):
        """Numbers and sequences stay small: text must not be able to compute for hours."""
        numbers = isinstance(a, int) and isinstance(b, int)
        large = numbers and isinstance(node.op, (ast.Pow, ast.LShift)) and (abs(b) > 64 or abs(a) > 1 << 32)
        large |= numbers and a.bit_length() + b.bit_length() > 4096
        sizes = [item_count(v) if isinstance(v, (tuple, list, str)) else v if isinstance(v, int) and isinstance(node.op, ast.Mult) else 0 for v in (a, b)]
        large |= not numbers and (sizes[0] * sizes[1] if isinstance(node.op, ast.Mult) else sum(sizes)) > names.MOST_ITEMS
        if large:
            raise _tenor.ValueError(f"explain: {short(node)} is too large to evaluate")

    def on_BoolOp(self, node):
        result = None
        for part in node.values:
            result = self.value(part)
            if isinstance(result, Tensor):
                raise _tenor.ValueError(f"explain: {short(node)} asks for the truth of a tensor; use & and |")
            if bool(result) != isinstance(node.op, ast.And):
                return result
        return result

    def on_Compare(self, node):
        left, result = self.value(node.left), True
        for op, right in zip(node.ops, node.comparators):
            a, b = left, self.value(right)
            if len(node.ops) > 1 and (isinstance(a, Tensor) or isinstance(b, Tensor)):
                raise _tenor.ValueError(f"explain: {short(node)} asks for the truth of a tensor; write two comparisons and &")
            result = self.guarded(node, "", lambda: COMPARE[type(op)](a, b), [a, b])
            if not isinstance(result, Tensor) and not result:
                return result
            left = b
        return result

    def on_IfExp(self, node):
        test = self.value(node.test)
        if isinstance(test, Tensor):
            raise _tenor.ValueError(f"explain: {short(node)} asks for the truth of a tensor; use where")
        return self.value(node.body if test else node.orelse)

    def on_Attribute(self, node):
        if node.attr.startswith("_"):
            raise _tenor.ValueError(f"explain: {node.attr!r} is refused: attributes that start with an underscore are not read")
        path = dotted(node)
        if path is not None:
            root = path.split(".")[0]
            if path in self.variables:
                return self.variables[path]
            if root not in self.variables and root in names.NAMESPACES:
                return names.lookup(path)
            if root not in self.variables:
                return self.member(node, path)
        return self.attribute(node, self.value(node.value))

    def member(self, node, path):
        """self.weight, layer.w13_weight: the input of that last name; anything behind it is read of that."""
        parts = path.split(".")
        for end in range(len(parts), 0, -1):
            for key in (".".join(parts[:end]), parts[end - 1]):
                if key in self.variables and (end > 1 or key != parts[0]):
                    value = self.variables[key]
                    for attr in parts[end:]:
                        value = self.attribute(ast.Attribute(value=node.value, attr=attr), value)
                    return value
        if hasattr(Tensor, parts[1]):  # x.exp, x.shape: the array before the dot is what is missing
            raise names.unknown(parts[0], list(self.variables), f"; if it is an input, give it: {parts[0]}=\"bf16[...]\"")
        raise names.unknown(path, list(self.variables), f"; if it is an input, give it as {parts[1]}=\"bf16[...]\"")

    def attribute(self, node, x):
        if isinstance(x, Tensor):
            return self.tensor_attribute(node, x)
        if isinstance(x, names.Namespace):
            return names.lookup(f"{x.name}.{node.attr}")
        if names.is_plan(x) and node.attr in names.MODULES["paged"] and hasattr(x, node.attr):
            return Method(x, node.attr)
        if isinstance(x, tuple) and node.attr in getattr(x, "_fields", ()):
            return getattr(x, node.attr)
        if isinstance(x, names.Limits) and node.attr in ("min", "max", "eps", "tiny"):
            return getattr(x, node.attr)
        if isinstance(x, tuple) and node.attr == "numel":
            return lambda: product(x)
        if isinstance(x, list) and node.attr == "append":
            return x.append
        raise _tenor.ValueError(f"explain: {short(node)}: {kind(x)} has no {node.attr!r}")

    def tensor_attribute(self, node, x):
        a = node.attr
        if a in ("shape", "dtype", "ndim", "device"):
            return getattr(x, a)
        if a in ("T", "mT", "mH", "H"):
            return self.guarded(node, a, lambda: getattr(x, "mT" if a == "H" else a), [x])
        known = names.RENAMED.get(a, a)
        if not (known in names.ADAPTED or a in METHODS or hasattr(Tensor, known) or names.is_operator(known)):
            raise names.unknown(short(node), [n for n in dir(Tensor) if not n.startswith("_")], f"; arrays have no {a!r}")
        return Method(x, a)

    def on_Subscript(self, node):
        x, key = self.value(node.value), self.key(node.slice)
        if isinstance(x, (tuple, list)):
            try:
                return x[key]
            except (IndexError, TypeError) as error:
                raise _tenor.IndexError(f"explain: {short(node)}: {error}") from None
        if not isinstance(x, Tensor):
            raise _tenor.ValueError(f"explain: {short(node)}: {kind(x)} has no elements to index")
        return self.guarded(node, "getitem", lambda: x[key], [x])

    def key(self, node):
        if isinstance(node, ast.Tuple):
            return tuple(self.key(n) for n in node.elts)
        if isinstance(node, ast.Slice):
            return slice(*(None if n is None else self.bound(n) for n in (node.lower, node.upper, node.step)))
        return self.index(self.value(node))

    def bound(self, node):
        value = self.value(node)
        if isinstance(value, Tensor):
            raise _tenor.UnsupportedError(f"explain: the bound {short(node)} depends on data")
        if isinstance(value, float):
            raise _tenor.DTypeError(f"explain: the bound {short(node)} is the float {value}; use // for sizes")
        return value

    def index(self, value):
        """Lists become index arrays; which element a 0-d array names does not change a shape."""
        if isinstance(value, list):
            return self.constant(value)
        if isinstance(value, range):
            return self.constant(list(value))
        if isinstance(value, Tensor) and value.ndim == 0 and self.traced and str(value.dtype) != "bool":
            return 0
        return value

    def constant(self, data):
        """Numbers written in the text, as a tensor of the trace's or the run's kind."""
        import numpy as np
        if isinstance(data, Tensor):
            return data
        array = np.asarray(data)
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        return _traced(array) if self.traced else _tenor.asarray(array, device=self.device)

    def given(self, shape, dtype):
        """An input that the text makes up, as torch.randn does."""
        return _tenor._shape(shape, dtype) if self.traced else _tenor.zeros(shape, dtype=dtype, device=self.device)


def _as_load(target):
    copy = ast.parse(ast.unparse(target), mode="eval").body
    return copy
