"""tenor.paged from Python: plans from lists and arrays, attention, latent attention, append, copies of pages."""
import math

import numpy as np
import pytest

import tenor as tn
from tenor import paged

INF = math.inf


def random(*shapes, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


def gathered(cache, table, length):
    """The rows of one sequence, [length, heads, dim]."""
    return np.asarray(cache)[list(table)].reshape(-1, *cache.shape[2:])[:length]


def dense(q, k, v, position, scale):
    """One row over the keys 0..position, by tenor.attention."""
    at = lambda x: np.ascontiguousarray(x[None, : position + 1].swapaxes(1, 2))
    return tn.attention(q[None, :, None], at(k), at(v), scale=scale)[0, :, 0]


TABLES, LENGTHS, IDS, POSITIONS = [[2, 0, 5], [1, -1], [4]], [11, 3, 0], [0, 0, 1, -1, 2], [9, 10, 2, 0, 0]


@pytest.fixture
def step():
    q, k, v = random((5, 4, 16), (6, 4, 2, 16), (6, 4, 2, 8))
    return paged.DevicePlan.upload(paged.HostPlan(4, 6, TABLES, LENGTHS, IDS, POSITIONS), like=q), q, k, v


def test_rows_equal_attention_over_gathered_keys(step):
    plan, q, k, v = step
    out, lse = plan.attention(q, k, v, return_lse=True)
    assert isinstance(out, np.ndarray) and out.shape == (5, 4, 8) and lse.dtype == np.float32
    for i in (0, 1, 2):
        table, length = TABLES[IDS[i]], LENGTHS[IDS[i]]
        want = dense(q[i], gathered(k, table, length), gathered(v, table, length), POSITIONS[i], 0.25)
        np.testing.assert_allclose(out[i], want, atol=1e-5)
    np.testing.assert_array_equal(out[3:], 0)
    np.testing.assert_array_equal(lse[3:], -INF)
    np.testing.assert_array_equal(paged.attention(plan, q, k, v), out)


def test_splits_are_asked_for_and_checked(step):
    plan, q, k, v = step
    want = plan.attention(q, k, v)
    for splits in (2, 5, 32):
        np.testing.assert_allclose(plan.attention(q, k, v, workspace=paged.SplitWorkspace(q, 5, 4, 8, splits)), want, atol=1e-5)
    with pytest.raises(tn.ShapeError, match=r"workspace was made for \(queries, heads, value_dim\) = \(5, 4, 9\), expected \(5, 4, 8\)"):
        plan.attention(q, k, v, workspace=paged.SplitWorkspace(q, 5, 4, 9, 2))
    for splits in (1, 33):
        with pytest.raises(tn.ValueError, match="splits"):
            paged.SplitWorkspace(q, 5, 4, 8, splits)
    with pytest.raises(tn.ValueError, match="64 MiB"):
        paged.SplitWorkspace(q, 1 << 20, 4, 8, 2)
    size = plan.workspace_size("attention", 4, 8)
    np.testing.assert_array_equal(plan.attention(q, k, v, workspace=np.zeros(size, np.uint8)), want)
    with pytest.raises(tn.DTypeError, match="workspace"):
        plan.attention(q, k, v, workspace=np.zeros(9, np.float32))
    with pytest.raises(tn.ValueError, match="op must be 'attention' or 'mla'"):
        plan.workspace_size("softmax", 4, 8)


def test_options_and_results(step):
    plan, q, k, v = step
    out, lse = np.full((5, 4, 8), np.nan, np.float32), np.full((5, 4), np.nan, np.float32)
    got = plan.attention(q, k, v, 0.25, True, return_lse=True, out=(out, lse))
    assert got.out is out and got.lse is lse
    np.testing.assert_array_equal(out, plan.attention(q, k, v))
    np.testing.assert_array_equal(plan.attention(q, k, v, window=(0, -1))[0], np.repeat(gathered(v, TABLES[0], 11)[9], 2, 0))
    for bad in (dict(causal="top_left"), dict(causal=None), dict(window=(-2, 0)), dict(softcap=0.0), dict(scale=math.nan)):
        with pytest.raises(tn.ValueError, match="paged.attention: " + next(iter(bad))):
            plan.attention(q, k, v, **bad)
    with pytest.raises(tn.ShapeError, match="paged.attention: q must have the plan's 5 rows"):
        plan.attention(q[:4], k, v)
    with pytest.raises(tn.DTypeError, match="v must have q's dtype"):
        plan.attention(q, k, v.astype(np.float16))


def test_mla_equals_the_unabsorbed_form():
    """Keys and values of each head by the weights, against queries that carry the key weights."""
    heads, nope, rope, rank, vdim = 3, 8, 4, 16, 6
    q_nope, q_rope, w_uk, w_uv, latent, kp = random((2, heads, nope), (2, heads, rope), (heads, nope, rank), (heads, rank, vdim), (3, 4, 1, rank), (3, 4, 1, rope))
    plan = paged.DevicePlan.upload(paged.HostPlan(4, 3, [[2, 0, 1]], [10], [0, 0], [8, 9]), like=q_nope)
    scale = (nope + rope) ** -0.5
    absorbed = tn.matmul(q_nope.swapaxes(0, 1), w_uk).swapaxes(0, 1)
    context = plan.mla(absorbed, q_rope, latent, kp, scale, True)
    got = tn.matmul(context.swapaxes(0, 1), w_uv).swapaxes(0, 1)
    rows = gathered(latent, [2, 0, 1], 10)[:, 0]
    k = np.concatenate([np.einsum("jr,hdr->jhd", rows, w_uk), np.repeat(gathered(kp, [2, 0, 1], 10), heads, 1)], -1)
    v = np.einsum("jr,hrd->jhd", rows, w_uv)
    for i, position in enumerate((8, 9)):
        want = dense(np.concatenate([q_nope[i], q_rope[i]], -1), k.astype(np.float32), v.astype(np.float32), position, scale)
        np.testing.assert_allclose(got[i], want, atol=2e-5)
    with pytest.raises(TypeError):
        plan.mla(absorbed, q_rope, latent, kp)  # the scale is the model's own


def test_schedules_from_arrays_of_any_integer_type():
    q, k, v = random((2, 1, 8), (3, 2, 1, 8), (3, 2, 1, 8))
    want = paged.DevicePlan.upload(paged.HostPlan(2, 3, [[2, 0], [1]], [3, 1], [0, 1], [2, 0]), like=q).attention(q, k, v)
    table = np.array([[2, 0], [1, -1]])
    for integer in (np.int32, np.uint8, np.int64):
        host = paged.HostPlan(2, np.int64(3), table.astype(integer), tn.asarray([3, 1]), np.array([0, 1], integer), (2, 0))
        np.testing.assert_array_equal(paged.DevicePlan.upload(host, like=q).attention(q, k, v), want)
    assert repr(host) == "HostPlan(page_size=2, pages=3, sequences=2, queries=2)"
    for bad in (dict(tables=[[0.5]]), dict(lengths="12"), dict(sequence_ids=np.zeros(2)), dict(positions=3), dict(tables=None), dict(positions=None)):
        with pytest.raises(tn.DTypeError, match="paged.HostPlan: " + next(iter(bad))):
            paged.HostPlan(**{**dict(page_size=2, pages=3, tables=table, lengths=[3, 1], sequence_ids=[0, 1], positions=[2, 0]), **bad})


def test_a_reserved_plan_is_refilled():
    q, k, v = random((3, 1, 8), (3, 2, 1, 8), (3, 2, 1, 8))
    plan = paged.DevicePlan.reserve(q, page_size=2, pages=3, queries=3, sequences=2, pages_per_sequence=2)
    np.testing.assert_array_equal(plan.attention(q, k, v), 0)
    host = paged.HostPlan(2, 3, [[2, 0]], [3], [0], [2])
    want = paged.DevicePlan.upload(host, like=q).attention(q[:1], k, v)
    for schedule in (dict(host=host), dict(tables=[[2, 0]], lengths=[3], sequence_ids=[0], positions=np.array([2]))):
        plan.update_(**schedule)
        got = plan.attention(q, k, v)
        np.testing.assert_array_equal(got[:1], want)
        np.testing.assert_array_equal(got[1:], 0)
        assert plan.lengths.tolist() == [3, 0] and plan.sequence_ids.tolist() == [0, -1, -1] and plan.positions.tolist() == [2, 0, 0]
        plan.update_(paged.HostPlan(2, 3, [], [], [], []))
    with pytest.raises(tn.ValueError, match="4 queries exceed the plan's capacity of 3"):
        plan.update_(paged.HostPlan(2, 3, [[]], [0], [-1] * 4, [0] * 4))
    with pytest.raises(tn.ValueError, match="all of tables"):
        plan.update_(tables=[[0]])
    with pytest.raises(tn.DTypeError, match="host must be a HostPlan"):
        plan.update_(3)


def test_append_copies_what_is_shared_and_writes_the_rest_in_place():
    (token,) = random((1, 1, 4))
    plan = paged.DevicePlan.upload(paged.HostPlan(2, 2, [[1]], [2], [0], [1]), like=token)
    keys, values = (tn.zeros((2, 2, 1, 4)) for _ in range(2))
    view = keys[0]
    kept_k, kept_v = plan.append(token, token, keys, values)
    assert kept_v is values and kept_k is not keys and keys.numpy().any() == False and view.shape == (2, 1, 4)  # noqa: E712
    np.testing.assert_array_equal(kept_k.numpy()[1, 1], token[0])
    again, _ = plan.append(2 * token, token, kept_k, kept_v)
    assert again is kept_k
    pool = np.zeros((2, 2, 2, 1, 4), np.float32)
    assert plan.append_(token, token, pool[0], pool[1]) is None
    np.testing.assert_array_equal(pool[:, 1, 1], np.stack([token[0]] * 2))
    array = np.zeros((2, 2, 1, 4), np.float32)
    assert plan.append(token, token, array, array.copy())[0] is array
    array.flags.writeable = False
    with pytest.raises(tn.ValueError, match="paged.append: key_cache is read-only"):
        plan.append(token, token, array, array.copy())


def test_copy_pages():
    cache = np.arange(8, dtype=np.float32).reshape(4, 2, 1, 1)
    kept = paged.copy_pages(cache, [0, 1], np.array([1, 0]))
    assert kept is cache
    np.testing.assert_array_equal(cache[:, :, 0, 0], [[2, 3], [0, 1], [4, 5], [6, 7]])
    shared = tn.asarray(cache.copy())
    other = shared[1:]
    assert paged.copy_pages(shared, [0], [3]) is not shared and other.numpy()[2, 0, 0, 0] == 6
    assert paged.copy_pages_(shared, [0], [3]) is None and other.numpy()[2, 0, 0, 0] == 2
    with pytest.raises(tn.IndexError, match=r"paged.copy_pages: src\[0\] is page -1, expected 0 to 3"):
        paged.copy_pages(cache, [-1], [0])


def test_strategies_are_listed_taken_and_explained(step):
    plan, q, k, v = step
    assert tn.strategies("paged.attention") == tn.strategies("paged.mla") == ["flash_tensorcore", "flash_unit"]
    np.testing.assert_array_equal(plan.attention(q, k, v, strategy="flash_unit"), plan.attention(q, k, v))
    with pytest.raises(tn.UnsupportedError, match="paged.attention: strategy 'flash_tensorcore' cannot do this: "):
        plan.attention(q, k, v, strategy="flash_tensorcore")
    with pytest.raises(tn.ValueError, match="got 'quick'"):
        plan.attention(q, k, v, strategy="quick")
    explained = tn.explain(lambda: plan.attention(q, k, v))
    assert "flash_unit" in str(explained) and "not flash_tensorcore: on the CPU needs AMX" in str(explained)


def test_explain_counts_the_keys_that_rows_see(step):
    plan, q, k, v = step
    explained = tn.explain(lambda: plan.attention(q, k, v))
    (only,) = explained.steps
    assert only.op == "paged.attention" and only.flops == (10 + 11 + 3) * 4 * 2 * (16 + 8)
