"""The gated activations' cases for tenor.bench: both halves read once, the result written once."""
from tenor._bench_data import bytes_of, normal


def case(op, dtype, n, h, run, peer):
    return dict(target=None, op=op, case=f"{n}x{h}", dtype=dtype,
                make=lambda rng: normal(rng, dtype, (n, h)),
                run=run, peer=lambda torch, x: peer(torch.nn.functional, x[:, : h // 2]) * x[:, h // 2:],
                bytes=bytes_of(dtype, (n, h)) * 3 // 2)


def cases(dtype, n, h):
    return [
        case("silu_mul", dtype, n, h, lambda tn, x: tn.silu_mul(x), lambda f, gate: f.silu(gate)),
        case("gelu_mul", dtype, n, h, lambda tn, x: tn.gelu_mul(x), lambda f, gate: f.gelu(gate)),
    ]


TARGET = case("silu_mul", "bfloat16", 16384, 22016, lambda tn, x: tn.silu_mul(x), lambda f, gate: f.silu(gate))
CASES = [dict(TARGET, device="cuda", target="silu_mul/16384x22016-bf16")]
CASES += [c for dtype in ("float32", "bfloat16") for n, h in ((2048, 4096), (1, 22016)) for c in cases(dtype, n, h)]
