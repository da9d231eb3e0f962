"""The names that explained text may use: Tenor's operators under the names that PyTorch, NumPy and F give them."""
import difflib
import functools
import math

from tenor import _tenor

T = _tenor


class Namespace:
    """torch, F, np, tenor, math in the text: a name that only has attributes."""

    def __init__(self, name, inner=()):
        self.name, self.inner = name, set(inner)


NAMESPACES = {n: Namespace(n, inner) for n, inner in [
    ("torch", ("nn", "functional", "linalg", "special", "Tensor")), ("nn", ("functional",)), ("F", ()), ("np", ("linalg",)),
    ("numpy", ("linalg",)), ("tenor", ()), ("tn", ()), ("math", ()), ("jnp", ()), ("T", ())]}

RENAMED = {  # another library's name: Tenor's
    "mm": "matmul", "mv": "matmul", "concat": "cat", "concatenate": "cat", "swapaxes": "swapdims", "moveaxis": "movedim", "absolute": "abs",
    "negative": "neg", "multiply": "mul", "subtract": "sub", "divide": "div", "true_divide": "div", "arccos": "acos", "arcsin": "asin",
    "arctan": "atan", "arctan2": "atan2", "greater": "gt", "less": "lt", "greater_equal": "ge", "less_equal": "le", "not_equal": "ne",
    "equal": "eq", "clip": "clamp", "power": "pow", "inner": "dot", "vdot": "dot", "expand_dims": "unsqueeze",
    "take_along_axis": "take_along_dim", "logical_not_": "logical_not", "invert": "bitwise_not", "fix": "trunc", "bitwise_invert": "bitwise_not",
    "conv1d": "conv_forward", "conv2d": "conv_forward", "conv3d": "conv_forward", "expit": "sigmoid", "row_stack": "cat"}
KEYWORDS = {"axis": "dim", "keepdims": "keepdim", "eps": "epsilon", "unbiased": "correction"}
DTYPES = {"float": "float32", "half": "float16", "double": "float64", "long": "int64", "int": "int32", "short": "int16", "bool": "bool",
          "bool_": "bool", "uint8": "uint8", "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2"}
CASTS = {"float": "float32", "half": "float16", "bfloat16": "bfloat16", "double": "float64", "long": "int64", "int": "int32", "short": "int16",
         "bool": "bool", "byte": "uint8", "char": "int8"}
SAME = {"detach", "cpu", "cuda", "requires_grad_", "detach_", "expand_as_", "to_dense"}
NEEDS_DATA = {"item", "tolist", "numpy", "data_ptr", "__array__"}
BUILTINS = {"len": len, "int": int, "float": float, "bool": bool, "tuple": tuple, "list": list, "range": range, "slice": slice, "True": True}
FOR_NUMBERS = {"max": max, "min": min, "sum": sum, "abs": abs, "round": round, "pow": pow, "any": any, "all": all}
CREATORS = {"zeros", "ones", "empty", "full", "arange", "linspace", "eye", "rope_tables", "zeros_like", "ones_like", "empty_like", "full_like"}
SIZED = {"zeros", "ones", "empty", "new_zeros", "new_ones", "new_empty"}


def dtype(name):
    return T.promote_types(name, name)


def unknown(name, known, instead=""):
    near = difflib.get_close_matches(name.split(".")[-1], known, 1, 0.6)
    prefix = name[: len(name) - len(name.split(".")[-1])]
    hint = f"; did you mean {prefix}{near[0]}?" if near else ""
    return T.ValueError(f"explain: unknown name {name!r}{hint or instead}")


@functools.cache
def _registered():
    return frozenset(o[0] for o in T._operators())


def is_operator(name):
    """Whether text may call T.name: an operator, or an in-place form. What sets or reads the process's state is neither."""
    plain = name.removesuffix("_")
    known = plain in _registered() or name in ("astype", "copy_", "fill_", "promote_types")
    return known and callable(getattr(T, name, None)) and not isinstance(getattr(T, name), type)


def operator_names():
    return [n for n in dir(T) if is_operator(n)]


# ---- functions whose arguments PyTorch orders otherwise; each takes the evaluator first ---------------------------------------------

def _same(_, x, *args, **kwargs):
    return x


def _typed(name):
    """softmax(x, dim, dtype=): converts first."""
    def call(_, x, dim=-1, *args, dtype=None, **kwargs):
        return getattr(T, name)(x if dtype is None else T.to(x, dtype), dim)
    return call


