"""What a caller may hand over or write that nothing can work with: an error or a right result, never a crash."""
import numpy as np
import pytest

import tenor as tn
from tenor import paged


def cache(dim=8):
    rng = np.random.default_rng(1)
    return tuple(rng.standard_normal((4, 4, 2, dim), np.float32) for _ in range(2))


def plan_of(lengths=(5,)):
    return paged.DevicePlan.upload(paged.HostPlan(4, 4, [[1, 3]], list(lengths), [0], [4]), like=np.zeros(1, np.float32))


@pytest.mark.parametrize("make", [
    lambda: paged.HostPlan(), lambda: paged.HostPlan(True, 4, [[0]], [1], [0], [0]), lambda: paged.HostPlan(4, 4, [[0]], [1], [0], pos=[0]),
    lambda: tn.Stream(1, 2, 3),
])
def test_constructors_name_what_does_not_fit(make):
    with pytest.raises(TypeError) as error:
        make()
    assert "overload" not in str(error.value)


def test_arrays_of_a_plan_may_hold_anything():
    k, v = cache()
    q = np.ones((1, 4, 8), np.float32)
    right = plan_of((8,)).attention(q, k, v, causal=False)
    for value in (10**6, 2**31 - 1):
        plan = plan_of()
        tn.fill_(plan.lengths, value)  # as many keys as there are pages for
        assert np.array_equal(plan.attention(q, k, v, causal=False), right)
    for name, value in (("lengths", -5), ("sequence_ids", 10**6), ("sequence_ids", -7)):
        plan = plan_of()
        tn.fill_(getattr(plan, name), value)
        assert not np.asarray(plan.attention(q, k, v, causal=False)).any()


def test_thread_counts():
    before = tn.get_num_threads()
    for count in (-1, 0, 4097, 2**31 - 1, 2**70):
        with pytest.raises(tn.ValueError, match="set_num_threads"):
            tn.set_num_threads(count)
    assert tn.get_num_threads() == before


def test_integers_beyond_float64_keep_their_sign():
    x = np.arange(2)
    assert tn.lt(x, 2**1024).all() and not tn.gt(x, 2**1024).any() and tn.gt(x, -(2**1024)).all()
    assert (tn.add(np.ones(2, np.float32), 10**400) == np.inf).all() and (tn.add(np.ones(2, np.float32), -(10**400)) == -np.inf).all()


@pytest.mark.parametrize("options", [{"scale": 1e-46}, {"scale": 1e39}, {"softcap": 1e39}, {"softcap": 1e-46}])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_scales_that_float32_does_not_hold(options, dtype):
    q = np.ones((1, 2, 3, 8), dtype)
    assert np.array_equal(tn.attention(q, q, q, **options), q)
    k, _ = cache()
    ones = np.ones_like(k, dtype=dtype)
    assert np.array_equal(plan_of().attention(np.ones((1, 4, 8), dtype), ones, ones, **options), np.ones((1, 4, 8), dtype))


def test_digits_of_other_scripts_are_no_sizes():
    with pytest.raises(tn.Error):
        tn.explain("x + 1", x="f32[²]")


def test_halves_of_one_pool_share_nothing():
    """Latent and position parts side by side, as pools hold them, are written in one call; what really overlaps is refused."""
    plan = plan_of()
    latent, rope = np.ones((1, 1, 24), np.float32), np.full((1, 1, 8), 2, np.float32)
    pool = np.zeros((4, 4, 1, 32), np.float32)
    plan.append_(latent, rope, pool[..., :24], pool[..., 24:])
    assert (pool[3, 0, 0] == [1] * 24 + [2] * 8).all() and pool.sum() == 24 + 16
    with pytest.raises(tn.ValueError, match="share memory"):
        plan.append_(latent, rope, pool[..., :24], pool[..., 23:31])


def test_pairs_of_results_in_one_array():
    x = np.array([[3.0, 1.0, 2.0]] * 2, np.float32)
    rng = np.random.default_rng(2)
    for _ in range(200):
        rows, a, b, gap = (int(rng.integers(1, high)) for high in (4, 5, 5, 8))
        pool = np.zeros((rows, 9), np.int64)
        left, right = pool[:, :a], pool[:, gap:gap + b]
        touched = np.zeros((2, rows, 9), bool)
        touched[0, :, :a] = True
        touched[1, :, gap:gap + b] = True
        if right.shape != left.shape or not right.size:
            continue
        overlaps = (touched[0] & touched[1]).any()
        values = np.arange(rows * a, dtype=np.int64).reshape(rows, a)
        if overlaps:
            with pytest.raises(tn.ValueError, match="share memory"):
                tn.sort(values, out=(left, right))
        else:
            tn.sort(values, out=(left, right))
            assert (left == values).all() and (right == np.arange(a)).all()
    assert tn.sort(x).values[0, 0] == 1


@pytest.mark.parametrize("call", [
    lambda x: tn.sum(x, dim=True), lambda x: tn.sum(x, dim=[True]), lambda x: tn.squeeze(x, dim=False),
    lambda x: paged.HostPlan(4, 4, [[True]], [1], [0], [0]), lambda x: paged.HostPlan(4, 4, [[0]], [True], [0], [0]),
])
def test_a_bool_is_no_dim_page_or_length(call):
    with pytest.raises(tn.DTypeError, match="int"):
        call(np.ones((2, 3), np.float32))


def test_workspace_size_knows_operators_alone():
    for name in ("Tensor", "_operators", "nothing"):
        with pytest.raises(tn.ValueError, match="workspace_size: no operator"):
            tn.workspace_size(name)


@pytest.mark.parametrize("value", [np.complex64(1 + 2j), np.complex128(1), np.array(1 + 2j), 1j])
def test_a_complex_number_is_no_number(value):
    x = np.ones(3, np.float32)
    with pytest.raises(tn.DTypeError, match="leaky_relu: negative_slope must be a number, got"):
        tn.leaky_relu(x, value)
    with pytest.raises(tn.DTypeError, match="rms_norm: epsilon must be a number, got"):
        tn.rms_norm(x, x, epsilon=value)
    with pytest.raises(tn.DTypeError, match="full: fill_value"):
        tn.full((2,), value)
