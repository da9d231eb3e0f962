"""What the file formats share: refusing, reading no more than is there, tensors over bytes."""
import contextlib
import math
import os
import threading

from tenor._tenor import DTypeError, OutOfMemoryError, ValueError, asarray, from_dlpack

_CHUNK = 1 << 20
EXTENDED = ("bfloat16", "float8_e4m3fn", "float8_e5m2")  # dtypes of ml_dtypes, which NumPy knows no code for
DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64",
          "float8_e4m3fn", "float8_e5m2")


@contextlib.contextmanager
def replacing(path):
    """A file to write in `path`'s folder that takes its place when everything is written; what is there stays until then."""
    path = os.path.realpath(path)  # a link goes on naming the same file
    if os.path.lexists(path) and not os.path.isfile(path):  # a pipe or device is written as it is
        with open(path, "wb") as file:
            yield file
        return
    folder, name = os.path.split(path)
    part, mode = os.path.join(folder, f".{name[:50]}.{os.getpid()}-{threading.get_ident()}.part"), _mode_of(path)
    try:
        with open(os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            yield file
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def _mode_of(path):
    """The permissions that writing over `path` would leave it, before the umask."""
    return os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o666


def broken(where, what):
    return ValueError(f"load: {where}: {what}")


def numpy_dtype(name):
    import ml_dtypes
    import numpy as np

    return np.dtype(getattr(ml_dtypes, name) if name in EXTENDED else name)


def host(x, name):
    """Any array as a row-major NumPy array; only strided ones are copied."""
    import numpy as np

    array = x if isinstance(x, np.ndarray) else asarray(x).numpy()
    if array.dtype.name not in DTYPES:
        raise DTypeError(f"save: {name} has dtype {array.dtype}, which Tenor does not have")
    return np.require(array.astype(array.dtype.newbyteorder("="), copy=False), requirements="C").reshape(array.shape)


def tensor_of_bytes(data, dtype, shape):
    """A tensor over `data`, an object with the elements' bytes in row-major order, as many as dtype and shape say."""
    import numpy as np

    dtype = numpy_dtype(dtype)
    array = np.frombuffer(data, np.uint8).view(dtype) if len(data) else np.empty(0, dtype)
    return from_dlpack(array.reshape(shape))


def tensor(data, dtype, shape, where):
    if dtype.name == "bool" and max(data, default=0) > 1:
        raise broken(where, "a bool element is neither 0 nor 1")
    return tensor_of_bytes(data, dtype.name, shape)


def elements(shape, where):
    """The element count of a shape read from a file."""
    good = isinstance(shape, (tuple, list)) and all(type(s) is int and 0 <= s < 1 << 63 for s in shape)
    if not good or len(shape) > 64:
        raise broken(where, f"not a shape: {str(shape)[:80]}")
    if math.prod(s for s in shape if s) >= 1 << 60:  # of any dtype, and even if a zero hides it
        raise broken(where, f"sizes beyond 64 bits: {str(shape)[:80]}")
    return math.prod(shape)


def _physical_memory():
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def read(file, count, where):
    """Exactly count bytes. The buffer grows with what arrives, never with what was promised."""
    if count > _physical_memory():  # a sparse file may well hold what no memory does
        raise OutOfMemoryError(f"load: {where}: {count} bytes are more than this machine's memory")
    data = bytearray()
    while len(data) < count:
        chunk = file.read(min(_CHUNK, count - len(data)))
        if not chunk:
            raise broken(where, f"truncated: {count} bytes expected, {len(data)} found")
        data += chunk
    return data


def bytes_of(array):
    import numpy as np

    return array.reshape(-1).view(np.uint8).data
