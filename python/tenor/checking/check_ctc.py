"""CTC against log-space recursions in NumPy's float64, decoders against a search through maps."""
import numpy as np

from tenor.checking.draw import FLOATS, tolerance, wide
from tenor.checking.outcome import Each, Refused, Same, host


def recursion(log_probs, labels, blank):
    """(loss, gradient [T, C]) of one sample: exp(log_probs) - posterior, NaN where the target cannot be spelled."""
    ext = np.full(2 * len(labels) + 1, blank)
    ext[1::2] = labels
    t_count, width = len(log_probs), len(ext)
    if t_count == 0:
        return (0.0 if width == 1 else np.inf), np.zeros(log_probs.shape)
    skip = np.zeros(width, bool)
    skip[2:] = (ext[2:] != blank) & (ext[2:] != ext[:-2])
    lp = log_probs[:, ext]
    none = np.full(2, -np.inf)

    def reach(a, may):  # from a state, the one before and the one before that
        before = np.concatenate((none, a))
        return np.logaddexp(np.logaddexp(a, before[1:-1]), np.where(may, before[:-2], -np.inf))

    with np.errstate(all="ignore"):
        start = np.where(np.arange(width) < 2, 0.0, -np.inf)
        alpha, after = np.empty((t_count, width)), np.empty((t_count, width))
        r, back = start, start
        back_skip = np.concatenate((np.zeros(2, bool), skip[2:][::-1]))[:width]
        for t in range(t_count):
            alpha[t] = r + lp[t]
            after[t_count - 1 - t] = back[::-1]
            r, back = reach(alpha[t], skip), reach(back + lp[t_count - 1 - t, ::-1], back_skip)
        total = np.logaddexp.reduce(alpha[-1, -2:])
        gradient = np.exp(log_probs)
        np.subtract.at(gradient.T, ext, np.exp(alpha + after - total).T)
    return -total, np.full(log_probs.shape, np.nan) if total == -np.inf else gradient


def laid_out(draw, x):
    """Under other strides, but not repeated: which label is whose matters here."""
    y = draw.layout(x)
    return x if 0 in y.strides else y


class Batch:
    """Random samples, as the operators take them."""

    def __init__(self, draw):
        t, n, c, s = draw.int(0, 30), draw.int(0, 4), draw.int(1, 40), draw.int(0, 9)
        self.dtype, self.blank = draw.pick(FLOATS), draw.int(0, c - 1)
        x = draw.rng.standard_normal((t, n, c)) * draw.pick([0.3, 1, 5])
        if draw.chance(0.2):
            x[draw.rng.random(x.shape) < 0.2] = -np.inf
            x[..., self.blank] = 0
        x -= np.logaddexp.reduce(x, -1, keepdims=True)
        self.frames, self.counts = draw.rng.integers(0, t + 1, n), draw.rng.integers(0, s + 1, n)
        self.labels = [draw.rng.integers(0, c, k) for k in self.counts]
        self.x = x.astype(self.dtype)
        for b, frames in enumerate(self.frames):
            self.x[frames:, b] = np.nan
        self.padded = np.full((n, s), 99)
        for b, row in enumerate(self.labels):
            self.padded[b, : len(row)] = row

    def arguments(self, draw):
        flat = draw.chance(0.5)
        kind = draw.pick([np.int16, np.int32, np.int64])
        targets = np.concatenate([np.zeros(0, int), *self.labels]) if flat else self.padded
        lengths = [a.tolist() if draw.chance(0.4) else laid_out(draw, a.astype(kind)) for a in (self.frames, self.counts)]
        return laid_out(draw, self.x), laid_out(draw, targets.astype(kind)), *lengths

    def samples(self):
        return [recursion(wide(self.x[:frames, b]), row, self.blank) for b, (frames, row) in enumerate(zip(self.frames, self.labels))]


def placed(tn, args):
    return [a if isinstance(a, list) else tn.asarray(a) for a in args]


def ctc_losses(tn, draw):
    batch, reduction, zero = Batch(draw), draw.pick(["mean", "sum", "none"]), draw.chance(0.5)
    found = batch.samples()
    n = len(found)
    losses = np.array([0.0 if zero and np.isinf(loss) else loss for loss, _ in found])
    weights = np.array([1 / (max(k, 1) * n) if reduction == "mean" else 1.0 for k in batch.counts])
    up = draw.rng.standard_normal(n if reduction == "none" else ()).astype(batch.dtype)
    unit, gradient = np.zeros(batch.x.shape), np.zeros(batch.x.shape)
    for b, ((loss, g), frames) in enumerate(zip(found, batch.frames)):
        unit[:frames, b] = (0 if zero and np.isinf(loss) else g) * weights[b]
        gradient[:frames, b] = unit[:frames, b] * (wide(up)[b] if reduction == "none" else wide(up))
    with np.errstate(invalid="ignore"):
        want = losses if reduction == "none" else np.asarray((losses * weights).sum())
    options, tol = dict(blank=batch.blank, reduction=reduction, zero_infinity=zero), 4 * tolerance(batch.dtype)
    both = tn.ctc_loss(*placed(tn, batch.arguments(draw)), return_grad=True, **options)
    return Each(Same(tn.ctc_loss(*placed(tn, batch.arguments(draw)), **options), want, tol), Same(both.loss, want, tol),
                Same(both.gradient, unit, tol), Same(tn.ctc_loss_backward(tn.asarray(up), *placed(tn, batch.arguments(draw)), **options), gradient, tol))


