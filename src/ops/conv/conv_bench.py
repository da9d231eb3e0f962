"""The conv family's cases for tenor.bench. The peer is torch.nn.functional in the same layout: of NHWC a permuted view, which
PyTorch knows as channels_last. Rows of targets.json that count for own kernels alone name their strategy."""
from tenor._bench_data import bytes_of, normal


def first(x, last):
    """NHWC as NCHW and the other way round, a view: torch's or tenor's."""
    dims = len(x.shape)
    return x.permute(*((0, dims - 1, *range(1, dims - 1)) if last else (0, *range(2, dims), 1)))


class Shape:
    """A convolution's sizes: batch, channels in and out, image, kernel, stride, groups; padding k // 2."""

    def __init__(self, n, c, size, o, k, stride=1, groups=1):
        self.n, self.c, self.o, self.stride, self.groups = n, c, o, stride, groups
        self.size = size if isinstance(size, tuple) else (size, size)
        self.kernel = (k,) * len(self.size)
        self.out = tuple((s + 2 * (k // 2) - k) // stride + 1 for s in self.size)
        self.options = dict(stride=stride, padding=k // 2, groups=groups)

    def arrays(self, last):
        """The shapes of input, weight and output."""
        turn = lambda a, b, spatial: (a, *spatial, b) if last else (a, b, *spatial)
        return turn(self.n, self.c, self.size), turn(self.o, self.c // self.groups, self.kernel), turn(self.n, self.o, self.out)

    def flops(self):
        products = self.n * self.o * (self.c // self.groups)
        for x in (*self.out, *self.kernel):
            products *= x
        return 2 * products


def of_torch(torch, direction, s, x, w, g):
    """The direction on NCHW views."""
    spread = [s.stride] * len(s.size), [k // 2 for k in s.kernel], [1] * len(s.size)
    if direction == "forward":
        return torch.nn.functional.__dict__[f"conv{len(s.size)}d"](x, w, None, spread[0], spread[1], spread[2], s.groups)
    mask = [direction == "data_backward", direction == "weight_backward", False]
    return torch.ops.aten.convolution_backward(g, x, w, None, *spread, False, [0] * len(s.size), s.groups, mask)


def of_tenor(tn, direction, s, last, strategy, x, w, g):
    fn = getattr(tn, f"conv_{direction}" + ("_nhwc" if last else ""))
    args = {"forward": (x, w), "data_backward": (g, w, x.shape), "weight_backward": (x, g, w.shape)}[direction]
    return fn(*args, strategy=strategy, **s.options)


def case(name, s, direction="forward", dtype="float32", last=False, strategy="auto", target=None, device=None):
    shapes = s.arrays(last)
    view = (lambda a: first(a, True)) if last else (lambda a: a)
    made = dict(
        target=target, op=f"conv_{direction}" + ("_nhwc" if last else ""), case=name + (f" {strategy}" if strategy != "auto" else ""),
        dtype=dtype, make=lambda rng: normal(rng, dtype, *shapes),
        run=lambda tn, x, w, g: of_tenor(tn, direction, s, last, strategy, x, w, g),
        peer=lambda torch, x, w, g: of_torch(torch, direction, s, view(x), view(w), view(g)),
        bytes=bytes_of(dtype, *shapes), flops=s.flops())
    return dict(made, device=device) if device else made


DIRECTIONS = ("forward", "data_backward", "weight_backward")


def on_cpu():
    dense, depthwise = Shape(4, 64, 56, 64, 3), Shape(4, 64, 56, 64, 3, groups=64)
    for dtype in ("float32", "bfloat16"):
        for direction in DIRECTIONS:
            yield case("3x3 64@56 N4", dense, direction, dtype, device="cpu")
            yield case("depthwise 3x3 64@56 N4", depthwise, direction, dtype, device="cpu")
        yield case("3x3 64@56 N4", dense, "forward", dtype, last=True, device="cpu")
        yield case("depthwise 3x3 64@56 N4", depthwise, "forward", dtype, last=True, device="cpu")
        yield case("stem 7x7s2 3-64@224 N1", Shape(1, 3, 224, 64, 7, 2), "forward", dtype, device="cpu")
    for strategy in ("implicit_gemm", "direct"):
        yield case("3x3 64@56 N4", dense, strategy=strategy, device="cpu")
    yield case("3x3 64@56 N4", dense, dtype="float64", device="cpu")


# Row of targets.json, sizes, own strategy.
ROWS = [
    ("stem7x7s2-3-64-224", Shape(64, 3, 224, 64, 7, 2), "implicit_gemm"),
    ("3x3-64-56", Shape(64, 64, 56, 64, 3), "implicit_gemm"),
    ("3x3-128-28", Shape(64, 128, 28, 128, 3), "implicit_gemm"),
    ("3x3-256-14", Shape(64, 256, 14, 256, 3), "implicit_gemm"),
    ("3x3-512-7", Shape(64, 512, 7, 512, 3), "implicit_gemm"),
    ("1x1-256-64-56", Shape(64, 256, 56, 64, 1), "implicit_gemm"),
    ("1x1-1024-256-14", Shape(64, 1024, 14, 256, 1), "implicit_gemm"),
    ("3x3s2-128-56", Shape(64, 128, 56, 128, 3, 2), "implicit_gemm"),
    ("3x3-512-128-N4", Shape(4, 512, 128, 512, 3), "implicit_gemm"),
    ("depthwise3x3-512-28", Shape(64, 512, 28, 512, 3, groups=512), "direct"),
    ("depthwise7x7-384-28", Shape(64, 384, 28, 384, 7, groups=384), "direct"),
    ("groups32-3x3-256-28", Shape(64, 256, 28, 256, 3, groups=32), "direct"),
]


def on_cuda():
    for name, s, own in ROWS:
        for direction in DIRECTIONS:
            yield case(name, s, direction, "bfloat16", True, own, f"conv-{direction}/{name}-nhwc-bf16", "cuda")
            yield case(name, s, direction, "bfloat16", True, device="cuda")
    for name, s in (("3d-3x3x3-32-N8-32x64x64", Shape(8, 32, (32, 64, 64), 32, 3)), ("1d-k5-512-N16-L4096", Shape(16, 512, (4096,), 512, 5))):
        yield case(name, s, "forward", "bfloat16", True, "implicit_gemm", f"conv-forward/{name}-bf16", "cuda")
        yield case(name, s, "forward", "bfloat16", True, device="cuda")
    yield case("3x3-64-56", Shape(64, 64, 56, 64, 3), "forward", "float32", False, "implicit_gemm", "conv-forward/3x3-64-56-nchw-f32", "cuda")
    for direction in DIRECTIONS:
        yield case("3x3-64-56", Shape(64, 64, 56, 64, 3), direction, "float32", True, device="cuda")
        yield case("depthwise3x3s2-256-56", Shape(64, 256, 56, 256, 3, 2, groups=256), direction, "bfloat16", True, device="cuda")


CASES = [*on_cpu(), *on_cuda()]
