"""The norm family's cases for tenor.bench. Bytes: what is read once plus what is written once."""
from tenor._bench_data import bytes_of, normal


def case(op, name, dtype, shapes, run, peer, moved, target=None):
    """`moved`: how many times the first array's bytes cross memory."""
    return dict(target=target, op=op, case=name, dtype=dtype, make=lambda rng: normal(rng, dtype, *shapes), run=run, peer=peer, bytes=moved * bytes_of(dtype, shapes[0]))


def rows(dtype, n, h, target=None):
    """The operators over the last axis of [n, h]."""
    x, v, name = (n, h), (h,), f"{n}x{h}"
    functional = lambda torch: torch.nn.functional
    return [
        case("layer_norm", name, dtype, [x, v, v], lambda tn, x, g, b: tn.layer_norm(x, g, b),
             lambda torch, x, g, b: functional(torch).layer_norm(x, (h,), g, b), 2, target and f"layer_norm/{target}"),
        case("rms_norm", name, dtype, [x, v], lambda tn, x, g: tn.rms_norm(x, g),
             lambda torch, x, g: functional(torch).rms_norm(x, (h,), g), 2, target and f"rms_norm/{target}"),
        case("add_rms_norm", name, dtype, [x, x, v], lambda tn, x, r, g: tn.add_rms_norm(x, r, g),
             lambda torch, x, r, g: functional(torch).rms_norm(x + r, (h,), g), 4, target and f"add_rms_norm/{target}"),
        case("softmax", name, dtype, [x], lambda tn, x: tn.softmax(x), lambda torch, x: torch.softmax(x, -1), 2, target and f"softmax/{target}"),
        case("log_softmax", name, dtype, [x], lambda tn, x: tn.log_softmax(x), lambda torch, x: torch.log_softmax(x, -1), 2),
        case("normalize", name, dtype, [x], lambda tn, x: tn.normalize(x), lambda torch, x: functional(torch).normalize(x, dim=-1), 2),
    ]


def images(dtype, n, c, size):
    x, v, name = (n, c, size, size), (c,), f"{n}x{c}@{size}"
    ones = lambda torch, v: torch.ones_like(v)
    return [
        case("group_norm", name, dtype, [x, v, v], lambda tn, x, g, b: tn.group_norm(x, 32, g, b),
             lambda torch, x, g, b: torch.nn.functional.group_norm(x, 32, g, b), 2),
        case("instance_norm", name, dtype, [x, v, v], lambda tn, x, g, b: tn.instance_norm(x, g, b),
             lambda torch, x, g, b: torch.nn.functional.instance_norm(x, weight=g, bias=b), 2),
        case("batch_norm", name, dtype, [x, v, v], lambda tn, x, g, b: tn.batch_norm(x, g, b * b, g, b),
             lambda torch, x, g, b: torch.nn.functional.batch_norm(x, g, b * b, g, b), 2),
    ]


# The rows of targets.json, on a GPU.
GPU_SHAPES = {(16384, 1024): "rms_norm layer_norm softmax", (16384, 4096): "rms_norm layer_norm softmax add_rms_norm",
              (8192, 8192): "rms_norm softmax add_rms_norm", (4096, 16384): "rms_norm", (1024, 131072): "rms_norm layer_norm softmax",
              (128, 4096): "rms_norm layer_norm softmax"}


def gpu_rows(n, h, ops):
    return [dict(c, device="cuda") for c in rows("bfloat16", n, h, target=f"{n}x{h}-bf16") if c["op"] in ops.split()]


DTYPES = ("float32", "bfloat16")
CASES = [
    *(c for (n, h), ops in GPU_SHAPES.items() for c in gpu_rows(n, h, ops)),
    *(c for dtype in DTYPES for c in rows(dtype, 2048, 4096)),
    *(c for dtype in DTYPES for c in rows(dtype, 64, 384)),
    *(c for dtype in DTYPES for c in rows(dtype, 65536, 64)),
    *(c for dtype in DTYPES for c in images(dtype, 8, 64, 128)),
    *(case("softmax", "2048x4096 dim 0", dtype, [(2048, 4096)], lambda tn, x: tn.softmax(x, 0), lambda torch, x: torch.softmax(x, 0), 2) for dtype in DTYPES),
]
