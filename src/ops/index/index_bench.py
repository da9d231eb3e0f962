"""The index family's cases for tenor.bench. Bytes: elements read and written once, indices once. No FLOPs."""
from tenor._bench_data import dtype_of, integers, normal


def size(name):
    return dtype_of(name).itemsize


def floats(rng, shape, dtype):
    return normal(rng, dtype, shape)[0]


def rows(dtype, n=2048, k=4096, width=4096, target=None):
    return dict(target=target, op="index_select", case=f"{k} rows of {n}x{width}", dtype=dtype,
                make=lambda rng: (floats(rng, (n, width), dtype), integers(rng, n, k)),
                run=lambda tn, x, i: tn.index_select(x, 0, i), peer=lambda torch, x, i: x[i],
                bytes=2 * k * width * size(dtype) + 8 * k, flops=0)


def along(op, dtype, dim, n=2048, width=4096, target=None):
    def make(rng):
        return floats(rng, (n, width), dtype), integers(rng, (n, width)[dim], (n, width))
    calls = {
        "gather": (lambda tn, x, i: tn.gather(x, dim, i), lambda torch, x, i: torch.gather(x, dim, i), 2),
        "scatter": (lambda tn, x, i: tn.scatter(x, dim, i, x), lambda torch, x, i: torch.scatter(x, dim, i, x), 3),
        "scatter_add": (lambda tn, x, i: tn.scatter_add(x, dim, i, x), lambda torch, x, i: torch.scatter_add(x, dim, i, x), 3),
    }
    run, peer, passes = calls[op]
    return dict(target=target, op=op, case=f"{n}x{width} dim {dim}", dtype=dtype, make=make, run=run, peer=peer,
                bytes=n * width * (passes * size(dtype) + 8), flops=0)


def index_add(dtype, n=2048, k=4096, width=4096, target=None):
    return dict(target=target, op="index_add_", case=f"{k} rows into {n}x{width}", dtype=dtype,
                make=lambda rng: (floats(rng, (n, width), dtype), integers(rng, n, k), floats(rng, (k, width), dtype)),
                run=lambda tn, x, i, s: tn.index_add_(x, 0, i, s), peer=lambda torch, x, i, s: x.index_add_(0, i, s),
                bytes=3 * k * width * size(dtype) + 8 * k, flops=0)


def unary(op, dtype, run, peer, factor, case="2048x4096"):
    return dict(target=None, op=op, case=case, dtype=dtype, make=lambda rng: (floats(rng, (2048, 4096), dtype),), run=run, peer=peer,
                bytes=int(factor * 2048 * 4096 * size(dtype)), flops=0)


def pair(dtype, rows=2048, width=4096, target=None):
    """Two arrays: one array twice would come out of the caches the second time."""
    return dict(target=target, op="cat", case=f"2 of {rows}x{width}, last dim", dtype=dtype,
                make=lambda rng: tuple(floats(rng, (rows, width), dtype) for _ in range(2)),
                run=lambda tn, x, y: tn.cat([x, y], 1), peer=lambda torch, x, y: torch.cat([x, y], 1), bytes=4 * rows * width * size(dtype), flops=0)


def masked(dtype):
    return dict(target=None, op="masked_select", case="2048x4096, half", dtype=dtype,
                make=lambda rng: (floats(rng, (2048, 4096), dtype), rng.random((2048, 4096)) < 0.5),
                run=lambda tn, x, m: tn.masked_select(x, m), peer=lambda torch, x, m: torch.masked_select(x, m),
                bytes=int(2048 * 4096 * (1.5 * size(dtype) + 1)), flops=0)


CASES = [case for dtype in ("float32", "bfloat16") for case in (
    rows(dtype),
    rows(dtype, n=30000, k=8192, width=384),
    *(along(op, dtype, dim) for op in ("gather", "scatter", "scatter_add") for dim in (0, 1)),
    index_add(dtype),
    index_add(dtype, k=32),
    masked(dtype),
    pair(dtype),
    unary("flip", dtype, lambda tn, x: tn.flip(x, (1,)), lambda torch, x: torch.flip(x, (1,)), 2),
    unary("roll", dtype, lambda tn, x: tn.roll(x, 100, 1), lambda torch, x: torch.roll(x, 100, 1), 2),
    unary("tile", dtype, lambda tn, x: tn.tile(x, (2, 2)), lambda torch, x: torch.tile(x, (2, 2)), 5),
)]

# On a GPU, the rows of targets.json. Rows of bfloat16 and their places, once; index_add reads its source and reads and writes rows.
TARGETS = [
    rows("bfloat16", 131072, 65536, target="index_select/65536-of-131072x4096-bf16"),
    along("gather", "bfloat16", 1, 16384, 8192, target="gather/16384x8192-bf16-i64"),
    pair("bfloat16", 16384, 8192, target="cat/2x16384x8192-bf16"),
    index_add("float32", 131072, 65536, target="index_add/65536-into-131072x4096-f32-inplace"),
]
CASES += [dict(c, device="cuda") for c in TARGETS]
