"""tenor.fuse: operators that run between kernels, from the recipes of their steps."""
import pytest

import tenor as tn
from fused_calls import bits, normal, rng

ARRAYS = normal(5, 8), normal(5), normal(8), rng.integers(0, 4, (3, 8)), normal(1, 2, 6, 8)
OPERATORS = {
    "linear": lambda x, W, B, G, I, Q: tn.linear(x, W, B),
    "matmul, a row": lambda x, W, B, G, I, Q: x @ G,
    "outer": lambda x, W, B, G, I, Q: tn.outer(x[0], G),
    "einsum": lambda x, W, B, G, I, Q: tn.einsum("ij,kj->ki", x, W),
    "softmax": lambda x, W, B, G, I, Q: tn.softmax(x, 0),
    "log_softmax": lambda x, W, B, G, I, Q: tn.log_softmax(x),
    "normalize": lambda x, W, B, G, I, Q: tn.normalize(x),
    "rms_norm": lambda x, W, B, G, I, Q: tn.rms_norm(x, G, 1e-5),
    "layer_norm": lambda x, W, B, G, I, Q: tn.layer_norm(x, G, None),
    "add_rms_norm": lambda x, W, B, G, I, Q: tn.add_rms_norm(x, x + 1, G),
    "group_norm": lambda x, W, B, G, I, Q: tn.group_norm(x, 2, G, G),
    "batch_norm": lambda x, W, B, G, I, Q: tn.batch_norm(x, G, G * G + 1),
    "silu_mul": lambda x, W, B, G, I, Q: tn.silu_mul(x),
    "gelu_mul": lambda x, W, B, G, I, Q: tn.gelu_mul(x, x * 2, approximate="tanh"),
    "rope": lambda x, W, B, G, I, Q: tn.rope(x.reshape((1, 1, 4, 8)), W[:4, :4], W[1:5, 4:]),
    "attention": lambda x, W, B, G, I, Q: tn.attention(Q, Q * 2, Q + x[0, 0], causal=True),
    "cumsum": lambda x, W, B, G, I, Q: x.cumsum(1),
    "cummax": lambda x, W, B, G, I, Q: tn.cummax(x, 0),
    "argmax": lambda x, W, B, G, I, Q: x.argmax(-1),
    "max, places": lambda x, W, B, G, I, Q: x.max(1),
    "index_select": lambda x, W, B, G, I, Q: tn.index_select(x, 0, I[:, 0]),
    "embedding": lambda x, W, B, G, I, Q: tn.embedding(I, x),
    "gather": lambda x, W, B, G, I, Q: tn.gather(x, 0, I),
    "take_along_dim": lambda x, W, B, G, I, Q: tn.take_along_dim(x, I, 0),
    "cat": lambda x, W, B, G, I, Q: tn.cat([x, x * 2], 1),
    "stack": lambda x, W, B, G, I, Q: tn.stack([x, x * 2], -1),
    "tile": lambda x, W, B, G, I, Q: tn.tile(x, (2, 1)),
    "repeat_interleave": lambda x, W, B, G, I, Q: tn.repeat_interleave(x, 3, 0),
    "tril": lambda x, W, B, G, I, Q: tn.tril(x, 1),
    "pad": lambda x, W, B, G, I, Q: tn.pad(x, (1, 2), value=0.5),
    "arange": lambda x, W, B, G, I, Q: x * tn.arange(8),
    "isclose": lambda x, W, B, G, I, Q: tn.isclose(x, x + 1e-6),
    "comparison with what x cannot be": lambda x, W, B, G, I, Q: x.to(tn.int8) < 1000,
    "conv": lambda x, W, B, G, I, Q: tn.conv_forward(Q[:, :, :4, :5], Q[:, :, 1:3, 2:5], x[0, :1], padding=1),
    "conv, its gradients": lambda x, W, B, G, I, Q: (
        tn.conv_data_backward(x.reshape((1, 1, 4, 8)), W.reshape((1, 1, 5, 8)), (1, 1, 8, 15)),
        tn.conv_weight_backward(W.reshape((1, 1, 5, 8)), x.reshape((1, 1, 4, 8)), (1, 1, 2, 1))),
    "conv_transpose": lambda x, W, B, G, I, Q: tn.conv_transpose(x.reshape((1, 2, 4, 4)), W[:4].reshape((2, 1, 4, 4)), stride=2),
    "max_pool2d": lambda x, W, B, G, I, Q: tn.max_pool2d(x.reshape((1, 2, 4, 4)), 2),
    "max_pool2d, places": lambda x, W, B, G, I, Q: tn.max_pool2d(x.reshape((1, 2, 4, 4)), 2, return_indices=True),
    "avg_pool2d": lambda x, W, B, G, I, Q: tn.avg_pool2d(x.reshape((1, 2, 4, 4)), 3, padding=1, count_include_pad=False),
    "adaptive_avg_pool2d": lambda x, W, B, G, I, Q: tn.adaptive_avg_pool2d(x.reshape((1, 2, 4, 4)), 3),
    "sort": lambda x, W, B, G, I, Q: tn.sort(x, 0, descending=True),
    "argsort": lambda x, W, B, G, I, Q: tn.argsort(x),
    "topk": lambda x, W, B, G, I, Q: tn.topk(x, 3),
    "kthvalue": lambda x, W, B, G, I, Q: tn.kthvalue(x, 2, 0),
    "median": lambda x, W, B, G, I, Q: tn.median(x),
    "scatter": lambda x, W, B, G, I, Q: tn.scatter(x, 0, I, W),
    "scatter_add": lambda x, W, B, G, I, Q: tn.scatter_add(x, 0, I, W),
    "scatter_reduce": lambda x, W, B, G, I, Q: tn.scatter_reduce(x, 0, I, W, "amax", include_self=False),
    "index_add": lambda x, W, B, G, I, Q: tn.index_add(x, 0, I[:, 0], W[:3], alpha=2),
    "an index array": lambda x, W, B, G, I, Q: x[I[:, 0]],
    "an index array of another dim": lambda x, W, B, G, I, Q: x[:, I[0]],
    "index arrays": lambda x, W, B, G, I, Q: x[I[:, 0], I[:, 1]],
    "index_put": lambda x, W, B, G, I, Q: tn.index_put(x, [I[:, 0]], W[:3], accumulate=True),
    "masked_scatter": lambda x, W, B, G, I, Q: tn.masked_scatter(x, x > 0, W),
    "roll": lambda x, W, B, G, I, Q: tn.roll(x, (1, 3), (0, 1)) + tn.roll(x, 5),
    "flip": lambda x, W, B, G, I, Q: tn.flip(x, (1,)),
    "one_hot": lambda x, W, B, G, I, Q: tn.one_hot(I * 1, 4) * x[0, :4].to(tn.int64),
    "interpolate": lambda x, W, B, G, I, Q: tn.interpolate(x.reshape((1, 2, 4, 4)), size=(7, 3), mode="bicubic", antialias=True),
    "grid_sample": lambda x, W, B, G, I, Q: tn.grid_sample(x.reshape((1, 2, 4, 4)), W[:4].reshape((1, 4, 4, 2)), padding_mode="border"),
    "elu": lambda x, W, B, G, I, Q: tn.elu(x, 0.5) + tn.leaky_relu(x, 0.1) + tn.softplus(x, 2.0),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_run_from_their_recipes(name):
    def fn(x, *arrays):
        got = OPERATORS[name](x * 2 - 0.5, *arrays)
        return [y * 2 if y.dtype != tn.bool_ else ~y for y in (got if isinstance(got, tuple) else (got,))]

    fused, arrays = tn.fuse(fn), (normal(4, 8), *ARRAYS)
    want = fn(*map(tn.asarray, arrays))
    assert fused.why_not(*arrays) is None
    for _ in range(2):
        assert [bits(y) for y in fused(*arrays)] == [bits(y) for y in want]


def test_writes_at_places_run_from_their_recipes():
    def fn(x, i, w):
        y = x * 2
        y.scatter_add_(0, i, w)
        y[i[:, 0]] = w[:3] + 1
        y.index_add_(0, i[:, 1], w[:3])
        y[:, 2:5] = w[:, :3] * 3
        y.masked_scatter_(y > 1, w * 2)
        x[0] = y[1]
        return (y - 1).tanh()

    x, i, w = normal(5, 8), ARRAYS[3], normal(5, 8)
    a, b = x.copy(), tn.asarray(x.copy())
    fused = tn.fuse(fn)
    assert fused.why_not(a, i, w) is None
    want = fn(b, tn.asarray(i), tn.asarray(w))
    assert bits(fused(a, i, w)) == bits(want) and bits(a) == bits(b)


def test_a_value_made_while_tracing_runs_as_it_is_written():
    fused = tn.fuse(lambda x, i: tn.scatter(x * 2, 0, i, 1.5) + 1)
    x = normal(4, 8)
    assert "does not hold" in fused.why_not(x, ARRAYS[3])
    assert bits(fused(x, ARRAYS[3])) == bits(tn.scatter(tn.asarray(x) * 2, 0, tn.asarray(ARRAYS[3]), 1.5) + 1)