def _norm_over(name):
    def call(_, x, normalized_shape, weight=None, bias=None, eps=None, **kwargs):
        count = 1 if isinstance(normalized_shape, int) else len(normalized_shape)
        if count != 1:
            raise T.UnsupportedError(f"{name}: only the last dim is normalized, got normalized_shape {normalized_shape}")
        options = {} if eps is None else {"epsilon": eps}
        weight = T.ones([x.shape[-1]], dtype=x.dtype, device=x.device) if weight is None else weight
        return T.layer_norm(x, weight, bias, **options) if name == "layer_norm" else T.rms_norm(x, weight, **options)
    return call


def _sdpa(_, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    masks = attn_mask is not None and str(attn_mask.dtype) == "bool"
    return T.attention(query, key, value, attn_mask if masks else None, None if masks else attn_mask, scale=scale,
                       causal="top_left" if is_causal else False)


def _multinomial(ev, probs, num_samples, replacement=False, **kwargs):
    if hasattr(T, "multinomial"):
        return T.multinomial(probs, num_samples, replacement, seed=0)
    # The draw's shape and cost, for builds without the operator.
    shape = [*probs.shape[:-1], num_samples]
    return ev.state("multinomial", 3, [probs], shape, "int64", probs.size)


def _addmm(_, bias, a, b, **kwargs):
    return T.add(T.matmul(a, b), bias)


def _where(_, condition, x=None, other=None):
    if x is None:
        raise T.UnsupportedError("where: the size of the result depends on data")
    return T.where(condition, x, other)


def _einsum(_, equation, *operands, **kwargs):
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = operands[0]
    return T.einsum(equation, *operands)


def _tensor(ev, data, dtype=None, **kwargs):
    x = ev.constant(data)
    return x if dtype is None else T.to(x, dtype)


def _random(ev, *size, dtype="float32", **kwargs):
    """rand, randn: an input of that shape. What fills it costs nothing here."""
    shape = size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    return ev.given(shape, dtype)


def _randint(ev, *args, size=None, dtype="int64", **kwargs):
    return ev.given(args[-1] if size is None else size, dtype)


def _group_norm(_, x, num_groups, weight=None, bias=None, eps=1e-5):
    return T.group_norm(x, num_groups, weight, bias, epsilon=eps)


ADAPTED = {
    "softmax": _typed("softmax"), "log_softmax": _typed("log_softmax"), "dropout": _same, "detach": _same, "dropout_": _same,
    "multinomial": _multinomial, "scaled_dot_product_attention": _sdpa, "addmm": _addmm, "baddbmm": _addmm, "where": _where,
    "rand": _random, "randn": _random, "randint": _randint, "randperm": lambda ev, n, **kwargs: ev.given([n], "int64"),
    "rand_like": lambda ev, x, **kwargs: ev.given(x.shape, x.dtype), "randn_like": lambda ev, x, **kwargs: ev.given(x.shape, x.dtype),
    "square": lambda _, x: T.mul(x, x), "einsum": _einsum, "t": lambda _, x: T.transpose(x, 0, 1), "tensor": _tensor, "as_tensor": _tensor,
    "asarray": _tensor, "array": _tensor, "numel": lambda _, x: x.size,
    "logaddexp": lambda _, a, b: T.logsumexp(T.stack([a, b]), 0), "clone": lambda _, x: x.clone(), "contiguous": lambda _, x: x.contiguous(),
    "repeat": lambda _, x, *n: T.repeat(x, n[0] if len(n) == 1 else n), "finfo": lambda _, d: Limits(d), "iinfo": lambda _, d: Limits(d)}
# Only where PyTorch or F is named: Tenor's own have Tenor's arguments.
OF_TORCH = {"layer_norm": _norm_over("layer_norm"), "rms_norm": _norm_over("rms_norm"), "group_norm": _group_norm}


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
    if name in ADAPTED or (where in ("torch", "F", "functional", "nn") and name in OF_TORCH):
        return Function(name, where)
    if is_operator(target):
        return Function(target, where)
    raise unknown(path, operator_names() + list(ADAPTED) + list(RENAMED))


class Function:
    def __init__(self, name, where=""):
        self.name, self.where = name, where

    def resolve(self):
        if self.where in ("torch", "F", "functional", "nn") and self.name in OF_TORCH:
            return OF_TORCH[self.name]
        if self.name in ADAPTED:
            return ADAPTED[self.name]
        if not is_operator(self.name):
            raise unknown(self.name, operator_names())
        fn = getattr(T, self.name)
        return lambda _, *args, **kwargs: fn(*args, **kwargs)
