"""The elementwise family's cases for tenor.bench."""
import numpy as np

R, C = 2048, 4096


def draw(dtype, *shapes):
    def make(rng):
        if dtype == "bfloat16":
            import ml_dtypes

            return tuple(rng.standard_normal(s, dtype=np.float32).astype(ml_dtypes.bfloat16) for s in shapes)
        return tuple(rng.standard_normal(s, dtype=np.float32).astype(dtype) for s in shapes)

    return make


def case(op, what, dtype, shapes, run, peer, passes):
    """`passes` times the matrix is what must move."""
    item = 2 if dtype in ("bfloat16", "float16") else np.dtype(dtype).itemsize
    return dict(target=None, op=op, case=f"{R}x{C}{what}", dtype=dtype, make=draw(dtype, *shapes), run=run, peer=peer, bytes=passes * R * C * item, flops=0)


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