def ids_of(sequences, t):
    ids = np.full((len(sequences), t), -1, np.int64)
    for row, labels in zip(ids, sequences):
        row[: len(labels)] = labels
    return ids, np.array([len(s) for s in sequences], np.int64).reshape(len(sequences))


def ctc_greedy(tn, draw):
    batch, sequences = Batch(draw), []
    for b, frames in enumerate(batch.frames):
        best = wide(batch.x[:frames, b]).argmax(-1)
        sequences.append([k for i, k in enumerate(best) if k != batch.blank and (i == 0 or k != best[i - 1])])
    x, _, frames, _ = placed(tn, batch.arguments(draw))
    got, want = tn.ctc_greedy_decode(x, frames, batch.blank), ids_of(sequences, len(batch.x))
    return Each(Same(got.ids, want[0]), Same(got.lengths, want[1]))


def beam(log_probs, blank, width):
    """The best sequence, or None where two prefixes are nearly as good as one another somewhere that matters."""
    prefixes = {(): (1.0, 0.0)}
    for row in np.exp(log_probs):
        ends = {}
        for prefix, (b, nb) in prefixes.items():
            for c, p in enumerate(row):
                if c == blank:
                    steps = [(prefix, 0, (b + nb) * p)]
                elif prefix and prefix[-1] == c:
                    steps = [(prefix, 1, nb * p), (prefix + (c,), 1, b * p)]
                else:
                    steps = [(prefix + (c,), 1, (b + nb) * p)]
                for key, at, value in steps:
                    ends.setdefault(key, [0.0, 0.0])[at] += value
        order = sorted(((-sum(v), k) for k, v in ends.items() if sum(v) > 0))
        values = [-v for v, _ in order[: width + 1]]
        if any(x - y <= 1e-9 * x for x, y in zip(values, values[1:])):
            return None
        scale = values[0] if values else 1.0
        prefixes = {k: tuple(v / scale for v in ends[k]) for _, k in order[:width]}
    return next(iter(prefixes), ())


def ctc_beams(tn, draw):
    batch, width = Batch(draw), draw.int(1, 8)
    x, _, frames, _ = placed(tn, batch.arguments(draw))
    got = tn.ctc_beam_decode(x, frames, batch.blank, beam_width=width)
    found = [beam(wide(batch.x[:f, b]), batch.blank, width) for b, f in enumerate(batch.frames)]
    ids, lengths = ids_of([s or () for s in found], len(batch.x))
    for b, s in enumerate(found):
        if s is None:  # rounding decides
            ids[b], lengths[b] = host(got.ids)[b], host(got.lengths)[b]
    return Each(Same(got.ids, ids), Same(got.lengths, lengths))


def ctc_refusals(tn, draw):
    x, targets = np.zeros((4, 2, 3), np.float32), np.ones((2, 2), np.int64)
    loss = lambda x=x, targets=targets, frames=[4, 4], counts=[2, 2], **options: lambda: tn.ctc_loss(
        tn.asarray(x), tn.asarray(targets), frames, counts, **options)
    call, kind = draw.pick([
        (loss(frames=[4, 5]), "ValueError"), (loss(counts=[3, 0]), "ValueError"), (loss(counts=[2, -1]), "ValueError"), (loss(blank=3), "ValueError"),
        (loss(blank=-1), "ValueError"), (loss(reduction="max"), "ValueError"), (loss(frames=[4]), "ShapeError"), (loss(x=x[0]), "ShapeError"),
        (loss(targets=targets[:1]), "ShapeError"), (loss(targets=targets.ravel()[:3]), "ShapeError"), (loss(targets=targets * 1.0), "DTypeError"),
        (loss(x=x.astype(np.int32)), "DTypeError"), (loss(frames=[4.0, 4.0]), "DTypeError"),
        (lambda: tn.ctc_loss_backward(tn.asarray(np.ones(2, np.float32)), tn.asarray(x), tn.asarray(targets), [4, 4], [2, 2]), "ShapeError"),
        (lambda: tn.ctc_beam_decode(tn.asarray(x), beam_width=0), "ValueError"), (lambda: tn.ctc_greedy_decode(tn.asarray(x), [5, 1]), "ValueError")])
    return Refused(call, kind)


PROPERTIES = [ctc_losses, ctc_greedy, ctc_beams, ctc_refusals]
