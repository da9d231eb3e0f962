"""Elementwise operators from Python: values, dtypes, operators, in-place forms, errors, libraries."""
import math

import numpy as np
import pytest

import tenor as tn

nan, inf = math.nan, math.inf


def check(got, want, dtype, tol=0.0):
    assert isinstance(got, np.ndarray), "NumPy in, NumPy out"
    assert got.dtype == np.dtype(dtype)
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got.astype(np.float64) if tol else got, want, rtol=tol, atol=tol * 1e-3)


def test_promotion_does_not_look_at_ranks():
    check(tn.add(np.int16([1]), np.array(40000, np.int32)), [40001], "int32")
    check(tn.mul(np.float16([2]), np.array(0.25, np.float32)), [0.5], "float32")
    check(tn.add(np.uint8([200]), np.int8([100])), [300], "int16")
    check(tn.add(np.int64([2]), np.float16([0.5])), [2.5], "float16")
    check(tn.add(np.array([True, False]), np.array([True, True])), [True, True], "bool")


def test_python_scalars_take_the_arrays_dtype():
    check(tn.add(np.uint8([255]), 1), [0], "uint8")
    check(tn.mul(np.int8([3]), 0.5), [1.5], "float32")
    check(tn.add(np.array([True]), 2), [3], "int64")
    check(tn.sub(1, np.float16([0.75])), [0.25], "float16")
    check(tn.maximum(np.float64([1]), 2), [2], "float64")
    for fn, x, s in ((tn.add, np.uint8([1]), 256), (tn.mul, np.uint16([1]), -1), (tn.maximum, np.int64([1]), 2**63), (tn.add, np.int32([1]), 10**30)):
        with pytest.raises(ValueError, match=f"{fn.__name__}: the scalar {s} does not fit {x.dtype}"):
            fn(x, s)
    check(tn.add(np.float64([1]), 2**70), [2.0**70], "float64")


def test_integers_never_trap():
    for dtype in (np.int8, np.int16, np.int32, np.int64):
        low = np.iinfo(dtype).min
        a, b = np.array([low, 9, -9, 0], dtype), np.array([-1, 0, 4, 0], dtype)
        check(tn.floor_divide(a, b), [low, 0, -3, 0], dtype)
        check(tn.remainder(a, b), [0, 0, 3, 0], dtype)
        check(tn.fmod(a, b), [0, 0, -1, 0], dtype)
        check(tn.div(a, b, rounding_mode="trunc"), [low, 0, -2, 0], dtype)
    check(tn.div(np.int32([7, -7]), 2), [3.5, -3.5], "float32")
    check(tn.pow(np.int32([3, -2]), 3), [27, -8], "int32")
    with pytest.raises(ValueError, match="pow.*-2"):
        tn.pow(np.int32([3]), -2)
    check(tn.pow(np.int32([2]), -2.0), [0.25], "float32")


