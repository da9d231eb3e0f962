"""Evaluates the text given to tenor.explain: a closed subset of Python over tensors without memory.

Allowed is what people paste: names, attributes of known namespaces and of tensors, subscripts, arithmetic, comparisons, calls
with keywords, assignments, tuples, returns. Loops, imports, comprehensions, lambdas and attributes that start with an
underscore are refused by name. Nothing here reaches Python's own eval.
"""
import ast
import operator

from tenor import _tenor
from tenor import _explain_names as names
from tenor._explain_parse import INSTEAD, REFUSED
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


class Evaluator:
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
            raise names.unknown(node.id, known, f"; if it is an input, give it: {node.id}=\"bf16[...]\"") from None

    def on_Tuple(self, node):
        return tuple(self.items(node.elts))

    def on_List(self, node):
        return list(self.items(node.elts))

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
        return self.guarded(node, "", lambda: UNARY[type(node.op)](x), [x])

    def on_BinOp(self, node):
        a, b = self.value(node.left), self.value(node.right)
        if not isinstance(a, (Tensor, int, float, tuple, list, str)) or not isinstance(b, (Tensor, int, float, tuple, list, str)):
            raise _tenor.DTypeError(f"explain: {short(node)} combines {kind(a)} with {kind(b)}")
        if not isinstance(a, Tensor) and not isinstance(b, Tensor):
            self.check_size(node, a, b)
        return self.guarded(node, "", lambda: BINARY[type(node.op)](a, b), [a, b])

    def check_size(self, node, a, b):
        """Numbers stay small: text must not be able to compute for hours."""
        large = isinstance(node.op, (ast.Pow, ast.LShift)) and isinstance(a, int) and isinstance(b, int) and (abs(b) > 64 or abs(a) > 1 << 32)
        repeats = isinstance(node.op, ast.Mult) and any(isinstance(v, (tuple, list, str)) for v in (a, b)) and any(isinstance(v, int) and v > 64 for v in (a, b))
        if large or repeats:
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
        raise names.unknown(path, list(self.variables), f"; if it is an input, give it as {parts[1]}=\"bf16[...]\"")

    def attribute(self, node, x):
        if isinstance(x, Tensor):
            return self.tensor_attribute(node, x)
        if isinstance(x, names.Namespace):
            return names.lookup(f"{x.name}.{node.attr}")
        if isinstance(x, tuple) and node.attr in getattr(x, "_fields", ()):
            return getattr(x, node.attr)
        if isinstance(x, names.Limits) and node.attr in ("min", "max", "eps", "tiny"):
            return getattr(x, node.attr)
        if isinstance(x, tuple) and node.attr == "numel":
            return lambda: _product(x)
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
            raise names.unknown(short(node), [n for n in dir(Tensor) if not n.startswith("_")])
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

    # ---- calls

    def left_out(self, node, x):
        """expand(...) as an article writes it: the shape of the last step that x expands to."""
        for step, shape in reversed(list(enumerate(self.recorder.shapes))):
            if len(shape) == x.ndim and shape != x.shape and all(m in (1, n) for m, n in zip(x.shape, shape)):
                self.remarks.append(f"'...' in {short(node)} is read as {shape}, the shape of step {step}")
                return shape
        raise _tenor.ValueError(f"explain: '...' in {short(node)} stands for a size that the text leaves out; write it")

    def on_Call(self, node):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "append" and isinstance(node.func.value, ast.Name):
            self.variables.setdefault(node.func.value.id, [])  # the list that a loop around the text fills
            args = self.items(node.args)
            self.value(node.func)(*args)
            return args[0] if args else None
        fn = self.value(node.func)
        if any(k.arg is None for k in node.keywords):
            raise _tenor.ValueError(f"explain: ** is not evaluated: {short(node)}")
        args = self.items(node.args)
        kwargs = {k.arg: self.value(k.value) for k in node.keywords}
        if isinstance(fn, Method) and fn.name in ("expand", "broadcast_to") and len(args) == 1 and args[0] is Ellipsis:
            args = [self.left_out(node, fn.owner)]
        if any(a is Ellipsis for a in args):
            raise _tenor.ValueError(f"explain: '...' in {short(node)} stands for arguments that the text leaves out; write them")
        return self.call(node, fn, args, kwargs)

    def call(self, node, fn, args, kwargs):
        has_tensor = any(isinstance(a, Tensor) for a in _flat([*args, *kwargs.values()]))
        if isinstance(fn, names.Function) and fn.name in names.FOR_NUMBERS and not has_tensor and not fn.where:
            fn = names.FOR_NUMBERS[fn.name]
        if isinstance(fn, Method):
            args, fn = [fn.owner, *args], names.Function(fn.name, "method")
            return self.method(node, fn.name, args, kwargs)
        if isinstance(fn, names.Function):
            return self.operator(node, fn, args, kwargs)
        if isinstance(fn, _tenor.DType) and len(args) == 1:  # np.float32(x)
            return self.guarded(node, "to", lambda: _tenor.to(args[0], fn) if isinstance(args[0], Tensor) else args[0], args)
        if callable(fn) and (fn in names.BUILTINS.values() or fn in names.FOR_NUMBERS.values() or getattr(fn, "__module__", "") in ("math", None) or
                             getattr(fn, "__qualname__", "").startswith("Evaluator.")):
            if has_tensor and fn is not len:
                raise _tenor.UnsupportedError(f"explain: {short(node)} depends on data")
            return self.guarded(node, short(node.func), lambda: fn(*args, **kwargs), args)
        raise _tenor.ValueError(f"explain: {short(node.func)} is {kind(fn)}, which cannot be called")

    def operator(self, node, fn, args, kwargs):
        kwargs = {names.KEYWORDS.get(k, k): int(v) if k == "unbiased" and isinstance(v, bool) else v for k, v in kwargs.items()}
        if fn.where in names.TORCH and fn.name in names.OF_TORCH:
            kwargs = {("eps" if k == "epsilon" else k): v for k, v in kwargs.items()}
        if fn.where in names.TORCH and not args and "input" in kwargs:
            args = [kwargs.pop("input")]
        kwargs = {k: v for k, v in kwargs.items() if fn.name not in names.WITHOUT_COST.get(k, ())}
        if fn.name in names.CREATORS:
            kwargs.pop("device", None)
            if fn.name in names.SIZED and len(args) > 1 and all(isinstance(a, int) for a in args):
                args = [tuple(args)]
            if not fn.name.endswith("_like"):
                kwargs["device"] = self.device
        return self.guarded(node, fn.name, lambda: fn.resolve()(self, *args, **kwargs), [*args, *kwargs.values()])

    def method(self, node, name, args, kwargs):
        x = args[0]
        self.check_simple(node, name, args[1:], kwargs)
        if name in names.NEEDS_DATA:
            raise _tenor.UnsupportedError(f"explain: {short(node)} needs data, and nothing is computed here")
        if name in names.SAME:
            return x
        if name in names.CASTS:
            return self.guarded(node, "to", lambda: _tenor.to(x, names.dtype(names.CASTS[name])), args)
        if name in ("to", "type", "astype", "type_as"):
            return self.conversion(node, args, kwargs)
        if name in ("size", "dim", "numel", "is_contiguous", "stride", "nelement"):
            return self.fact(x, name, args[1:], kwargs)
        if name in ("view_as", "reshape_as", "expand_as"):
            return self.guarded(node, name, lambda: getattr(_tenor, name[:-3])(x, args[1].shape), args)
        if name in names.SIZED and len(args) > 2:
            args = [x, tuple(args[1:])]
        if name.startswith("new_"):
            kwargs.pop("device", None)
            return self.guarded(node, name, lambda: getattr(x, name)(*args[1:], **kwargs), args)
        target = names.RENAMED.get(name, name)
        return self.operator(node, names.Function(target, "method"), args, kwargs)

    def check_simple(self, node, name, args, kwargs):
        """Methods that are evaluated here take what PyTorch's take, and nothing else."""
        most, known = names.SIMPLE.get(name, (None, ()))
        if most is None:
            return
        wrong = next((k for k in kwargs if k not in known), None)
        if wrong is not None:
            raise _tenor.DTypeError(f"explain: {short(node)}: {name} has no argument {wrong!r}" + (f"; it takes {', '.join(known)}" if known else ""))
        if len(args) > most:
            raise _tenor.DTypeError(f"explain: {short(node)}: {name} takes at most {most} argument{'s' * (most != 1)}, got {len(args)}")

    def conversion(self, node, args, kwargs):
        """x.to(dtype), x.to(device), x.to(other): only a dtype says something about cost."""
        for a in [*args[1:], *kwargs.values()]:
            if isinstance(a, Tensor):
                a = a.dtype
            if isinstance(a, _tenor.DType):
                return self.guarded(node, "to", lambda: _tenor.to(args[0], a), args)
        return args[0]

    def fact(self, x, name, args, kwargs):
        if name == "size":
            dim = args[0] if args else kwargs.get("dim")
            return x.shape if dim is None else x.shape[dim]
        if name == "stride":
            return x.strides[args[0]] if args else x.strides
        return {"dim": x.ndim, "numel": x.size, "nelement": x.size, "is_contiguous": x.is_contiguous()}[name]

    def state(self, op, op_class, inputs, shape, dtype, flops):
        out = self.recorder.state(op, op_class, inputs, shape, dtype, flops)
        return out if self.traced else _tenor.zeros(shape, dtype=dtype, device=self.device)

    def guarded(self, node, op, run, operands):
        """run(), its errors told with what was written and the usual mend."""
        try:
            return run()
        except _tenor.Error as error:
            from tenor import _explain_errors
            raise _explain_errors.mended(self, error, node, operands) from None
        except TypeError as error:
            from tenor import _explain_errors
            raise _explain_errors.bad_call(error, op, short(node)) from None
        except (ArithmeticError, ValueError, AttributeError, IndexError) as error:
            raise _tenor.ValueError(f"explain: {short(node)}: {error}") from None


class Method:
    """x.name before its call."""

    def __init__(self, owner, name):
        self.owner, self.name = owner, name


def _as_load(target):
    copy = ast.parse(ast.unparse(target), mode="eval").body
    return copy


def dotted(node):
    """ "a.b.c" of an attribute chain of names, else None."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def short(node):
    try:
        text = ast.unparse(node)
    except (AttributeError, ValueError):
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


def _flat(values):
    for v in values:
        if isinstance(v, (list, tuple)):
            yield from _flat(v)
        else:
            yield v


def _product(shape):
    out = 1
    for s in shape:
        out *= s
    return out
