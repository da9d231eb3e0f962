"""Sampling against a sort and a race in float64, with its own Philox."""
import numpy as np

from tenor.checking.check_reduce import stable_order
from tenor.checking.draw import FLOATS, tolerance, wide
from tenor.checking.outcome import Each, Refused, Same

SAMPLE, PROBS, MULTINOMIAL, ACCEPT, RESIDUAL = 1, 2, 3, 5, 6
LOW = np.uint64(0xFFFFFFFF)


def philox(groups, position, tag, seed):
    """Philox4x32-10 (Salmon et al., SC 2011) of every group: words [len(groups), 4]."""
    x = [np.asarray(groups, np.uint64) & LOW, *(np.full(len(groups), v, np.uint64) for v in (position & 0xFFFFFFFF, position >> 32, tag))]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        a, b = x[0] * np.uint64(0xD2511F53), x[2] * np.uint64(0xCD9E8D57)
        x = [(b >> np.uint64(32)) ^ x[1] ^ np.uint64(k0), b & LOW, (a >> np.uint64(32)) ^ x[3] ^ np.uint64(k1), a & LOW]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(x, -1)


def scores(weights, seed, position, tag):
    n = len(weights)
    words = philox(np.arange((n + 3) // 4), position, tag, seed).reshape(-1)[:n]
    more = philox(np.arange((n + 3) // 4), position, tag | 0x80000000, seed).reshape(-1)[:n]
    u = np.where(words >= 256, (words + 0.5) * 2.0 ** -32, (words.astype(float) * 2.0 ** 32 + more + 0.5) * 2.0 ** -64)
    return weights / -np.log1p(-u)


def kept(p, x, k, top_p, min_p, joint=False):
    """p with 0 for what the filters drop; x gives the order."""
    order = stable_order(x, 0, True)
    k = len(p) if k <= 0 or k > len(p) else k
    mass = p[order]
    before = np.cumsum(mass) - mass
    total = mass.sum() if joint else mass[:k].sum()
    keep = (before <= top_p * total) | (top_p >= 1)
    keep[0], keep[k:] = True, False
    keep &= mass >= min_p * mass[0]
    out = np.zeros_like(p)
    out[order[keep]] = mass[keep]
    return out


def is_close_call(p, x, k, top_p, min_p, joint=False):
    """Whether rounding decides which tokens stay."""
    def near(by):
        return kept(p, x, k, top_p * (1 + by) if top_p < 1 else top_p, min_p * (1 + by), joint) > 0
    return not np.array_equal(near(-1e-4), near(1e-4))


def is_close_race(ordered):
    """Whether two neighbours are nearer to each other than float32, in which the race is run, tells apart."""
    ahead, behind = ordered[:-1], ordered[1:]
    return bool(np.any((behind > 0) & (ahead - behind < 1e-6 * ahead)))


def rows_of(draw, positive=False):
    shape = (draw.int(0, 5), draw.int(1, 400))
    x = draw.values(shape, draw.pick(FLOATS), special=0)
    return draw.layout(abs(x) if positive else x)


def samples(tn, draw):
    x, joint = rows_of(draw), draw.chance(0.3)
    b, n = x.shape
    t, k = draw.rng.choice([1.0, 0.5, 2.0, 0.0], b), draw.rng.integers(-1, n + 2, b)
    p, m = draw.rng.choice([1.0, 0.9, 0.5, 0.0], b), draw.rng.choice([0.0, 0.1, 1.0], b)
    seed, position = draw.rng.integers(0, 2 ** 62, b), draw.rng.integers(0, 2 ** 40, b)
    got, want = np.array(tn.sample(x, temperature=t, top_k=k, top_p=p, min_p=m, seed=seed, position=position, joint=joint)), []
    for r, row in enumerate(wide(x)):
        if t[r] == 0:
            want.append(row.argmax())
            continue
        weights = np.exp((row - row.max()) / t[r])
        close = is_close_call(weights, row, k[r], p[r], m[r], joint)
        drawn = scores(kept(weights, row, k[r], p[r], m[r], joint), int(seed[r]), int(position[r]), SAMPLE).argmax()
        want.append(got[r] if close else drawn)
    return Same(got, np.array(want, np.int64))


def probability_samples(tn, draw):
    x, seed = rows_of(draw, positive=True), draw.int(0, 2 ** 63 - 1)
    if draw.chance(0.2) and x.shape[0]:
        x = np.array(x)
        x[0] = draw.pick([0, np.nan, -1, np.inf])
    v = wide(x)
    valid = np.isfinite(v).all(-1) & (v >= 0).all(-1) & (v > 0).any(-1)
    want = [scores(row / row.max(), seed, 0, PROBS).argmax() if ok else 0 for row, ok in zip(v, valid)]
    got = tn.sample_from_probs(x, seed=seed, return_valid=True)
    return Each(Same(got.ids, np.array(want, np.int64)), Same(got.valid, valid))


def multinomials(tn, draw):
    x, seed = rows_of(draw, positive=True), draw.int(0, 2 ** 63 - 1)
    n = draw.int(0, x.shape[1] + 1)
    if n == 0 or (n > x.shape[1] and x.shape[0]):
        return Refused(lambda: tn.multinomial(x, n, seed=seed), "ValueError")
    want = np.full((x.shape[0], n), -1)
    for r, row in enumerate(wide(x)):
        if row.any():
            drawn = scores(row / row.max(), seed, 3, MULTINOMIAL)
            order = stable_order(drawn, 0, True)[:n]
            if x.dtype != np.float64 and is_close_race(drawn[order]):
                return None
            want[r] = np.where(row[order] > 0, order, -1)
    return Same(tn.multinomial(x, n, False, seed, 3), want)


def masks(tn, draw):
    x = draw.array((draw.int(0, 5), draw.int(0, 400)), draw.pick(FLOATS))
    k = draw.int(-1, x.shape[1] + 2)
    want = np.array(x)
    if 0 < k < x.shape[1]:
        np.put_along_axis(want, stable_order(x, 1, True)[:, k:], np.array(-np.inf, x.dtype), 1)
    return Same(tn.top_k_mask_logits(x, k), want)


def nuclei(tn, draw):
    x, p = rows_of(draw, positive=True), draw.pick([0.0, 0.3, 0.9, 1.0])
    if any(is_close_call(row, row, 0, p, 0) for row in wide(x)):
        return None
    want = np.array([kept(row, row, 0, p, 0) for row in wide(x)]).reshape(x.shape)
    with np.errstate(invalid="ignore"):
        return Same(tn.top_p_normalize_probs(x, p), want / want.sum(-1, keepdims=True), tolerance(x.dtype))


def chains(tn, draw):
    b, n, v, seed = draw.int(0, 3), draw.int(0, 4), draw.int(1, 60), draw.int(0, 2 ** 63 - 1)
    p = abs(draw.values((b, n + 1, v), np.float64, special=0)) + 0.01
    q = abs(draw.values((b, n, v), np.float64, special=0)) + 0.01
    p, q = draw.layout(p / p.sum(-1, keepdims=True)), draw.layout(q / q.sum(-1, keepdims=True))
    drafts = draw.rng.integers(-1, v, (b, n))
    ids, accepted = np.full((b, n + 1), -1), np.zeros(b, np.int64)
    for r in range(b):
        i = 0
        while i < n and drafts[r, i] >= 0:
            w = philox([0], i, ACCEPT, seed)[0]
            if not (int(w[1]) << 32 | int(w[0])) // 2 ** 11 * 2.0 ** -53 * q[r, i, drafts[r, i]] < p[r, i, drafts[r, i]]:
                break
            ids[r, i] = drafts[r, i]
            i += 1
        rest = np.maximum(p[r, i] - q[r, i], 0) if i < n and drafts[r, i] >= 0 else p[r, i]
        ids[r, i], accepted[r] = scores(rest if rest.any() else p[r, i], seed, i, RESIDUAL).argmax(), i
    got = tn.speculative_accept(p, q, drafts, seed)
    return Each(Same(got.ids, ids), Same(got.accepted, accepted))


PROPERTIES = [samples, probability_samples, multinomials, masks, nuclei, chains]
