"""What the tests of tenor.fuse share."""
import numpy as np

import tenor as tn

rng = np.random.default_rng(7)


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def bits(x):
    x = x.numpy() if isinstance(x, tn.Tensor) else np.asarray(x)
    return x.dtype, x.shape, x.tobytes()


def same(fn, *args, kernels=1):
    """fn fused gives fn's bits, in that many kernels of several steps."""
    fused = tn.fuse(fn)
    assert fused.why_not(*args) is None
    for _ in range(2):
        assert bits(fused(*args)) == bits(fn(*(tn.asarray(a) if isinstance(a, np.ndarray) else a for a in args)))
    assert fused.kernels(*args) == kernels
    return fused


def softmax(x):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)
