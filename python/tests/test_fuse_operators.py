"""tenor.fuse: operators that run between kernels, from the recipes of their steps."""
import pytest

import tenor as tn
from tenor import moe, paged
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
    "lp_pool2d": lambda x, W, B, G, I, Q: tn.lp_pool2d(x.reshape((1, 2, 4, 4)), 3, 2),
    "pooling's gradients": lambda x, W, B, G, I, Q: (
        tn.avg_pool2d_backward(x.reshape((1, 2, 4, 4)), (1, 2, 8, 8), 2), tn.adaptive_avg_pool2d_backward(x.reshape((1, 2, 4, 4)), (1, 2, 7, 6)),
        tn.max_pool2d_backward(x.reshape((1, 2, 4, 4)), (I[:1, :, None] * tn.ones((1, 1, 4), dtype=tn.int64)).reshape((1, 2, 4, 4)), (1, 2, 8, 8)),
        tn.lp_pool2d_backward(x.reshape((1, 2, 4, 4)), tn.tile(x, (2, 2)).reshape((1, 2, 8, 8)), 2, 2)),
    "columns": lambda x, W, B, G, I, Q: (tn.im2col(x.reshape((1, 2, 4, 4)), 2), tn.col2im(x.reshape((1, 4, 8))[:, :, :6], (3, 4), 2),
                                         tn.conv_bias_backward(x.reshape((1, 2, 4, 4)))),
    "deform_conv2d": lambda x, W, B, G, I, Q: tn.deform_conv2d(x.reshape((1, 1, 4, 8)), tn.tile(x, (2, 1)).reshape((1, 2, 4, 8)), G[:2].reshape((2, 1, 1, 1))),
    "merge_states": lambda x, W, B, G, I, Q: tn.merge_states(x.reshape((4, 2, 4)), W[:4, :2], x.reshape((4, 2, 4)) + 1, W[1:5, 2:4]),
    "searchsorted": lambda x, W, B, G, I, Q: tn.searchsorted(tn.sort(x, 1)[0], W[:4]),
    "rope_tables": lambda x, W, B, G, I, Q: tn.rope(x.reshape((1, 1, 4, 8)), *tn.rope_tables(4, 8)),
    "sample": lambda x, W, B, G, I, Q: tn.sample(x, seed=I[0, :4], position=3, top_k=5, top_p=0.9, return_valid=True),
    "sample_from_probs": lambda x, W, B, G, I, Q: tn.sample_from_probs(tn.softmax(x), seed=5, min_p=G[:4] * 0),
    "multinomial": lambda x, W, B, G, I, Q: (tn.multinomial(tn.softmax(x), 3, seed=2), tn.multinomial(tn.softmax(G), 4, seed=I[0, 0])),
    "filters": lambda x, W, B, G, I, Q: (tn.top_k_mask_logits(x, 3), tn.top_p_normalize_probs(tn.softmax(x), 0.7)),
    "speculative_accept": lambda x, W, B, G, I, Q: tn.speculative_accept(
        tn.softmax(x.reshape((2, 2, 8))), tn.softmax(W[:2].reshape((2, 1, 8))), I[:2, :1], seed=7),
    "moe.forward": lambda x, W, B, G, I, Q: experts_of(x, W).forward(x, W[:4, :3], 2),
    "moe.forward_sigmoid_grouped": lambda x, W, B, G, I, Q: experts_of(x, W).forward_sigmoid_grouped(x, W[:4, :3], B[:3], groups=1, selected_groups=1, top_k=2),
    "moe, its parts": lambda x, W, B, G, I, Q: moe_by_parts(x, W, G),
    "gated_delta_rule": lambda x, W, B, G, I, Q: delta(tn.gated_delta_rule, x, W),
    "chunk_gated_delta_rule": lambda x, W, B, G, I, Q: delta(tn.chunk_gated_delta_rule, x, W, chunk_size=3),
    "causal_conv1d": lambda x, W, B, G, I, Q: tn.causal_conv1d(x.reshape((1, 4, 8)), W[:4, :3], B[:4], activation="silu"),
    "gated_rms_norm": lambda x, W, B, G, I, Q: tn.gated_rms_norm(x, W[:4], G),
    "gated_delta_gate": lambda x, W, B, G, I, Q: tn.gated_delta_gate(x.reshape((1, 4, 8)), B[:4], G[:4]),
    "ctc_loss": lambda x, W, B, G, I, Q: tuple(tn.ctc_loss(tn.log_softmax(x.reshape((4, 2, 4))), I[:2, :2] % 3 + 1, [4, 3], I[0, :2] % 2 + 1, return_grad=True)),
    "ctc decoders": lambda x, W, B, G, I, Q: (*tn.ctc_greedy_decode(tn.log_softmax(x.reshape((4, 2, 4)))),
                                              *tn.ctc_beam_decode(tn.log_softmax(x.reshape((4, 2, 4))), [4, 2], beam_width=3)),
    "elu": lambda x, W, B, G, I, Q: tn.elu(x, 0.5) + tn.leaky_relu(x, 0.1) + tn.softplus(x, 2.0),
}


