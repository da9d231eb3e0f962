"""The reduce family's cases for tenor.bench: bytes read, since results are small."""
import numpy as np


def dtype_of(name):
    if name == "bfloat16":
        import ml_dtypes
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def reduce_case(op, what, dtype, shape, call, **more):
    """`call` works on both libraries' tensors: their methods have the same names."""
    return dict(
        op=op, case=f"{what} {'x'.join(map(str, shape))}", dtype=dtype,
        make=lambda rng: (rng.standard_normal(shape, dtype=np.float32).astype(dtype_of(dtype)),),
        run=lambda tn, x: call(x), peer=lambda torch, x: call(x),
        bytes=int(np.prod(shape)) * dtype_of(dtype).itemsize, **more)


MATRIX = (2048, 4096)
CASES = [
    case
    for dtype in ("float32", "bfloat16")
    for case in (
        reduce_case("sum", "rows", dtype, MATRIX, lambda x: x.sum(-1)),
        reduce_case("sum", "columns", dtype, MATRIX, lambda x: x.sum(0)),
        reduce_case("sum", "all", dtype, MATRIX, lambda x: x.sum()),
        reduce_case("sum", "all transposed", dtype, MATRIX, lambda x: x.transpose(0, 1).sum()),
        reduce_case("sum", "short rows", dtype, (1 << 20, 8), lambda x: x.sum(-1)),
        reduce_case("sum", "few columns", dtype, (1 << 20, 8), lambda x: x.sum(0)),
        reduce_case("mean", "images' channels", dtype, (32, 64, 56, 56), lambda x: x.mean((0, 2, 3))),
        reduce_case("amax", "rows", dtype, MATRIX, lambda x: x.amax(-1)),
        reduce_case("argmax", "rows", dtype, MATRIX, lambda x: x.argmax(-1)),
        reduce_case("argmax", "columns", dtype, MATRIX, lambda x: x.argmax(0)),
        reduce_case("max", "rows", dtype, MATRIX, lambda x: x.max(-1)),
        reduce_case("norm", "rows", dtype, MATRIX, lambda x: x.norm(2, -1)),
        reduce_case("var", "rows", dtype, MATRIX, lambda x: x.var(-1)),
        reduce_case("logsumexp", "rows", dtype, MATRIX, lambda x: x.logsumexp(-1)),
    )
]