def test_float_quotients_as_pythons():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=300) * 10, rng.normal(size=300)
    check(tn.floor_divide(a, b), [x // y for x, y in zip(a, b)], "float64")
    check(tn.remainder(a, b), [x % y for x, y in zip(a, b)], "float64")
    a, b = a.astype(np.float32), b.astype(np.float32)
    check(tn.floor_divide(a, b), [float(x) // float(y) for x, y in zip(a, b)], "float32")
    check(tn.remainder(a, b), np.float32([float(x) % float(y) for x, y in zip(a, b)]), "float32")
    check(tn.remainder(np.float32([5, -5, 1, inf]), np.float32([inf, inf, 0, 2])), [5, inf, nan, nan], "float32")


def test_shifts_past_the_width():
    for n in (1, 3, 8, 65):
        check(tn.bitwise_left_shift(np.ones(n, np.int16), 16), np.zeros(n), "int16")
        check(tn.bitwise_right_shift(np.full(n, -5, np.int64), np.full(n, 64)), np.full(n, -1), "int64")
    check(tn.bitwise_right_shift(np.uint32([8, 8]), np.uint32([2, 40])), [2, 0], "uint32")
    check(tn.bitwise_left_shift(np.int32([1]), -1), [0], "int32")


def test_casts_round_once_and_saturate():
    check(tn.to(np.float64([1 + 2**-11 + 2**-50]), "float16"), [1 + 2**-10], "float16")
    check(tn.to(np.float32([nan, inf, -inf, 300, -1.9]), tn.uint8), [0, 255, 0, 255, 0], "uint8")
    check(tn.to(np.float64([1e19, -1e19, 2.0**63]), "int64"), [2**63 - 1, -(2**63), 2**63 - 1], "int64")
    check(tn.to(np.int32([300, -1]), "uint8"), [44, 255], "uint8")
    check(tn.to(np.float32([0.0, 0.1, nan]), bool), [False, True, True], "bool")
    x = np.float32([1])
    assert tn.to(x, "float32") is x and tn.to(x, "cpu") is x and tn.astype(x, "float32") is not x
    t = tn.asarray(x)
    assert t.to(tn.float16).dtype == tn.float16 and t.to("bfloat16").to(float).tolist() == [1.0]
    assert t.to(device="cpu") is t


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_activations_at_their_limits(dtype):
    x = np.array([inf, -inf, nan, 50, -50], dtype)
    for fn in (tn.relu, tn.silu, tn.gelu, tn.mish, tn.hardswish, tn.softplus):
        np.testing.assert_allclose(fn(x).astype(np.float64), [inf, 0, nan, 50, 0], atol=1e-20, err_msg=fn.__name__)
    np.testing.assert_allclose(tn.gelu(x, approximate="tanh").astype(np.float64), [inf, 0, nan, 50, 0], atol=1e-20)
    check(tn.elu(x, alpha=2.0), [inf, -2, nan, 50, -2], dtype)
    check(tn.leaky_relu(x, 0.5), [inf, -inf, nan, 50, -25], dtype)
    check(tn.tanh(x), [1, -1, nan, 1, -1], dtype)
    with pytest.raises(ValueError, match="gelu: approximate"):
        tn.gelu(x, approximate="erf")


@pytest.mark.parametrize("name", "eq ne lt le gt ge isclose logical_and logical_or logical_xor add".split())
def test_uint64_meets_no_signed_integers(name):
    for u, i in ((np.uint64([1]), np.int8([1])), (np.uint64(1), np.int64([1]))):
        for x, y in ((u, i), (i, u)):
            with pytest.raises(tn.DTypeError, match=f"{name}: .*uint64.* have no common dtype"):
                getattr(tn, name)(x, y)
    with pytest.raises(tn.DTypeError):
        tn.asarray(np.uint64([1])) < tn.asarray(np.int64([1]))


@pytest.mark.parametrize("name", "logical_and logical_or logical_xor".split())
def test_logic_refuses_scalars_that_do_not_fit(name):
    check(getattr(tn, name)(np.uint8([0, 3]), 255), [name != "logical_and", name != "logical_xor"], "bool")
    check(getattr(tn, name)(np.bool_([False, True]), 300), [name != "logical_and", name != "logical_xor"], "bool")
    for x, scalar in ((np.uint8([1]), 256), (np.uint64([1]), -1), (np.int8([1]), 2**70)):
        for call in (lambda: getattr(tn, name)(x, scalar), lambda: getattr(tn, name)(scalar, x)):
            with pytest.raises(tn.ValueError, match=f"{name}: .*{scalar}"):
                call()


def test_comparisons_answer_by_value():
    check(tn.lt(np.uint8([0, 255]), 256), [True, True], "bool")
    check(tn.eq(np.int8([-1, 1]), 255), [False, False], "bool")
    check(tn.gt(np.uint64([0, 2**64 - 1]), -1), [True, True], "bool")
    check(tn.eq(np.int64([2**53 + 1]), float(2**53)), [False], "bool")
    check(tn.le(np.int32([2, 3]), 2.5), [True, False], "bool")
    check(tn.lt(np.int64([5]), 2**80), [True], "bool")
    check(tn.ne(np.int64([5]), nan), [True], "bool")
    check(tn.eq(np.float32([16777216]), 16777217), [False], "bool")
    check(tn.lt(np.float16([inf, 65504]), 10**6), [False, True], "bool")
    check(tn.eq(np.float32([0.1]), 0.1), [True], "bool")


def test_operators():
    x, y = tn.asarray(np.float32([1, 2, 3])), tn.asarray(np.float32([2, 2, 0]))
    i, b = tn.asarray(np.int64([6, -7])), tn.asarray(np.array([True, False]))
    table = [
        (x + y, [3, 4, 3]), (x - 1, [0, 1, 2]), (1 - x, [0, -1, -2]), (2 * x, [2, 4, 6]), (x / 2, [0.5, 1, 1.5]), (6 / x, [6, 3, 2]),
        (i // 4, [1, -2]), (i % 4, [2, 1]), (20 // i, [3, -3]), (x**2, [1, 4, 9]), (2**x, [2, 4, 8]), (-x, [-1, -2, -3]), (+x, [1, 2, 3]),
        (abs(i), [6, 7]), (i & 3, [2, 1]), (i | 1, [7, -7]), (3 ^ i, [5, -6]), (~b, [False, True]), (i << 1, [12, -14]), (i >> 1, [3, -4]),
        (1 << tn.asarray(np.int32([3])), [8]), (x == y, [False, True, False]), (x != 2, [True, False, True]), (x < y, [True, False, False]),
        (2 <= x, [False, True, True]), (x > 1.5, [False, True, True]), (x >= y, [False, True, True]),
    ]
    for k, (got, want) in enumerate(table):
        assert isinstance(got, tn.Tensor) and got.tolist() == want, k
    assert (x == None) is False and (x != "a") is True  # noqa: E711
    assert hash(x) == hash(x) and len({x, y}) == 2
    with pytest.raises(TypeError):
        x + [1]
    with pytest.raises(tn.ShapeError, match="add.*3.*2"):
        x + i


def test_in_place_operators_write_the_same_memory():
    memory = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = tn.from_dlpack(memory)
    column = x[:, 1:3]
    held = column
    column += 1
    column *= np.float32([2, 10])
    assert column is held
    np.testing.assert_array_equal(memory, [[0, 4, 30, 3], [4, 12, 70, 7], [8, 20, 110, 11]])
    i = tn.asarray(np.int32([5, 6]))
    for write in (lambda: i.add_(0.5), lambda: i.exp_(), lambda: tn.div_(i, 2)):
        with pytest.raises(tn.DTypeError, match="int32 cannot hold"):
            write()
    i //= 2
    i <<= 3
    assert i.tolist() == [16, 24]
    assert memory is tn.fill_(memory, 3) and memory.sum() == 36
    tn.copy_(memory, np.int64([[1], [2], [3]]))
    np.testing.assert_array_equal(memory, np.repeat([[1], [2], [3]], 4, 1))
    with pytest.raises(ValueError, match="read-only"):
        locked = np.ones(2)
        locked.flags.writeable = False
        tn.add_(locked, 1)


@pytest.mark.parametrize("shift", [0, 1, 5, 100])
def test_overlapping_inputs_are_read_first(shift):
    x = np.random.default_rng(1).normal(size=5000).astype(np.float32)
    want = x[: 4900 - shift] + x[shift:4900]
    tn.add(x[: 4900 - shift], x[shift:4900], out=x[shift:4900])
    np.testing.assert_array_equal(x[shift:4900], want)


def test_out_is_checked_and_returned():
    x, out = np.ones((2, 3), np.float32), np.zeros((3, 2), np.float32).T
    assert tn.exp(x, out=out) is out
    np.testing.assert_allclose(out, np.e, rtol=1e-6)
    for bad in (np.zeros(6, np.float32), np.zeros((2, 3)), np.broadcast_to(np.float32(0), (2, 3))):
        with pytest.raises((ValueError, TypeError), match="exp: out"):
            tn.exp(x, out=bad)


def test_choice():
    m = np.array([[True], [False]])
    check(tn.where(m, np.int32([1, 2]), np.float16([0.5, 0.25])), [[1, 2], [0.5, 0.25]], "float16")
    check(tn.where(m, 1, 0), [[1], [0]], "int64")
    check(tn.masked_fill(np.float32([[1, nan], [3, 4]]), m, 0), [[0, 0], [3, 4]], "float32")
    check(tn.clamp(np.int64([1, 5, 9]), 2, 6), [2, 5, 6], "int64")
    check(tn.clamp(np.int64([1, 5]), min=2.5), [2.5, 5], "float32")
    check(tn.clamp(np.float32([nan, 1]), max=np.float32([0, nan])), [nan, nan], "float32")
    check(tn.lerp(np.float32([0, 10]), 20.0, 0.25), [5, 12.5], "float32")
    check(tn.isclose(np.float32([1, inf, nan]), np.float32([1.000001, inf, nan]), equal_nan=True), [True, True, True], "bool")
    with pytest.raises(tn.DTypeError, match="mask must be bool, got uint8"):
        tn.masked_fill(np.float32([1]), np.uint8([1]), 0)


def test_results_keep_the_library_and_the_layout():
    x = np.asfortranarray(np.ones((4, 5), np.float32))
    assert tn.exp(x).flags.f_contiguous and tn.add(x, np.ones((4, 5), np.float32)).flags.f_contiguous
    assert isinstance(np.float32([1]) + tn.asarray(np.float32([1])), np.ndarray)
    assert isinstance(tn.asarray(np.float32([1])) + np.float32([1]), tn.Tensor)
    a = tn.asarray(np.float32([4]))
    assert a.sqrt().tolist() == [2] and a.clamp(max=3).tolist() == [3] and a.sub(1, alpha=2).tolist() == [2]


def test_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.arange(300, dtype=np.float32).astype(ml_dtypes.bfloat16)
    got = tn.mul(x, x)
    assert got.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(got, (x.astype(np.float32) ** 2).astype(ml_dtypes.bfloat16))
    assert tn.add(x, np.ones(300, np.float16)).dtype == np.float32
    with pytest.raises(tn.DTypeError, match="storage"):
        tn.add(x.astype(ml_dtypes.float8_e4m3fn), 1)
