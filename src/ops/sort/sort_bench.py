"""The sort family's cases for tenor.bench."""
import numpy as np

from tenor._bench_data import integers, normal


def floats(*shape, dtype="float32"):
    return lambda rng: normal(rng, dtype, shape)


def whole(high, *shape):
    return lambda rng: (integers(rng, high, shape),)


def case(op, case, dtype, make, run, peer, nbytes, target=None):
    return dict(target=target, op=op, case=case, dtype=dtype, make=make, run=run, peer=peer, bytes=nbytes, flops=0)


def sort_case(shape, dtype=np.float32, target=None):
    dtype = np.dtype(dtype)
    make = floats(*shape, dtype=dtype.name) if dtype.kind == "f" else whole(1 << 40, *shape)
    nbytes = int(np.prod(shape)) * (2 * dtype.itemsize + 8)
    return case("sort", "x".join(map(str, shape)), dtype.name, make, lambda tn, x: tn.sort(x), lambda torch, x: torch.sort(x), nbytes, target)


def topk_case(rows, n, k, target=None):
    return case("topk", f"{k} of {rows}x{n}", "float32", floats(rows, n), lambda tn, x: tn.topk(x, k), lambda torch, x: torch.topk(x, k),
                rows * (4 * n + 12 * k), target)


CASES = [
    sort_case((256, 4096)),
    sort_case((4096, 256)),
    sort_case((65536, 16)),
    sort_case((1 << 20,)),
    sort_case((256, 4096), np.float64),
    sort_case((256, 4096), np.int64),
    sort_case((256, 4096), np.float16),
    topk_case(64, 32000, 50),
    topk_case(1, 151936, 64),
    topk_case(4096, 256, 8),
    topk_case(64, 32000, 2000),
    case("kthvalue", "100 of 64x32000", "float32", floats(64, 32000), lambda tn, x: tn.kthvalue(x, 100), lambda torch, x: torch.kthvalue(x, 100),
         64 * (4 * 32000 + 12)),
    case("median", "64x32000", "float32", floats(64, 32000), lambda tn, x: tn.median(x, 1), lambda torch, x: torch.median(x, 1), 64 * (4 * 32000 + 12)),
    case("unique", "1048576", "int64", whole(1000, 1 << 20), lambda tn, x: tn.unique(x), lambda torch, x: torch.unique(x), 8 << 20),
    case("searchsorted", "1048576 in 100000", "float32", lambda rng: (np.sort(rng.standard_normal(100000).astype(np.float32)), rng.standard_normal(1 << 20).astype(np.float32)),
         lambda tn, s, v: tn.searchsorted(s, v), lambda torch, s, v: torch.searchsorted(s, v), 12 << 20),
    case("bincount", "1048576", "int64", whole(1000, 1 << 20), lambda tn, x: tn.bincount(x), lambda torch, x: torch.bincount(x), 8 << 20),
]

# On a GPU, the rows of targets.json.
TARGETS = [sort_case(shape, target=f"sort/{'x'.join(map(str, shape))}-f32") for shape in ((128, 151936), (4096, 256), (1 << 26,))]
TARGETS += [topk_case(rows, n, 64, target=f"topk64/{rows}x{n}-f32") for rows, n in ((128, 151936), (1, 151936), (4096, 256))]
CASES += [dict(c, device="cuda") for c in TARGETS]
