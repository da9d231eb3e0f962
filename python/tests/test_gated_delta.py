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


@pytest.mark.parametrize("fn", FORMS)
def test_nothing_is_written_before_an_error(fn):
    x, pool, (out, last) = operands(), np.full((3, 4, 8, 5), 3, np.float32), (np.full(s, 7, np.float32) for s in ((1, 4, 7, 5), (2, 4, 8, 5)))
    cut = np.array([0, 3, 7])
    for options, kind in [
        (dict(cu_seqlens=np.array([0, 5, 3]), out=(out, last)), tn.ValueError),
        (dict(cu_seqlens=np.array([0, 3, 8]), out=(out, last)), tn.ValueError),
        (dict(cu_seqlens=cut, initial_state=last[:1], out=(out, last)), tn.ShapeError),
        (dict(cu_seqlens=cut, out=(out, last.astype(np.float64))), tn.DTypeError),
        (dict(cu_seqlens=cut, out=(out[..., ::2], last)), tn.ShapeError),
        (dict(cu_seqlens=cut, out=(np.broadcast_to(out[:, :1], out.shape), last)), tn.ValueError),
        (dict(cu_seqlens=cut, state=pool, state_indices=np.array([1, 5]), out=out), tn.IndexError),
        (dict(cu_seqlens=cut, state=pool, state_indices=np.array([1, 1]), out=out), tn.ValueError),
        (dict(cu_seqlens=cut, state=pool, state_indices=np.array([1, 2]), has_initial_state=np.array([1, 0]), out=out), tn.DTypeError),
    ]:
        with pytest.raises(kind):
            fn(*x, **options)
        assert (out == 7).all() and (last == 7).all() and (pool == 3).all(), options.keys()


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("fn", FORMS)
def test_a_pool_of_sequences_without_steps(fn, dtype):
    """Lengths 0, 4, 0 and 2, one step of none; the second and third start from zeros; a slot's strides are its own."""
    q, k, v, beta, g = operands()
    before = RNG.standard_normal((5, 8, 5, 4)).astype(np.float32).transpose(0, 3, 1, 2)
    pool = before.copy(order="K")
    got = fn(q, k, v, beta, g, cu_seqlens=np.array([0, 0, 4, 4, 6]), state=pool, state_indices=np.array([4, 1, 0, 2], dtype),
             has_initial_state=np.array([True, False, False, True]))
    cut = lambda a, b: [x[:, :, a:b] for x in (q, k, v, beta, g)]
    one, two = fn(*cut(0, 4)), fn(*cut(4, 6), initial_state=before[2:3])
    assert np.allclose(got.output, np.concatenate([one.output, two.output, np.zeros((1, 4, 1, 5))], 2), atol=1e-6)
    assert np.array_equal(pool[4], before[4]) and np.array_equal(pool[3], before[3]) and not pool[0].any()
    assert np.allclose(pool[1], one.final_state[0], atol=1e-6) and np.allclose(pool[2], two.final_state[0], atol=1e-6)


def test_chunks_of_any_size():
    x = operands(t=150, k=16)
    want = tn.gated_delta_rule(*x)
    for size in (1, 7, 16, 32, 64, 100, 128, 240, 241, 1 << 40, 1 << 62):
        got = tn.chunk_gated_delta_rule(*x, chunk_size=size)
        assert np.allclose(got.output, want.output, atol=2e-5) and np.allclose(got.final_state, want.final_state, atol=2e-5), size


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
