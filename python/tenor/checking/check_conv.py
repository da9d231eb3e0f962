"""Convolutions against NumPy in float64: a sum over taps of shifted, strided images; gradients by the adjoint of each step."""
import numpy as np

from tenor.checking.draw import FLOATS, INTS, tolerance, wide
from tenor.checking.outcome import Each, Refused, Same


class Conv:
    """A convolution's options and its three directions in float64."""

    def __init__(self, draw, most=6):
        self.dims = draw.int(1, 3)
        kind = draw.int(0, 2)
        self.groups = 1 if kind == 0 else draw.int(1, 5)
        c, o = (draw.int(1, most), draw.int(1, most)) if kind < 2 else (1, draw.int(1, 2))
        self.kernel = [draw.int(1, 5 if self.dims < 3 else 2) for _ in range(self.dims)]
        self.stride, self.dilation = ([draw.int(1, 3) for _ in range(self.dims)] for _ in range(2))
        self.sides = [(draw.int(0, 3), draw.int(0, 3)) for _ in range(self.dims)]
        spans = [(k - 1) * d + 1 - lo - hi for k, d, (lo, hi) in zip(self.kernel, self.dilation, self.sides)]
        self.size = [max(s, 1) + draw.int(0, 9 if self.dims < 3 else 3) for s in spans]
        self.image = (draw.int(1, 2), self.groups * c, *self.size)
        self.filter = (self.groups * o, c, *self.kernel)
        self.places = [(n + lo + hi - (k - 1) * d - 1) // s + 1
                       for n, (lo, hi), k, d, s in zip(self.size, self.sides, self.kernel, self.dilation, self.stride)]
        self.output = (self.image[0], self.filter[0], *self.places)
        self.options = dict(stride=self.stride, padding=self.sides, dilation=self.dilation, groups=self.groups)

    def padded(self, x):
        return np.pad(x, [(0, 0), (0, 0), *self.sides])

    def taps(self):
        """Each tap, and the places of a padded image that its outputs read."""
        for tap in np.ndindex(*self.kernel):
            yield tap, (slice(None), slice(None), *(slice(t * d, t * d + (p - 1) * s + 1, s)
                                                    for t, d, p, s in zip(tap, self.dilation, self.places, self.stride)))

    def by_group(self, x, per_group_first=False):
        """[N, G c, ...] as [G, N, c, pixels]; a tap's [G o, c] as [G, o, c]."""
        if per_group_first:
            return x.reshape(self.groups, -1, x.shape[1])
        n, c = x.shape[:2]
        return x.reshape(n, self.groups, c // self.groups, -1).swapaxes(0, 1)

    def together(self, x):
        """The way back: [G, N, c, pixels] as [N, G c, *P]."""
        g, n, c, _ = x.shape
        return x.swapaxes(0, 1).reshape(n, g * c, *self.places)

    def forward(self, x, w):
        x, y = self.padded(x), 0
        for tap, at in self.taps():
            y = y + self.by_group(w[(..., *tap)], True)[:, None] @ self.by_group(x[at])
        return self.together(y)

    def data_backward(self, g, w):
        dx = self.padded(np.zeros(self.image))
        for tap, at in self.taps():
            dx[at] += self.together(self.by_group(w[(..., *tap)], True).swapaxes(1, 2)[:, None] @ self.by_group(g))
        return dx[(slice(None), slice(None), *(slice(lo, lo + n) for (lo, _), n in zip(self.sides, self.size)))]

    def weight_backward(self, x, g):
        x, dw = self.padded(x), np.zeros(self.filter)
        for tap, at in self.taps():
            dw[(..., *tap)] = (self.by_group(g) @ self.by_group(x[at]).swapaxes(2, 3)).sum(1).reshape(self.filter[:2])
        return dw


def last(x):
    return np.moveaxis(np.asarray(x), 1, -1)


def by_strategies(draw):
    """Calls by a strategy drawn for each, or by "auto" where that one says that it cannot do this."""
    def by(call, *arguments, **options):
        strategy = draw.pick(["auto", "direct", "implicit_gemm", "vendor"])
        try:
            return call(*arguments, strategy=strategy, **options)
        except Exception as error:
            if type(error).__name__ != "UnsupportedError" or f"strategy '{strategy}' cannot do this" not in str(error):
                raise
            return call(*arguments, **options)
    return by


def conv_directions(tn, draw):
    c, t = Conv(draw), draw.pick(FLOATS)
    x, w, g = (draw.array(s, t, special=0, scale=1) for s in (c.image, c.filter, c.output))
    bias = draw.array((c.filter[0],), t, special=0) if draw.chance(0.5) else None
    o, by = c.options, by_strategies(draw)
    y = c.forward(wide(x), wide(w)) + (0 if bias is None else wide(bias).reshape(-1, *[1] * c.dims))
    dx, dw, tol = c.data_backward(wide(g), wide(w)), c.weight_backward(wide(x), wide(g)), 8 * tolerance(t)
    here = lambda a: None if a is None else tn.asarray(a)
    nchw = Each(Same(by(tn.conv_forward, here(x), here(w), here(bias), **o), y, tol), Same(by(tn.conv_data_backward, here(g), here(w), c.image, **o), dx, tol),
                Same(by(tn.conv_weight_backward, here(x), here(g), c.filter, **o), dw, tol), Same(tn.conv_bias_backward(here(g)), wide(g).sum((0, *range(2, g.ndim))), tol))
    if draw.chance(0.5):
        return nchw
    shape = lambda s: (s[0], *s[2:], s[1])
    x, w, g = (last(a) for a in (x, w, g))
    return Each(Same(by(tn.conv_forward_nhwc, here(x), here(w), here(bias), **o), last(y), tol),
                Same(by(tn.conv_data_backward_nhwc, here(g), here(w), shape(c.image), **o), last(dx), tol),
                Same(by(tn.conv_weight_backward_nhwc, here(x), here(g), shape(c.filter), **o), last(dw), tol),
                Same(tn.conv_bias_backward_nhwc(here(g)), wide(g).sum(tuple(range(g.ndim - 1))), tol))


def conv_transposes(tn, draw):
    """The convolution that reads its result, by the definition."""
    c, t = Conv(draw), draw.pick(FLOATS)
    more = [draw.int(0, max(s, d) - 1) for s, d in zip(c.stride, c.dilation)]
    c.size = [(p - 1) * s - lo - hi + (k - 1) * d + 1 + m
              for p, s, (lo, hi), k, d, m in zip(c.places, c.stride, c.sides, c.kernel, c.dilation, more)]
    x, w = draw.array(c.output, t, special=0, scale=1), draw.array(c.filter, t, special=0, scale=1)
    o, by = dict(c.options, output_padding=more), by_strategies(draw)
    if min(c.size) < 1:
        return Refused(lambda: tn.conv_transpose(tn.asarray(x), tn.asarray(w), **o), "ShapeError")
    c.image = (*c.image[:2], *c.size)
    g = draw.array(c.image, t, special=0, scale=1)
    tol = 8 * tolerance(t)
    back = dict(o, output_padding=draw.pick([more, None]))
    here = tn.asarray
    return Each(Same(by(tn.conv_transpose, here(x), here(w), **o), c.data_backward(wide(x), wide(w)), tol),
                Same(by(tn.conv_transpose_data_backward, here(g), here(w), c.output, **back), c.forward(wide(g), wide(w)), tol),
                Same(by(tn.conv_transpose_weight_backward, here(x), here(g), c.filter, **back), c.weight_backward(wide(g), wide(x)), tol))


def conv_columns(tn, draw):
    c, t = Conv(draw, 3), draw.pick(FLOATS + INTS)
    x = draw.array(c.image, t, special=0)
    options = dict(stride=c.stride, padding=c.sides, dilation=c.dilation)
    padded, taps = c.padded(np.asarray(x)), int(np.prod(c.kernel))
    columns = np.stack([padded[at] for _, at in c.taps()], 2).reshape(c.image[0], c.image[1] * taps, -1)
    g = draw.array(columns.shape, t, special=0, scale=1)
    image = c.padded(np.zeros(c.image, np.float64 if t in FLOATS else t))
    parts = wide(g).reshape(c.image[0], c.image[1], taps, *c.places)
    with np.errstate(over="ignore"):
        for i, (_, at) in enumerate(c.taps()):
            image[at] += parts[:, :, i].astype(image.dtype)
    image = image[(slice(None), slice(None), *(slice(lo, lo + n) for (lo, _), n in zip(c.sides, c.size)))]
    tol = 4 * tolerance(t) if t in FLOATS else 0
    return Each(Same(tn.im2col(tn.asarray(x), c.kernel, **options), columns), Same(tn.col2im(tn.asarray(g), c.size, c.kernel, **options), image, tol))


def bilinear(plane, y, x):
    """plane [H, W] at every (y, x), zeros outside."""
    out = np.zeros(y.shape)
    for i in range(plane.shape[0]):
        for j in range(plane.shape[1]):
            out += plane[i, j] * np.maximum(0, 1 - np.abs(y - i)) * np.maximum(0, 1 - np.abs(x - j))
    return out


class Deform:
    """A deformable convolution's sizes and sampling points; linear in image, filter and mask."""

    def __init__(self, draw, t):
        self.og, self.groups, self.kernel = draw.int(1, 2), draw.int(1, 2), (draw.int(1, 3), draw.int(1, 2))
        self.n, self.c, self.o = draw.int(1, 2), self.og * self.groups * draw.int(1, 2), 2 * self.groups
        self.size, self.stride, self.dilation = (draw.int(3, 6), draw.int(3, 6)), (draw.int(1, 2), 1), (1, draw.int(1, 2))
        self.sides, self.taps = ((1, 0), (draw.int(0, 1), 1)), self.kernel[0] * self.kernel[1]
        self.places = [(s + sum(p) - (k - 1) * d - 1) // step + 1
                       for s, p, k, d, step in zip(self.size, self.sides, self.kernel, self.dilation, self.stride)]
        self.image, self.filter = (self.n, self.c, *self.size), (self.o, self.c // self.groups, *self.kernel)
        self.points, self.masks = ((self.n, k * self.og * self.taps, *self.places) for k in (2, 1))
        self.offset = draw.array(self.points, t, special=0, scale=1)
        self.options = dict(stride=self.stride, padding=self.sides, dilation=self.dilation)

    def forward(self, x, w, mask):
        columns, at = np.zeros((self.n, self.c, self.taps, *self.places)), wide(self.offset).reshape(self.n, self.og, self.taps, 2, *self.places)
        rows, cols = np.indices(self.places)
        for i, ch, k in np.ndindex(self.n, self.c, self.taps):
            g = ch // (self.c // self.og)
            y = rows * self.stride[0] + k // self.kernel[1] * self.dilation[0] - self.sides[0][0] + at[i, g, k, 0]
            z = cols * self.stride[1] + k % self.kernel[1] * self.dilation[1] - self.sides[1][0] + at[i, g, k, 1]
            columns[i, ch, k] = bilinear(x[i, ch], y, z) * mask.reshape(self.n, self.og, self.taps, *self.places)[i, g, k]
        columns = columns.reshape(self.n, self.groups, self.c // self.groups * self.taps, -1)
        return (w.reshape(self.groups, self.o // self.groups, -1) @ columns).reshape(self.n, self.o, *self.places)


def conv_deformed(tn, draw):
    t = draw.pick(FLOATS)
    d = Deform(draw, t)
    x, w, mask = (draw.array(s, t, special=0, scale=1) for s in (d.image, d.filter, d.masks))
    got = tn.deform_conv2d(*map(tn.asarray, (x, d.offset, w, mask)), **d.options)
    return Same(got, d.forward(*map(wide, (x, w, mask))), 16 * tolerance(t))


def conv_deformed_gradients(tn, draw):
    """Each is the adjoint of the map that it belongs to: <gradient, other> = <g, map(other)>. Offsets: by differences, in C++."""
    t = draw.pick(FLOATS[:2])
    d = Deform(draw, t)
    x, w, mask, bias = (draw.array(s, t, special=0, scale=1) for s in (d.image, d.filter, d.masks, (d.o,)))
    g = draw.array((d.n, d.o, *d.places), t, special=0, scale=1)
    grads = tn.deform_conv2d_backward(*map(tn.asarray, (g, x, d.offset, w, mask, bias)), **d.options)
    other = [draw.values(s, np.dtype(np.float64), special=0, scale=1) for s in (d.image, d.filter, d.masks)]
    operands = [wide(a) for a in (x, w, mask)]
    want = [(wide(g) * d.forward(*operands[:i], other[i], *operands[i + 1:])).sum() for i in range(3)]
    host = lambda a: a.numpy() if hasattr(a, "numpy") else a
    got = [(wide(host(grad)) * a).sum() for grad, a in zip((grads.grad_input, grads.grad_weight, grads.grad_mask), other)]
    size = 1 + np.abs(wide(g)).sum() * np.abs(operands[0]).max(initial=0) * np.abs(operands[1]).max(initial=0) * d.taps
    return Each(Same(np.array(got) / size, np.array(want) / size, 16 * tolerance(t)), Same(grads.grad_bias, wide(g).sum((0, 2, 3)), 16 * tolerance(t)))


def conv_refusals(tn, draw):
    z = lambda *shape, dtype=np.float32: tn.asarray(np.zeros(shape, dtype))
    x, w = z(1, 4, 5, 5), z(4, 4, 3, 3)
    forward = lambda **o: lambda: tn.conv_forward(x, w, **o)
    call, kind = draw.pick([
        (forward(groups=0), "ValueError"), (forward(stride=0), "ValueError"), (forward(stride=(1, 1, 1)), "ValueError"), (forward(dilation=(1, 0)), "ValueError"),
        (forward(padding=-1), "ValueError"), (forward(padding="full"), "ValueError"), (forward(padding=((1, 2, 3), (1, 1))), "ValueError"),
        (forward(padding="same", stride=2), "ValueError"), (forward(strategy="fft"), "ValueError"), (forward(groups=2), "ShapeError"), (forward(dilation=3), "ShapeError"),
        (forward(groups=3), "ShapeError"), (lambda: tn.conv_forward(x, z(4, 4, 3)), "ShapeError"), (lambda: tn.conv_forward(x, w, z(3)), "ShapeError"),
        (lambda: tn.conv_forward(x, z(4, 4, 3, 3, dtype=np.float16)), "DTypeError"), (lambda: tn.conv_forward(z(1, 4, 5, 5, dtype=np.int32), w), "DTypeError"),
        (lambda: tn.conv_data_backward(x, w, (1, 4, 5, 5)), "ShapeError"), (lambda: tn.conv_data_backward(x, w, (1, 4, 7)), "ShapeError"),
        (lambda: tn.conv_weight_backward(x, x, (4, 4, 3, 3)), "ShapeError"), (lambda: tn.conv_transpose(x, w, output_padding=1), "ValueError"),
        (lambda: tn.conv_transpose(x, w, padding=5), "ShapeError"), (lambda: tn.conv_transpose(x, z(3, 4, 3, 3)), "ShapeError"),
        (lambda: tn.im2col(x, 6), "ShapeError"), (lambda: tn.im2col(x, 0), "ValueError"), (lambda: tn.col2im(z(1, 4, 5), (4, 4), 2), "ShapeError"),
        (lambda: tn.deform_conv2d(x, z(1, 17, 3, 3), w), "ShapeError"), (lambda: tn.deform_conv2d(x, z(1, 18, 3, 3), w, z(1, 8, 3, 3)), "ShapeError")])
    return Refused(call, kind)


PROPERTIES = [conv_directions, conv_transposes, conv_columns, conv_deformed, conv_deformed_gradients, conv_refusals]
