"""An ONNX graph, node by node, as Tenor operators. What only says something about shapes stays on the host, in NumPy.

Written for the networks of PP-OCR; an operator that those do not have is a KeyError that names it.
"""
import numpy as np
import onnx
from onnx import numpy_helper

import tenor as tn

OPS = {}


def op(*names):
    def add(fn):
        for name in names:
            OPS[name] = fn
        return fn
    return add


class Graph:
    """graph(x) runs it on the device that the weights were put on."""

    def __init__(self, path, device="cpu"):
        model = onnx.load(path)
        self.metadata = {p.key: p.value for p in model.metadata_props}
        self.device, graph = device, model.graph
        self.input, self.output = graph.input[0].name, graph.output[0].name
        arrays = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        nodes = [Node(n) for n in graph.node]
        nodes = with_gelu(with_linear(with_biases(without_identities(nodes, self.output), arrays), arrays), arrays)
        mark_reuse(nodes, self.output)
        for n in nodes:
            n.squares = n.kind == "Pow" and n.inputs[1] in arrays and bool(np.all(arrays[n.inputs[1]] == 2))
        # Whole numbers are shapes, axes and steps: the host's.
        self.weights = {n: tn.asarray(a, device=device) if a.dtype.kind == "f" else a for n, a in arrays.items()}
        self.nodes = nodes
        self.last_use = {name: i for i, n in enumerate(nodes) for name in n.inputs}

    def __call__(self, x):
        values = {"": None, **self.weights, self.input: x}
        for i, node in enumerate(self.nodes):
            results = OPS[node.kind](node, *(values[name] for name in node.inputs))
            values.update(zip(node.outputs, results if isinstance(results, tuple) else (results,)))
            for name in node.inputs:  # memory that nothing reads any more
                if self.last_use.get(name) == i and name not in self.weights and name != self.output:
                    values.pop(name, None)
        return values[self.output]


class Node:
    """A node's inputs, outputs, and attributes by name (None where one is not given)."""

    def __init__(self, proto):
        self.kind, self.inputs, self.outputs = proto.op_type, list(proto.input), list(proto.output)
        self.attributes = {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute}
        self.squares = False  # Pow: whether its exponent is 2
        self.reused = None  # the number of the input whose memory takes the result

    def get(self, name, default=None):
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value


def without_identities(nodes, output):
    """Each Identity's readers read what it shows."""
    names = {}
    for n in nodes:
        n.inputs = [names.get(name, name) for name in n.inputs]
        if n.kind == "Identity" and n.outputs[0] != output:
            names[n.outputs[0]] = n.inputs[0]
    return [n for n in nodes if n.kind != "Identity" or n.outputs[0] == output]


def readers_of(nodes):
    """The nodes that read each value."""
    readers = {}
    for n in nodes:
        for name in n.inputs:
            readers.setdefault(name, []).append(n)
    return readers


def with_gelu(nodes, arrays):
    """x / sqrt(2), erf, + 1, times x, times 0.5 is gelu(x)."""
    readers, producer, gone = readers_of(nodes), {n.outputs[0]: n for n in nodes}, []

    def other(n, name):
        return next((i for i in n.inputs if i != name), name)

    def constant(n, name, value):
        found = arrays.get(other(n, name))
        return found is not None and found.size == 1 and abs(float(found.reshape(())) - value) < 1e-6

    for erf in [n for n in nodes if n.kind == "Erf"]:
        chain = [producer.get(erf.inputs[0]), erf]
        while len(chain) < 5 and len(readers.get(chain[-1].outputs[0], [])) == 1:
            chain += readers[chain[-1].outputs[0]]
        if chain[0] is None or [n.kind for n in chain] != ["Div", "Erf", "Add", "Mul", "Mul"] or len(readers[chain[0].outputs[0]]) != 1:
            continue
        div, _, add, times, half = chain
        x = div.inputs[0]
        if not (constant(div, x, 2**0.5) and constant(add, erf.outputs[0], 1) and other(times, add.outputs[0]) == x
                and constant(half, times.outputs[0], 0.5)):
            continue
        half.kind, half.inputs = "Gelu", [x]
        gone += chain[:4]
    return [n for n in nodes if not any(n is g for g in gone)]


ELEMENTWISE = ("Add", "Sub", "Mul", "Div", "Relu", "Sigmoid", "Erf", "Sqrt", "Gelu")


def mark_reuse(nodes, output):
    """An elementwise node may overwrite a value that it alone reads, of a node whose result is memory of its own (not a view)."""
    readers = readers_of(nodes)
    fresh = {n.outputs[0] for n in nodes if n.kind in ("Conv", "ConvTranspose", "MatMul", "Linear", "BatchNormalization", *ELEMENTWISE)}
    for n in nodes:
        if n.kind in ELEMENTWISE:
            n.reused = next((i for i, name in enumerate(n.inputs) if name in fresh and name != output and len(readers[name]) == 1), None)


