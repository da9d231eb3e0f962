"""Fusion: random chains of views, elementwise steps and reductions, fused and as they are written, bit for bit."""
from tenor.checking.draw import FLOATS
from tenor.checking.outcome import Each, Same

UNARY = ["tanh", "sigmoid", "relu", "exp", "abs", "neg", "floor", "rsqrt", "sqrt", "log", "silu", "gelu"]
BINARY = ["add", "sub", "mul", "div", "maximum", "minimum"]
REDUCTIONS = ["sum", "mean", "amax", "amin", "var", "logsumexp"]


def drawn_steps(draw, count):
    """A program as data, so that it is the same with and without memory: (kind, choice, numbers)."""
    kinds = ["unary", "unary", "binary", "binary", "scalar", "reduce", "centre", "view", "to", "write"]
    return [(draw.pick(kinds), draw.int(0, 1 << 20), draw.int(0, 1 << 20), draw.int(0, 1 << 20)) for _ in range(count)]


def fits(x, y):
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(x.shape), reversed(y.shape)))


def apply(tn, step, pool):
    """By methods alone, so that all of it runs where the tensors are."""
    kind, a, b, c = step
    x = pool[-1 - a % min(len(pool), 3)]
    if kind == "unary":
        return getattr(x, UNARY[b % len(UNARY)])()
    if kind == "binary":
        partners = [y for y in pool if fits(x, y)]
        return getattr(x, BINARY[b % len(BINARY)])(partners[c % len(partners)])
    if kind == "scalar":
        return x * 0.75 if b % 2 else x + 1.5
    if kind == "reduce" and x.ndim and 0 not in x.shape:
        return getattr(x, REDUCTIONS[b % len(REDUCTIONS)])(c % x.ndim, keepdim=b % 3 > 0)
    if kind == "centre" and x.ndim and 0 not in x.shape:  # a reduction and what its row becomes of it
        total = getattr(x, REDUCTIONS[b % 3])(c % x.ndim, keepdim=True)
        return x - total if b % 2 else x / total
    if kind == "view" and x.ndim:
        d = c % x.ndim
        return [lambda: x.transpose(d, 0), lambda: x.unsqueeze(d), lambda: x.narrow(d, x.shape[d] // 3, x.shape[d] - x.shape[d] // 3)][b % 3]()
    if kind == "to":
        return x.to([tn.float32, tn.float16, tn.bfloat16, tn.float64][b % 4])
    if kind == "write" and all(n == 1 or s != 0 for n, s in zip(x.shape, x.strides)):
        return x.mul_(0.5) if b % 2 else x.tanh_()
    return x + x


def program(tn, steps):
    def fn(*inputs):
        pool = list(inputs)
        for step in steps:
            pool.append(apply(tn, step, pool))
        return pool[-1], pool[len(pool) // 2 + 1] if len(steps) > 3 else pool[-1]
    return fn


def fuse_chains(tn, draw):
    """Results, and what is written to arguments."""
    shape = draw.shape(0, 3, 3000)
    arrays = [draw.array(draw.broadcastable(shape), draw.pick(FLOATS)) for _ in range(draw.int(1, 3))]
    fn = program(tn, drawn_steps(draw, draw.int(2, 14)))
    fused, plain = [tn.asarray(x).clone() for x in arrays], [tn.asarray(x).clone() for x in arrays]
    fast = tn.fuse(fn)
    got, want = fast(*fused), fn(*plain)
    again = fast(*[tn.asarray(x).clone() for x in arrays])
    return Each(*(Same(g, w.numpy()) for g, w in zip([*got, *again, *fused], [*want, *want, *plain])))


PROPERTIES = [fuse_chains]
