"""grid_sample's cases for tenor.bench: image and grid read once, the result written once. The peer is torch.nn.functional.grid_sample."""
import numpy as np

from tenor._bench_data import bytes_of, normal


def laid(x, layout):
    return x if layout == "nchw" else np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


def grid_of(rng, shape, kind):
    """Places all over the image, or those of one that is scaled ("affine") or turned and moved."""
    n, _, h, w = shape
    if kind == "random":
        return (2 * rng.random((n, h, w, 2), "float32") - 1).astype("float32")
    y, x = np.meshgrid((2 * np.arange(h) + 1) / h - 1, (2 * np.arange(w) + 1) / w - 1, indexing="ij")
    places = [0.97 * x, 0.97 * y] if kind == "affine" else [0.95 * x - 0.3 * y + 0.05, 0.3 * x + 0.95 * y - 0.02]
    return np.ascontiguousarray(np.broadcast_to(np.stack(places, -1).astype("float32"), (n, h, w, 2)))


def case(mode, dtype, shape, kind, layout="nchw", target=None, device=None, backward=False):
    grid = (shape[0],) + shape[2:] + (2,)

    def make(rng):
        data = [laid(normal(rng, dtype, shape)[0], layout), grid_of(rng, shape, kind).astype(dtype if not backward else "float32")]
        return data + [laid(normal(rng, dtype, shape)[0], layout)] * backward

    def run(tn, x, g, up=None):
        return tn.grid_sample(x, g, mode) if up is None else tn.grid_sample_backward(up, x, g, mode)

    def peer(torch, x, g, up=None):
        if up is not None:
            return torch.ops.aten.grid_sampler_2d_backward(up, x, g, 0, 0, False, [True, True])
        return torch.nn.functional.grid_sample(x, g, mode, align_corners=False)
    c = dict(target=target, op="grid_sample_backward" if backward else "grid_sample", case=f"{'x'.join(map(str, shape))} {mode} {kind} {layout}", dtype=dtype, make=make,
             run=run, peer=None if backward and (mode != "bilinear" or dtype != "float32") else peer, bytes=bytes_of(dtype, shape, shape, grid) * (2 if backward else 1))
    return dict(c, device=device) if device else c


IMAGE = (8, 64, 256, 256)


def on_gpu():
    for layout in ("nchw", "nhwc"):
        for kind in ("random", "affine"):
            yield case("bilinear", "float32", IMAGE, kind, layout, target=f"grid_sample-bilinear-{kind}/8x64x256x256-f32-{layout}", device="cuda")
        yield case("bilinear", "float32", IMAGE, "turned", layout, device="cuda")
        yield case("bicubic", "float32", IMAGE, "affine", layout, device="cuda")
        for kind in ("random", "affine"):
            yield case("bilinear", "float32", IMAGE, kind, layout, device="cuda", backward=True)


def on_cpu():
    for dtype in ("float32", "bfloat16"):
        for mode in ("bilinear", "bicubic"):
            yield case(mode, dtype, (2, 32, 128, 128), "affine")
    yield case("bilinear", "float32", (2, 32, 128, 128), "random")
    yield case("bilinear", "float32", (2, 32, 128, 128), "affine", "nhwc")
    yield case("bilinear", "float32", (2, 32, 128, 128), "affine", backward=True)


CASES = [*on_cpu(), *on_gpu()]
