import numpy as np

import tenor as tn
from graph import ints, op


def reduction(function):
    """The axes are an attribute or an input; none means all of them, or nothing to do where the node says so."""

    def run(node, x, axes=None):
        axes = ints(node.axes if axes is None else axes)
        if not axes:
            axes = [] if node.noop_with_empty_axes else list(range(x.ndim))
        return function(x, tuple(axes), bool(node.get("keepdims", 1)))

    return run


def same(function):
    """Integer reductions of ONNX keep their dtype, where Tenor widens to 64 bits unless told."""
    return lambda x, dim, keep: function(x, dim, keepdim=keep, dtype=x.dtype if x.dtype.kind in "iu" else None)


op("ReduceSum")(reduction(same(tn.sum)))
op("ReduceMean")(reduction(lambda x, dim, keep: tn.mean(x, dim, keepdim=keep)))
op("ReduceMax")(reduction(lambda x, dim, keep: tn.amax(x, dim, keepdim=keep)))
op("ReduceMin")(reduction(lambda x, dim, keep: tn.amin(x, dim, keepdim=keep)))
op("ReduceL1")(reduction(lambda x, dim, keep: tn.norm(x, 1, dim, keepdim=keep)))
op("ReduceL2")(reduction(lambda x, dim, keep: tn.norm(x, 2, dim, keepdim=keep)))
op("ReduceLogSum")(reduction(lambda x, dim, keep: tn.log(tn.sum(x, dim, keepdim=keep))))
op("ReduceLogSumExp")(reduction(lambda x, dim, keep: tn.logsumexp(x, dim, keepdim=keep)))
op("ReduceSumSquare")(reduction(lambda x, dim, keep: same(tn.sum)(tn.mul(x, x), dim, keep)))


@op("ReduceProd")
@reduction
def reduce_prod(x, dim, keep):
    if x.ndim == 0:
        return x
    return same(tn.prod)(x, dim, keep)


def arg(function):
    def run(node, x):
        axis, keep = node.get("axis", 0), bool(node.get("keepdims", 1))
        if not node.select_last_index:
            return function(x, axis, keepdim=keep)
        return tn.sub(x.shape[axis] - 1, function(tn.flip(x, (axis,)), axis, keepdim=keep))

    return run


op("ArgMax")(arg(tn.argmax))
op("ArgMin")(arg(tn.argmin))


def scan(name, identity):
    def run(node, x, axis):
        dim = int(axis)
        dim += x.ndim if dim < 0 else 0
        if node.reverse:
            x = tn.flip(x, (dim,))
        if node.exclusive:  # shifted by one, the identity first
            pads = (0, 0) * (x.ndim - 1 - dim) + (1, -1)
            x = tn.pad(x, pads, value=identity)
        y = getattr(tn, name)(x, dim, dtype=x.dtype)
        return tn.flip(y, (dim,)) if node.reverse else y

    return run


op("CumSum")(scan("cumsum", 0))
op("CumProd")(scan("cumprod", 1))


@op("TopK")
def topk(node, x, k):
    return tuple(tn.topk(x, int(np.asarray(k).item()), node.get("axis", -1), bool(node.get("largest", 1)), bool(node.get("sorted", 1))))


@op("Hardmax")
def hardmax(node, x):
    axis = node.get("axis", -1 if node.opset >= 13 else 1)
    hot = tn.one_hot(tn.argmax(x, axis), x.shape[axis])
    return tn.movedim(tn.asarray(hot).to(x.dtype), -1, axis).numpy()


@op("Unique")
def unique(node, x):
    axis = node.axis
    found = tn.unique(x, sorted=True, return_inverse=True, return_counts=True, dim=axis)
    values, inverse, counts = found
    flat = np.asarray(inverse).reshape(-1)
    length = np.asarray(counts).size
    first = tn.scatter_reduce(np.full(length, flat.size, np.int64), 0, flat, np.arange(flat.size), "amin")
    if not node.get("sorted", 1):  # in the order of appearance
        order = tn.argsort(first)
        rank = tn.argsort(order)
        values, counts, first = tn.index_select(values, axis or 0, order), tn.index_select(counts, 0, order), tn.index_select(first, 0, order)
        flat = tn.index_select(rank, 0, flat)
    return values, first, flat, counts
