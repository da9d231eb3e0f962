"""x[key] and x[key] = value: checked against NumPy, whose rules are the same but where said."""
import itertools
import random

import numpy as np
import pytest

import tenor as tn


def tensor(x):
    return tn.asarray(np.array(x))


def random_key(rng, draw, shape):
    """Slices, None and arrays; or integers instead of the arrays (PyTorch and NumPy differ where both meet)."""
    key, arrays = [], draw.random() < 0.6
    spread = draw.choice([(3,), (2, 1), (2, 3)])
    for n in shape:
        kind = draw.random()
        if kind < 0.15:
            key.append(None)
        if kind < 0.3:
            key.append(slice(draw.choice([None, -n, 1, 5]), draw.choice([None, n, -1, 0]), draw.choice([None, 1, 2])))
        elif kind < 0.6 and arrays:
            key.append(rng.integers(-n, n, tuple(draw.choice([s, 1]) for s in spread)).astype(draw.choice(["int64", "int32", "int8"])))
        elif kind < 0.6:
            key.append(draw.randrange(-n, n))
        elif kind < 0.7 and arrays:
            key.append(np.arange(n) % 2 == 0 if draw.random() < 0.5 else slice(None))
        else:
            key.append(slice(None))
    return tuple(key)


def test_random_keys_read_and_write_as_numpy_does():
    rng, draw = np.random.default_rng(1), random.Random(1)
    checked = 0
    for _ in range(1500):
        shape = tuple(draw.randrange(1, 5) for _ in range(draw.randrange(1, 5)))
        x = rng.integers(0, 100, shape).astype(draw.choice(["float32", "int16", "float64"])).transpose(rng.permutation(len(shape)))
        key = random_key(rng, draw, x.shape)
        try:
            want = x[key]
        except IndexError:  # a mask that does not broadcast with the arrays
            with pytest.raises((IndexError, ValueError)):
                tensor(x)[key]
            continue
        got = tn.asarray(x)[key].numpy()
        assert got.shape == want.shape and np.array_equal(got, want), (x.shape, key)
        y, z = np.array(x), tensor(x)
        value = rng.integers(0, 100, want.shape).astype("float32")
        y[key] = value
        z[key] = value
        assert np.array_equal(y, z.numpy()), (x.shape, key)
        checked += 1
    assert checked > 1000


def test_dims_of_arrays_stand_where_pytorch_puts_them():
    x = tensor(np.arange(120).reshape(2, 3, 4, 5))
    i, j = [0, 1, 1], [[0], [2]]
    assert x[:, [0, 1], [1, 2]].shape == (2, 2, 5)
    assert x[:, [0, 1], :, [1, 2]].shape == (2, 2, 4)
    assert x[[0, 1], :, 0, [1, 2]].shape == (2, 3)
    assert x[0, :, i].shape == (3, 3, 5)  # an integer is applied first, so the array keeps its place
    assert x[:, j, i].shape == (2, 2, 3, 5)
    assert x[:, [0, 1], ..., [1, 2]].shape == (2, 2, 4)
    assert x[None, :, None, [1]].shape == (1, 2, 1, 1, 4, 5)


def test_basic_keys_give_views():
    base = np.arange(24).reshape(2, 3, 4)
    x = tn.asarray(base)
    for key in (1, (slice(None), 1), (Ellipsis, 2), (0, 1, 2), (None, 1), (slice(0, 2), slice(None, None, 2)), np.int64(1), np.array(1), ()):
        got = x[key].numpy()
        assert np.array_equal(got, base[key]) and np.shares_memory(got, base)
    x[0, 1] = 7
    assert (base[0, 1] == 7).all()


def test_masks():
    base = np.arange(6).reshape(2, 3)
    x = tn.asarray(base.copy())
    mask = base % 2 == 1
    assert x[mask].tolist() == [1, 3, 5]
    assert x[tn.asarray(mask)].tolist() == [1, 3, 5]
    assert x[[True, False]].tolist() == [[0, 1, 2]]
    assert x[True].shape == (1, 2, 3) and x[False].shape == (0, 2, 3) and x[np.bool_(True)].shape == (1, 2, 3)
    assert x[:, [False, True, True]].tolist() == [[1, 2], [4, 5]]
    x[mask] = [10, 30, 50]
    assert x.tolist() == [[0, 10, 2], [30, 4, 50]]
    x[mask] = 0
    assert x.tolist() == [[0, 0, 2], [0, 4, 0]]
    three = tensor(np.arange(24).reshape(2, 3, 4))
    assert np.array_equal(three[base > 2, 1:3].numpy(), three.numpy()[base > 2, 1:3])


