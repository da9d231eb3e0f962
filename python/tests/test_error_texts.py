"""What errors show: the operator's name, the caller's own number, and no more of a long value than can be read."""
import operator

import numpy as np
import pytest

import tenor as tn

X, HUGE = np.zeros((2, 3), np.float32), 2**70


@pytest.mark.parametrize("call", [
    lambda n: tn.narrow(X, 0, n, 1), lambda n: tn.topk(X, n), lambda n: tn.topk(X, k=n), lambda n: tn.softmax(X, n), lambda n: tn.select(X, 0, n),
    lambda n: tn.kthvalue(X, n), lambda n: tn.unfold(X, 0, n, 1), lambda n: tn.group_norm(X, n), lambda n: tn.cumsum(X, dim=n),
])
@pytest.mark.parametrize("number", [HUGE, -HUGE])
def test_a_number_beyond_64_bits_is_shown_as_it_was_given(call, number):
    with pytest.raises(tn.Error, match=str(number)) as error:
        call(number)
    assert "9223372036854775" not in str(error.value)


LONG, MANY = "q" * 5000, list(range(10000))


@pytest.mark.parametrize("call", [
    lambda: tn.zeros((2,), dtype=LONG), lambda: tn.zeros((2,), device=LONG), lambda: tn.attention(*[np.zeros((1, 1, 2, 4), np.float32)] * 3, strategy=LONG),
    lambda: tn.einsum(LONG, X), lambda: tn.gelu(X, approximate=LONG), lambda: tn.split(X, MANY), lambda: tn.norm(X, 10**4000), lambda: tn.lerp(X, X, 10**4000),
    lambda: tn.attention(*[np.zeros((1, 1, 2, 4), np.float32)] * 3, window=MANY), lambda: tn.rope_tables(4, 4, scaling={LONG: 1}),
    lambda: tn.scatter_reduce(X, 0, np.zeros((2, 3), int), X, LONG), lambda: tn.layer_norm(X, X[0], epsilon=np.zeros(5000)),
])
def test_long_values_are_not_pasted(call):
    with pytest.raises(tn.Error) as error:
        call()
    assert len(str(error.value)) < 1200


@pytest.mark.parametrize("name, call", [
    ("zeros", lambda: tn.zeros((2,), dtype="q")), ("zeros", lambda: tn.zeros((2,), device="q")), ("sum", lambda: tn.sum(X, dtype="q")),
    ("zeros", lambda: tn.zeros((2**40, 2**40))), ("arange", lambda: tn.arange(2, dtype="q")), ("layer_norm", lambda: tn.layer_norm(X, X[0], epsilon=X)),
    ("to", lambda: tn.asarray(X).to("q")),
])
def test_the_operator_is_named(name, call):
    with pytest.raises(tn.Error) as error:
        call()
    assert str(error.value).startswith(name + ": ")


ONE = np.float32(1).reshape(())


@pytest.mark.parametrize("kind, call, said", [
    (tn.IndexError, lambda: tn.swapdims(X, 0, 2), "swapdims: dim1 2 is out of range for 2 dims (expected -2 to 1)"),
    (tn.IndexError, lambda: tn.narrow(X, 1, 2, 2), "narrow: start 2 and length 2 leave dim 1 of size 3"),
    (tn.IndexError, lambda: tn.narrow(X, 1, 2, -1), "narrow: length must be >= 0, got -1"),
    (tn.IndexError, lambda: tn.diagonal(X[0]), "diagonal: dim2 1 is out of range for 1 dims (expected -1 to 0)"),
    (tn.IndexError, lambda: tn.split(ONE, 1, 3), "split: dim 3 is out of range: x has no dims"),
    (tn.ShapeError, lambda: tn.unflatten(X, 1, (2, 2)), "unflatten: sizes (2, 2) multiply to 4, dim 1 of x has size 3"),
    (tn.ShapeError, lambda: tn.broadcast_to(X, (2**62, 2, 3)), "broadcast_to: shape (4611686018427387904, 2, 3) has more elements than 64 bits can count"),
    (tn.ShapeError, lambda: tn.expand(X, (2**62, 2, 3)), "expand: shape (4611686018427387904, 2, 3) has more elements than 64 bits can count"),
    (tn.ValueError, lambda: tn.add(np.int8([1]), np.int8([2]), alpha=300), "add: alpha 300 does not fit int8"),
    (tn.ValueError, lambda: tn.asarray(np.uint8([1])).sub_(np.uint8([2]), alpha=-1), "sub_: alpha -1 does not fit uint8"),
    (tn.ValueError, lambda: tn.add(np.int64([1]), 2**62, alpha=4), "add: alpha 4 times other 4611686018427387904 fits no dtype"),
    (tn.ValueError, lambda: tn.add(np.int64([1]), 2**64 - 1, alpha=3), "add: alpha 3 times other 18446744073709551615 fits no dtype"),
    (tn.ShapeError, lambda: tn.tensordot(X, X, 1), "tensordot: dims pair dim 1 of x, of size 3, with dim 0 of b, of size 2; shapes (2, 3) and (2, 3)"),
    (tn.ShapeError, lambda: tn.conv_forward(np.ones((1, 2, 5), np.float32), np.ones((3, 2, 1, 1), np.float32)),
     "conv_forward: weight must have input's 3 dims, got 4 with shape (3, 2, 1, 1)"),
])
def test_the_argument_and_its_own_sizes_are_named(kind, call, said):
    with pytest.raises(kind) as error:
        call()
    assert str(error.value) == said


