"""Arrays for benchmark cases, and their way into each library."""
import numpy as np

import tenor

_DRAWN = 1 << 22  # numbers drawn; a longer array repeats them, since drawing a billion takes longer than every benchmark


def dtype_of(name):
    """NumPy's dtype of that name, bfloat16 included."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def normal(rng, dtype, *shapes):
    """Normal numbers in arrays of that dtype."""
    return tuple(_repeated(lambda n: rng.standard_normal(n, dtype=np.float32).astype(dtype_of(dtype)), shape) for shape in shapes)


def integers(rng, high, shape):
    """Integers 0..high-1, int64."""
    return _repeated(lambda n: rng.integers(0, high, n), shape)


def _repeated(draw, shape):
    size = int(np.prod(shape))
    return draw(size).reshape(shape) if size <= _DRAWN else np.resize(draw(_DRAWN), shape)


def bytes_of(dtype, *shapes):
    """Bytes of arrays of those shapes together."""
    return dtype_of(dtype).itemsize * sum(int(np.prod(s)) for s in shapes)


def to_torch(torch, x, device="cpu"):
    """A torch tensor of a NumPy argument, over its memory on the CPU; what is no array passes through."""
    if not isinstance(x, np.ndarray):
        return x
    t = torch.from_numpy(x.view(np.int16)).view(torch.bfloat16) if x.dtype.name == "bfloat16" else torch.from_numpy(x)
    return t.to(device)


def to_tenor(x, device="cpu"):
    """A tenor.Tensor of a NumPy argument, over its memory on the CPU; what is no array passes through."""
    if not isinstance(x, np.ndarray):
        return x
    return tenor.from_dlpack(x) if device == "cpu" else tenor.asarray(x, device=device)
