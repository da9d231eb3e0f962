import numpy as np

import tenor as tn
from graph import Cannot, ints, op


@op("Gather")
def gather(node, x, index):
    axis = node.get("axis", 0)
    axis += x.ndim if axis < 0 else 0
    picked = tn.index_select(x, axis, tn.reshape(index, (-1,)))
    return tn.reshape(picked, x.shape[:axis] + index.shape + x.shape[axis + 1:])


@op("GatherElements")
def gather_elements(node, x, index):
    return tn.gather(x, node.get("axis", 0), index)


@op("GatherND")
def gather_nd(node, x, index):
    batch = node.get("batch_dims", 0)
    places = tuple(tn.select(index, -1, i) for i in range(index.shape[-1]))
    if batch:
        lead = [np.arange(n).reshape((1,) * i + (n,) + (1,) * (index.ndim - 2 - i)) for i, n in enumerate(index.shape[:batch])]
        places = tuple(lead) + places
    return tn.asarray(x)[tuple(tn.asarray(p) for p in places)].numpy()


@op("ScatterElements", "Scatter")
def scatter_elements(node, x, index, updates):
    axis, how = node.get("axis", 0), node.get("reduction", "none")
    if how == "none":
        return tn.scatter(x, axis, index, updates)
    if how == "add":
        return tn.scatter_add(x, axis, index, updates)
    return tn.scatter_reduce(x, axis, index, updates, {"mul": "prod", "max": "amax", "min": "amin"}[how])


@op("ScatterND")
def scatter_nd(node, x, index, updates):
    how, depth = node.get("reduction", "none"), index.shape[-1]
    places = tuple(tn.select(index, -1, i) for i in range(depth))
    if how in ("none", "add"):
        return tn.index_put(x, places, updates, accumulate=how == "add")
    # The leading dims as one: place = sum of index times stride.
    flat = 0
    for i, place in enumerate(places):
        flat = tn.add(tn.mul(flat, x.shape[i]) if i else np.int64(0), tn.remainder(place, x.shape[i]))
    rows, rest = int(np.prod(x.shape[:depth])), x.shape[depth:]
    source = tn.reshape(updates, (-1,) + rest)
    where = tn.broadcast_to(tn.reshape(flat, (-1,) + (1,) * len(rest)), source.shape)
    reduced = tn.scatter_reduce(tn.reshape(x, (rows,) + rest), 0, where, source, {"mul": "prod", "max": "amax", "min": "amin"}[how])
    return tn.reshape(reduced, x.shape)


@op("TensorScatter")
def tensor_scatter(node, cache, update, starts=None):
    axis = node.get("axis", -2)
    axis += cache.ndim if axis < 0 else 0
    starts = np.zeros(cache.shape[0], np.int64) if starts is None else starts
    places = tn.add(tn.reshape(starts, (-1, 1)), np.arange(update.shape[axis]))
    if node.get("mode", "linear") == "circular":
        places = tn.remainder(places, cache.shape[axis])
    index = tn.reshape(places, (cache.shape[0],) + (1,) * (axis - 1) + (update.shape[axis],) + (1,) * (cache.ndim - axis - 1))
    return tn.scatter(cache, axis, tn.broadcast_to(index, update.shape), update)


@op("Compress")
def compress(node, x, condition):
    if node.axis is None:
        x = tn.reshape(x, (-1,))
    return tn.index_select(x, node.get("axis", 0), tn.reshape(tn.nonzero(condition), (-1,)))


@op("NonZero")
def nonzero(node, x):
    return tn.transpose(tn.nonzero(x), 0, 1)


@op("OneHot")
def one_hot(node, index, depth, values):
    count, axis = int(np.asarray(depth).item()), node.get("axis", -1)
    index = tn.asarray(index).to("int64")
    inside = tn.logical_and(tn.ge(index, -count), tn.lt(index, count))  # ONNX gives an all-off row elsewhere
    hot = tn.one_hot(tn.where(inside, tn.remainder(index, count), 0), count)
    hot = tn.logical_and(tn.ne(hot, 0), tn.unsqueeze(inside, -1))
    off, on = values
    return tn.movedim(tn.where(hot, np.asarray(on), np.asarray(off)), -1, axis).numpy()


