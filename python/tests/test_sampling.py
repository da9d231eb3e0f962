"""sample, sample_from_probs, multinomial, top_k_mask_logits, top_p_normalize_probs, speculative_accept from Python."""
import numpy as np
import pytest

import tenor as tn

inf, nan = np.inf, np.nan


def rows(n, row):
    return np.tile(np.float32(row), (n, 1))


def drawn(n, row, **options):
    return set(tn.sample(rows(n, row), seed=1, position=np.arange(n), **options).tolist())


def test_kinds_and_named_results():
    x = rows(3, [0, 1, 2])
    ids = tn.sample(x, seed=5)
    assert isinstance(ids, np.ndarray) and ids.dtype == np.int64 and ids.shape == (3,)
    assert len(set(ids.tolist())) == 1, "rows with one seed and position draw alike"
    got = tn.sample(tn.asarray(x), seed=5, return_valid=True)
    assert got._fields == ("ids", "valid") and isinstance(got.ids, tn.Tensor) and got.valid.tolist() == [True] * 3
    assert got.ids.tolist() == ids.tolist()
    out = np.zeros(3, np.int64)
    assert tn.sample(x, seed=5, out=out) is out and out.tolist() == ids.tolist()
    valid = np.zeros(3, bool)
    tn.sample(x, seed=5, return_valid=True, out=(out, valid))
    assert valid.all()


def test_the_order_of_the_filters():
    assert drawn(2000, [3, 2, 1], temperature=0.5, top_p=0.8) == {0}
    logits = np.log([0.4, 0.2, 0.15, 0.1, 0.1, 0.05])
    assert drawn(2000, logits, top_k=3, top_p=0.5) == {0}  # 0.53 of what top-k leaves lies before the second
    assert drawn(2000, logits, top_k=3, top_p=0.5, joint=True) == {0, 1}  # 0.4 of all lies before it
    assert drawn(500, logits, min_p=0.5) == {0, 1}
    assert drawn(500, logits, temperature=0) == {0}


def test_options_one_a_row():
    x = np.random.default_rng(0).standard_normal((4, 1000)).astype(np.float32)
    options = dict(temperature=np.float32([1, 0, 0.5, 2]), top_k=np.int32([0, 5, 40, -1]), top_p=np.array([1, 0.9, 0.5, 0.99]),
                   seed=np.arange(4), position=np.uint8([0, 5, 5, 1]))
    whole = tn.sample(x, **options)
    for i in range(4):
        assert tn.sample(x[i:i + 1], **{k: v[i:i + 1] for k, v in options.items()})[0] == whole[i]
        assert tn.sample(x[i:i + 1], **{k: v[i].item() for k, v in options.items()})[0] == whole[i]
    assert whole[1] == x[1].argmax()


def test_rows_without_a_distribution():
    ids, valid = tn.sample(np.float32([[nan, 1], [-inf, -inf], [inf, 0], [-inf, 0]]), seed=0, return_valid=True)
    assert ids.tolist() == [0, 0, 0, 1] and valid.tolist() == [False, False, False, True]
    ids, valid = tn.sample_from_probs(np.float64([[0, 0], [-1, 2], [0, 5e-324]]), seed=0, return_valid=True)
    assert ids.tolist() == [0, 0, 1] and valid.tolist() == [False, False, True]


def test_multinomial():
    p = np.float32([0, 1, 2, 0, 3])
    got = tn.multinomial(p, 5, seed=3)
    assert set(got[:3].tolist()) == {1, 2, 4} and got[3:].tolist() == [-1, -1]
    again = tn.multinomial(np.stack([p, p]), 10000, replacement=True, seed=3, position=np.array([0, 1]))
    share = np.bincount(again.reshape(-1), minlength=5) / 20000
    np.testing.assert_allclose(share, p / 6, atol=0.02)
    assert (again[0] != again[1]).any()
    assert tn.multinomial(np.zeros((0, 4), np.float32), 2, seed=1).shape == (0, 2)


def test_filters_that_return_rows():
    x = np.float32([[1, 3, 2, 3], [4, 4, 4, 4]])
    np.testing.assert_array_equal(tn.top_k_mask_logits(x, 2), [[-inf, 3, -inf, 3], [4, 4, -inf, -inf]])
    np.testing.assert_array_equal(tn.top_k_mask_logits(x, np.array([1, 0])), [[-inf, 3, -inf, -inf], [4, 4, 4, 4]])
    p = np.array([[0.05, 0.5, 0.15, 0.3]])
    np.testing.assert_allclose(tn.top_p_normalize_probs(p, 0.79), [[0, 0.625, 0, 0.375]])
    np.testing.assert_allclose(tn.top_p_normalize_probs(p * 7, 1.0), p)
    y = x.copy()
    assert tn.top_k_mask_logits(y, 1, out=y) is y
    np.testing.assert_array_equal(y[1], [4, -inf, -inf, -inf])


def test_speculative_accept():
    same, one, other = [0.25] * 4, [1, 0, 0, 0], [0, 0, 0, 1]
    p, q = np.float32([[same, other, one]]), np.float32([[same, one]])
    ids, accepted = tn.speculative_accept(p, q, np.array([[2, 0]]), 9)
    assert ids.tolist() == [[2, 3, -1]] and accepted.tolist() == [1]
    ids, accepted = tn.speculative_accept(p, None, np.array([[-1, 0]]), 9)
    assert accepted.tolist() == [0] and ids[0, 1:].tolist() == [-1, -1]
    with pytest.raises(tn.IndexError, match="speculative_accept: draft_ids holds 4 at 1"):
        tn.speculative_accept(p, q, np.array([[0, 4]]), 9)


def test_arguments_are_checked():
    x = rows(2, [0, 1])
    for options, error, text in ((dict(temperature=-1), tn.ValueError, "temperature"), (dict(top_p=nan), tn.ValueError, "top_p"),
                                 (dict(min_p=np.array([0, 1.5])), tn.ValueError, "min_p must be <= 1, got 1.5 at 1"),
                                 (dict(top_k=np.array([1, 2, 3])), tn.ShapeError, "top_k"), (dict(top_k=1.5), tn.DTypeError, "top_k"),
                                 (dict(position=np.float32([1, 2])), tn.DTypeError, "position")):
        with pytest.raises(error, match=text):
            tn.sample(x, seed=0, **options)
    with pytest.raises(TypeError):
        tn.sample(x)  # no seed
    with pytest.raises(tn.ValueError, match="out= needs|must be a tuple"):
        tn.sample(x, seed=0, return_valid=True, out=np.zeros(2, np.int64))
