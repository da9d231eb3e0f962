"""Gated activations from Python."""
import math

import numpy as np
import pytest

import tenor as tn


def silu(v):
    return v / (1 + np.exp(-v))


def test_the_first_half_is_the_gate():
    gate, up = np.float32([[0, 2, -15, -70]] * 3), np.float32([[4, 3, 1e6, 2]] * 3)
    want = silu(np.float64(gate)) * up
    np.testing.assert_allclose(tn.silu_mul(np.concatenate([gate, up], -1)), want, rtol=1e-5)
    np.testing.assert_allclose(tn.silu_mul(gate, up), want, rtol=1e-5)
    mixed = np.stack([gate, up], -1).reshape(3, 8)
    np.testing.assert_allclose(tn.silu_mul(mixed[:, 0::2], mixed[:, 1::2]), want, rtol=1e-5)
    out = np.full((3, 4), np.nan, np.float32)
    assert tn.silu_mul(gate, up, out=out) is out
    np.testing.assert_allclose(out, want, rtol=1e-5)


def test_gelu_mul_is_exact_unless_asked():
    gate, up = np.float32([[1, -1, 3, -4, 0]]), np.float32([[2, 1, -1, 8, 5]])
    exact = [[0.5 * g * math.erfc(-g / math.sqrt(2)) * u for g, u in zip(gate[0].tolist(), up[0].tolist())]]
    np.testing.assert_allclose(tn.gelu_mul(gate, up), exact, rtol=2e-6)
    tanh = 0.5 * gate * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate.astype(np.float64) ** 3))) * up
    np.testing.assert_allclose(tn.gelu_mul(gate, up, approximate="tanh"), tanh, rtol=1e-5, atol=1e-7)


def test_one_rounding_at_the_end():
    gate, up = np.float16([[1.5, -2.25, 0.3]]), np.float16([[3.7, 900, 2e-3]])
    np.testing.assert_array_equal(tn.silu_mul(gate, up), (silu(np.float64(gate)) * np.float64(up)).astype(np.float16))


def test_a_gate_of_minus_infinity_gives_zero():
    gate, up = np.float32([-np.inf]), np.float32([3])
    for fn in (tn.silu_mul, tn.gelu_mul):
        assert fn(gate, up)[0] == 0


def test_arguments_are_checked():
    x = np.ones((2, 4), np.float32)
    with pytest.raises(tn.ShapeError, match="silu_mul: x must have a last axis of even length"):
        tn.silu_mul(x[:, :3])
    with pytest.raises(tn.ShapeError, match="silu_mul: up"):
        tn.silu_mul(x, x[:1])
    with pytest.raises(tn.DTypeError, match="gelu_mul: up"):
        tn.gelu_mul(x, x.astype(np.float64))
    with pytest.raises(tn.ValueError, match="gelu_mul: approximate"):
        tn.gelu_mul(x, x, approximate="fast")
    with pytest.raises(TypeError):
        tn.silu_mul(np.ones((2, 4), np.int32))
