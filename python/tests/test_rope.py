"""rope and rope_tables from Python."""
import math

import numpy as np
import pytest

import tenor as tn


def turned(pair, angle):
    return pair[0] * math.cos(angle) - pair[1] * math.sin(angle), pair[1] * math.cos(angle) + pair[0] * math.sin(angle)


def test_part_of_the_head_turns():
    cos, sin = tn.rope_tables(4, 4, theta=100.0)
    x = np.arange(1.0, 7, dtype=np.float32).reshape(1, 1, 6)
    at = np.array([2])
    a, c = turned((1, 3), 2.0)
    b, d = turned((2, 4), 0.2)
    np.testing.assert_allclose(tn.rope(x, cos, sin, rotary_dim=4, positions=at), [[[a, b, c, d, 5, 6]]], rtol=1e-5)
    a, b = turned((1, 2), 2.0)
    c, d = turned((3, 4), 0.2)
    np.testing.assert_allclose(tn.rope(x, cos, sin, rotary_dim=4, positions=at, interleaved=True), [[[a, b, c, d, 5, 6]]], rtol=1e-5)
    np.testing.assert_array_equal(tn.rope(x, cos, sin, rotary_dim=4), x)  # position 0


def test_out_may_be_the_input():
    cos, sin = tn.rope_tables(5, 8)
    x = np.random.default_rng(0).standard_normal((2, 5, 3, 8)).astype(np.float32)
    want = tn.rope(x, cos, sin)
    assert tn.rope(x, cos, sin, out=x) is x
    np.testing.assert_array_equal(x, want)


def test_arguments_are_checked():
    cos, sin = tn.rope_tables(3, 4)
    x = np.ones((3, 1, 8), np.float32)
    for options, error, words in [
        (dict(rotary_dim=8), tn.ShapeError, "rope: cos"),
        (dict(rotary_dim=10), tn.ValueError, "rotary_dim"),
        (dict(rotary_dim=3), ValueError, "rotary_dim"),
        (dict(rotary_dim=4, positions=np.array([0, 1, 3])), tn.IndexError, "positions"),
        (dict(rotary_dim=4, positions=np.array([0, -1, 2])), IndexError, "positions"),
        (dict(rotary_dim=4, positions=np.array([0, 1])), tn.ShapeError, "positions"),
        (dict(rotary_dim=4, positions=np.array([0.0, 1, 2])), tn.DTypeError, "positions"),
    ]:
        with pytest.raises(error, match=words):
            tn.rope(x, cos, sin, **options)


def frequencies(tables):
    cos, sin = (t.numpy().astype(np.float64) for t in tables)
    return np.arctan2(sin[1], cos[1])


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "finetuned": True}


def test_scalings_of_model_configurations():
    plain = 1e4 ** -(np.arange(32) / 32)
    np.testing.assert_allclose(frequencies(tn.rope_tables(2, 64)), plain, rtol=1e-6)
    np.testing.assert_allclose(frequencies(tn.rope_tables(2, 64, scaling={"type": "linear", "factor": 2.0})), plain / 2, rtol=1e-6)
    llama = frequencies(tn.rope_tables(2, 64, scaling=LLAMA3))
    turns = 8192 * plain / (2 * np.pi)
    share = np.clip((turns - 1) / 3, 0, 1)
    np.testing.assert_allclose(llama, plain * share + plain / 8 * (1 - share), rtol=1e-6)
    yarn = tn.rope_tables(2, 64, scaling=YARN)
    # The ramp runs from the dim that turns 32 times over 4096 positions to the one that turns once.
    dim_of = lambda r: 64 * math.log(4096 / (r * 2 * math.pi)) / (2 * math.log(1e4))
    low, high = math.floor(dim_of(32)), math.ceil(dim_of(1))
    ramp = np.clip((np.arange(32) - low) / (high - low), 0, 1)
    np.testing.assert_allclose(frequencies(yarn), plain / 4 * ramp + plain * (1 - ramp), rtol=1e-6)
    np.testing.assert_allclose(yarn.cos.numpy()[0], 0.1 * math.log(4) + 1, rtol=1e-6)
    named = dict(LLAMA3, rope_theta=500000.0)
    np.testing.assert_array_equal(tn.rope_tables(3, 64, scaling=named).sin.numpy(), tn.rope_tables(3, 64, 5e5, LLAMA3).sin.numpy())


@pytest.mark.parametrize("scaling, words", [
    ({"factor": 2.0}, "rope_type"),
    ({"type": "dynamic", "factor": 2.0}, "dynamic"),
    ({"type": "linear"}, "factor"),
    ({"type": "linear", "factor": "2"}, "factor"),
    ({"type": "linear", "factor": 0.5}, "factor"),
    ({"type": "linear", "factor": 2.0, "beta_fast": 32}, "beta_fast"),
    ({k: v for k, v in LLAMA3.items() if k != "low_freq_factor"}, "low_freq_factor"),
    (dict(LLAMA3, high_freq_factor=1.0), "high_freq_factor"),
    (dict(YARN, beta_slow=64), "beta_fast"),
    ([1, 2], "dict"),
])
def test_bad_scalings(scaling, words):
    with pytest.raises(tn.ValueError, match=words):
        tn.rope_tables(2, 64, scaling=scaling)


def test_bad_tables():
    for args in ((-1, 4), (3, 5), (3, 0), (3, 4, 0.0), (3, 4, math.nan)):
        with pytest.raises(tn.ValueError, match="rope_tables"):
            tn.rope_tables(*args)