INTEGERS = [0, -1, 2**24 + 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**64 + 1, -(2**63), -(2**63) - 1, 2**200, 2**200 + 1, 10**39, -(10**39), 10**400, -(10**400)]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "uint64", "int8", "bool"])
@pytest.mark.parametrize("op", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_integers_compare_by_value(dtype, op):
    with np.errstate(all="ignore"):
        values = np.array([0, 1, 2.0**24, 2.0**53, 2.0**63, 2.0**64, 2.0**200, np.inf, -np.inf, np.nan, -(2.0**63)]).astype(dtype)
    limits = [] if np.dtype(dtype).kind in "fb" else [np.iinfo(dtype).min, np.iinfo(dtype).max]
    values = np.concatenate([values, np.array(limits, dtype)])
    for number in INTEGERS:
        expected = [getattr(operator, op)(v.item(), number) for v in values]
        assert getattr(tn, op)(values, number).tolist() == expected, number
        assert getattr(operator, op)(tn.asarray(values), number).tolist() == expected, number
        mirrored = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}.get(op, op)
        assert getattr(tn, mirrored)(number, values).tolist() == expected, number


class NoDevice:
    def __dlpack__(self, **_):
        return None

    def __dlpack_device__(self):
        return "x"


@pytest.mark.parametrize("name, call", [
    ("abs", lambda: tn.abs(np.datetime64("2020"))), ("matmul", lambda: tn.matmul(np.timedelta64(1), X)), ("repeat", lambda: tn.repeat(X, np.datetime64("2020"))),
    ("normalize", lambda: tn.normalize(X, p=np.array("x"))), ("argmax", lambda: tn.argmax(X, np.array("x"))), ("abs", lambda: tn.abs(NoDevice())),
    ("add", lambda: tn.add(X, X, alpha=2**70)), ("full", lambda: tn.full((2,), np.ones(3))), ("strategies", lambda: tn.strategies(np.ones(3))),
])
def test_scalars_and_exporters_that_are_none(name, call):
    with pytest.raises(tn.Error) as error:
        call()
    assert str(error.value).startswith(name + ": ")


Q, OK = np.zeros((2, 8, 4, 16), np.float32), np.ones((2, 4), bool)


@pytest.mark.parametrize("call, text", [
    (lambda: tn.attention(Q, Q, Q, mask=Q[0, 0, :, :4]), "mask must be bool, got float32; what is added to the scores is bias"),
    (lambda: tn.attention(Q, Q, Q, mask=OK), r"does not broadcast to \(2, 8, 4, 4\); a mask of each sequence's keys is mask\[:, None, None, :\]"),
    (lambda: tn.conv_forward(np.zeros((1, 32, 32, 3), np.float32), np.zeros((8, 5, 5, 3), np.float32)), "channels last are conv_forward_nhwc's"),
    (lambda: tn.paged.DevicePlan(None), "paged.DevicePlan has no constructor: it is made by paged.DevicePlan.upload"),
    (lambda: tn.moe.DispatchedTokens(), "moe.DispatchedTokens has no constructor: it is made by moe.RoutingPlan's dispatch"),
])
def test_an_error_names_the_mend_of_a_usual_mistake(call, text):
    with pytest.raises((tn.Error, TypeError), match=text):
        call()
