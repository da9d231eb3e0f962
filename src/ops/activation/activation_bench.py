"""The gated activations' cases for tenor.bench: both halves read once, the result written once."""
import numpy as np


def dtype_of(name):
    if name == "bfloat16":
        import ml_dtypes
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def case(op, dtype, n, h, run, peer):
    return dict(target=None, op=op, case=f"{n}x{h}", dtype=dtype,
                make=lambda rng: (rng.standard_normal((n, h), np.float32).astype(dtype_of(dtype)),),
                run=run, peer=lambda torch, x: peer(torch.nn.functional, x[:, : h // 2]) * x[:, h // 2:],
                bytes=n * h * dtype_of(dtype).itemsize * 3 // 2)


def cases(dtype, n, h):
    return [
        case("silu_mul", dtype, n, h, lambda tn, x: tn.silu_mul(x), lambda f, gate: f.silu(gate)),
        case("gelu_mul", dtype, n, h, lambda tn, x: tn.gelu_mul(x), lambda f, gate: f.gelu(gate)),
    ]


TARGET = case("silu_mul", "bfloat16", 16384, 22016, lambda tn, x: tn.silu_mul(x), lambda f, gate: f.silu(gate))
CASES = [dict(TARGET, device="cuda", target="silu_mul/16384x22016-bf16")]
CASES += [c for dtype in ("float32", "bfloat16") for n, h in ((2048, 4096), (1, 22016)) for c in cases(dtype, n, h)]
