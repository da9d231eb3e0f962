"""CTC from Python: arguments and results of any library, keywords, decoders, errors; PyTorch's own where it is installed."""
import numpy as np
import pytest

import tenor as tn


def batch(t=30, n=3, c=7, s=5, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((t, n, c))
    x -= np.logaddexp.reduce(x, -1, keepdims=True)
    return x.astype(dtype), rng.integers(1, c, (n, s)), [t, t - 3, t // 2][:n], [s, s - 2, 0][:n]


def test_results_have_names_and_the_arguments_kind():
    x, targets, frames, counts = batch()
    both = tn.ctc_loss(x, targets, frames, counts, return_grad=True)
    assert both._fields == ("loss", "gradient") and isinstance(both.loss, np.ndarray) and both.loss.shape == ()
    assert both.gradient.shape == x.shape and both.gradient.dtype == np.float32
    assert float(tn.ctc_loss(x, targets, frames, counts)) == float(both.loss)
    one = tn.ctc_loss_backward(np.float32(1).reshape(()), x, targets, np.array(frames), np.array(counts, np.int16))
    np.testing.assert_array_equal(one, both.gradient)
    ids, lengths = tn.ctc_greedy_decode(x)
    assert ids.dtype == lengths.dtype == np.int64 and ids.shape == (3, 30)
    assert tn.ctc_beam_decode(x, frames, beam_width=3)._fields == ("ids", "lengths")


def test_flat_and_padded_targets_agree():
    x, targets, frames, counts = batch()
    flat = np.concatenate([row[:k] for row, k in zip(targets, counts)])
    want = tn.ctc_loss(x, targets, frames, counts, reduction="none")
    np.testing.assert_array_equal(tn.ctc_loss(x, flat, frames, counts, reduction="none"), want)
    targets[0, counts[0]:], targets[2] = -5, 2**40
    np.testing.assert_array_equal(tn.ctc_loss(x, targets, tuple(frames), counts, 0, "none"), want)


def test_gradients_keep_the_layout():
    x, targets, frames, counts = batch()
    turned = np.ascontiguousarray(x.transpose(1, 0, 2)).transpose(1, 0, 2)
    a, b = (tn.ctc_loss(y, targets, frames, counts, return_grad=True).gradient for y in (x, turned))
    np.testing.assert_array_equal(a, b)
    assert b.strides == turned.strides
    classes_first = np.asfortranarray(x)
    np.testing.assert_allclose(tn.ctc_loss(classes_first, targets, frames, counts, return_grad=True).gradient, a, atol=1e-7)


def test_lengths_are_any_sequence_of_ints():
    x, targets, _, _ = batch()
    want = tn.ctc_loss(x, targets, [30, 29, 28], [2, 3, 4], reduction="none")
    np.testing.assert_array_equal(tn.ctc_loss(x, targets, range(30, 27, -1), range(2, 5), reduction="none"), want)
    np.testing.assert_array_equal(tn.ctc_beam_decode(x, range(30, 27, -1)).ids, tn.ctc_beam_decode(x, [30, 29, 28]).ids)


def test_out():
    x, targets, frames, counts = batch()
    loss, gradient = np.empty((), np.float32), np.empty_like(x)
    got = tn.ctc_loss(x, targets, frames, counts, return_grad=True, out=(loss, gradient))
    assert got.loss is loss and got.gradient is gradient
    np.testing.assert_array_equal(gradient, tn.ctc_loss(x, targets, frames, counts, return_grad=True).gradient)
    ids, lengths = np.empty((3, 30), np.int64), np.empty(3, np.int64)
    tn.ctc_greedy_decode(x, out=(ids, lengths))
    np.testing.assert_array_equal(ids, tn.ctc_greedy_decode(x).ids)


def test_zero_infinity_and_impossible_targets():
    x = np.full((2, 2, 4), -np.log(4), np.float32)
    args = x, np.array([[1, 1], [1, 2]]), [2, 2], [2, 2]
    np.testing.assert_allclose(tn.ctc_loss(*args, reduction="none"), [np.inf, 2 * np.log(4)], rtol=1e-6)
    assert np.isinf(tn.ctc_loss(*args)) and float(tn.ctc_loss(*args, zero_infinity=True, reduction="sum")) == pytest.approx(2 * np.log(4))
    for zero, bad in ((False, np.nan), (True, 0)):
        g = tn.ctc_loss(*args, reduction="none", zero_infinity=zero, return_grad=True).gradient
        np.testing.assert_array_equal(g[:, 0], np.full((2, 4), bad))
        np.testing.assert_allclose(g[:, 1], [[0.25, -0.75, 0.25, 0.25], [0.25, 0.25, -0.75, 0.25]], atol=1e-6)


def test_no_frames_no_samples_no_labels():
    empty = np.zeros((0, 2, 3), np.float32)
    np.testing.assert_array_equal(tn.ctc_loss(empty, np.zeros((2, 1), np.int64), [0, 0], [0, 1], reduction="none"), [0, np.inf])
    assert float(tn.ctc_loss(np.zeros((4, 0, 3), np.float32), np.zeros((0, 1), np.int64), [], [])) == 0
    assert tn.ctc_loss(np.zeros((4, 0, 3), np.float32), np.zeros(0, np.int64), [], [], return_grad=True).gradient.shape == (4, 0, 3)
    assert tn.ctc_greedy_decode(empty).ids.shape == (2, 0)
    ids, lengths = tn.ctc_beam_decode(np.full((3, 1, 2), -np.inf, np.float32))
    assert ids.tolist() == [[-1, -1, -1]] and lengths.tolist() == [0]


def test_beams_find_what_greedy_misses():
    """Each frame's best class is the blank, but more paths spell 1."""
    x = np.log(np.array([[0.6, 0.4], [0.6, 0.4]]))[:, None]
    assert tn.ctc_greedy_decode(x).ids.tolist() == [[-1, -1]]
    assert tn.ctc_beam_decode(x, beam_width=2).ids.tolist() == [[1, -1]]
    assert tn.ctc_beam_decode(x, beam_width=1).ids.tolist() == [[-1, -1]]
    nan = np.log(np.array([[[0.2, np.nan, 0.5]], [[0.9, 0.05, np.inf]]]))
    assert tn.ctc_beam_decode(nan).ids.tolist() == [[2, -1]]


@pytest.mark.parametrize("change, error, text", [
    (dict(frames=[31, 1, 1]), tn.ValueError, "ctc_loss: input_lengths must be 0 to 30, got 31 at 0"),
    (dict(frames=[1, 1]), tn.ShapeError, "input_lengths must hold 3 lengths"), (dict(frames=None), tn.DTypeError, "input_lengths must be an array or"),
    (dict(frames=7), tn.DTypeError, "input_lengths"), (dict(frames=[1, 2, "3"]), tn.DTypeError, "input_lengths"),
    (dict(targets=np.full((3, 5), 7)), tn.IndexError, "targets holds 7 at label 0 of sample 0, which is out of range"),
    (dict(targets=np.ones(9, int)), tn.ShapeError, "add up to, 8, got 9"), (dict(reduction="avg"), tn.ValueError, "reduction must be"),
    (dict(blank=7), tn.ValueError, "blank must be one of log_probs' 7 classes"), (dict(blank=-1), tn.ValueError, "blank"),
    (dict(targets=np.full((3, 5), 2**64 - 1, np.uint64)), tn.IndexError, "out of range")])
def test_errors(change, error, text):
    x, targets, frames, counts = batch()
    given = dict(dict(targets=targets, frames=frames), **change)
    with pytest.raises(error) as raised:
        tn.ctc_loss(x, given.pop("targets"), given.pop("frames"), counts, **given)
    assert text in str(raised.value)


def test_explain():
    cost = tn.explain("F.ctc_loss(x, t, i, l)", x="f32[20,4,9]", t="i64[4,6]", i="i64[4]", l="i64[4]")
    assert [s.op for s in cost.steps] == ["ctc_loss"] and cost.steps[0].shape == ()
    cost = tn.explain("ctc_greedy_decode(x)", x="f32[20,4,9]")
    assert cost.steps[0].op == "ctc_greedy_decode"


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_against_torch(reduction):
    torch = pytest.importorskip("torch")
    for seed, (t, c, s) in enumerate([(30, 7, 5), (120, 40, 30), (9, 3, 8)]):
        x, targets, frames, counts = batch(t, 3, c, s, seed, np.float64)
        frames = [max(f, 1) for f in frames]
        logits = torch.tensor(x, requires_grad=True)
        for zero in (False, True):
            loss = torch.nn.functional.ctc_loss(logits.log_softmax(-1), torch.tensor(targets), torch.tensor(frames), torch.tensor(counts), 0, reduction, zero)
            got = tn.ctc_loss(torch.tensor(x), torch.tensor(targets), frames, counts, 0, reduction, zero, return_grad=True)
            torch.testing.assert_close(got.loss, loss.detach(), rtol=1e-10, atol=1e-10)
            if not torch.isfinite(loss).all():
                continue
            gradient, = torch.autograd.grad(loss.sum(), logits)
            torch.testing.assert_close(got.gradient, gradient, rtol=1e-9, atol=1e-10)


def test_the_least_number_as_a_mask():
    """Often written in place of -inf: beyond what float32 logarithms add up to, so no path, as with -inf."""
    least = np.finfo(np.float32).min
    p = np.array([[[least, 0.0]], [[least, 0.0]]], np.float32)
    no_label = (np.zeros((1, 0), np.int64), [2], [0])
    assert tn.ctc_loss(p, *no_label, reduction="none")[0] == np.inf
    loss, gradient = tn.ctc_loss(p, *no_label, reduction="none", zero_infinity=True, return_grad=True)
    assert loss[0] == 0 and not np.any(gradient)
