"""The module `tenor` with its calls moved to another device: NumPy in, NumPy out, the operators run there.

Properties are written for NumPy arrays. Here each array argument is uploaded with its layout (permuted, stepped,
repeated or offset), the operator runs on the device, and what it gave or wrote comes back.
"""
import numpy as np


class OnDevice:
    """`OnDevice(tenor, "cuda").add(x, y)` computes there what tenor.add(x, y) computes here."""

    def __init__(self, tenor, device):
        self._tenor, self._device = tenor, device

    def __getattr__(self, name):
        value = getattr(self._tenor, name)
        if name in ("asarray", "from_dlpack"):  # the property goes on with the tensor's own methods
            return lambda x: upload(self._tenor, x, self._device)
        if isinstance(value, type) or not callable(value):
            return value
        return lambda *args, **options: self._call(value, args, options)

    def _call(self, fn, args, options):
        written = []  # (array of the caller, its tensor there)
        args = [self._there(a, written) for a in args]
        options = {k: self._there(v, written) for k, v in options.items()}
        result = fn(*args, **options)
        for array, tensor in written:
            if array.flags.writeable and not any(s == 0 and n > 1 for s, n in zip(array.strides, array.shape)):
                array[...] = tensor.numpy()
        return self._here(result, written)

    def _there(self, value, written):
        if isinstance(value, np.ndarray):
            written.append((value, upload(self._tenor, value, self._device)))
            return written[-1][1]
        if isinstance(value, (list, tuple)):
            moved = [self._there(v, written) for v in value]
            return type(value)(*moved) if hasattr(value, "_fields") else type(value)(moved)
        return value

    def _here(self, value, written):
        for array, tensor in written:  # out= and in-place forms give back the caller's own array
            if value is tensor:
                return array
        if isinstance(value, self._tenor.Tensor):
            return value.numpy()
        if isinstance(value, (list, tuple)):
            moved = [self._here(v, written) for v in value]
            return type(value)(*moved) if hasattr(value, "_fields") else type(value)(moved)
        return value


def upload(tenor, x, device):
    """x as a tensor on that device, with x's strides where they nest (else dense)."""
    order = sorted(range(x.ndim), key=lambda d: -x.strides[d])
    sorted_x = x.transpose(order)
    tensor = _nested(tenor, sorted_x, device)
    return tensor.permute(*[order.index(d) for d in range(x.ndim)]) if x.ndim else tensor


def _nested(tenor, x, device):
    """Strides fall from dim to dim. A dense buffer [n0, s0/s1, s1/s2, ..., s_last] holds x in a corner of it."""
    kept = [d for d in range(x.ndim) if x.shape[d] > 1 and x.strides[d] != 0]
    steps = [x.strides[d] // x.itemsize for d in kept]
    nests = all(a > 0 and b > 0 and a % b == 0 and a // b >= x.shape[d] for a, b, d in zip(steps, steps[1:], kept[1:]))
    if x.size == 0 or not nests:
        return tenor.asarray(np.array(x, order="C"), device=device)
    core = x[tuple(slice(None) if d in kept else 0 for d in range(x.ndim))]
    sizes = core.shape[:1] + tuple(a // b for a, b in zip(steps, steps[1:])) + tuple(steps[-1:])
    buffer = np.zeros(sizes, x.dtype)
    corner = tuple(slice(0, n) for n in core.shape) + (0,) * bool(kept)
    buffer[corner] = core
    tensor = tenor.asarray(buffer, device=device)
    tensor = tensor[corner] if kept else tensor
    for d in range(x.ndim):
        tensor = tensor if d in kept else tensor.unsqueeze(d)
    return tensor.expand(*x.shape)