def place(node, *inputs):
    """out= for the result of an elementwise node, where an input has room for it."""
    if node.reused is None:
        return {}
    x = inputs[node.reused]
    return {"out": x} if all(np.broadcast_shapes(x.shape, other.shape) == tuple(x.shape) for other in inputs) else {}


def with_biases(nodes, arrays):
    """A convolution whose result is only read by the addition of a constant a channel has that as its bias."""
    readers, gone = readers_of(nodes), []
    for n in nodes:
        users = readers.get(n.outputs[0], [])
        if n.kind not in ("Conv", "ConvTranspose") or len(n.inputs) > 2 or len(users) != 1 or users[0].kind != "Add":
            continue
        other = [name for name in users[0].inputs if name != n.outputs[0]]
        bias = arrays.get(other[0]) if other else None
        channels = arrays[n.inputs[1]].shape[0 if n.kind == "Conv" else 1] * (1 if n.kind == "Conv" else n.get("group", 1))
        if bias is None or bias.size != channels or bias.ndim < 3 or bias.shape[-3] != channels:
            continue
        name = other[0] + ":bias"
        arrays[name] = bias.reshape(channels)
        n.inputs.append(name)
        n.outputs = users[0].outputs
        gone.append(users[0])
    return [n for n in nodes if not any(n is g for g in gone)]


def with_linear(nodes, arrays):
    """A product with a constant matrix that only an addition of a constant vector reads is a linear layer."""
    readers, gone = readers_of(nodes), []
    for n in nodes:
        users, weight = readers.get(n.outputs[0], []), arrays.get(n.inputs[1]) if n.kind == "MatMul" else None
        if weight is None or weight.ndim != 2 or len(users) != 1 or users[0].kind != "Add":
            continue
        other = [name for name in users[0].inputs if name != n.outputs[0]]
        bias = arrays.get(other[0]) if other else None
        if bias is None or bias.ndim != 1 or bias.size != weight.shape[1]:
            continue
        n.kind, n.inputs, n.outputs = "Linear", [*n.inputs, other[0]], users[0].outputs
        gone.append(users[0])
    return [n for n in nodes if not any(n is g for g in gone)]


def numbers(x):
    """A shape, axes or the like as a list of Python's ints."""
    return np.asarray(x).ravel().tolist()


def sides(node, kernel, size, stride):
    """Padding (before, after) of each dim."""
    pads = node.get("pads", [0] * (2 * len(kernel)))
    if node.get("auto_pad", "NOTSET") in ("NOTSET", "VALID"):
        return [(pads[d], pads[d + len(kernel)]) for d in range(len(kernel))]
    dilation = node.get("dilations", [1] * len(kernel))
    out = []
    for k, n, s, d in zip(kernel, size, stride, dilation):
        total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        small, large = total // 2, total - total // 2
        out.append((small, large) if node.get("auto_pad") == "SAME_UPPER" else (large, small))
    return out


# ---- convolution and pooling -----------------------------------------------------------------------------------------

@op("Conv")
def conv(node, x, weight, bias=None):
    dims = weight.ndim - 2
    stride = node.get("strides", [1] * dims)
    return tn.conv_forward(x, weight, bias, stride=stride, padding=sides(node, weight.shape[2:], x.shape[2:], stride),
                           dilation=node.get("dilations", [1] * dims), groups=node.get("group", 1))


@op("ConvTranspose")
def conv_transpose(node, x, weight, bias=None):
    dims = weight.ndim - 2
    stride = node.get("strides", [1] * dims)
    return tn.conv_transpose(x, weight, bias, stride=stride, padding=sides(node, weight.shape[2:], x.shape[2:], stride), groups=node.get("group", 1))


def padded(node, x, value):
    """x with a pooling's padding around it, and the pooling's kernel and stride."""
    kernel = node.get("kernel_shape")
    stride = node.get("strides", [1] * len(kernel))
    around = sides(node, kernel, x.shape[2:], stride)
    if any(a or b for a, b in around):
        x = tn.pad(x, [side for pair in reversed(around) for side in pair], value=value)
    return x, kernel, stride


@op("MaxPool")
def max_pool(node, x):
    kernel = node.get("kernel_shape")
    stride = node.get("strides", [1] * len(kernel))
    around = sides(node, kernel, x.shape[2:], stride)
    if all(before == 0 and after in (0, 1) and k == 2 and s == 1 for (before, after), k, s in zip(around, kernel, stride)):
        # Padding on both sides gives a row more in front, and what is not looked at costs nothing.
        both = tn.max_pool2d(x, kernel, stride, [after for _, after in around])
        return both[(..., *(slice(after, None) for _, after in around))]
    x, kernel, stride = padded(node, x, float("-inf"))
    return tn.max_pool2d(x, kernel, stride)


