import math

import numpy as np
from onnx import numpy_helper

import tenor as tn
from graph import Cannot, ints, op


@op("Identity")
def identity(node, x):
    return x


@op("Constant")
def constant(node):
    if node.value is not None:
        return numpy_helper.to_array(node.attributes["value"])
    for name, dtype in (("value_float", np.float32), ("value_int", np.int64), ("value_floats", np.float32), ("value_ints", np.int64)):
        if name in node.attributes:
            return np.asarray(node.attributes[name], dtype)
    raise Cannot("a constant of strings or sparse")


@op("ConstantOfShape")
def constant_of_shape(node, shape):
    value = np.zeros(1, np.float32) if node.value is None else numpy_helper.to_array(node.attributes["value"])
    return tn.full(tuple(ints(shape)), value.reshape(-1)[0].item(), dtype=value.dtype).numpy()


@op("Shape")
def shape(node, x):
    return np.asarray(tn.asarray(x).shape[node.get("start", 0):node.end], np.int64)


@op("Size")
def size(node, x):
    return np.asarray(tn.asarray(x).size, np.int64)


@op("Reshape")
def reshape(node, x, shape):
    sizes = ints(shape)
    if not node.allowzero:
        sizes = [x.shape[i] if s == 0 else s for i, s in enumerate(sizes)]
    return tn.reshape(x, tuple(sizes))


@op("Flatten")
def flatten(node, x):
    axis = node.get("axis", 1)
    axis += x.ndim if axis < 0 else 0
    return tn.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@op("Transpose")
def transpose(node, x):
    return tn.permute(x, tuple(node.get("perm", range(x.ndim)[::-1])))


@op("Squeeze")
def squeeze(node, x, axes=None):
    axes = ints(node.axes if axes is None else axes)
    return tn.squeeze(x) if axes is None else tn.squeeze(x, tuple(axes))


@op("Unsqueeze")
def unsqueeze(node, x, axes=None):
    axes = ints(node.axes if axes is None else axes)
    rank = x.ndim + len(axes)
    for axis in sorted(a + rank if a < 0 else a for a in axes):
        x = tn.unsqueeze(x, axis)
    return x


@op("Expand")
def expand(node, x, shape):
    return tn.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(ints(shape))))


@op("Split")
def split(node, x, sizes=None):
    axis, sizes = node.get("axis", 0), ints(node.split if sizes is None else sizes)
    if sizes is None:
        parts = node.get("num_outputs", len(node.outputs))
        sizes = math.ceil(x.shape[axis] / parts)
    return tn.split(x, sizes, axis)


@op("Slice")
def slice_(node, x, starts=None, ends=None, axes=None, steps=None):
    starts, ends = ints(node.starts if starts is None else starts), ints(node.ends if ends is None else ends)
    axes = ints(node.axes if axes is None else axes) or range(len(starts))
    steps = ints(steps) or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps):
        where = range(*slice(start, end, step).indices(x.shape[axis]))
        if step < 0:  # the same elements, upwards, then turned round
            x = tn.flip(tn.slice(x, axis, where[-1], where[0] + 1, -step) if len(where) else tn.slice(x, axis, 0, 0), (axis,))
        else:
            x = tn.slice(x, axis, where.start, max(where.stop, where.start), step)
    return x


@op("DepthToSpace")
def depth_to_space(node, x):
    b, (n, c, h, w) = node.blocksize, x.shape
    if node.get("mode", "DCR") == "DCR":
        x = tn.permute(tn.reshape(x, (n, b, b, c // b**2, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        x = tn.permute(tn.reshape(x, (n, c // b**2, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return tn.reshape(x, (n, c // b**2, h * b, w * b))


@op("SpaceToDepth")
def space_to_depth(node, x):
    b, (n, c, h, w) = node.blocksize, x.shape
    order = (0, 1, 3, 5, 2, 4) if node.mode == "CRD" else (0, 3, 5, 1, 2, 4)
    return tn.reshape(tn.permute(tn.reshape(x, (n, c, h // b, b, w // b, b)), order), (n, c * b * b, h // b, w // b))


@op("BitCast")
def bit_cast(node, x):
    raise Cannot("Tenor reads memory as another dtype through NumPy, not by an operator")
