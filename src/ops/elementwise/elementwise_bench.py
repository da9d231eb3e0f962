"""The elementwise family's cases for tenor.bench."""
from tenor._bench_data import bytes_of, normal

R, C = 2048, 4096


def draw(dtype, *shapes):
    return lambda rng: normal(rng, dtype, *shapes)


def case(op, what, dtype, shapes, run, peer, passes):
    """`passes` times the matrix is what must move."""
    return dict(target=None, op=op, case=f"{R}x{C}{what}", dtype=dtype, make=draw(dtype, *shapes), run=run, peer=peer, bytes=passes * bytes_of(dtype, (R, C)), flops=0)


def unary(op, dtype, peer=None):
    functional = lambda torch, x: getattr(torch.nn.functional if op in ("gelu", "silu", "mish", "softplus") else torch, op)(x)
    return case(op, "", dtype, [(R, C)], lambda tn, x: getattr(tn, op)(x), peer or functional, 2)


CASES = []
for dtype in ("float32", "bfloat16"):
    CASES += [
        case("add", "", dtype, [(R, C), (R, C)], lambda tn, x, y: x + y, lambda torch, x, y: x + y, 3),
        case("add", " + row", dtype, [(R, C), (C,)], lambda tn, x, y: x + y, lambda torch, x, y: x + y, 2),
        case("add", " + column", dtype, [(R, C), (R, 1)], lambda tn, x, y: x + y, lambda torch, x, y: x + y, 2),
        case("add", " + scalar", dtype, [(R, C)], lambda tn, x: x + 1.5, lambda torch, x: x + 1.5, 2),
        case("add", " + transposed", dtype, [(R, C), (C, R)], lambda tn, x, y: x + y.transpose(0, 1), lambda torch, x, y: x + y.t(), 3),
        case("add_", " in place", dtype, [(R, C), (R, C)], lambda tn, x, y: x.add_(y), lambda torch, x, y: x.add_(y), 3),
        case("contiguous", " transposed", dtype, [(R, C)], lambda tn, x: x.transpose(0, 1).contiguous(), lambda torch, x: x.t().contiguous(), 2),
        case("where", "", dtype, [(R, C), (R, C)], lambda tn, x, y: tn.where(x > y, x, y), lambda torch, x, y: torch.where(x > y, x, y), 3),
        case("pow", " squared", dtype, [(R, C)], lambda tn, x: x**2, lambda torch, x: x**2, 2),
    ]
    CASES += [unary(op, dtype) for op in ("exp", "gelu", "silu", "tanh", "sigmoid", "softplus", "mish", "log1p", "erf", "sin", "rsqrt")]
CASES += [
    case("to", " float32 to bfloat16", "float32", [(R, C)], lambda tn, x: x.to("bfloat16"), lambda torch, x: x.to(torch.bfloat16), 1.5),
    case("lt", "", "float32", [(R, C), (R, C)], lambda tn, x, y: x < y, lambda torch, x, y: x < y, 2.25),
    dict(target=None, op="add", case="4x4", dtype="float32", make=draw("float32", (4, 4), (4, 4)), run=lambda tn, x, y: x + y,
         peer=lambda torch, x, y: x + y, bytes=0, flops=0),
]


# ---- on CUDA: the rows of the targets, and shapes beside them ------------------------------------------------------------


def on_cuda(target, op, what, dtype, shapes, run, peer, bytes_):
    return dict(target=target, op=op, case=what, dtype=dtype, device="cuda", make=draw(dtype, *shapes), run=run, peer=peer, bytes=bytes_, flops=0)


N, H, W = 1 << 28, 16384, 8192
MATRIX, LINE = (H, W), (N,)
CASES += [
    on_cuda("add/268435456-bf16", "add", "2^28", "bfloat16", [LINE, LINE], lambda tn, x, y: x + y, lambda torch, x, y: x + y, 6 * N),
    on_cuda("bias_add/16384x8192-bf16", "add", "16384x8192 + row", "bfloat16", [MATRIX, (W,)], lambda tn, x, y: x + y, lambda torch, x, y: x + y, 4 * H * W),
    on_cuda(None, "add", "16384x8192 + column", "bfloat16", [MATRIX, (H, 1)], lambda tn, x, y: x + y, lambda torch, x, y: x + y, 4 * H * W),
    on_cuda("add_transposed/16384x8192-bf16", "add", "16384x8192 + transposed", "bfloat16", [MATRIX, (W, H)], lambda tn, x, y: x + y.transpose(0, 1),
            lambda torch, x, y: x + y.t(), 6 * H * W),
    on_cuda("copy_transposed/16384x8192-bf16", "contiguous", "16384x8192 transposed", "bfloat16", [(W, H)], lambda tn, x: x.transpose(0, 1).contiguous(),
            lambda torch, x: x.t().contiguous(), 4 * H * W),
    on_cuda(None, "add", "2^27", "float32", [(N // 2,), (N // 2,)], lambda tn, x, y: x + y, lambda torch, x, y: x + y, 6 * N),
    on_cuda(None, "to", "2^28 to float32", "bfloat16", [LINE], lambda tn, x: x.to("float32"), lambda torch, x: x.to(torch.float32), 6 * N),
    on_cuda(None, "where", "2^27", "bfloat16", [(N // 2,), (N // 2,)], lambda tn, x, y: tn.where(x > y, x, y), lambda torch, x, y: torch.where(x > y, x, y), 3 * N),
]
CASES += [
    on_cuda(None, op, "2^28", "bfloat16", [LINE], lambda tn, x, op=op: getattr(tn, op)(x),
            lambda torch, x, op=op: getattr(torch.nn.functional if op in ("gelu", "silu") else torch, op)(x), 4 * N)
    for op in ("exp", "gelu", "silu", "tanh", "sigmoid", "sin")
]
