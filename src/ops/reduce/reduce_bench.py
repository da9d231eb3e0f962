"""The reduce family's cases for tenor.bench: bytes read, since results are small."""
from tenor._bench_data import bytes_of, normal


def reduce_case(op, what, dtype, shape, call, **more):
    """`call` works on both libraries' tensors: their methods have the same names."""
    return dict(
        op=op, case=f"{what} {'x'.join(map(str, shape))}", dtype=dtype,
        make=lambda rng: normal(rng, dtype, shape),
        run=lambda tn, x: call(x), peer=lambda torch, x: call(x),
        bytes=bytes_of(dtype, shape), **more)


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

# On a GPU, the rows of targets.json.
LARGE = (16384, 8192)
CASES += [
    reduce_case(op, what, "bfloat16", LARGE, call, device="cuda", target=f"{op}_{what}/16384x8192-bf16")
    for op, what, call in (("sum", "rows", lambda x: x.sum(-1)), ("sum", "columns", lambda x: x.sum(0)), ("sum", "all", lambda x: x.sum()),
                           ("argmax", "rows", lambda x: x.argmax(-1)))
]
