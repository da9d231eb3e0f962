"""gated_delta_rule, chunk_gated_delta_rule and what stands around them, from Python."""
import numpy as np
import pytest

import tenor as tn

RNG = np.random.default_rng(0)


def operands(b=1, h=2, hv=4, t=7, k=8, v=5):
    q, key, value = (RNG.standard_normal(s).astype(np.float32) / 3 for s in ((b, h, t, k), (b, h, t, k), (b, hv, t, v)))
    return q, key, value, RNG.random((b, hv, t)).astype(np.float32), -RNG.random((b, hv, t)).astype(np.float32)


FORMS = [tn.gated_delta_rule, lambda *a, **o: tn.chunk_gated_delta_rule(*a, chunk_size=3, **o)]


@pytest.mark.parametrize("fn", FORMS)
def test_kinds_and_named_results(fn):
    x = operands()
    got = fn(*x)
    assert got._fields == ("output", "final_state") and isinstance(got.output, np.ndarray)
    assert got.output.shape == (1, 4, 7, 5) and got.final_state.shape == (1, 4, 8, 5) and got.final_state.dtype == np.float32
    tensors = fn(*map(tn.asarray, x))
    assert isinstance(tensors.output, tn.Tensor) and np.array_equal(tensors.output.numpy(), got.output)
    out = np.empty_like(got.output), np.empty_like(got.final_state)
    again = fn(*x, out=out)
    assert again.output is out[0] and again.final_state is out[1]
    assert np.array_equal(out[0], got.output) and np.array_equal(out[1], got.final_state)


@pytest.mark.parametrize("fn", FORMS)
def test_a_sequence_in_pieces(fn):
    x = operands(t=11)
    whole, state, parts = fn(*x), None, []
    for a, b in ((0, 4), (4, 4), (4, 11)):
        part = fn(*(y[:, :, a:b] for y in x), state)
        state = part.final_state
        parts.append(part.output)
    assert np.allclose(np.concatenate(parts, 2), whole.output, atol=1e-6) and np.allclose(state, whole.final_state, atol=1e-6)


@pytest.mark.parametrize("fn", FORMS)
def test_a_pool_is_the_second_result(fn):
    x, pool = operands(b=2), RNG.standard_normal((3, 4, 8, 5)).astype(np.float32)
    want = fn(*x, pool[[2, 0]])
    before = pool.copy()
    got = fn(*x, state=pool, state_indices=np.array([2, 0]))
    assert got.final_state is pool and np.array_equal(got.output, want.output)
    assert np.array_equal(pool[[2, 0]], want.final_state) and np.array_equal(pool[1], before[1])
    pool[...] = before
    out = np.empty_like(got.output)
    got = fn(*x, state=pool, state_indices=np.array([-1, 1]), has_initial_state=np.array([True, False]), out=out)
    assert got.output is out and not out[0].any() and np.array_equal(out[1], fn(*(y[1:] for y in x)).output[0])


def test_errors():
    q, k, v, beta, g = operands()
    with pytest.raises(tn.ValueError, match="chunk_gated_delta_rule: chunk_size must be > 0, got 0"):
        tn.chunk_gated_delta_rule(q, k, v, beta, g, chunk_size=0)
    with pytest.raises(tn.DTypeError, match="gated_delta_rule: log_decay must be float32, got float64"):
        tn.gated_delta_rule(q, k, v, beta, g.astype(np.float64))
    with pytest.raises(tn.ValueError, match="gated_delta_rule: state_indices names slot 1 twice, at 0 and 1"):
        tn.gated_delta_rule(q, k, v, beta, g, cu_seqlens=np.array([0, 2, 7]), state=np.zeros((2, 4, 8, 5), np.float32), state_indices=np.array([1, 1]))
    pool = np.zeros((2, 4, 8, 5), np.float32)
    with pytest.raises(tn.IndexError, match="gated_delta_rule: state_indices holds 2 at 0"):
        tn.gated_delta_rule(q, k, v, beta, g, state=pool, state_indices=np.array([2]))
    pool.flags.writeable = False
    with pytest.raises(tn.ValueError, match="gated_delta_rule: state is read-only"):
        tn.gated_delta_rule(q, k, v, beta, g, state=pool, state_indices=np.array([1]))
    with pytest.raises(tn.ValueError, match="strategy must be one of 'auto', 'tensorcore', 'general', got 'fast'"):
        tn.chunk_gated_delta_rule(q, k, v, beta, g, strategy="fast")


def test_strategies_and_explain():
    assert tn.strategies("chunk_gated_delta_rule") == ["tensorcore", "general"]
    shapes = dict(q="bf16[1,16,4096,128]", k="bf16[1,16,4096,128]", v="bf16[1,32,4096,128]", b="bf16[1,32,4096]", g="f32[1,32,4096]")
    plan = tn.explain("o, s = chunk_gated_delta_rule(q, k, v, b, g)", device="h200", **shapes)
    assert plan.flops == 7 * 32 * 4096 * 128 * 128 and "tensorcore" in str(plan)
    assert "general" in str(tn.explain("o, s = chunk_gated_delta_rule(q, k, v, b, g)", **shapes))


def test_around():
    a, rate, bias = RNG.standard_normal((2, 3, 5)).astype(np.float32), np.zeros(3, np.float32), np.zeros(3, np.float32)
    assert np.allclose(tn.gated_delta_gate(a, rate, bias), -np.logaddexp(0, a), atol=1e-6)
    assert np.allclose(tn.gated_delta_gate(a, rate, bias, -5), -5 / (1 + np.exp(-a)), atol=1e-5)
    x, w = RNG.standard_normal((1, 2, 4)).astype(np.float32), np.float32([[0, 0, 1], [1, 0, 0]])
    y, state = tn.causal_conv1d(x, w)
    assert np.array_equal(y[0, 0], x[0, 0]) and np.array_equal(y[0, 1], np.r_[0, 0, x[0, 1, :2]]) and np.array_equal(state, x[..., 2:])
    pool = np.zeros((4, 2, 2), np.float32)
    got = tn.causal_conv1d(x, w, state=pool, state_indices=np.array([3]))
    assert got.final_state is pool and np.array_equal(pool[3], x[0, :, 2:]) and np.array_equal(got.y, y)
    z = RNG.standard_normal((3, 4)).astype(np.float32)
    want = tn.rms_norm(z, np.ones(4, np.float32)) * z / (1 + np.exp(-z))
    assert np.allclose(tn.gated_rms_norm(z, z, np.ones(4, np.float32)), want, atol=1e-6)
