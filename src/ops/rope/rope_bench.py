"""rope's cases for tenor.bench: x read once, the result written once. The peer is the usual composition in PyTorch."""
from tenor._bench_data import bytes_of, normal


def rotate(torch, x, cos, sin):
    half = x.shape[-1] // 2
    c, s = (torch.cat([t, t], -1)[:, None].to(x.dtype) for t in (cos, sin))
    return x * c + torch.cat([-x[..., half:], x[..., :half]], -1) * s


def case(dtype, b, s, h, d, interleaved=False):
    return dict(target=None, op="rope", case=f"B{b} S{s} H{h} D{d}" + " interleaved" * interleaved, dtype=dtype,
                make=lambda rng: normal(rng, dtype, (b, s, h, d)) + normal(rng, "float32", (s, d // 2), (s, d // 2)),
                run=lambda tn, x, cos, sin: tn.rope(x, cos, sin, interleaved=interleaved), peer=None if interleaved else rotate,
                bytes=2 * bytes_of(dtype, (b, s, h, d)))


CASES = [
    *(case(dtype, 2, 1024, 32, 128, interleaved) for dtype in ("float32", "bfloat16") for interleaved in (False, True)),
    *(case(dtype, 1, 1, 32, 128) for dtype in ("float32", "bfloat16")),
    *(dict(case("bfloat16", 2, 4096, 32, 128, interleaved), device="cuda") for interleaved in (False, True)),
]
