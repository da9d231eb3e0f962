"""The contraction family's cases for tenor.bench."""
import numpy as np

from tenor._bench_data import bytes_of, normal


def matmul_case(dtype, x, other, case, **more):
    out = x[:-1] + other[-1:]
    return dict(op="matmul", case=case, dtype=dtype, make=lambda rng: normal(rng, dtype, x, other),
                run=lambda tn, a, b: tn.matmul(a, b), peer=lambda torch, a, b: torch.matmul(a, b),
                bytes=bytes_of(dtype, x, other, out), flops=2 * int(np.prod(out)) * x[-1], **more)


def linear_case(dtype, rows, k, n, bias=False, **more):
    shapes = ((rows, k), (n, k)) + (((n,),) if bias else ())
    return dict(op="linear", case=f"{rows}x{k}x{n}" + " bias" * bias, dtype=dtype, make=lambda rng: normal(rng, dtype, *shapes),
                run=lambda tn, *args: tn.linear(*args), peer=lambda torch, *args: torch.nn.functional.linear(*args),
                bytes=bytes_of(dtype, *shapes, (rows, n)), flops=rows * n * (2 * k + bias), **more)


def einsum_case(dtype, equation, *shapes, flops):
    return dict(op="einsum", case=equation, dtype=dtype, make=lambda rng: normal(rng, dtype, *shapes),
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

# On a GPU: the rows of targets.json, and products that fill the chip.
CASES += [linear_case("bfloat16", rows, 4096, 14336, device="cuda", target=f"linear/{rows}x4096x14336-bf16") for rows in (1, 16)]
CASES += [matmul_case("bfloat16", (n, n), (n, n), str(n), device="cuda") for n in (4096, 8192)]
