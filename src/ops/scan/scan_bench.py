"""The scan family's cases for tenor.bench: bytes read and written."""
import math

from tenor._bench_data import bytes_of, normal


def scan_case(op, dim, dtype, shape, index_bytes=0, **more):
    """The two libraries' tensors have methods of the same names. `index_bytes` a result beside the values."""
    return dict(
        op=op, case=f"dim {dim} {'x'.join(map(str, shape))}", dtype=dtype,
        make=lambda rng: normal(rng, dtype, shape),
        run=lambda tn, x: getattr(x, op)(dim), peer=lambda torch, x: getattr(x, op)(dim),
        bytes=2 * bytes_of(dtype, shape) + index_bytes * math.prod(shape), **more)


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

# On a GPU, the rows of targets.json.
CASES += [scan_case("cumsum", dim, "float32", (16384, 8192), device="cuda", target=f"cumsum_{name}/16384x8192-f32") for dim, name in ((-1, "last"), (0, "first"))]
