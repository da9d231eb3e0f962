import math

import numpy as np

import tenor as tn
from graph import Cannot, op
from ops_elementwise import to


def along(function):
    def run(node, x):
        if node.opset >= 13:
            return function(x, node.get("axis", -1))
        axis = node.get("axis", 1)  # before opset 13 the rest of the shape counts as one row
        rows = math.prod(x.shape[:axis])
        return tn.reshape(function(tn.reshape(x, (rows, -1)), 1), x.shape)

    return run


op("Softmax")(along(tn.softmax))
op("LogSoftmax")(along(tn.log_softmax))


def as_rows(x, axis):
    axis += x.ndim if axis < 0 else 0
    return tn.reshape(x, x.shape[:axis] + (-1,)), x.shape[:axis] + (1,) * (x.ndim - axis)


@op("LayerNormalization")
def layer_norm(node, x, scale, bias=None):
    epsilon = node.get("epsilon", 1e-5)
    rows, kept = as_rows(x, node.get("axis", -1))
    flat = None if bias is None else tn.reshape(tn.broadcast_to(bias, x.shape[-bias.ndim:] if bias.ndim else bias.shape), (-1,))
    y = tn.reshape(tn.layer_norm(rows, tn.reshape(scale, (-1,)), flat, epsilon), x.shape)
    if len(node.outputs) == 1:
        return y
    mean = tn.mean(rows, -1, keepdim=True)
    inverse = tn.rsqrt(tn.add(tn.var(rows, -1, correction=0, keepdim=True), epsilon))
    return y, tn.reshape(mean, kept), tn.reshape(inverse, kept)


@op("RMSNormalization")
def rms_norm(node, x, scale):
    rows, _ = as_rows(x, node.get("axis", -1))
    return tn.reshape(tn.rms_norm(rows, tn.reshape(scale, (-1,)), node.get("epsilon", 1e-5)), x.shape)


@op("GroupNormalization")
def group_norm(node, x, scale, bias):
    groups = node.num_groups
    if node.opset < 21:  # scale and bias are a group's
        each = x.shape[1] // groups
        scale, bias = tn.repeat_interleave(scale, each), tn.repeat_interleave(bias, each)
    return tn.group_norm(x, groups, scale, bias, node.get("epsilon", 1e-5))


@op("InstanceNormalization")
def instance_norm(node, x, scale, bias):
    return tn.instance_norm(x, scale, bias, node.get("epsilon", 1e-5))


@op("BatchNormalization")
def batch_norm(node, x, scale, bias, mean, variance):
    epsilon = node.get("epsilon", 1e-5)
    if not node.training_mode:
        return tn.batch_norm(x, mean, variance, scale, bias, epsilon)
    momentum, rest = node.get("momentum", 0.9), (0,) + tuple(range(2, x.ndim))
    now_mean, now_variance = tn.mean(x, rest), tn.var(x, rest, correction=0)
    running = [tn.add(tn.mul(old, momentum), tn.mul(new, 1 - momentum)) for old, new in ((mean, now_mean), (variance, now_variance))]
    return tn.batch_norm(x, now_mean, now_variance, scale, bias, epsilon), *running


@op("LpNormalization")
def lp_normalization(node, x):
    return tn.normalize(x, p=node.get("p", 2), dim=node.get("axis", -1))


@op("MeanVarianceNormalization")
def mean_variance(node, x):
    axes = tuple(node.get("axes", [0, 2, 3]))
    centred = tn.sub(x, tn.mean(x, axes, keepdim=True))
    return tn.div(centred, tn.add(tn.std(x, axes, correction=0, keepdim=True), 1e-9))