def test_a_write_reads_everything_first():
    x = tensor(np.arange(6))
    x[1:] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3, 4]
    x[[0, 1, 2]] = x[3:]
    assert x.tolist() == [2, 3, 4, 2, 3, 4]
    x[[0, 0, 0]] = [5, 6, 7]
    assert x[0].item() == 7
    square = tensor(np.arange(9).reshape(3, 3))
    square[:] = square.transpose(0, 1)
    assert square.tolist() == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


def test_a_write_converts_and_broadcasts():
    x = tn.zeros(2, 3, dtype="int32")
    x[:] = np.array([1.9, -1.9, 300.5])
    assert x.tolist() == [[1, -1, 300]] * 2
    x[:, [0, 2]] = np.float32([[[[7.5], [8.5]]]])  # leading dims of size 1 do not count
    assert x.tolist() == [[7, -1, 7], [8, -1, 8]]
    x[0] = True
    assert x[0].tolist() == [1, 1, 1]
    x[...] = 4
    assert x.numpy().sum() == 24


@pytest.mark.parametrize("key, error, words", [
    (5, tn.IndexError, "index 5 is out of range for dim 0 of size 2"),
    ((0, -4), tn.IndexError, "index -4 is out of range for dim 1 of size 3"),
    ((slice(None), [0, 3]), tn.IndexError, "index at (1,) is 3, out of range for size 3"),
    ((0, 0, 0), tn.IndexError, "too many indices: 3"),
    ((Ellipsis, Ellipsis), tn.IndexError, "at most one ..."),
    (slice(None, None, -1), tn.ValueError, "step must be > 0, got -1"),
    (slice(None, None, 0), tn.ValueError, "step must be > 0, got 0"),
    (np.array([0, 2]), tn.IndexError, "index at (1,) is 2, out of range for size 2"),
    (([0, 1], [0, 3]), tn.IndexError, "index array 1 at (1,) is 3"),
    (np.array([0.0]), tn.DTypeError, "integer or bool, got float"),
    (1.5, tn.DTypeError, "1.5"),
    ("a", tn.DTypeError, "'a'"),
    (([0, 1], [0, 1, 2]), tn.ShapeError, "(2,)"),
    (np.ones(3, bool), tn.ShapeError, "(3,)"),
    (2 ** 70, tn.IndexError, "out of range"),
])
def test_errors(key, error, words):
    x = tensor(np.arange(6).reshape(2, 3))
    with pytest.raises(error) as caught:
        x[key]
    assert words in str(caught.value)
    with pytest.raises(error):
        x[key] = 1
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_errors_of_writes():
    x = tensor(np.arange(6).reshape(2, 3))
    with pytest.raises(tn.ShapeError, match="setitem"):
        x[0] = [1, 2]
    with pytest.raises(tn.ShapeError):
        x[[0, 1]] = np.zeros((3, 3))
    with pytest.raises(tn.ValueError, match="300"):
        tn.zeros(3, dtype="int8")[0] = 300
    frozen = np.arange(3)
    frozen.setflags(write=False)
    with pytest.raises(tn.ValueError, match="read-only"):
        tn.asarray(frozen)[0] = 1
    with pytest.raises(tn.ValueError, match="share memory"):
        tn.asarray(np.zeros(1)).expand(4)[:] = 1
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_iteration():
    x = tensor(np.arange(6).reshape(3, 2))
    assert [row.tolist() for row in x] == [[0, 1], [2, 3], [4, 5]]
    a, b, c = x
    assert b.tolist() == [2, 3]
    assert list(itertools.chain(*[r.tolist() for r in reversed(list(x))])) == [4, 5, 2, 3, 0, 1]
    with pytest.raises(TypeError):
        iter(tn.asarray(1))


def test_none_stops_at_sixty_four_dims():
    x = tn.zeros(2)
    assert x[(None,) * 63].shape == (1,) * 63 + (2,)
    with pytest.raises(tn.ShapeError, match="at most 64 dims"):
        x[(None,) * 64]


def test_nested_lists_of_unequal_lengths():
    x = tn.zeros(3, 3)
    for call in (lambda: x[[[0, 1], [2]]], lambda: x.__setitem__([[0, 1], [2]], 1)):
        with pytest.raises(tn.IndexError, match="equal lengths"):
            call()
    with pytest.raises(tn.ShapeError, match="value: nested lists"):
        x[0] = [[1, 2], [3]]
