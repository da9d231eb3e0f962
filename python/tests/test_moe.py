"""tenor.moe from Python: plans, dispatch, experts, arrays of any library, keywords, errors."""
import numpy as np
import pytest

import tenor as tn
from tenor import moe


def random(*shapes, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return [(0.3 * rng.standard_normal(s)).astype(dtype) for s in shapes]


@pytest.fixture
def layer():
    x, logits, gate, up, down = random((7, 6), (7, 5), (5, 4, 6), (5, 4, 6), (5, 6, 4))
    return moe.SwiGluExperts(gate, up, down), x, logits, (gate, up, down)


def test_forward_is_its_parts(layer):
    experts, x, logits, _ = layer
    plan = moe.route(logits, 2)
    d = plan.dispatch(x)
    parts = d.combine(experts.forward_dispatched(d))
    assert isinstance(parts, np.ndarray) and parts.shape == x.shape
    np.testing.assert_array_equal(experts.forward(x, logits, 2), parts)
    np.testing.assert_array_equal(experts.forward_routed(x, plan), parts)
    np.testing.assert_array_equal(moe.forward(experts, x, logits, top_k=2), parts)
    np.testing.assert_allclose(experts.forward_routed(x, plan, shared=x), parts + x, atol=1e-6)
    np.testing.assert_allclose(d.combine(experts.forward_dispatched(d), shared=x), parts + x, atol=1e-6)


def test_a_token_through_its_experts(layer):
    experts, x, logits, (gate, up, down) = layer
    out, plan = experts.forward(x, logits, 2), moe.route(logits, 2)
    for t, (ids, weights) in enumerate(zip(plan.expert_indices("int64"), plan.weights())):
        want = 0
        for e, w in zip(ids, weights):
            g, u = gate[e] @ x[t], up[e] @ x[t]
            want = want + w * (down[e] @ (g / (1 + np.exp(-g)) * u))
        np.testing.assert_allclose(out[t], want, atol=1e-5)


def test_plans_from_the_callers_ids():
    ids, weights = np.array([[1, -1], [0, 1]], np.int64), np.array([[0.5, 9], [2, 3]], np.float32)
    plan = moe.RoutingPlan(ids, weights, experts=3)
    assert repr(plan) == "RoutingPlan(tokens=2, top_k=2, experts=3)" and (plan.experts, plan.top_k) == (3, 2)
    ids[0, 0] = 0
    np.testing.assert_array_equal(plan.expert_indices("int32"), [[1, -1], [0, 1]])
    assert plan.expert_indices().dtype == np.uint32 and plan.weights().dtype == np.float32
    d = plan.dispatch(np.array([[1.0], [2.0]]))
    np.testing.assert_array_equal(d.tokens, [[2], [1], [2], [0]])
    np.testing.assert_array_equal(d.offsets, [0, 1, 3, 3])
    np.testing.assert_array_equal(d.combine(np.array([[10.0], [20], [30], [np.nan]])), [[10], [20 + 90]])


def test_routers_take_their_keywords():
    logits, bias = random((3, 8), (8,))
    plan = moe.route_sigmoid_grouped(logits, bias, top_k=2, groups=4, selected_groups=2, group_top_two=False, renormalize=False, scale=2.0)
    s = 2 / (1 + np.exp(-logits))
    np.testing.assert_allclose(plan.weights(), np.take_along_axis(s, plan.expert_indices("int64"), 1), rtol=1e-6)
    np.testing.assert_allclose(moe.route(logits, 3).weights().sum(-1), 1, rtol=1e-6)
    assert (moe.route(logits, 3, False).weights().sum(-1) < 1).all() and (moe.route(logits, top_k=3, renormalize=False).weights().sum(-1) < 1).all()


def test_results_are_written_where_asked(layer):
    experts, x, logits, _ = layer
    out = np.full_like(x, np.nan)
    assert experts.forward(x, logits, 2, out=out) is out
    np.testing.assert_array_equal(out, experts.forward(x, logits, 2))
    plan = moe.route(logits, 2)
    tokens = np.full((14, 6), np.nan, np.float32)
    d = plan.dispatch(x, out=tokens)
    assert d.tokens is tokens and not np.isnan(tokens).any()
    options = dict(top_k=2, groups=1, selected_groups=1)
    np.testing.assert_array_equal(experts.forward_sigmoid_grouped(x, logits, **options, out=out), experts.forward_routed(x, moe.route_sigmoid_grouped(logits, **options)))
    assert tn.workspace_size("moe.forward", experts, x, logits, 2) == 0
    assert tn.workspace_size("moe.grouped_matmul", x, x[None], np.array([0, 7])) == 0


def test_grouped_matmul():
    x, w = random((5, 3), (3, 4, 3))
    want = np.concatenate([x[:2] @ w[0].T, x[2:4] @ w[2].T, np.zeros((1, 4), np.float32)])
    np.testing.assert_allclose(moe.grouped_matmul(x, w, np.array([0, 2, 2, 4], np.int32)), want, atol=1e-6)
    with pytest.raises(tn.ValueError, match=r"moe.grouped_matmul: offsets must end at 5 at most, got 6"):
        moe.grouped_matmul(x, w, np.array([0, 2, 2, 6]))


def test_torch_in_torch_out(layer):
    torch = pytest.importorskip("torch")
    experts, x, logits, weights = layer
    t = moe.SwiGluExperts(*map(torch.from_numpy, weights))
    out = t.forward(torch.from_numpy(x), torch.from_numpy(logits), 2)
    assert isinstance(out, torch.Tensor)
    np.testing.assert_array_equal(out.numpy(), experts.forward(x, logits, 2))
    plan = moe.route(torch.from_numpy(logits), 2)
    assert isinstance(plan.weights(), torch.Tensor) and isinstance(plan.dispatch(torch.from_numpy(x)).tokens, torch.Tensor)


@pytest.mark.parametrize("call,kind,text", [
    (lambda e, x, l: e.forward(x, l, 9), tn.ValueError, "moe.route: top_k must be 1 to 5, got 9"),
    (lambda e, x, l: e.forward(x[:3], l, 1), tn.ShapeError, r"moe.forward: logits must have shape \(3, 5\), got \(7, 5\)"),
    (lambda e, x, l: e.forward(x.astype(np.float16), l, 1), tn.DTypeError, "moe.forward: x must have gate's dtype float32, got float16"),
    (lambda e, x, l: e.forward_routed(x, moe.route(l, 1), strategy="tensorcore"), tn.UnsupportedError, "strategy 'tensorcore' cannot do this"),
    (lambda e, x, l: e.forward_routed(x, moe.route(l, 1), strategy="x"), tn.ValueError, "strategy must be one of 'auto', 'tensorcore', 'gemm', 'scalar', got 'x'"),
    (lambda e, x, l: moe.RoutingPlan(np.array([[5]]), np.ones((1, 1), np.float32), 5), tn.IndexError, r"expert_indices\[0, 0\] is 5, expected -1 to 4"),
    (lambda e, x, l: moe.route(l, 1).expert_indices("float32"), tn.DTypeError, "dtype must be an integer one"),
    (lambda e, x, l: moe.route(l, 2).dispatch(x).combine(x), tn.ShapeError, "moe.combine: y has 7 rows, but the plan 14"),
])
def test_errors(layer, call, kind, text):
    with pytest.raises(kind, match=text):
        call(*layer[:3])


def test_nothing_is_written_before_an_error(layer):
    experts, x, logits, (gate, _, _) = layer
    out, rows = np.full(x.shape, 7, np.float32), np.full((7, 4), 7, np.float32)
    plan = moe.route(logits, 2)
    for call, kind in [
        (lambda: moe.grouped_matmul(x, gate, np.array([0, 2, 1, 3, 4, 5]), out=rows), tn.ValueError),
        (lambda: moe.grouped_matmul(x, gate, np.array([0, 2, 3, 4, 5, 8]), out=rows), tn.ValueError),
        (lambda: moe.grouped_matmul(x, gate, np.array([-1, 2, 3, 4, 5, 6]), out=rows), tn.ValueError),
        (lambda: moe.grouped_matmul(x, gate, np.arange(6, dtype=np.uint64), out=rows), tn.DTypeError),
        (lambda: experts.forward(x, logits, 6, out=out), tn.ValueError),
        (lambda: experts.forward_routed(x, plan, shared=x[:, :3], out=out), tn.ShapeError),
        (lambda: experts.forward_routed(x, plan, strategy="tensorcore", out=out), tn.UnsupportedError),
        (lambda: experts.forward_sigmoid_grouped(x, logits, None, top_k=2, groups=2, selected_groups=1, out=out), tn.ValueError),
        (lambda: plan.dispatch(x).combine(x, out=out), tn.ShapeError),
    ]:
        with pytest.raises(kind):
            call()
        assert (out == 7).all() and (rows == 7).all()


def test_explain_states_the_cost(layer):
    experts, x, logits, _ = layer
    e = tn.explain(lambda x, logits: experts.forward(x, logits, 2), x, logits)
    assert [s.op for s in e.steps] == ["moe.forward"] and e.steps[0].flops == 6 * 14 * 4 * 6
    assert "gemm" in str(e)
    e = tn.explain("moe.grouped_matmul(x, w, offsets)", x="bf16[4096,2048]", w="bf16[128,768,2048]", offsets="i64[129]", device="h200")
    assert [(s.op, s.shape, s.flops) for s in e.steps] == [("moe.grouped_matmul", (4096, 768), 2 * 4096 * 768 * 2048)]
    assert tn.strategies("moe.forward_routed") == ["tensorcore", "gemm", "scalar"]
