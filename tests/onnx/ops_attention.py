import numpy as np

import tenor as tn
from graph import Cannot, op


def heads(x, count):
    """[B, S, H * D] as [B, H, S, D], a view."""
    return tn.transpose(tn.reshape(x, (x.shape[0], x.shape[1], count, -1)), 1, 2)


@op("Attention")
def attention(node, q, k, v, mask=None, past_key=None, past_value=None, lengths=None):
    flat = q.ndim == 3
    if flat:
        q, k, v = heads(q, node.q_num_heads), heads(k, node.kv_num_heads), heads(v, node.kv_num_heads)
    if past_key is not None:
        k, v = tn.cat([past_key, k], 2), tn.cat([past_value, v], 2)
    if node.wants(3):
        raise Cannot("asks for the scores themselves, which fused attention never holds")
    queries, keys = q.shape[2], k.shape[2]
    window = (node.get("left_window_size", -1), node.get("right_window_size", -1))
    options = dict(scale=node.scale, softcap=node.softcap or None)
    kind = "bias" if mask is not None and mask.dtype != bool else "mask"
    if mask is not None and mask.shape[-1] < keys:  # keys past the mask are masked
        mask = tn.pad(mask, (0, keys - mask.shape[-1]), value=False if kind == "mask" else -np.inf)
    if mask is not None:
        options[kind] = mask if mask.ndim == 4 else mask[(None,) * (4 - mask.ndim)]
    # ONNX aligns the diagonal with the past (or with each batch's length), Tenor with the last key.
    offset = past_key.shape[2] if past_key is not None else 0
    aligned = lengths is None and offset == keys - queries
    if window != (-1, -1) and aligned:
        options["window"] = window
    elif window != (-1, -1):
        allowed = banded(queries, keys, offset if lengths is None else lengths - queries, window)
        options = with_mask(options, allowed)
    if node.is_causal and (past_key is None and lengths is None):
        options["causal"] = "top_left"
    elif node.is_causal and aligned:
        options["causal"] = True
    elif node.is_causal:
        options = with_mask(options, banded(queries, keys, offset if lengths is None else lengths - queries, (-1, 0)))
    if lengths is not None:
        options = with_mask(options, tn.lt(np.arange(keys), tn.reshape(lengths, (-1, 1, 1, 1))))
    y = tn.attention(q, k, v, **options)
    if flat:
        y = tn.reshape(tn.transpose(y, 1, 2), (y.shape[0], queries, -1))
    return y, k, v


def banded(queries, keys, offset, window):
    """bool [B or 1, 1, S, K]: keys within the window about query i's place, i + offset."""
    place = tn.add(np.arange(queries).reshape(-1, 1), np.reshape(offset, (-1, 1, 1, 1)))
    distance = tn.sub(np.arange(keys), place)
    allowed = tn.ones(distance.shape, dtype="bool").numpy()
    if window[0] >= 0:
        allowed = tn.logical_and(allowed, tn.ge(distance, -window[0]))
    if window[1] >= 0:
        allowed = tn.logical_and(allowed, tn.le(distance, window[1]))
    return allowed


def with_mask(options, allowed):
    mask = options.get("mask")
    return {**options, "mask": allowed if mask is None else tn.logical_and(mask, allowed)}


@op("RotaryEmbedding")
def rotary(node, x, cos, sin, positions=None):
    flat = x.ndim == 3
    y = tn.reshape(x, (x.shape[0], x.shape[1], node.num_heads, -1)) if flat else tn.transpose(x, 1, 2)  # [B, S, H, D]
    batch, length = y.shape[:2]
    if positions is None:  # tables of each place: [B, S, R/2] as [B * S, R/2]
        positions = np.arange(batch * length).reshape(batch, length)
        cos, sin = (tn.reshape(t, (batch * length, -1)) for t in (cos, sin))
    y = tn.rope(y, cos, sin, interleaved=bool(node.interleaved), rotary_dim=node.rotary_embedding_dim or None, positions=positions)
    return tn.reshape(y, x.shape) if flat else tn.transpose(y, 1, 2)
