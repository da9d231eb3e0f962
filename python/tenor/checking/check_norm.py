"""The norms over images and vectors, and the fused additions, against their formulas in float64."""
import numpy as np
from tenor.checking.draw import FLOATS, tolerance, wide
from tenor.checking.outcome import Each, Refused, Same


def image(draw):
    shape = (draw.int(1, 3), draw.pick([1, 2, 4, 6])) + tuple(draw.int(1, 7) for _ in range(draw.int(0, 2)))
    return draw.array(shape, draw.pick(FLOATS), special=0)


def channels(draw, x):
    t = x.dtype if draw.chance(0.5) or x.dtype == np.float64 else np.dtype(np.float32)
    return draw.array((x.shape[1],), t, special=0)


def along_channels(x, v):
    return wide(v).reshape((-1,) + (1,) * (x.ndim - 2))


def standardised(v, axes, epsilon):
    return (v - v.mean(axes, keepdims=True)) / np.sqrt(v.var(axes, keepdims=True) + epsilon)


def groups_and_instances(tn, draw):
    x = image(draw)
    gamma, beta = channels(draw, x), channels(draw, x)
    groups = draw.pick([g for g in (1, 2, 3) if x.shape[1] % g == 0]) if draw.chance(0.5) else x.shape[1]
    v = wide(x).reshape(x.shape[0], groups, -1)
    want = standardised(v, -1, 0.5).reshape(x.shape) * along_channels(x, gamma) + along_channels(x, beta)
    if x.shape[1] == 2 and draw.chance(0.2):
        return Refused(lambda: tn.group_norm(x, 3), "ValueError", "ShapeError")
    grouped = Same(tn.group_norm(x, groups, gamma, beta, 0.5), want, 6 * tolerance(x.dtype))
    if groups != x.shape[1] or x.ndim < 3:
        return grouped
    return Each(grouped, Same(tn.instance_norm(x, gamma, beta, 0.5), want, 6 * tolerance(x.dtype)))


def batches(tn, draw):
    x = image(draw)
    mean, gamma, beta = (channels(draw, x) for _ in range(3))
    variance = np.abs(channels(draw, x))
    want = (wide(x) - along_channels(x, mean)) / np.sqrt(along_channels(x, variance) + 0.5) * along_channels(x, gamma) + along_channels(x, beta)
    return Same(tn.batch_norm(x, mean, variance, gamma, beta, 0.5), want, 8 * tolerance(x.dtype))


def lengths(tn, draw):
    x = draw.array(draw.shape(1), draw.pick(FLOATS), special=0)
    d, p = draw.int(-x.ndim, x.ndim - 1), draw.pick([1, 2, 3, np.inf])
    v = wide(x)
    size = np.max(np.abs(v), d, keepdims=True, initial=0) if p == np.inf else np.sum(np.abs(v) ** p, d, keepdims=True) ** (1 / p)
    return Same(tn.normalize(x, p, d), v / np.maximum(size, 1e-12), 4 * tolerance(x.dtype))


def last_axis(tn, draw):
    x = draw.array(draw.shape(1), draw.pick(FLOATS), special=0.2)
    if x.shape[-1] == 0:
        return Refused(lambda: tn.softmax_last_axis(x), "ShapeError")
    return Same(tn.softmax_last_axis(x), tn.softmax(x, -1))


def fused_layers(tn, draw):
    """add_layer_norm has the bits of its two steps."""
    x = draw.array(draw.shape(1), draw.pick(FLOATS), special=0)
    if x.shape[-1] == 0:
        return None
    residual, gamma = draw.array(x.shape, x.dtype, special=0), draw.array((x.shape[-1],), x.dtype, special=0)
    y, r = tn.add_layer_norm(x, residual, gamma)
    total = tn.add(x, residual)
    return Each(Same(r, total), Same(y, tn.layer_norm(total, gamma)))


PROPERTIES = [groups_and_instances, batches, lengths, last_axis, fused_layers]
