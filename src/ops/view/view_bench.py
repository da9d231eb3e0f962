"""The view family's cases for tenor.bench: a call moves nothing, so what is timed is the call itself. Copies are elementwise's."""


def matrix(rng):
    return (rng.standard_normal((64, 32, 16), dtype="float32"),)


def case(op, what, run, peer=None):
    return dict(target=None, op=op, case=what, dtype="float32", make=matrix, run=lambda tn, x: run(x), peer=lambda torch, x: (peer or run)(x), bytes=0, flops=0)


CASES = [
    case("transpose", "64x32x16, 0 and 2", lambda x: x.transpose(0, 2)),
    case("reshape", "64x32x16 to 2048x16", lambda x: x.reshape(2048, 16)),
    case("slice", "64x32x16 [:, 4:20:2]", lambda x: x[:, 4:20:2]),
    case("expand", "64x1x32x16 to 64x8x32x16", lambda x: x.unsqueeze(1).expand(64, 8, 32, 16)),
    case("split", "64x32x16 into 8", lambda x: x.split(8, 0)),
]
