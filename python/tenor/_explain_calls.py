"""Calls in the text given to tenor.explain: what a name with arguments does, and the errors of what is called."""
import ast

from tenor import _explain_names as names
from tenor import _tenor
from tenor._explain_words import Method, flat, kind, short
from tenor._tenor import Tensor


class Calls:
    """The half of the evaluator that calls: operators, methods, and what PyTorch's tensors tell of themselves."""

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
        self.called.add(id(node.func))
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
        has_tensor = any(isinstance(a, Tensor) for a in flat([*args, *kwargs.values()]))
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
        if names.is_plan(x):
            return self.operator(node, names.Function(name, "paged"), args, kwargs)
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
