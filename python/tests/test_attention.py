"""attention, attention_varlen and merge_states from Python."""
import math

import numpy as np
import pytest

import tenor as tn

INF = math.inf


def zeros(*shape):
    return np.zeros(shape, np.float32)


def columns(values, width=4):
    """[1, 1, n, width]: key j's value is values[j] in every column."""
    return np.repeat(np.float32(values)[:, None], width, 1)[None, None]


def uniform(queries, values, **options):
    """One head, every score 0: rows of out (their first column) and lse."""
    out, lse = tn.attention(zeros(1, 1, queries, 4), zeros(1, 1, len(values), 4), columns(values), return_lse=True, **options)
    assert isinstance(out, np.ndarray) and out.dtype == lse.dtype == np.float32
    return out[0, 0, :, 0], lse[0, 0]


def naive(q, k, v, mask=None, bias=None, scale=None):
    """The formula in float64, for one key head a query head."""
    s = np.einsum("bhid,bhjd->bhij", np.float64(q), np.float64(k)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    s = s + (0 if bias is None else bias)
    s = np.where(True if mask is None else mask, s, -INF)
    p = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("bhij,bhjd->bhid", p / p.sum(-1, keepdims=True), np.float64(v))


def random(*shapes, dtype=np.float32):
    rng = np.random.default_rng(len(shapes))
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


@pytest.mark.parametrize("causal, want, count", [
    (True, [0, 0, 1, 2], [0, 0, 1, 2]),
    ("top_left", [1, 2, 2, 2], [1, 2, 2, 2]),
    (False, [2, 2, 2, 2], [2, 2, 2, 2]),
])
def test_causal_with_more_queries_than_keys(causal, want, count):
    out, lse = uniform(4, [1, 3], causal=causal)
    np.testing.assert_array_equal(out, np.float32(want))
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(lse, np.log(np.float64(count)), rtol=1e-6)


def test_a_decode_step_sees_the_whole_cache():
    np.testing.assert_allclose(uniform(1, [0, 1, 2, 3, 4], causal=True)[0], [2])
    np.testing.assert_allclose(uniform(2, [0, 1, 2, 3, 4], causal=True)[0], [1.5, 2])


def test_window_counts_extra_keys_each_side():
    np.testing.assert_allclose(uniform(6, range(6), causal=True, window=(2, -1))[0], [0, 0.5, 1, 2, 3, 4])
    np.testing.assert_allclose(uniform(6, range(6), window=(1, 1))[0], [0.5, 1, 2, 3, 4, 4.5])
    np.testing.assert_allclose(uniform(3, range(6), window=(0, 0))[0], [3, 4, 5])  # bottom-right without causal too
    np.testing.assert_allclose(uniform(3, range(6), causal="top_left", window=(0, 0))[0], [0, 1, 2])


def test_mask_and_bias_broadcast():
    q, k, v = random((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4))
    rng = np.random.default_rng(5)
    for shape in [(7,), (5, 7), (2, 1, 1, 7), (1, 3, 5, 7), (3, 1, 7)]:
        mask = rng.random(shape) < 0.7
        mask[..., 0] = True
        np.testing.assert_allclose(tn.attention(q, k, v, mask), naive(q, k, v, mask), atol=1e-5)
        bias = rng.standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(tn.attention(q, k, v, None, bias, scale=0.5), naive(q, k, v, bias=bias, scale=0.5), atol=1e-5)


def test_masked_nan_and_very_negative_scores():
    q, k, v = zeros(1, 1, 1, 4), zeros(1, 1, 3, 4), columns([5, math.nan, 9])
    q[..., 0], k[0, 0, 0, 0], k[0, 0, 2, 0] = 1, -16384, math.nan
    out, lse = tn.attention(q, k, v, np.array([True, False, False]), scale=1.0, return_lse=True)
    np.testing.assert_array_equal(out, columns([5]))
    np.testing.assert_allclose(lse, [[[-16384]]])


def test_rows_without_keys_and_uniform_rows_of_the_lowest_float():
    lowest = float(np.finfo(np.float32).min)
    out, lse = uniform(2, [1, 2, 6], bias=np.float32([[lowest] * 3, [-INF] * 3]))
    np.testing.assert_allclose(out, [3, 0])
    np.testing.assert_array_equal(lse, np.float32([lowest, -INF]))
    out, lse = uniform(3, [1, 3], mask=np.array([[True, True], [False, False], [True, False]]))
    np.testing.assert_allclose(out, [2, 0, 1])
    np.testing.assert_allclose(lse, [math.log(2), -INF, 0], rtol=1e-6)


def test_softcap_comes_before_mask_and_bias():
    q, k, v = zeros(1, 1, 1, 4), zeros(1, 1, 2, 4), columns([1, 100])
    q[..., 0], k[0, 0, 1, 0] = 1, 100
    run = lambda **o: tn.attention(q, k, v, scale=1.0, softcap=1.0, **o)[0, 0, 0, 0]
    assert run(mask=np.array([True, False])) == 1
    assert run(bias=np.float32([1 + math.log(3), 0])) == pytest.approx(25.75, rel=1e-5)


def test_sinks_take_weight_and_give_nothing():
    assert [float(x[0]) for x in uniform(1, [3, 3], sinks=np.float32([0]))] == pytest.approx([2, math.log(2)])
    assert [float(x[0]) for x in uniform(1, [7], sinks=np.float32([1000]))] == [0, 0]
    assert [float(x[0]) for x in uniform(1, [], sinks=np.float32([1]))] == [0, -INF]


def test_groups_of_seven():
    v = np.concatenate([zeros(1, 1, 3, 4) + 1, zeros(1, 1, 3, 4) + 2], 1)
    out = tn.attention(zeros(1, 14, 1, 4), zeros(1, 2, 3, 4), v)
    np.testing.assert_allclose(out[0, :, 0, 0], [1] * 7 + [2] * 7)


def test_sixteen_bit_scores_and_sums_are_float32():
    k = np.concatenate([zeros(1, 1, 1, 8) + 300, zeros(1, 1, 1, 8) - 300], 2).astype(np.float16)
    out, lse = tn.attention(k[:, :, :1], k, columns([2, 7], 8).astype(np.float16), return_lse=True)
    assert out.dtype == np.float16 and lse.dtype == np.float32
    np.testing.assert_array_equal(out, np.float16(columns([2], 8)))
    np.testing.assert_allclose(lse, [[[720000 / math.sqrt(8)]]], rtol=1e-6)
    bf16 = pytest.importorskip("ml_dtypes").bfloat16
    for dtype in (np.float16, bf16):
        x = zeros(1, 1, 3000, 32).astype(dtype)
        np.testing.assert_array_equal(tn.attention(x[:, :, :2], x, x + dtype(1.5)).astype(np.float32), np.full((1, 1, 2, 32), 1.5))


def test_seen_order_is_kept():
    q, k, v = (x.swapaxes(1, 2) for x in random((2, 5, 3, 8), (2, 6, 3, 8), (2, 6, 3, 4)))
    out = tn.attention(q, k, v)
    assert out.swapaxes(1, 2).flags.c_contiguous
    np.testing.assert_allclose(out, naive(q, k, v), atol=1e-5)


def test_out_and_named_tuple():
    q, k, v = random((1, 2, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8))
    fresh = tn.attention(q, k, v, return_lse=True)
    assert fresh._fields == ("out", "lse")
    wide, lse = zeros(1, 2, 3, 10) - 1, zeros(1, 2, 3)
    tn.attention(q, k, v, return_lse=True, out=(wide[..., 1:9], lse))
    np.testing.assert_array_equal(wide[..., 1:9], fresh.out)
    np.testing.assert_array_equal(wide[..., [0, 9]], np.full((1, 2, 3, 2), -1))
    np.testing.assert_array_equal(lse, fresh.lse)
    with pytest.raises(tn.ShapeError, match="attention: out"):
        tn.attention(q, k, v, out=wide)
    with pytest.raises(tn.ValueError, match="attention: out"):
        tn.attention(q, k, v, return_lse=True, out=wide[..., 1:9])


def test_a_batch_of_one_has_the_bits_of_a_batch_of_five():
    for dtype in (np.float32, np.float16):
        q, k, v = random((5, 4, 3, 16), (5, 2, 300, 16), (5, 2, 300, 16), dtype=dtype)
        with tn.batch_invariant():
            together, alone = tn.attention(q, k, v, causal=True), tn.attention(q[2:3], k[2:3], v[2:3], causal=True)
            last = tn.attention(q[2:3, :, 2:], k[2:3], v[2:3], causal=True)
        assert together[2:3].tobytes() == alone.tobytes()
        assert alone[:, :, 2:].tobytes() == last.tobytes()


def test_varlen_with_empty_sequences():
    cu_q, cu_k = np.int32([0, 0, 1, 1, 2, 3]), np.int64([0, 3, 6, 6, 6, 8])
    v = columns(range(8))[0, 0][:, None]
    out, lse = tn.attention_varlen(zeros(4, 1, 4), zeros(8, 1, 4), v, cu_q, cu_k, causal=True, return_lse=True)
    np.testing.assert_allclose(out[:, 0, 0], [4, 0, 6.5, 0])
    np.testing.assert_allclose(lse[:, 0], [math.log(3), -INF, math.log(2), -INF], rtol=1e-6)


def test_merging_the_parts_of_a_row():
    v = columns([0] * 6 + [8] * 2)
    q, k = zeros(1, 1, 1, 4), zeros(1, 1, 8, 4)
    parts = [tn.attention(q, k[:, :, s], v[:, :, s], return_lse=True) for s in (slice(0, 6), slice(6, 8))]
    out, lse = tn.merge_states(*parts[0], *parts[1])
    np.testing.assert_allclose(out, columns([2]), rtol=1e-6)
    np.testing.assert_allclose(lse, [[[math.log(8)]]], rtol=1e-6)
    a = np.float32([[0, 0], [1, 3]]), np.float32([-INF, 0.5])
    empty = zeros(2, 2), np.float32([-INF, -INF])
    for merged in (tn.merge_states(*a, *empty), tn.merge_states(*empty, *a)):
        assert merged.out.tobytes() == a[0].tobytes() and merged.lse.tobytes() == a[1].tobytes()


def test_errors():
    q, k = zeros(1, 4, 2, 8), zeros(1, 2, 3, 8)
    cases = [
        (tn.ShapeError, "key has 3 heads, which does not divide query's 4", (q, zeros(1, 3, 3, 8), zeros(1, 3, 3, 8)), {}),
        (tn.DTypeError, "mask", (q, k, k, zeros(3)), {}),
        (tn.ShapeError, "mask", (q, k, k, np.ones(2, bool)), {}),
        (tn.DTypeError, "bias", (q, k, k, None, np.ones(3, bool)), {}),
        (tn.ShapeError, "sinks", (q, k, k), dict(sinks=zeros(3))),
        (tn.ValueError, "scale", (q, k, k), dict(scale=0.0)),
        (tn.ValueError, "softcap", (q, k, k), dict(softcap=math.nan)),
        (tn.ValueError, "window", (q, k, k), dict(window=(-2, 0))),
        (tn.ValueError, "window", (q, k, k), dict(window=(1, 2, 3))),
        (tn.ValueError, "window", (q, k, k), dict(window=3)),
        (tn.ValueError, "causal", (q, k, k), dict(causal="bottom_left")),
        (tn.ValueError, "causal", (q, k, k), dict(causal=None)),
        (tn.ValueError, "strategy", (q, k, k), dict(strategy="quick")),
        (tn.UnsupportedError, "flash_tensorcore' cannot do this: on the CPU needs AMX", (q, k, k), dict(strategy="flash_tensorcore")),
    ]
    for kind, word, args, options in cases:
        with pytest.raises(kind, match=f"attention: .*{word}"):
            tn.attention(*args, **options)
    assert tn.strategies("attention") == ["flash_tensorcore", "flash_unit", "fallback"]
