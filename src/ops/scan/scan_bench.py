"""The scan family's cases for tenor.bench: bytes read and written."""
import numpy as np


def dtype_of(name):
    if name == "bfloat16":
        import ml_dtypes
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def scan_case(op, dim, dtype, shape, index_bytes=0):
    """The two libraries' tensors have methods of the same names. `index_bytes` a result beside the values."""
    item = dtype_of(dtype).itemsize
    return dict(
        op=op, case=f"dim {dim} {'x'.join(map(str, shape))}", dtype=dtype,
        make=lambda rng: (rng.standard_normal(shape, dtype=np.float32).astype(dtype_of(dtype)),),
        run=lambda tn, x: getattr(x, op)(dim), peer=lambda torch, x: getattr(x, op)(dim),
        bytes=int(np.prod(shape)) * (2 * item + index_bytes))


MATRIX = (2048, 4096)
CASES = [
    case
    for dtype in ("float32", "bfloat16")
    for case in (
        scan_case("cumsum", -1, dtype, MATRIX),
        scan_case("cumsum", 0, dtype, MATRIX),
        scan_case("cumsum", 0, dtype, (1 << 23,)),
        scan_case("cummax", -1, dtype, MATRIX, 8),
        scan_case("cummax", 0, dtype, MATRIX, 8),
        scan_case("logcumsumexp", -1, dtype, (256, 4096)),
    )
]
