"""The create family's cases for tenor.bench."""


def square(rng):
    return (rng.standard_normal((2048, 4096), dtype="float32"),)


def images(rng):
    return (rng.standard_normal((8, 16, 256, 256), dtype="float32"),)


ELEMENTS = 2048 * 4096

CASES = [
    dict(target=None, op="tril", case="2048x4096", dtype="float32", make=square, run=lambda tn, x: tn.tril(x),
         peer=lambda torch, x: torch.tril(x), bytes=6 * ELEMENTS, flops=0),
    dict(target=None, op="pad", case="8x16x256x256 by 3, constant", dtype="float32", make=images, run=lambda tn, x: tn.pad(x, (3, 3, 3, 3)),
         peer=lambda torch, x: torch.nn.functional.pad(x, (3, 3, 3, 3)), bytes=8 * ELEMENTS, flops=0),
    dict(target=None, op="pad", case="8x16x256x256 by 3, reflect", dtype="float32", make=images,
         run=lambda tn, x: tn.pad(x, (3, 3, 3, 3), "reflect"),
         peer=lambda torch, x: torch.nn.functional.pad(x, (3, 3, 3, 3), mode="reflect"), bytes=8 * ELEMENTS, flops=0),
    dict(target=None, op="zeros_like", case="2048x4096", dtype="float32", make=square, run=lambda tn, x: tn.zeros_like(x),
         peer=lambda torch, x: torch.zeros_like(x), bytes=4 * ELEMENTS, flops=0),
]
