"""The names that explained text may use: Tenor's operators under the names that PyTorch, NumPy and F give them."""
import difflib
import functools
import importlib
import math

from tenor import _tenor

T = _tenor


class Namespace:
    """torch, F, np, tenor, math in the text: a name that only has attributes."""

    def __init__(self, name, inner=()):
        self.name, self.inner = name, set(inner)


NAMESPACES = {n: Namespace(n, inner) for n, inner in [
    ("torch", ("nn", "functional", "linalg", "special", "Tensor")), ("nn", ("functional",)), ("F", ()), ("np", ("linalg",)),
    ("numpy", ("linalg",)), ("tenor", ("moe", "paged")), ("tn", ("moe", "paged")), ("math", ()), ("jnp", ()), ("T", ()), ("paged", ()), ("moe", ())]}

RENAMED = {  # another library's name: Tenor's
    "mm": "matmul", "mv": "matmul", "concat": "cat", "concatenate": "cat", "swapaxes": "swapdims", "moveaxis": "movedim", "absolute": "abs",
    "negative": "neg", "multiply": "mul", "subtract": "sub", "divide": "div", "true_divide": "div", "arccos": "acos", "arcsin": "asin",
    "arctan": "atan", "arctan2": "atan2", "greater": "gt", "less": "lt", "greater_equal": "ge", "less_equal": "le", "not_equal": "ne",
    "equal": "eq", "clip": "clamp", "power": "pow", "inner": "dot", "vdot": "dot", "expand_dims": "unsqueeze",
    "take_along_axis": "take_along_dim", "logical_not_": "logical_not", "invert": "bitwise_not", "fix": "trunc", "bitwise_invert": "bitwise_not",
    "expit": "sigmoid", "row_stack": "cat"}
KEYWORDS = {"axis": "dim", "keepdims": "keepdim", "eps": "epsilon", "unbiased": "correction"}
DTYPES = {"float": "float32", "half": "float16", "double": "float64", "long": "int64", "int": "int32", "short": "int16", "bool": "bool",
          "bool_": "bool", "uint8": "uint8", "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2"}
CASTS = {"float": "float32", "half": "float16", "bfloat16": "bfloat16", "double": "float64", "long": "int64", "int": "int32", "short": "int16",
         "bool": "bool", "byte": "uint8", "char": "int8"}
SAME = {"detach", "cpu", "cuda", "requires_grad_", "detach_", "expand_as_", "to_dense"}
NEEDS_DATA = {"item", "tolist", "numpy", "data_ptr", "__array__"}
MOST_ITEMS = 1 << 16  # of a sequence that text makes


def limited_range(*bounds):
    made = range(*bounds)
    if len(made) > MOST_ITEMS:
        raise ValueError(f"range has {len(made)} numbers, which is too large to evaluate")
    return made


BUILTINS = {"len": len, "int": int, "float": float, "bool": bool, "tuple": tuple, "list": list, "range": limited_range, "slice": slice, "True": True}
FOR_NUMBERS = {"max": max, "min": min, "sum": sum, "abs": abs, "round": round, "pow": pow, "any": any, "all": all}
CREATORS = {"zeros", "ones", "empty", "full", "arange", "linspace", "eye", "rope_tables", "zeros_like", "ones_like", "empty_like", "full_like"}
SIZED = {"zeros", "ones", "empty", "new_zeros", "new_ones", "new_empty"}


def dtype(name):
    return T.promote_types(name, name)


def unknown(name, known, instead=""):
    """The error for a name that is none of the known; it proposes only what the name nearly is."""
    last = name.split(".")[-1]
    if len(name) > 80:
        return T.ValueError(f"explain: unknown name {name[:77] + '...'!r}{instead if len(instead) < 120 else ''}")
    near = difflib.get_close_matches(last, set(known) - {last}, 1, 0.82)
    hint = f"; did you mean {name[: len(name) - len(last)]}{near[0]}?" if near else ""
    return T.ValueError(f"explain: unknown name {name!r}{hint or instead}")


