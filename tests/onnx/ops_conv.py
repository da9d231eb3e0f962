import tenor as tn
from graph import ints, op


def windows(node, size, kernel):
    """stride, dilation and padding ((lo, hi), ...) of a node over an image of that size."""
    dims = len(kernel)
    stride, dilation = ints(node.strides) or [1] * dims, ints(node.dilations) or [1] * dims
    pads = ints(node.pads) or [0] * (2 * dims)
    sides = list(zip(pads[:dims], pads[dims:]))
    if node.get("auto_pad", "NOTSET").startswith("SAME"):
        total = [max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0) for n, s, k, d in zip(size, stride, kernel, dilation)]
        sides = [split(t, node.auto_pad == "SAME_UPPER") for t in total]
    return dict(stride=stride, dilation=dilation, padding=sides)


def split(total, upper):
    """The odd one at the end, or at the start."""
    return (total // 2, total - total // 2) if upper else (total - total // 2, total // 2)


@op("Conv")
def conv(node, x, w, b=None):
    return tn.conv_forward(x, w, b, groups=node.get("group", 1), **windows(node, x.shape[2:], w.shape[2:]))


@op("ConvTranspose")
def conv_transpose(node, x, w, b=None):
    kernel, size = w.shape[2:], x.shape[2:]
    options = windows(node, size, kernel)
    more = ints(node.output_padding) or [0] * len(kernel)
    wanted = ints(node.output_shape)
    if wanted is None and node.get("auto_pad", "NOTSET").startswith("SAME"):
        wanted = [n * s for n, s in zip(size, options["stride"])]
    if wanted is not None:
        whole = [(n - 1) * s + (k - 1) * d + 1 + m for n, s, k, d, m in zip(size, options["stride"], kernel, options["dilation"], more)]
        total = [w - n for w, n in zip(whole, wanted)]
        more = [m + max(-t, 0) for m, t in zip(more, total)]
        options["padding"] = [split(max(t, 0), node.auto_pad == "SAME_UPPER") for t in total]
    return tn.conv_transpose(x, w, b, groups=node.get("group", 1), output_padding=more, **options)


@op("DeformConv")
def deform_conv(node, x, w, offset, b=None, mask=None):
    return tn.deform_conv2d(x, offset, w, mask, b, groups=node.get("group", 1), offset_groups=node.get("offset_group", 1),
                            **windows(node, x.shape[2:], w.shape[2:]))


@op("Col2Im")
def col2im(node, x, image_shape, block_shape):
    size, kernel = ints(image_shape), ints(block_shape)
    return tn.col2im(x, size, kernel, **windows(node, size, kernel))
