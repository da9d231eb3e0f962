"""Runs an ONNX graph node by node on the functions that the families' maps register."""
import numpy as np
import onnx
from onnx import numpy_helper

OPS = {}


def op(*names):
    """Registers fn(node, *inputs) -> array or tuple of arrays for these ONNX operators. Absent inputs are None."""

    def add(fn):
        for name in names:
            OPS[name] = fn
        return fn

    return add


class Cannot(Exception):
    """This node asks for something that Tenor does not do; the text is the reason."""


class Node:
    """A node's attributes by name, the model's opset version, and how many outputs are asked for."""

    def __init__(self, proto, opset):
        self.op, self.opset = proto.op_type, opset
        self.inputs = list(proto.input)
        self.outputs = list(proto.output)
        self.attributes = {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute}

    def __getattr__(self, name):
        """node.axis: the attribute, None where it is not given."""
        value = self.attributes.get(name)
        return value.decode() if isinstance(value, bytes) else value

    def get(self, name, default):
        value = getattr(self, name)
        return default if value is None else value

    def wants(self, i):
        """Whether output i is asked for."""
        return i < len(self.outputs) and self.outputs[i] != ""


def nodes_of(model):
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=1)
    return [Node(n, opset) for n in model.graph.node]


def run(model, inputs):
    """The graph's outputs for the arrays `inputs`, in the graph's order."""
    values = {"": None}
    values.update((t.name, numpy_helper.to_array(t)) for t in model.graph.initializer)
    values.update(zip((i.name for i in model.graph.input), inputs))
    for node in nodes_of(model):
        results = OPS[node.op](node, *(values[name] for name in node.inputs))
        if not isinstance(results, (tuple, list)):
            results = (results,)
        values.update((name, None if r is None else np.asarray(r)) for name, r in zip(node.outputs, results) if name)
    return [values[o.name] for o in model.graph.output]


def ints(x):
    """A shape, axes or the like given as an array or an attribute, as a list of ints; None stays None."""
    return None if x is None else [int(i) for i in np.asarray(x).reshape(-1)]
