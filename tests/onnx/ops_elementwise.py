import numpy as np
import onnx

import tenor as tn
from graph import Cannot, op

DIRECT = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh",
    "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor", "HardSwish": "hardswish",
    "IsNaN": "isnan", "Log": "log", "Mish": "mish", "Neg": "neg", "Not": "logical_not", "Reciprocal": "reciprocal",
    "Relu": "relu", "Round": "round", "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin", "Sinh": "sinh",
    "Softplus": "softplus", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh", "BitwiseNot": "bitwise_not",
    "Add": "add", "Sub": "sub", "Mul": "mul", "And": "logical_and", "Or": "logical_or", "Xor": "logical_xor",
    "Equal": "eq", "Greater": "gt", "GreaterOrEqual": "ge", "Less": "lt", "LessOrEqual": "le",
    "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor", "Where": "where",
}
for onnx_name, name in DIRECT.items():
    op(onnx_name)(lambda node, *inputs, name=name: getattr(tn, name)(*inputs))


@op("Div")
def div(node, a, b):
    if a.dtype.kind in "iu":  # ONNX truncates
        return tn.floor_divide(tn.sub(a, tn.fmod(a, b)), b)
    return tn.div(a, b)


@op("Mod")
def mod(node, a, b):
    return (tn.fmod if node.fmod else tn.remainder)(a, b)


@op("Pow")
def pow(node, a, b):  # the result has the base's dtype
    return to(tn.pow(a, b), a.dtype)


def to(x, dtype):
    return tn.asarray(x).to(dtype).numpy()


def fold(function, first, rest):
    for x in rest:
        first = function(first, x)
    return first


@op("Max")
def maximum(node, first, *rest):
    return fold(tn.maximum, first, rest)


@op("Min")
def minimum(node, first, *rest):
    return fold(tn.minimum, first, rest)


@op("Sum")
def total(node, first, *rest):
    return fold(tn.add, first, rest)


@op("Mean")
def mean(node, *xs):
    return tn.div(fold(tn.add, xs[0], xs[1:]), len(xs))


@op("BitShift")
def shift(node, a, b):
    return (tn.bitwise_left_shift if node.direction == "LEFT" else tn.bitwise_right_shift)(a, b)


@op("IsInf")
def isinf(node, x):
    up, down = node.get("detect_positive", 1), node.get("detect_negative", 1)
    if up and down:
        return tn.isinf(x)
    return tn.logical_and(tn.isinf(x), tn.gt(x, 0) if up else tn.lt(x, 0) if down else tn.isnan(x))


@op("Clip")
def clip(node, x, low=None, high=None):
    bounds = [None if b is None else b.item() for b in (low, high)]
    if bounds == [None, None]:
        return x
    return tn.clamp(x, *bounds)


@op("LeakyRelu")
def leaky_relu(node, x):
    return tn.leaky_relu(x, node.get("alpha", 0.01))


@op("Elu")
def elu(node, x):
    return tn.elu(x, node.get("alpha", 1.0))


@op("Celu")
def celu(node, x):
    alpha = node.get("alpha", 1.0)
    return tn.mul(tn.elu(tn.div(x, alpha)), alpha)


@op("Selu")
def selu(node, x):
    return tn.mul(tn.elu(x, node.get("alpha", 1.67326319217681884765625)), node.get("gamma", 1.05070102214813232421875))


@op("Gelu")
def gelu(node, x):
    return tn.gelu(x, approximate=node.get("approximate", "none"))


@op("Swish")
def swish(node, x):
    alpha = node.get("alpha", 1.0)
    return tn.silu(x) if alpha == 1 else tn.mul(x, tn.sigmoid(tn.mul(x, alpha)))


@op("SwiGLU")
def swiglu(node, a, b):
    if node.get("alpha", 1.0) == 1:
        return tn.silu_mul(a, b)
    return tn.mul(swish(node, a), b)


@op("HardSigmoid")
def hard_sigmoid(node, x):
    return tn.clamp(tn.add(tn.mul(x, node.get("alpha", 0.2)), node.get("beta", 0.5)), 0.0, 1.0)


@op("ThresholdedRelu")
def thresholded_relu(node, x):
    return tn.where(tn.gt(x, node.get("alpha", 1.0)), x, 0.0)


@op("Shrink")
def shrink(node, x):
    lambd, bias = node.get("lambd", 0.5), node.get("bias", 0.0)
    if x.dtype.kind in "iu":
        lambd, bias = int(lambd), int(bias)
    return tn.where(tn.lt(x, -lambd), tn.add(x, bias), tn.where(tn.gt(x, lambd), tn.sub(x, bias), tn.mul(x, 0)))


@op("Softsign")
def softsign(node, x):
    return tn.div(x, tn.add(tn.abs(x), 1))


@op("PRelu")
def prelu(node, x, slope):
    return tn.where(tn.lt(x, 0), tn.mul(x, slope), x)


@op("Dropout")
def dropout(node, x, ratio=None, training=None):
    if training is not None and bool(training):
        raise Cannot("training: Tenor has no dropout")
    return x, tn.ones(x.shape, dtype="bool").numpy()


# ---- casts ------------------------------------------------------------------------------------------------------------

LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}


def cast_to(node, x, dtype):
    name = np.dtype(dtype).name
    if name in LARGEST and x.dtype.kind in "fV" and node.get("saturate", 1):
        if x.dtype.name.startswith("float8"):
            x = to(x, np.float32)
        x = tn.clamp(x, -LARGEST[name], LARGEST[name])
    return to(x, dtype)


@op("Cast")
def cast(node, x):
    if x.dtype.kind in "OUST" or node.to == onnx.TensorProto.STRING:
        raise Cannot("strings")
    return cast_to(node, x, onnx.helper.tensor_dtype_to_np_dtype(node.to))


@op("CastLike")
def cast_like(node, x, like):
    if x.dtype.kind in "OUST" or like.dtype.kind in "OUST":
        raise Cannot("strings")
    return cast_to(node, x, like.dtype)
