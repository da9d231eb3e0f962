"""Fusion's cases for tenor.bench: plain expressions under tenor.fuse; bytes are the inputs once and the result once."""
import functools

from tenor._bench_data import bytes_of, normal


def chain8(x):
    """Eight steps: tanh, sigmoid, mul, relu, twice."""
    y = (x.tanh().sigmoid() * x).relu()
    return (y.tanh().sigmoid() * x).relu()


def chain8_with_bias(x, bias):
    """Eight steps, of which two are transcendental: the row of targets.json and its peer."""
    return ((x * 1.5 + bias).tanh() * x.sigmoid() - x * 0.25 * x).relu()


def x_over_sum(x):
    return x / x.sum(-1, keepdim=True)


def columns_over_sum(x):
    return x / x.sum(0, keepdim=True)


def softmax(x):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def rms_norm(x, gamma):
    wide = x.float()
    return (wide * ((wide * wide).mean(-1, keepdim=True) + 1e-6).rsqrt()).to(x.dtype) * gamma


def silu_mul(gate, up):
    return gate * gate.sigmoid() * up


@functools.cache
def fused(fn):
    import tenor

    return tenor.fuse(fn)


def fuse_case(fn, what, dtype, *shapes, **more):
    """`fn` works on both libraries' tensors: their methods have the same names. Its result has the first shape."""
    return dict(
        op="fuse", case=f"{what} {'x'.join(map(str, shapes[0]))}", dtype=dtype,
        make=lambda rng: normal(rng, dtype, *shapes),
        run=lambda tn, *x: fused(fn)(*x), peer=lambda torch, *x: fn(*x),
        bytes=bytes_of(dtype, *shapes, shapes[0]), **more)


MATRIX = (2048, 4096)
CASES = [
    case
    for dtype in ("float32", "bfloat16")
    for case in (
        fuse_case(chain8, "chain of 8", dtype, MATRIX),
        fuse_case(x_over_sum, "x over its row's sum", dtype, MATRIX),
        fuse_case(columns_over_sum, "x over its column's sum", dtype, MATRIX),
        fuse_case(softmax, "softmax, written out", dtype, MATRIX),
        fuse_case(rms_norm, "rms_norm, written out", dtype, MATRIX, MATRIX[-1:]),
        fuse_case(silu_mul, "silu times up, written out", dtype, MATRIX, MATRIX),
    )
]

# On a GPU, the rows of targets.json.
LARGE = (16384, 8192)
CASES += [
    fuse_case(chain8_with_bias, "chain of 8 with a bias", "bfloat16", LARGE, LARGE[-1:], device="cuda",
              target="fuse/chain8-16384x8192-bf16"),
    fuse_case(chain8, "chain of 8", "bfloat16", LARGE, device="cuda"),
    fuse_case(x_over_sum, "x over its row's sum", "bfloat16", LARGE, device="cuda", target="fuse/x-over-sum-16384x8192-bf16"),
]