@functools.cache
def _registered():
    return frozenset(o[0] for o in T._operators())


def is_operator(name):
    """Whether text may call T.name: an operator, or an in-place form. What sets or reads the process's state is neither."""
    plain = name.removesuffix("_")
    known = plain in _registered() or name in ("astype", "copy_", "fill_", "promote_types")
    fn = getattr(T, name, None)
    return known and callable(fn) and not isinstance(fn, type)


def operator_names():
    return [n for n in dir(T) if is_operator(n)]


# ---- functions whose arguments PyTorch orders or names otherwise -----------------------------------------------------------------
# Each takes the evaluator first and lists the arguments that the real one has, so that any other name is refused. What says
# nothing about shapes or cost is listed and not used.

def dropout(_, x, p=0.5, training=True, inplace=False):
    return x


def softmax(_, x, dim=-1, _stacklevel=3, dtype=None):
    return T.softmax(_converted(x, dtype), -1 if dim is None else dim)


def log_softmax(_, x, dim=-1, _stacklevel=3, dtype=None):
    return T.log_softmax(_converted(x, dtype), -1 if dim is None else dim)


def _converted(x, kind):
    return x if kind is None else T.to(x, kind)


def _last_dim(name, x, normalized_shape):
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape or x.shape[-len(shape):] != shape:
        raise T.ShapeError(f"{name}: normalized_shape {shape} must be the last dims of x, which has shape {x.shape}")
    if len(shape) != 1:
        raise T.UnsupportedError(f"{name}: only the last dim is normalized, got normalized_shape {shape}")


def _weight(x, weight):
    return T.ones([x.shape[-1]], dtype=x.dtype, device=x.device) if weight is None else weight


def layer_norm(_, x, normalized_shape, weight=None, bias=None, eps=1e-5):
    _last_dim("layer_norm", x, normalized_shape)
    return T.layer_norm(x, _weight(x, weight), bias, epsilon=eps)


def rms_norm(_, x, normalized_shape, weight=None, eps=None):
    _last_dim("rms_norm", x, normalized_shape)
    return T.rms_norm(x, _weight(x, weight), **({} if eps is None else {"epsilon": eps}))


def group_norm(_, x, num_groups, weight=None, bias=None, eps=1e-5):
    return T.group_norm(x, num_groups, weight, bias, epsilon=eps)


