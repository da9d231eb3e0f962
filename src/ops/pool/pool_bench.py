"""The pool family's cases for tenor.bench. Bytes: what is read once plus what is written once."""
import numpy as np

from tenor._bench_data import bytes_of, normal


def image(shape, dtype, layout):
    """An image of rows (nchw) or of channels (nhwc), as it lies in memory."""
    n, c, h, w = shape
    return lambda rng: normal(rng, dtype, shape if layout == "nchw" else (n, h, w, c))


def case(op, name, shape, out, dtype, layout, run, peer, target=None, indices=False, device=None):
    seen = (lambda x: x) if layout == "nchw" else (lambda x: x.permute(0, 3, 1, 2))
    made = dict(target=target, op=op, case=f"{name} {'x'.join(map(str, shape))} {layout}", dtype=dtype, make=image(shape, dtype, layout),
                run=lambda tn, x: run(tn, seen(x)), peer=lambda torch, x: peer(torch, seen(x)),
                bytes=bytes_of(dtype, shape) + bytes_of(dtype, shape[:2] + out) + (8 * int(np.prod(shape[:2] + out)) if indices else 0))
    return dict(made, device=device) if device else made


def windows(shape, dtype, layout, device=None, target=""):
    """3 x 3, stride 2, padding 1; means of whole planes; and the gradients of an average."""
    n, c, h, w = shape
    half = ((h - 1) // 2 + 1, (w - 1) // 2 + 1)
    of = lambda name: f"{name}/{target}-{layout}" if target else None
    f = lambda torch: torch.nn.functional
    return [
        case("max_pool2d", "3x3s2", shape, half, dtype, layout, lambda tn, x: tn.max_pool2d(x, 3, 2, 1), lambda torch, x: f(torch).max_pool2d(x, 3, 2, 1),
             of("max_pool2d-3x3s2"), device=device),
        case("avg_pool2d", "3x3s2", shape, half, dtype, layout, lambda tn, x: tn.avg_pool2d(x, 3, 2, 1), lambda torch, x: f(torch).avg_pool2d(x, 3, 2, 1),
             of("avg_pool2d-3x3s2"), device=device),
        case("adaptive_avg_pool2d", "1", shape, (1, 1), dtype, layout, lambda tn, x: tn.adaptive_avg_pool2d(x, 1),
             lambda torch, x: f(torch).adaptive_avg_pool2d(x, 1), of("adaptive_avg_pool2d-1"), device=device),
    ]


def others(shape, dtype, layout, device=None):
    n, c, h, w = shape
    half = ((h - 1) // 2 + 1, (w - 1) // 2 + 1)
    f = lambda torch: torch.nn.functional
    return [
        case("max_pool2d", "3x3s2 with indices", shape, half, dtype, layout, lambda tn, x: tn.max_pool2d(x, 3, 2, 1, return_indices=True),
             lambda torch, x: f(torch).max_pool2d(x, 3, 2, 1, return_indices=True), indices=True, device=device),
        case("max_pool2d", "2x2", shape, (h // 2, w // 2), dtype, layout, lambda tn, x: tn.max_pool2d(x, 2), lambda torch, x: f(torch).max_pool2d(x, 2),
             device=device),
        case("adaptive_avg_pool2d", "7", shape, (7, 7), dtype, layout, lambda tn, x: tn.adaptive_avg_pool2d(x, 7),
             lambda torch, x: f(torch).adaptive_avg_pool2d(x, 7), device=device),
    ]


LAYOUTS = ("nchw", "nhwc")
CASES = [
    *(c for layout in LAYOUTS for c in windows((64, 256, 56, 56), "bfloat16", layout, "cuda", "64x256x56x56-bf16")),
    *(c for layout in LAYOUTS for c in others((64, 256, 56, 56), "bfloat16", layout, "cuda")),
    *(c for layout in LAYOUTS for size, n in (((64, 112, 112), 64), ((512, 14, 14), 256)) for c in windows((n, *size), "bfloat16", layout, "cuda")),
    *(c for layout in LAYOUTS for dtype in ("float32", "bfloat16") for c in windows((4, 64, 56, 56), dtype, layout, "cpu")),
    *(c for layout in LAYOUTS for dtype in ("float32", "bfloat16") for c in others((8, 64, 112, 112), dtype, layout, "cpu")),
]