def experts_of(x, W):
    return moe.SwiGluExperts(tn.tile(W[:1], (3, 2)).reshape((3, 2, 8)), tn.tile(x[:1], (3, 2)).reshape((3, 2, 8)), tn.tile(x[1:2], (3, 2)).reshape((3, 8, 2)))


def moe_by_parts(x, W, G):
    experts, plan = experts_of(x, W), moe.route(W[:4, :3], 2)
    own = moe.RoutingPlan(plan.expert_indices(tn.int64), plan.weights() * 2, 3)
    dealt = own.dispatch(x)
    return (experts.forward_routed(x, plan, shared=x), dealt.combine(experts.forward_dispatched(dealt), shared=x), plan.weights(), dealt.offsets)


def delta(fn, x, W, **options):
    q, v = x.reshape((1, 1, 4, 8)), W[:4].reshape((1, 1, 4, 8))
    return tuple(fn(q, q + 1, v, W[:1, :4].reshape((1, 1, 4)), -(W[1:2, :4] * W[1:2, :4]).reshape((1, 1, 4)), **options))


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


def test_numbers_made_while_tracing_are_kept():
    def fn(x, i):
        y = tn.scatter(x * 2, 0, i, 1.5) + 1
        y[i[:, 0]] = 0
        y[:, i[0, :2]] = 7.5
        y[1:3] = -1
        return y * 3

    fused, x = tn.fuse(fn), normal(4, 8)
    for _ in range(2):
        assert fused.why_not(x, ARRAYS[3]) is None and bits(fused(x, ARRAYS[3])) == bits(fn(tn.asarray(x), tn.asarray(ARRAYS[3])))
        x = normal(4, 8)


def test_pages_run_from_their_recipes():
    tables, lengths, ids, positions = [[2, 0, 5], [1, -1], [4]], [11, 3, 0], [0, 0, 1, -1, 2], [9, 10, 2, 0, 0]
    q, k, v, new = normal(5, 4, 16), normal(6, 4, 2, 16), normal(6, 4, 2, 16), normal(5, 2, 16)
    plan = paged.DevicePlan.upload(paged.HostPlan(4, 6, tables, lengths, ids[:4] + [-1], positions), like=q)

    def fn(q, k, v, new):
        plan.append_(new * 2, new, k, v)
        out, lse = plan.attention(q * 2, k, v, return_lse=True)
        return out + 1, lse * 2

    def written(fn, wrap):
        caches = k.copy(), v.copy()
        got = fn(*map(wrap, (q, *caches, new)))
        return [bits(x) for x in (*got, *caches)]

    fused = tn.fuse(fn)
    assert fused.why_not(q, k.copy(), v.copy(), new) is None
    for _ in range(2):
        assert written(fused, lambda x: x) == written(fn, tn.asarray)
    plan.update_(paged.HostPlan(4, 6, [[3, 1, 0]], [9], [0], [8]))  # what the plan holds is read at each call
    assert written(fused, lambda x: x) == written(fn, tn.asarray)