def conv(dims):
    """F.conv1d, F.conv2d, F.conv3d: batched, or an image alone, which has no batch dim."""

    def convolve(_, x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        return _batched(f"conv{dims}d", dims, x, lambda x: T.conv_forward(x, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups))

    return convolve


def conv_transpose(dims):
    def convolve(_, x, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
        return _batched(f"conv_transpose{dims}d", dims, x, lambda x: T.conv_transpose(
            x, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups, output_padding=output_padding))

    return convolve


def _batched(name, dims, x, fn):
    if x.ndim not in (dims + 1, dims + 2):
        raise T.ShapeError(f"{name}: x must have {dims + 2} dims, or {dims + 1} without a batch, got {x.ndim} with shape {x.shape}")
    return fn(x) if x.ndim == dims + 2 else T.squeeze(fn(T.unsqueeze(x, 0)), 0)


def unfold(_, x, kernel_size, dilation=1, padding=0, stride=1):
    return T.im2col(x, kernel_size, dilation=dilation, padding=padding, stride=stride)


def fold(_, x, output_size, kernel_size, dilation=1, padding=0, stride=1):
    return T.col2im(x, output_size, kernel_size, dilation=dilation, padding=padding, stride=stride)


def scaled_dot_product_attention(_, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    masks = attn_mask is not None and str(attn_mask.dtype) == "bool"
    return T.attention(query, key, value, attn_mask if masks else None, None if masks else attn_mask, scale=scale,
                       causal="top_left" if is_causal else False)


def multinomial(_, probs, num_samples, replacement=False, generator=None, seed=0, position=0):
    return T.multinomial(probs, num_samples, replacement, seed=seed, position=position)


def addmm(_, x, mat1, mat2, beta=1, alpha=1):
    product = T.matmul(mat1, mat2)
    return T.add(product if alpha == 1 else T.mul(product, alpha), x if beta == 1 else T.mul(x, beta))


def where(_, condition, x=None, other=None):
    if x is None:
        raise T.UnsupportedError("where: the size of the result depends on data")
    return T.where(condition, x, other)


def einsum(_, equation, *operands):
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = operands[0]
    return T.einsum(equation, *operands)


def tensor(ev, data, dtype=None, device=None, requires_grad=False, pin_memory=False, copy=None):
    return _converted(ev.constant(data), dtype)


def rand(ev, *size, dtype="float32", device=None, generator=None, requires_grad=False, pin_memory=False, layout=None):
    """rand, randn: an input of that shape. What fills it costs nothing here."""
    shape = size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    return ev.given(shape, dtype)


def randint(ev, low, high=None, size=None, dtype="int64", device=None, generator=None, requires_grad=False):
    if size is None and not isinstance(high, int):  # randint(high, size)
        high, size = low, high
    if size is None:
        raise T.ValueError("randint: size is missing")
    return ev.given(size, dtype)


def randperm(ev, n, dtype="int64", device=None, generator=None):
    return ev.given([n], dtype)


def rand_like(ev, x, dtype=None, device=None, requires_grad=False, memory_format=None):
    return ev.given(x.shape, x.dtype if dtype is None else dtype)


def t(_, x):
    if x.ndim > 2:
        raise T.ShapeError(f"t: x must have at most 2 dims, got shape {x.shape}")
    return T.transpose(x, 0, 1) if x.ndim == 2 else x


def repeat(_, x, *repeats):
    return T.repeat(x, repeats[0] if len(repeats) == 1 else repeats)


def clone(_, x, memory_format=None):
    return x.clone()


def contiguous(_, x, memory_format=None):
    return x.contiguous()


def detach(_, x):
    return x


def square(_, x):
    return T.mul(x, x)


def numel(_, x):
    return x.size


def logaddexp(_, x, other):
    return T.logsumexp(T.stack([x, other]), 0)


def limits(_, dtype):
    return Limits(dtype)


ADAPTED = {f.__name__: f for f in (dropout, softmax, log_softmax, scaled_dot_product_attention, multinomial, addmm, where, einsum, tensor, rand,
                                   randint, randperm, rand_like, t, repeat, clone, contiguous, detach, square, numel, logaddexp)}
ADAPTED.update(dropout_=dropout, baddbmm=addmm, randn=rand, randn_like=rand_like, as_tensor=tensor, asarray=tensor, array=tensor, finfo=limits,
               iinfo=limits, **{f"{f.__name__}{dims}d": f(dims) for f in (conv, conv_transpose) for dims in (1, 2, 3)})
# Only where PyTorch or F is named: Tenor's own have Tenor's arguments.
OF_TORCH = {"layer_norm": layer_norm, "rms_norm": rms_norm, "group_norm": group_norm, "unfold": unfold, "fold": fold}  # a tensor's unfold is a view
TORCH = ("torch", "F", "functional", "nn")
_MAKES = CREATORS | {"tensor", "as_tensor", "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "asarray", "array",
                     "new_zeros", "new_ones", "new_empty", "new_full"}
# Arguments of PyTorch's that say nothing about shapes or cost, and who has them.
WITHOUT_COST = {
    "inplace": {"relu", "silu", "leaky_relu", "elu", "mish", "hardswish", "dropout"},
    "requires_grad": _MAKES, "pin_memory": _MAKES, "layout": _MAKES, "non_blocking": {"to", "cuda", "copy_"},
    "memory_format": {"contiguous", "clone", "to", "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like"}}


# Methods that the evaluator answers itself: (most arguments by position, their names).
SIMPLE = {**{cast: (0, ("memory_format",)) for cast in CASTS}, "detach": (0, ()), "detach_": (0, ()), "cpu": (0, ("memory_format",)),
          "cuda": (1, ("device", "non_blocking", "memory_format")), "requires_grad_": (1, ("requires_grad",)),
          "to": (4, ("dtype", "device", "other", "non_blocking", "copy", "memory_format")), "type": (1, ("dtype", "non_blocking")),
          "astype": (1, ("dtype", "copy")), "type_as": (1, ("other",)), "size": (1, ("dim",)), "stride": (1, ("dim",)), "dim": (0, ()),
          "numel": (0, ()), "nelement": (0, ()), "is_contiguous": (0, ("memory_format",)), "view_as": (1, ("other",)),
          "reshape_as": (1, ("other",)), "expand_as": (1, ("other",))}


def checked(name, fn):
    """fn, called only with arguments that it has."""
    from inspect import signature

    from tenor import _signatures
    sig = signature(fn)
    sig = sig.replace(parameters=list(sig.parameters.values())[1:])

    def call(ev, *args, **kwargs):
        wrong = _signatures.problem(name, sig, args, kwargs)
        if wrong:
            raise T.DTypeError(wrong)
        return fn(ev, *args, **kwargs)
    return call


class Limits:
    """torch.finfo(dtype): what masks are filled with."""

    def __init__(self, kind):
        import ml_dtypes
        import numpy as np
        name = str(kind)
        info = ml_dtypes.finfo(name if name != "bfloat16" else ml_dtypes.bfloat16) if "float" in name else np.iinfo(name)
        self.min, self.max, self.eps, self.tiny = float(info.min), float(info.max), float(getattr(info, "eps", 0)), float(getattr(info, "tiny", 0))


def lookup(path):
    """What `torch.nn.functional.silu` or a bare `silu` is: a constant, a dtype, a namespace, or (function name, namespace)."""
    *spaces, name = path.split(".")
    where = spaces[-1] if spaces else ""
    if where == "math":
        if hasattr(math, name) and not name.startswith("_"):
            return getattr(math, name)
        raise unknown(path, dir(math))
    if where in MODULES:
        if name not in MODULES[where]:
            raise unknown(path, MODULES[where], f"; {where} has {', '.join(MODULES[where])} here")
        return Function(name, where)
    if where and name in NAMESPACES and name in NAMESPACES.get(where, Namespace("")).inner:
        return NAMESPACES[name]
    if where and (name in ("functional", "linalg", "special")):
        return Namespace(name)
    if where and name in DTYPES:
        return dtype(DTYPES[name])
    if name in ("inf", "pi", "e", "nan") and where:
        return getattr(math, name)
    if name == "newaxis":
        return None
    found = getattr(T, name, None)
    if isinstance(found, T.DType):
        return found
    target = RENAMED.get(name, name)
    if name in ADAPTED or (where in TORCH and name in OF_TORCH):
        return Function(name, where)
    if is_operator(target):
        return Function(target, where)
    raise unknown(path, resolvable())


def resolvable():
    """Every function name that lookup() finds."""
    return operator_names() + list(ADAPTED) + [name for name, target in RENAMED.items() if is_operator(target)]


MODULES = {  # of the package, and what text may call of them; all of paged but copy_pages are methods of a plan too
    "paged": ("attention", "mla", "append", "append_", "copy_pages", "copy_pages_"), "moe": ("grouped_matmul",)}


def is_plan(x):
    return isinstance(x, T._PagedDevicePlan)


class Function:
    def __init__(self, name, where=""):
        self.name, self.where = name, where

    def resolve(self):
        if self.where in MODULES:
            fn = getattr(importlib.import_module(f"tenor.{self.where}"), self.name)
            return lambda _, *args, **kwargs: fn(*args, **kwargs)
        if self.where in TORCH and self.name in OF_TORCH:
            return checked(self.name, OF_TORCH[self.name])
        if self.name in ADAPTED:
            return checked(self.name, ADAPTED[self.name])
        if not is_operator(self.name):
            raise unknown(self.name, operator_names())
        fn = getattr(T, self.name)
        return lambda _, *args, **kwargs: fn(*args, **kwargs)
