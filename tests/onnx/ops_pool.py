import numpy as np

import tenor as tn
from graph import Cannot, op


def windows(node, x, dilated=True):
    """kernel, stride, dilation and (before, after) padding of each spatial dim."""
    kernel = list(node.kernel_shape)
    n = len(kernel)
    stride, dilation = node.get("strides", [1] * n), node.get("dilations", [1] * n) if dilated else [1] * n
    pads = node.get("pads", [0] * 2 * n)
    pads = list(zip(pads[:n], pads[n:]))
    auto = node.get("auto_pad", "NOTSET")
    if auto == "VALID":
        pads = [(0, 0)] * n
    elif auto.startswith("SAME"):
        spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
        total = [max((-(-size // s) - 1) * s + span - size, 0) for size, s, span in zip(x.shape[-n:], stride, spans)]
        pads = [(t // 2, t - t // 2) if auto == "SAME_UPPER" else (t - t // 2, t // 2) for t in total]
    return n, kernel, stride, dilation, pads


def even(pads, kernel, dilation):
    """Whether the operators take that padding themselves: alike on both sides, at most half of a window."""
    return all(a == b and 2 * a <= (k - 1) * d + 1 for (a, b), k, d in zip(pads, kernel, dilation))


def pad(x, pads, value):
    flat = [side for pair in reversed(pads) for side in pair]
    return tn.pad(x, flat, value=value)


def lowest(x):
    return -np.inf if str(x.dtype) in ("float16", "float32", "float64", "bfloat16") else int(np.iinfo(str(x.dtype)).min)


@op("MaxPool")
def max_pool(node, x):
    n, kernel, stride, dilation, pads = windows(node, x)
    pool, ceil_mode = getattr(tn, f"max_pool{n}d"), bool(node.ceil_mode)
    if not node.wants(1):
        if not even(pads, kernel, dilation):
            x, pads = pad(x, pads, lowest(x)), [(0, 0)] * n
        return pool(x, kernel, stride, [a for a, _ in pads], dilation, ceil_mode)
    if not even(pads, kernel, dilation):
        raise Cannot("the places of a window with uneven padding")
    values, places = pool(x, kernel, stride, [a for a, _ in pads], dilation, ceil_mode, True)
    if node.storage_order:  # the first spatial dims fastest
        sizes, at, rest = x.shape[-n:], 0, places
        for size, step in zip(reversed(sizes), [int(np.prod(sizes[:d])) for d in range(n - 1, -1, -1)]):
            at, rest = tn.add(tn.mul(tn.remainder(rest, size), step), at), tn.floor_divide(rest, size)
        places = at
    plane = int(np.prod(x.shape[-n:]))
    first = tn.reshape(tn.mul(tn.arange(int(np.prod(x.shape[:-n]))), plane), x.shape[:-n] + (1,) * n)
    return values, tn.add(places, first)  # ONNX counts from the tensor's first element


@op("AveragePool")
def average_pool(node, x):
    n, kernel, stride, dilation, pads = windows(node, x)
    pool, include = getattr(tn, f"avg_pool{n}d"), bool(node.count_include_pad)
    ceil_mode = bool(node.ceil_mode)
    if dilation == [1] * n and even(pads, kernel, dilation):
        return pool(x, kernel, stride, [a for a, _ in pads], ceil_mode, include)
    # Uneven padding and dilation: sums over elements and over their count, both of the padded image.
    inside = tn.ones(x.shape, dtype=x.dtype)
    counted = tn.ones(pad(x, pads, 0).shape, dtype=x.dtype) if include else pad(inside, pads, 0)
    total = sums(pad(x, pads, 0), kernel, stride, dilation, ceil_mode)
    return tn.div(total, sums(counted, kernel, stride, dilation, ceil_mode))


def sums(x, kernel, stride, dilation, ceil_mode):
    """The sum of each window: dilated taps as slices, their windows as those of one element."""
    n = len(kernel)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
    sizes = x.shape[-n:]
    outs = [(size - span + (s - 1 if ceil_mode else 0)) // s + 1 for size, span, s in zip(sizes, spans, stride)]
    need = [(o - 1) * s + span for o, s, span in zip(outs, stride, spans)]
    x = pad(x, [(0, max(0, want - size)) for want, size in zip(need, sizes)], 0)
    total = None
    for taps in np.ndindex(*kernel):
        index = tuple(slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, o, s in zip(taps, dilation, outs, stride))
        part = x[(slice(None), slice(None), *index)]
        total = part if total is None else tn.add(total, part)
    return total


@op("LpPool")
def lp_pool(node, x):
    n, kernel, stride, dilation, pads = windows(node, x)
    p, ceil_mode = node.get("p", 2), bool(node.ceil_mode)
    if dilation == [1] * n:
        x = pad(x, pads, 0) if any(a or b for a, b in pads) else x
        return getattr(tn, f"lp_pool{n}d")(x, p, kernel, stride, ceil_mode)
    powers = tn.pow(tn.abs(pad(x, pads, 0)), float(p))
    return tn.pow(sums(powers, kernel, stride, dilation, ceil_mode), 1 / p)


@op("GlobalAveragePool")
def global_average(node, x):
    n = x.ndim - 2
    return getattr(tn, f"adaptive_avg_pool{n}d")(x, 1)


@op("GlobalMaxPool")
def global_max(node, x):
    n = x.ndim - 2
    return getattr(tn, f"adaptive_max_pool{n}d")(x, 1)


@op("GlobalLpPool")
def global_lp(node, x):
    n = x.ndim - 2
    return getattr(tn, f"lp_pool{n}d")(x, node.get("p", 2), x.shape[-n:])


@op("MaxUnpool")
def max_unpool(node, x, places, shape=None):
    """Each element at its place: what max_pool's gradient does with elements that no two share."""
    n, kernel, stride, _, pads = windows(node, x)
    natural = list(x.shape[:-n]) + [(o - 1) * s + k - a - b for o, s, k, (a, b) in zip(x.shape[-n:], stride, kernel, pads)]
    size = natural if shape is None else [int(s) for s in np.asarray(shape)]
    flat = int(np.prod(natural))
    back = tn.reshape(tn.max_pool1d_backward(tn.reshape(x, (1, 1, -1)), tn.reshape(places, (1, 1, -1)), (1, 1, flat)), natural)
    return back if size == natural else pad(back, [(0, s - t) for s, t in zip(size[-n:], natural[-n:])], 0)
