""".npy and .npz files."""
import ast
import builtins
import os
import struct

from tenor._io_common import DTYPES, EXTENDED, broken, bytes_of, elements, numpy_dtype, read, tensor
from tenor._tenor import DTypeError, Error

_MAX_HEADER = 1 << 16
_MOST_EXPANDED, _MOST_EXPANSION = 1 << 30, 200  # an archive may expand to a GiB, or to so many times its size


def _npy_header(file, where):
    """(dtype name or NumPy code, whether column-major, shape)."""
    magic = file.read(8)
    if len(magic) < 8 or magic[:6] != b"\x93NUMPY" or magic[6] not in (1, 2, 3):
        raise broken(where, "not a .npy file of version 1, 2 or 3")
    width = 2 if magic[6] == 1 else 4
    length = int.from_bytes(read(file, width, where), "little")
    if length > _MAX_HEADER:
        raise broken(where, f"a header of {length} bytes is too long")
    written = read(file, length, where)
    try:
        header = ast.literal_eval(written.decode("utf-8" if magic[6] == 3 else "latin-1").strip())
        descr, column_major, shape = header["descr"], header["fortran_order"], header["shape"]
    except (SyntaxError, KeyError, TypeError, UnicodeDecodeError, MemoryError, RecursionError, builtins.ValueError) as error:
        raise broken(where, "the header is no dict of descr, fortran_order and shape") from error
    if type(column_major) is not bool or not isinstance(shape, tuple):
        raise broken(where, "the header's fortran_order or shape is malformed")
    return descr, column_major, shape, 8 + width + length


def _npy_dtype(descr, where):
    import numpy as np

    if descr in ("<V2", "|V2"):
        descr = "bfloat16"
    if isinstance(descr, str) and descr in EXTENDED:
        return numpy_dtype(descr)
    try:
        dtype = np.dtype(descr)
    except Exception as error:  # NumPy answers odd descriptions with any kind
        raise broken(where, f"not a dtype: {str(descr)[:80]}") from error
    if dtype.hasobject:
        raise broken(where, "it holds pickled Python objects, which are never loaded")
    if dtype.name not in DTYPES:
        raise DTypeError(f"load: {where}: Tenor has no dtype for {dtype}")
    return dtype


def load_npy(file, size, where):
    descr, column_major, shape, start = _npy_header(file, where)
    dtype = _npy_dtype(descr, where)
    count = elements(shape, where) * dtype.itemsize
    if count > size - start:
        raise broken(where, f"truncated: shape {shape} of {dtype} takes {count} bytes, {size - start} are there")
    data = read(file, count, where)
    if file.read(1):
        raise broken(where, f"more bytes follow than shape {shape} of {dtype} takes")
    native = dtype.newbyteorder("=")
    if dtype != native:
        import numpy as np

        data = np.frombuffer(data, dtype).astype(native).view(np.uint8)
    if not column_major:
        return tensor(data, native, shape, where)
    flipped = tensor(data, native, shape[::-1], where)
    return flipped.permute(*range(len(shape))[::-1]) if len(shape) > 1 else flipped


def load_npz(path):
    import errno
    import zipfile
    import zlib

    tensors = {}
    try:
        with zipfile.ZipFile(path) as archive:
            _refuse_bombs(archive.infolist(), os.path.getsize(path), path)
            for info in archive.infolist():
                where = f"{path}[{info.filename}]"
                if not info.filename.endswith(".npy"):
                    raise broken(where, "not a .npy member")
                name = info.filename[: -len(".npy")]
                if name in tensors:
                    raise broken(where, "given twice")
                with archive.open(info) as file:
                    tensors[name] = load_npy(file, info.file_size, where)
    except Error:
        raise
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):  # EINVAL: an offset before the file
            raise
        raise broken(path, f"not a readable zip archive: {error}") from error
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OverflowError, struct.error, builtins.ValueError) as error:
        raise broken(path, f"not a readable zip archive: {error}") from error
    return tensors


def _refuse_bombs(members, size, where):
    """A few bytes may stand for any number of them, once by compression and again by members that share their bytes."""
    claimed = sum(m.file_size for m in members)
    if claimed > max(_MOST_EXPANDED, _MOST_EXPANSION * size):
        raise broken(where, f"{size} bytes that expand to {claimed} are taken for a zip bomb; repack it uncompressed")
    end = 0
    for m in sorted(members, key=lambda m: m.header_offset):
        if m.header_offset < end:
            raise broken(f"{where}[{m.filename}]", "its bytes are those of another member too")
        end = m.header_offset + 30 + len(m.orig_filename) + m.compress_size  # a local header, a name, the data


def write_npy(file, array):
    descr = array.dtype.name if array.dtype.name in EXTENDED else array.dtype.str
    header = str({"descr": descr, "fortran_order": False, "shape": array.shape})
    padding = -(10 + len(header) + 1) % 64
    header = header.encode("latin-1") + b" " * padding + b"\n"
    file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    file.write(bytes_of(array))