@op("Concat")
def concat(node, *xs):
    return tn.cat(xs, node.get("axis", 0))


@op("Tile")
def tile(node, x, repeats):
    return tn.tile(x, tuple(ints(repeats)))


@op("Trilu")
def trilu(node, x, k=None):
    return (tn.triu if node.get("upper", 1) else tn.tril)(x, 0 if k is None else int(k))


@op("EyeLike")
def eye_like(node, x):
    import onnx

    dtype = x.dtype if node.dtype is None else onnx.helper.tensor_dtype_to_np_dtype(node.dtype)
    rows, columns = x.shape
    k, size = node.get("k", 0), max(x.shape) + abs(node.get("k", 0))
    # A diagonal off the main one is a window of a larger identity.
    whole = tn.eye(size, size, dtype=dtype)
    row, column = (0, k) if k >= 0 else (-k, 0)
    return tn.narrow(tn.narrow(tn.eye(size + row, size + column, dtype=dtype), 0, 0, rows), 1, 0, columns).numpy() if k == 0 \
        else tn.narrow(tn.narrow(whole, 0, column, rows), 1, row, columns).numpy()


@op("Range")
def range_(node, start, limit, delta):
    return tn.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype).numpy()


@op("Pad")
def pad(node, x, pads=None, value=None, axes=None):
    mode = node.get("mode", "constant")
    pads = ints(node.pads if pads is None else pads)
    axes = ints(axes) if axes is not None else list(range(x.ndim))
    before, after = dict(zip(axes, pads[:len(axes)])), dict(zip(axes, pads[len(axes):]))
    before = {a % x.ndim: n for a, n in before.items()}
    after = {a % x.ndim: n for a, n in after.items()}
    if mode == "constant":
        flat = [n for d in reversed(range(x.ndim)) for n in (before.get(d, 0), after.get(d, 0))]
        return tn.pad(x, tuple(flat), value=0 if value is None else np.asarray(value).item())
    for d in range(x.ndim):  # the other modes read places of the same dim
        low, high, n = before.get(d, 0), after.get(d, 0), x.shape[d]
        if low or high:
            place = np.arange(-low, n + high)
            if mode == "edge":
                place = tn.clamp(place, 0, n - 1)
            elif mode == "wrap":
                place = tn.remainder(place, n)
            else:  # reflect, without the edge
                turn = tn.remainder(place, max(2 * (n - 1), 1))
                place = tn.where(tn.lt(turn, n), turn, tn.sub(2 * (n - 1), turn))
            x = tn.index_select(x, d, place)
    return x


@op("ReverseSequence")
def reverse_sequence(node, x, lengths):
    time, batch = node.get("time_axis", 0), node.get("batch_axis", 1)
    steps = np.arange(x.shape[time]).reshape([-1 if d == time else 1 for d in range(x.ndim)])
    length = tn.reshape(lengths, tuple(-1 if d == batch else 1 for d in range(x.ndim)))
    index = tn.where(tn.lt(steps, length), tn.sub(tn.sub(length, 1), steps), steps)
    return tn.gather(x, time, tn.broadcast_to(index, x.shape))


@op("CenterCropPad")
def center_crop_pad(node, x, shape):
    axes = node.get("axes", list(range(x.ndim)))
    for axis, size in zip(axes, ints(shape)):
        have = x.shape[axis]
        if size <= have:
            x = tn.narrow(x, axis, (have - size) // 2, size)
        else:
            low = (size - have) // 2
            d = axis % x.ndim
            x = tn.pad(x, (0, 0) * (x.ndim - 1 - d) + (low, size - have - low))
    return x
