"""The contraction family's cases for tenor.bench."""
import numpy as np


def dtype_of(name):
    if name == "bfloat16":
        import ml_dtypes
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def drawn(rng, dtype, *shapes):
    return tuple(rng.standard_normal(s).astype(dtype_of(dtype)) for s in shapes)


def bytes_of(dtype, *shapes):
    return dtype_of(dtype).itemsize * sum(int(np.prod(s)) for s in shapes)


def matmul_case(dtype, x, other, case):
    out = x[:-1] + other[-1:]
    return dict(op="matmul", case=case, dtype=dtype, make=lambda rng: drawn(rng, dtype, x, other),
                run=lambda tn, a, b: tn.matmul(a, b), peer=lambda torch, a, b: torch.matmul(a, b),
                bytes=bytes_of(dtype, x, other, out), flops=2 * int(np.prod(out)) * x[-1])


def linear_case(dtype, rows, k, n, bias=False):
    shapes = ((rows, k), (n, k)) + (((n,),) if bias else ())
    return dict(op="linear", case=f"{rows}x{k}x{n}" + " bias" * bias, dtype=dtype, make=lambda rng: drawn(rng, dtype, *shapes),
                run=lambda tn, *args: tn.linear(*args), peer=lambda torch, *args: torch.nn.functional.linear(*args),
                bytes=bytes_of(dtype, *shapes, (rows, n)), flops=rows * n * (2 * k + bias))


def einsum_case(dtype, equation, *shapes, flops):
    return dict(op="einsum", case=equation, dtype=dtype, make=lambda rng: drawn(rng, dtype, *shapes),
                run=lambda tn, *args: tn.einsum(equation, *args), peer=lambda torch, *args: torch.einsum(equation, *args),
                bytes=bytes_of(dtype, *shapes), flops=flops)


CASES = [case for t in ("float32", "bfloat16") for case in (
    matmul_case(t, (2048, 2048), (2048, 2048), "2048"),
    matmul_case(t, (96, 128, 64), (96, 64, 128), "96 of 128x64x128"),
    matmul_case(t, (1, 4096), (4096, 4096), "1x4096x4096"),
    linear_case(t, 1, 4096, 14336),
    linear_case(t, 16, 4096, 14336),
    linear_case(t, 128, 384, 1536, bias=True),
    einsum_case(t, "bqhd,bkhd->bhqk", (2, 256, 12, 64), (2, 256, 12, 64), flops=2 * 2 * 12 * 256 * 256 * 64),
)] + [matmul_case("float16", (1024, 1024), (1024, 1024), "1024"), matmul_case("float64", (1024, 1024), (1024, 1024), "1024"),
      matmul_case("int32", (512, 512), (512, 512), "512")]
