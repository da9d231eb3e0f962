"""Views from Python: shared memory, PyTorch's argument forms, error classes."""
import numpy as np
import pytest

import tenor as tn


@pytest.fixture
def x():
    return np.arange(24, dtype=np.int64).reshape(2, 3, 4)


def test_views_share_memory_and_keep_the_library(x):
    for v in (tn.transpose(x, 0, 1), tn.view(x, (6, 4)), tn.view(x, 6, 4), tn.expand(x, (5, 2, 3, 4)), tn.unfold(x, 2, 3, 1)):
        assert isinstance(v, np.ndarray) and np.shares_memory(v, x)
    assert not np.shares_memory(tn.reshape(tn.transpose(x, 0, 1), (6, 4)), x)


def test_methods_are_the_functions(x):
    t = tn.from_dlpack(x)
    assert t.transpose(0, 1).shape == (3, 2, 4)
    assert t.view(-1).shape == (24,) and t.reshape((4, 6)).shape == (4, 6)
    assert t.permute(2, 0, 1).tolist() == x.transpose(2, 0, 1).tolist()
    assert [p.shape for p in t.split([1, 3], 2)] == [(2, 3, 1), (2, 3, 3)]
    assert [p.shape for p in t.chunk(2, -1)] == [(2, 3, 2)] * 2
    assert t.squeeze().shape == (2, 3, 4) and t.unsqueeze(0).squeeze(0).shape == (2, 3, 4)


def test_against_numpy(x):
    np.testing.assert_array_equal(tn.movedim(x, 0, -1), np.moveaxis(x, 0, -1))
    np.testing.assert_array_equal(tn.diagonal(x, 1, 1, 2), np.diagonal(x, 1, 1, 2))
    np.testing.assert_array_equal(tn.slice(x, -1, -3, None, 2), x[..., -3::2])
    np.testing.assert_array_equal(tn.narrow(x, 1, -2, 2), x[:, 1:])
    np.testing.assert_array_equal(tn.unflatten(x, -1, (2, -1)), x.reshape(2, 3, 2, 2))
    np.testing.assert_array_equal(tn.flatten(x, 1), x.reshape(2, 12))
    np.testing.assert_array_equal(tn.swapdims(x, 0, 2), x.swapaxes(0, 2))


@pytest.mark.parametrize("call, kind, builtin", [
    (lambda x: tn.view(x, (5, 5)), tn.ShapeError, ValueError),
    (lambda x: tn.view(tn.transpose(x, 0, 1), (6, 4)), tn.ShapeError, ValueError),
    (lambda x: tn.transpose(x, 0, 3), tn.IndexError, IndexError),
    (lambda x: tn.permute(x, (0, 0, 1)), tn.ValueError, ValueError),
    (lambda x: tn.slice(x, 0, 0, 2, -1), tn.ValueError, ValueError),
    (lambda x: tn.view("abc", 3), tn.DTypeError, TypeError),
    (lambda x: tn.view(x, "abc"), tn.DTypeError, TypeError),
])
def test_errors_have_their_class_and_the_builtin_one(x, call, kind, builtin):
    with pytest.raises(kind) as caught:
        call(x)
    assert isinstance(caught.value, builtin) and isinstance(caught.value, tn.Error)


def test_numpy_integers_are_integers():
    x = tn.asarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    one, two, three = np.int64(1), np.int32(2), np.uint8(3)
    assert tn.sum(x, one).shape == (2,) and tn.sum(x, np.array(1)).shape == (2,)
    assert tn.sum(x, (np.int64(0), one)).shape == () and tn.max(x, one).values.shape == (2,)
    assert tn.zeros(three).shape == (3,) and tn.full((three,), 1.0).shape == (3,)
    assert tn.reshape(x, (three, 2)).shape == (3, 2) and tn.flip(x, one).shape == (2, 3)
    assert tn.permute(x, *np.argsort([1, 0])).shape == tn.permute(x, np.array([1, 0])).shape == (3, 2)
    assert tn.pad(x, (one, two)).shape == (2, 6) and len(tn.split(x, two, 1)) == 2
    assert tn.tensordot(x, x.permute(1, 0), one).shape == (2, 2)
    with pytest.raises(tn.DTypeError, match="sum: dim"):
        tn.sum(x, np.array(1.0))


class Interrupting:
    def __index__(self):
        raise KeyboardInterrupt

    def __getattr__(self, name):
        raise KeyboardInterrupt


def test_what_arguments_raise_propagates():
    x = tn.zeros(2, 3)
    for call in (lambda: tn.sum(x, Interrupting()), lambda: tn.sum(x, (Interrupting(),)), lambda: tn.reshape(x, Interrupting()),
                 lambda: tn.add(x, Interrupting()), lambda: x + Interrupting(), lambda: x[Interrupting()]):
        with pytest.raises(KeyboardInterrupt):
            call()


class Endless:
    def __len__(self):
        return 2

    def __getitem__(self, i):
        return 1


def test_a_list_of_dims_has_an_end():
    x = tn.zeros(2, 100)
    for call in (lambda: tn.sum(x, Endless()), lambda: tn.zeros([1] * 65), lambda: tn.reshape(x, Endless())):
        with pytest.raises(tn.ShapeError, match="more than 64 entries"):
            call()
    assert len(tn.split(x, [1] * 100, 1)) == 100 and tn.zeros([1] * 64).ndim == 64


def test_integers_beyond_64_bits_are_out_of_range():
    x = tn.zeros(2, 3)
    for dim in (2**63, -2**70):
        for call in (lambda: tn.sum(x, dim), lambda: tn.sum(x, (0, dim)), lambda: tn.argmax(x, dim), lambda: tn.softmax(x, dim),
                     lambda: tn.select(x, dim, 0), lambda: tn.select(x, 0, dim), lambda: tn.flip(x, dim), lambda: tn.permute(x, 0, dim)):
            with pytest.raises(tn.IndexError):
                call()
        with pytest.raises(tn.ValueError):
            tn.topk(x, dim)
    with pytest.raises(tn.ValueError, match="beyond 64 bits"):
        tn.zeros(2**63)
    with pytest.raises(TypeError):
        tn.softmax(x, 1.0)
    with pytest.raises(KeyboardInterrupt):
        tn.softmax(x, Interrupting())
    assert tn.softmax(x, np.int64(1)).shape == tn.softmax(x, dim=np.array(1)).shape == (2, 3)