@op("AveragePool")
def avg_pool(node, x):
    if any(a or b for a, b in sides(node, node.get("kernel_shape"), x.shape[2:], node.get("strides"))):
        raise NotImplementedError("AveragePool with padding")
    return tn.avg_pool2d(x, node.get("kernel_shape"), node.get("strides"))


@op("GlobalAveragePool")
def global_average(node, x):
    return tn.adaptive_avg_pool2d(x, 1)


@op("Resize")
def resize(node, x, _roi, scales):
    if node.get("mode") != "nearest" or node.get("coordinate_transformation_mode") != "asymmetric" or node.get("nearest_mode") != "floor":
        raise NotImplementedError(f"Resize with {node.attributes}")
    factors = np.asarray(scales.numpy() if hasattr(scales, "numpy") else scales)[2:]
    return tn.interpolate(x, scale_factor=[float(f) for f in factors], mode="nearest")


# ---- rows and products -----------------------------------------------------------------------------------------------

@op("BatchNormalization")
def batch_norm(node, x, gamma, beta, mean, variance):
    return tn.batch_norm(x, mean, variance, gamma, beta, node.get("epsilon", 1e-5))


@op("ReduceMean")
def reduce_mean(node, x):
    return tn.mean(x, dim=tuple(node.get("axes")), keepdim=bool(node.get("keepdims", 1)))


@op("Softmax")
def softmax(node, x):
    return tn.softmax(x, node.get("axis", -1))


@op("MatMul")
def matmul(node, a, b):
    # A result lies in its first operand's order of dims: rows, whose softmax is next, rather than columns.
    return tn.matmul(a.contiguous(), b)


@op("Linear")
def linear(node, x, weight, bias):
    return tn.linear(x.contiguous(), weight.permute(1, 0), bias)


# ---- elementwise -----------------------------------------------------------------------------------------------------

@op("Pow")
def power(node, a, b):
    return tn.mul(a, a) if node.squares else tn.pow(a, b)


for onnx_name, name in (("Add", "add"), ("Sub", "sub"), ("Mul", "mul"), ("Div", "div")):
    OPS[onnx_name] = lambda node, a, b, fn=getattr(tn, name): fn(a, b, **place(node, a, b))
for onnx_name, name in (("Relu", "relu"), ("Sigmoid", "sigmoid"), ("Erf", "erf"), ("Sqrt", "sqrt"), ("Gelu", "gelu")):
    OPS[onnx_name] = lambda node, x, fn=getattr(tn, name): fn(x, **place(node, x))


@op("HardSigmoid")
def hard_sigmoid(node, x):
    return tn.clamp(tn.add(tn.mul(x, node.get("alpha", 0.2)), node.get("beta", 0.5)), 0.0, 1.0)


@op("Identity")
def identity(node, x):
    return x


# ---- shapes: of tensors as views, of shapes themselves in NumPy ----------------------------------------------------------

@op("Shape")
def shape(node, x):
    return np.array(x.shape, np.int64)


@op("Reshape")
def reshape(node, x, to):
    to = numbers(to)
    to = [x.shape[i] if n == 0 else n for i, n in enumerate(to)]
    return x.reshape(to)


@op("Transpose")
def transpose(node, x):
    return x.permute(*node.get("perm"))


@op("Squeeze")
def squeeze(node, x):
    axes = tuple(node.get("axes"))
    return np.squeeze(x, axes) if isinstance(x, np.ndarray) else tn.squeeze(x, axes)


@op("Unsqueeze")
def unsqueeze(node, x):
    for axis in sorted(node.get("axes")):
        x = np.expand_dims(x, axis) if isinstance(x, np.ndarray) else tn.unsqueeze(x, axis)
    return x


@op("Slice")
def cut(node, x, starts, ends, axes=None, steps=None):
    starts, ends = numbers(starts), numbers(ends)
    axes = numbers(axes) if axes is not None else range(len(starts))
    steps = numbers(steps) if steps is not None else [1] * len(starts)
    index = [slice(None)] * x.ndim
    for axis, begin, end, step in zip(axes, starts, ends, steps):
        index[axis] = slice(begin, end, step)
    return x[tuple(index)]


@op("Concat")
def concat(node, *parts):
    if all(isinstance(p, np.ndarray) for p in parts):
        return np.concatenate(parts, node.get("axis"))
    return tn.cat(parts, node.get("axis"))
