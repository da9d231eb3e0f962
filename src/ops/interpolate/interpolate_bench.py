"""interpolate's cases for tenor.bench: the image read once, the result written once. The peer is torch.nn.functional.interpolate."""
import numpy as np

from tenor._bench_data import bytes_of, normal

SHORT = {"float32": "f32", "bfloat16": "bf16"}


def laid(x, layout):
    """[N, C, *S] in that layout."""
    if layout == "nchw":
        return x
    return np.ascontiguousarray(np.moveaxis(x, 1, -1)).transpose(0, x.ndim - 1, *range(1, x.ndim - 1))


def case(mode, dtype, shape, size, layout="nchw", antialias=False, target=None, device=None, backward=False):
    out = shape[:2] + size
    name = f"{'x'.join(map(str, shape))} to {'x'.join(map(str, size))} {mode}{' antialias' * antialias} {layout}"
    options = dict(mode=mode, antialias=antialias)

    def make(rng):
        return [laid(normal(rng, dtype, out if backward else shape)[0], layout)]

    def run(tn, x):
        return tn.interpolate_backward(x, shape, size, **options) if backward else tn.interpolate(x, size, **options)

    def peer(torch, x):
        return torch.nn.functional.interpolate(x, size=size, **options)
    c = dict(target=target, op="interpolate_backward" if backward else "interpolate", case=name, dtype=dtype, make=make, run=run, peer=None if backward or (antialias and dtype == "bfloat16") else peer,
             bytes=bytes_of(dtype, shape, out))
    return dict(c, device=device) if device else c


IMAGE, TWICE, HALF = (8, 64, 256, 256), (512, 512), (128, 128)


def on_gpu():
    for layout in ("nchw", "nhwc"):
        for mode in ("nearest", "bilinear", "bicubic"):
            yield case(mode, "bfloat16", IMAGE, TWICE, layout, target=f"interpolate-x2-{mode}/8x64x256x256-bf16-{layout}", device="cuda")
        yield case("bilinear", "float32", IMAGE, HALF, layout, True, target=f"interpolate-half-bilinear-antialias/8x64x256x256-f32-{layout}", device="cuda")
        yield case("bilinear", "bfloat16", IMAGE, TWICE, layout, device="cuda", backward=True)
        yield case("bicubic", "bfloat16", (16, 64, 127, 93), (201, 140), layout, device="cuda")


def on_cpu():
    for dtype in ("float32", "bfloat16"):
        for layout in ("nchw", "nhwc"):
            for mode in ("nearest", "bilinear", "bicubic"):
                yield case(mode, dtype, (2, 32, 128, 128), (256, 256), layout)
            yield case("bilinear", dtype, (2, 32, 256, 256), (128, 128), layout, True)
        yield case("bilinear", dtype, (2, 32, 128, 128), (256, 256), backward=True)


CASES = [*on_cpu(), *on_gpu()]
