"""Mixture of experts against NumPy in float64: routing by sorting, dispatch by a stable argsort, an expert at a time."""
import numpy as np

from tenor.checking.draw import FLOATS, tolerance, wide
from tenor.checking.outcome import Each, Refused, Same


def first(scores, k):
    """The greatest of each row: larger first, then the lower number; NaN comes last."""
    return np.lexsort((-scores, np.isnan(scores)), axis=-1)[..., :k]


def softmax_choice(logits, k, renormalize):
    """ids and weights; the order is that of float32 (float64) probabilities, of the logits where a row has none."""
    x = wide(logits)
    with np.errstate(all="ignore"):
        top = np.where(np.isnan(x), -np.inf, x).max(-1, keepdims=True)
        p = np.exp(x - top)
        p = p / p.sum(-1, keepdims=True)
    p = p if logits.dtype == np.float64 else p.astype(np.float32).astype(np.float64)
    ids = first(np.where(np.isnan(p).any(-1, keepdims=True), x, p), k)
    w = np.take_along_axis(p, ids, -1)
    return ids, w / w.sum(-1, keepdims=True) if renormalize else w


def sigmoid_choice(logits, bias, k, groups, selected, top_two, renormalize, scale):
    with np.errstate(all="ignore"):
        s = 1 / (1 + np.exp(-wide(logits)))
    s = s if logits.dtype == np.float64 else s.astype(np.float32).astype(np.float64)
    c = s if bias is None else s + wide(bias)
    t, e = c.shape
    c = c if logits.dtype == np.float64 else c.astype(np.float32).astype(np.float64)
    by_group = c.reshape(t, groups, e // groups)
    best = np.take_along_axis(by_group, first(by_group, 2), -1)
    kept = first(best.sum(-1) if top_two else best[..., 0], selected)
    ids = np.empty((t, k), np.int64)
    for row in range(t):
        of_kept = np.sort(np.concatenate([np.arange(e // groups) + g * (e // groups) for g in kept[row]]))
        ids[row] = of_kept[first(c[row, of_kept], k)]
    w = np.take_along_axis(s, ids, -1)
    return ids, (w / (w.sum(-1, keepdims=True) + 1e-20) if renormalize else w) * scale


def plan_outcome(plan, ids, weights, dtype):
    """Weights agree even where rounding decides between two experts; the ids are distinct and there."""
    got = plan.expert_indices("int64").numpy()
    distinct = np.array([len(set(row)) for row in got], np.int64)
    return Each(Same(distinct, np.full(len(ids), ids.shape[1])), Same((got >= 0) & (got < plan.experts), np.full(ids.shape, True)),
                Same(plan.weights(), np.asarray(weights), tolerance(dtype)))


def logits_of(draw, experts=None):
    """Whole numbers below, so that equal scores are equal in every precision; or normal ones."""
    t, e = draw.int(0, 9), experts or draw.pick([1, 2, 5, 8, 33, 64, 128, 200, 520, 1025, 4096])
    dtype = draw.pick(FLOATS)
    x = draw.rng.integers(-2, 3, (t, e)).astype(dtype) if draw.chance(0.5) else draw.values((t, e), dtype, special=0)
    if t and draw.chance(0.3):
        x[draw.int(0, t - 1), draw.int(0, e - 1)] = draw.pick([np.nan, np.inf, -np.inf])
    return draw.layout(x)


def moe_routes(tn, draw):
    x = logits_of(draw)
    k, renormalize = draw.pick([draw.int(0, min(x.shape[1] + 1, 12)), x.shape[1]]), draw.chance(0.5)
    here = tn.asarray(x)
    if not 1 <= k <= x.shape[1]:
        return Refused(lambda: tn.moe.route(here, k), "ValueError")
    plan = tn.moe.route(here, k, renormalize)
    ids, weights = softmax_choice(x, k, renormalize)
    exact = np.array_equal(wide(x), np.round(wide(x)), equal_nan=True)
    return Each(Same(plan.expert_indices("int64"), ids), plan_outcome(plan, ids, weights, x.dtype)) if exact else plan_outcome(plan, ids, weights, x.dtype)


def grouped_options(draw, experts):
    groups = draw.pick([g for g in (1, 2, 4, 8) if experts % g == 0])
    selected = draw.int(1, groups)
    top_two = experts // groups > 1 and draw.chance(0.6)
    return dict(top_k=draw.int(1, min(8, selected * (experts // groups))), groups=groups, selected_groups=selected, group_top_two=top_two,
                renormalize=draw.chance(0.5), scale=draw.pick([1.0, 2.5]))


def moe_grouped_routes(tn, draw):
    x = logits_of(draw, draw.pick([1, 4, 8, 24, 64, 256]))
    if np.array_equal(wide(x), np.round(wide(x)), equal_nan=True):
        x = x * x.dtype.type(400)  # scores 0, 1/2 and 1: sums that are equal are equal in float32
    o = grouped_options(draw, x.shape[1])
    bias = draw.rng.integers(-2, 3, x.shape[1]).astype(np.float32) if draw.chance(0.7) else None
    plan = tn.moe.route_sigmoid_grouped(tn.asarray(x), None if bias is None else tn.asarray(bias), **o)
    ids, weights = sigmoid_choice(x, bias, o["top_k"], o["groups"], o["selected_groups"], o["group_top_two"], o["renormalize"], o["scale"])
    return plan_outcome(plan, ids, weights, x.dtype)


class Own:
    """A plan of the caller's, with ids -1."""

    def __init__(self, draw, dtype, experts=None):
        self.t, self.k, self.e = draw.int(0, 12), draw.int(1, 5), experts or draw.pick([draw.int(1, 9), 60, 120])
        ids = draw.pick([draw.rng.integers(-1, self.e, (self.t, self.k)), np.full((self.t, self.k), draw.int(0, self.e - 1))])  # or all to one
        of_any = [np.int8, np.int16, np.int32, np.int64] + ([np.uint8, np.uint16, np.uint32, np.uint64] if (ids >= 0).all() else [])
        self.ids = draw.layout(ids.astype(draw.pick(of_any)))
        self.weights = draw.layout(draw.values((self.t, self.k), dtype, special=0, scale=1))
        flat = np.asarray(self.ids).astype(np.int64).ravel()
        self.order = np.argsort(np.where(flat < 0, self.e, flat), kind="stable")[: int((flat >= 0).sum())]
        self.offsets = np.concatenate(([0], np.cumsum(np.bincount(flat[flat >= 0], minlength=self.e)))).astype(np.int64)

    def plan(self, tn):
        return tn.moe.RoutingPlan(tn.asarray(self.ids), tn.asarray(self.weights), self.e)

    def tokens(self, x):
        out = np.zeros((self.t * self.k, x.shape[1]), x.dtype)
        out[: len(self.order)] = np.asarray(x)[self.order // self.k]
        return out

    def combine(self, y, shared=None):
        out = np.zeros((self.t, y.shape[1])) if shared is None else wide(shared).copy()
        np.add.at(out, self.order // self.k, wide(self.weights).ravel()[self.order, None] * y[: len(self.order)])
        return out


def moe_moves(tn, draw):
    t = draw.pick(FLOATS)
    own = Own(draw, t)
    h = draw.pick([0, 1, 7, 8, 64, 65])
    x, y = draw.array((own.t, h), t, special=0, scale=1), draw.array((own.t * own.k, h), t, special=0, scale=1)
    shared = draw.array((own.t, h), t, special=0, scale=1) if draw.chance(0.5) else None
    d = own.plan(tn).dispatch(tn.asarray(x))
    got = d.combine(tn.asarray(y), shared=None if shared is None else tn.asarray(shared))
    return Each(Same(d.tokens, own.tokens(x)), Same(d.offsets, own.offsets), Same(got, own.combine(wide(y), shared), 4 * tolerance(t)))


def swiglu(gate, up, down, x, offsets):
    """Rows of x through their experts, the activation rounded as x is."""
    y = np.zeros(x.shape)
    for e, (a, b) in enumerate(zip(offsets, offsets[1:])):
        g, u = wide(x[a:b]) @ wide(gate[e]).T, wide(x[a:b]) @ wide(up[e]).T
        y[a:b] = wide((g / (1 + np.exp(-g)) * u).astype(x.dtype)) @ wide(down[e]).T
    return y


def experts_of(tn, draw, t, e, i, h):
    w = [draw.array(s, t, special=0, scale=0.4) for s in ((e, i, h), (e, i, h), (e, h, i))]
    return w, tn.moe.SwiGluExperts(*map(tn.asarray, w))


def moe_experts(tn, draw):
    t = draw.pick(FLOATS)
    own = Own(draw, t)
    i, h = draw.pick([1, 5, 16, 24]), draw.pick([1, 7, 16, 32])
    w, experts = experts_of(tn, draw, t, own.e, i, h)
    x, shared = draw.array((own.t, h), t, special=0, scale=1), draw.array((own.t, h), t, special=0, scale=1)
    plan, here = own.plan(tn), tn.asarray(x)
    d = plan.dispatch(here)
    y = swiglu(*w, own.tokens(x), own.offsets)
    strategy = draw.pick(["auto", "scalar"])
    got = experts.forward_dispatched(d, strategy)
    routed = experts.forward_routed(here, plan, shared=tn.asarray(shared), strategy=strategy)
    tol = 8 * tolerance(t)
    return Each(Same(got, y, tol), Same(routed, d.combine(got, shared=tn.asarray(shared)).numpy()), Same(routed, own.combine(y, shared), 2 * tol))


def moe_forwards(tn, draw):
    t, e = draw.pick(FLOATS), draw.pick([4, 8, 16])
    _, experts = experts_of(tn, draw, t, e, 16, 8)
    x, logits = tn.asarray(draw.array((draw.int(0, 9), 8), t, special=0, scale=1)), None
    logits = tn.asarray(draw.array((x.shape[0], e), draw.pick(FLOATS), special=0))
    k, o = draw.int(1, 4), grouped_options(draw, e)
    return Each(Same(experts.forward(x, logits, k), experts.forward_routed(x, tn.moe.route(logits, k)).numpy()),
                Same(experts.forward_sigmoid_grouped(x, logits, **o), experts.forward_routed(x, tn.moe.route_sigmoid_grouped(logits, **o)).numpy()))


def moe_grouped_products(tn, draw):
    t, m, g = draw.pick(FLOATS), draw.int(0, 70), draw.int(1, 6)
    n, k = draw.pick([1, 5, 16, 33]), draw.pick([0, 1, 7, 16, 64])
    x, w = draw.array((m, k), t, special=0, scale=1), draw.array((g, n, k), t, special=0, scale=1)
    offsets = np.concatenate(([0], np.sort(draw.rng.integers(0, m + 1, g)))).astype(draw.pick([np.int32, np.int64]))
    want = np.zeros((m, n))
    for i, (a, b) in enumerate(zip(offsets, offsets[1:])):
        want[a:b] = wide(x)[a:b] @ wide(w)[i].T
    return Same(tn.moe.grouped_matmul(*map(tn.asarray, (x, w, offsets))), want, 8 * tolerance(t))


def moe_bad_ids(tn, draw):
    """An id out of range, in any integer dtype; the greatest of an unsigned one is no -1."""
    dtype, e = np.dtype(draw.pick(["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])), draw.int(1, 100)
    ids = draw.rng.integers(0, e, (draw.int(1, 5), draw.int(1, 4))).astype(dtype)
    ids[0, draw.int(0, ids.shape[1] - 1)] = draw.pick([e, np.iinfo(dtype).max] + ([-2, np.iinfo(dtype).min] if dtype.kind == "i" else []))
    here, weights = tn.asarray(draw.layout(ids)), tn.asarray(np.ones(ids.shape, np.float32))
    return Refused(lambda: tn.moe.RoutingPlan(here, weights, e).expert_indices("int64").numpy(), "IndexError")


def moe_refusals(tn, draw):
    z = lambda *shape, dtype=np.float32: tn.asarray(np.zeros(shape, dtype))
    x, good = z(2, 6), dict(top_k=2, groups=3, selected_groups=1)
    grouped = lambda bias=None, **change: lambda: tn.moe.route_sigmoid_grouped(x, bias, **{**good, **change})
    experts = lambda: tn.moe.SwiGluExperts(z(6, 5, 4), z(6, 5, 4), z(6, 4, 5))
    call, kind = draw.pick([
        (grouped(groups=4), "ValueError"), (grouped(selected_groups=4), "ValueError"), (grouped(selected_groups=0), "ValueError"), (grouped(top_k=3), "ValueError"),
        (grouped(scale=np.nan), "ValueError"), (grouped(groups=6, top_k=1), "ValueError"), (grouped(z(5)), "ShapeError"), (grouped(z(6, dtype=np.float16)), "DTypeError"),
        (lambda: tn.moe.route(z(6), 1), "ShapeError"), (lambda: tn.moe.route(z(2, 6, dtype=np.int32), 1), "DTypeError"),
        (lambda: tn.moe.route(x, 2).dispatch(z(3, 4)), "ShapeError"), (lambda: tn.moe.route(x, 2).dispatch(z(2, 4)).combine(z(2, 4)), "ShapeError"),
        (lambda: tn.moe.SwiGluExperts(z(6, 5, 4), z(6, 5, 4), z(6, 5, 4)), "ShapeError"), (lambda: experts().forward(z(2, 4), z(2, 7), 1), "ShapeError"),
        (lambda: experts().forward(z(2, 4, dtype=np.float16), x, 1), "DTypeError"), (lambda: experts().forward_routed(z(2, 4), tn.moe.route(z(2, 7), 1)), "ShapeError"),
        (lambda: experts().forward_dispatched(tn.moe.route(x, 2).dispatch(z(2, 4)), "fast"), "ValueError"),
        (lambda: tn.moe.grouped_matmul(z(3, 4), z(2, 5, 4), z(2, dtype=np.int32)), "ShapeError")])
    return Refused(call, kind)


PROPERTIES = [moe_routes, moe_grouped_routes, moe_moves, moe_experts, moe_forwards, moe_grouped_products, moe_bad_ids, moe_refusals]
