"""Random arrays for the checks: shapes, dtypes, layouts and special values, all from one seeded generator."""
import ml_dtypes
import numpy as np

FLOATS = [np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
INTS = [np.dtype(t) for t in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)]
BOOL = np.dtype(bool)
SIZES = [0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 130]


class Draw:
    """One draw's choices. Where operators are picked by name, `prefer` is taken whenever it is among them."""

    def __init__(self, seed, prefer=None):
        self.rng, self.prefer = np.random.default_rng(seed), prefer

    def pick(self, items):
        item = items[int(self.rng.integers(len(items)))]
        return self.prefer if self.prefer is not None and isinstance(item, str) and self.prefer in items else item

    def chance(self, p):
        return self.rng.random() < p

    def int(self, low, high):
        """low..high, both included."""
        return int(self.rng.integers(low, high + 1))

    def shape(self, low=0, high=4, most=20000):
        while True:
            shape = tuple(self.pick(SIZES) for _ in range(self.int(low, high)))
            if np.prod(shape, dtype=np.int64) <= most:
                return shape

    def values(self, shape, dtype, special=0.1, scale=3.0):
        """Contents: small numbers, the dtype's extremes and, in floats, NaN, infinities and signed zeros now and then."""
        dtype = np.dtype(dtype)
        if dtype == BOOL:
            return np.array(self.rng.random(shape) < 0.5)
        if dtype in INTS:
            info = np.iinfo(dtype)
            x = np.array(self.rng.integers(max(info.min, -9), 10, shape)).astype(dtype)
            if self.chance(special) and x.size:
                x[self.rng.random(shape) < 0.2] = self.pick([info.min, info.max, 0])
            return x
        x = np.array(self.rng.standard_normal(shape) * scale).astype(dtype)
        if self.chance(special) and x.size:
            x[self.rng.random(shape) < 0.2] = self.pick([np.nan, np.inf, -np.inf, -0.0, 0.0])
        return x

    def layout(self, x):
        """The same values under other strides: permuted, stepped, offset, or repeated by stride 0."""
        x = np.asarray(x)
        how = self.int(0, 5)
        if how == 1 and x.ndim > 1:
            order = self.rng.permutation(x.ndim)
            return np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
        if how == 2 and x.ndim > 0:
            step = self.int(2, 3)
            wide = np.zeros(x.shape[:-1] + (x.shape[-1] * step + 1,), x.dtype)
            view = wide[..., 1::step][..., : x.shape[-1]]
            view[...] = x
            return view
        if how == 3:
            flat = np.empty(x.size + 3, x.dtype)
            view = flat[3:].reshape(x.shape)
            view[...] = x
            return view
        if how == 4 and x.ndim > 0 and x.shape[0] > 1:
            row = np.array(x[:1])
            return np.lib.stride_tricks.as_strided(row, x.shape, (0,) + row.strides[1:])
        return x

    def array(self, shape, dtype, **options):
        return self.layout(self.values(shape, dtype, **options))

    def broadcastable(self, shape):
        """A shape that broadcasts to `shape`: some dims 1, some leading ones dropped."""
        shape = list(shape)
        for d in range(len(shape)):
            if self.chance(0.25):
                shape[d] = 1
        return tuple(shape[self.int(0, len(shape)) if self.chance(0.3) else 0:])


def tolerance(dtype):
    return {"float64": 1e-11, "float32": 3e-5, "float16": 4e-3, "bfloat16": 3e-2}.get(np.dtype(dtype).name, 0)


def wide(x):
    """float64 for floats, unchanged otherwise."""
    x = np.asarray(x)
    return x.astype(np.float64) if x.dtype in FLOATS else x
