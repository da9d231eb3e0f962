"""Paged attention against the formula in float64 over each row's gathered keys; append and copies of pages against loops."""
import numpy as np
from tenor.checking.draw import FLOATS, tolerance, wide
from tenor.checking.outcome import Each, Refused, Same


class Schedule:
    """A random schedule: some sequences share their first page, unused table entries are junk, some rows are padding."""

    def __init__(self, draw):
        self.size, count = draw.pick([1, 3, 8, 16, 64]), draw.int(1, 4)
        self.lengths = [draw.pick([0, 1, draw.int(1, 40), draw.int(1, 200)]) for _ in range(count)]
        used = [-(-n // self.size) for n in self.lengths]
        self.pages = max(sum(used), 1)
        order = sorted(range(self.pages), key=lambda page: (page * 7919 + self.size) % 10007)
        self.tables = [[order.pop() for _ in range(n)] for n in used]
        if min(used) > 0 and draw.chance(0.4):
            self.tables[-1][0] = self.tables[0][0]
        self.ids, self.positions = [], []
        for s, n in enumerate(self.lengths):
            rows = draw.int(0, min(n, 4))
            self.ids += [s] * rows + [-1] * draw.int(0, 1)
            self.positions += list(range(n - rows, n))
            self.positions += [0] * (len(self.ids) - len(self.positions))

    def arguments(self):
        return self.size, self.pages, [t + [-1, 2**31 - 1] for t in self.tables], self.lengths, self.ids, self.positions

    def plan(self, tn, like):
        return tn.paged.DevicePlan.upload(tn.paged.HostPlan(*self.arguments()), like=like)

    def rows(self, cache, s):
        """The keys of sequence s, [length, heads, dim], float64."""
        return wide(cache)[self.tables[s]].reshape(-1, *cache.shape[2:])[: self.lengths[s]].astype(np.float64)

    def cache(self, draw, heads, dim, dtype):
        """Normal values where sequences reach, NaN elsewhere."""
        cache = draw.array((self.pages, self.size, heads, dim), dtype, special=0, scale=1)
        reached = np.zeros((self.pages, self.size), bool)
        for table, n in zip(self.tables, self.lengths):
            for j in range(n):
                reached[table[j // self.size], j % self.size] = True
        cache = np.array(cache)
        cache[~reached] = np.nan
        return cache


def reference(plan, q, key, value, scale, causal, window=None, softcap=None, sinks=None):
    """(out, lse) of rows q[i] over key(s) and value(s), the rows of sequence s."""
    n, hq = q.shape[:2]
    dv = value(0).shape[-1]
    out, lse = np.zeros((n, hq, dv)), np.full((n, hq), -np.inf)
    for i, (s, at) in enumerate(zip(plan.ids, plan.positions)):
        if s < 0 or plan.lengths[s] == 0:
            continue
        k, v = key(s), value(s)
        j = np.arange(len(k))
        see = (j <= at) | (not causal)
        if window is not None:
            see &= ((window[0] < 0) | (j >= at - window[0])) & ((window[1] < 0) | (j <= at + window[1]))
        if not see.any():
            continue
        group = hq // k.shape[1]
        for h in range(hq):
            x = k[see][:, h // group] @ wide(q[i, h]).astype(np.float64) * scale
            x = softcap * np.tanh(x / softcap) if softcap else x
            e = np.exp(x - x.max())
            whole = e.sum() + (np.exp(float(wide(sinks)[h]) - x.max()) if sinks is not None else 0)
            out[i, h], lse[i, h] = e @ v[see][:, h // group] / whole, x.max() + np.log(e.sum())
    return out, lse


def results(got, want, dtype):
    return Each(Same(got.out, want[0], 2 * tolerance(dtype), "out"), Same(got.lse, want[1], 10 * tolerance(np.float32), "lse"))


def paged_attention(tn, draw):
    plan, t = Schedule(draw), draw.pick(FLOATS)
    hk, group, d, dv = draw.int(1, 2), draw.int(1, 5), draw.pick([1, 3, 8, 64]), draw.pick([1, 5, 64])
    q = draw.array((len(plan.ids), hk * group, d), t, special=0, scale=1)
    k, v = plan.cache(draw, hk, d, t), plan.cache(draw, hk, dv, t)
    options = dict(scale=draw.pick([d**-0.5, 0.3]), causal=draw.chance(0.6), window=(draw.int(-1, 30), draw.int(-1, 9)) if draw.chance(0.3) else None,
                   softcap=draw.pick([None, None, 2.0]), sinks=draw.array((hk * group,), t, special=0) if draw.chance(0.2) else None)
    want = reference(plan, q, lambda s: plan.rows(k, s), lambda s: plan.rows(v, s), **options)
    here = tn.asarray(q)
    if options["sinks"] is not None:
        options["sinks"] = tn.asarray(options["sinks"])
    splits = draw.int(2, 32)
    split = draw.chance(0.3) and t != np.float64  # partial states are float32
    workspace = tn.paged.SplitWorkspace(here, len(plan.ids), hk * group, dv, splits) if split else None
    return results(plan.plan(tn, here).attention(here, tn.asarray(k), tn.asarray(v), **options, workspace=workspace, return_lse=True), want, t)


def paged_mla(tn, draw):
    plan, t = Schedule(draw), draw.pick(FLOATS)
    heads, rank, rope = draw.int(1, 6), draw.pick([1, 7, 64]), draw.pick([1, 8, 33])
    q, qp = (draw.array((len(plan.ids), heads, n), t, special=0, scale=1) for n in (rank, rope))
    latent, kp = plan.cache(draw, 1, rank, t), plan.cache(draw, 1, rope, t)
    causal = draw.chance(0.7)
    joint = np.concatenate([wide(q), wide(qp)], -1)
    want = reference(plan, joint, lambda s: np.concatenate([plan.rows(latent, s), plan.rows(kp, s)], -1), lambda s: plan.rows(latent, s), 0.2, causal)
    here = tn.asarray(q)
    return results(plan.plan(tn, here).mla(here, tn.asarray(qp), tn.asarray(latent), tn.asarray(kp), 0.2, causal, return_lse=True), want, t)


def paged_append(tn, draw):
    plan, t = Schedule(draw), draw.pick(FLOATS)
    slots = [plan.tables[s][at // plan.size] * plan.size + at % plan.size if s >= 0 else -1 for s, at in zip(plan.ids, plan.positions)]
    real = [s for s in slots if s >= 0]
    k, v = (draw.array((len(plan.ids), 2, n), t, special=0) for n in (3, 5))
    caches = [np.zeros((plan.pages, plan.size, 2, n), t) for n in (3, 5)]
    here = [tn.asarray(np.array(c)) for c in caches]
    append = lambda: plan.plan(tn, here[0]).append(tn.asarray(k), tn.asarray(v), *here)
    if len(set(real)) < len(real):
        return Refused(append, "ValueError")
    for cache, rows in zip(caches, (k, v)):
        for i, slot in enumerate(slots):
            if slot >= 0:
                cache[slot // plan.size, slot % plan.size] = rows[i]
    return Each(*(Same(got, want) for got, want in zip(append(), caches)))


def paged_copies(tn, draw):
    cache = draw.array((draw.int(1, 9), 2, 3), draw.pick(FLOATS))
    dst = list(range(len(cache)))[:: draw.int(1, 3)]
    src = [draw.int(0, len(cache) - 1) for _ in dst]
    want = np.array(cache)
    want[dst] = np.array(cache)[src]
    return Same(tn.paged.copy_pages(tn.asarray(np.array(cache)), src, dst), want)


def bad_schedules(tn, draw):
    good = dict(page_size=4, pages=3, tables=[[0, 2], [1]], lengths=[7, 4], sequence_ids=[0, 1, 1], positions=[6, 2, 3])
    name, value, kind = draw.pick([
        ("page_size", 0, "ValueError"), ("pages", -1, "ValueError"), ("tables", [[0, 3], [1]], "IndexError"), ("tables", [[0], [1]], "ValueError"),
        ("lengths", [7], "ValueError"), ("lengths", [7, -1], "ValueError"), ("lengths", [2**40, 1], "ValueError"), ("sequence_ids", [0, 1, 2], "IndexError"),
        ("sequence_ids", [0, -2, 1], "IndexError"), ("sequence_ids", [0], "ValueError"), ("positions", [6, -1, 3], "IndexError"), ("positions", [0.5] * 3, "DTypeError")])
    return Refused(lambda: tn.paged.HostPlan(**{**good, name: value}), kind)


PROPERTIES = [paged_attention, paged_mla, paged_append, paged_copies, bad_schedules]
