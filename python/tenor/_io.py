"""load and save: .npy, .npz and .safetensors files.

A file is data of unknown origin: every size that it states is compared with the bytes that are there before memory is
taken for it, nothing in it is executed (no pickles), and what is wrong with it is a ValueError that says where.
"""
import ast
import builtins
import math
import os
import struct

from tenor._tenor import DTypeError, ValueError, asarray, from_dlpack

_MAX_NPY_HEADER = 1 << 16
_MAX_SAFETENSORS_HEADER = 100 << 20
_CHUNK = 1 << 20
_EXTENDED = ("bfloat16", "float8_e4m3fn", "float8_e5m2")  # dtypes of ml_dtypes, which .npy knows no code for
_SAFETENSORS = {
    "BOOL": "bool", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "U8": "uint8", "U16": "uint16",
    "U32": "uint32", "U64": "uint64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}


def load(path):
    """The tensor in a .npy file, or a dict of the tensors in a .npz or .safetensors file, on the CPU.

    A .npy file's dtype may also be written 'bfloat16', 'float8_e4m3fn' or 'float8_e5m2' (as save does); two-byte void
    elements, what numpy.save makes of bfloat16, are taken as bfloat16. Raises ValueError for a file that is not what it
    says (truncated, lying sizes, pickled objects), DTypeError for an element type that Tenor does not have.
    """
    path = os.fspath(path)
    kind = _kind("load", path)
    size = os.path.getsize(path)
    if kind == ".npz":
        return _load_npz(path)
    with open(path, "rb") as file:
        return _load_npy(file, size, path) if kind == ".npy" else _load_safetensors(file, size, path)


def save(x, path):
    """Writes an array to a .npy file, or a mapping of names to arrays to a .npz or .safetensors file.

    Arrays may be of any library. Raises ValueError for another suffix or for names that the format cannot hold.
    """
    path = os.fspath(path)
    kind = _kind("save", path)
    if kind == ".npy":
        array = _host(x, "x")
        with open(path, "wb") as file:
            _write_npy(file, array)
        return
    if not hasattr(x, "items"):
        raise DTypeError(f"save: a {kind} file holds named arrays: x must be a mapping of names to arrays, got {type(x).__name__}")
    arrays = {}
    for name, value in x.items():
        if not isinstance(name, str):
            raise DTypeError(f"save: names must be strings, got {name!r}")
        arrays[name] = _host(value, name)
    if kind == ".npz":
        import zipfile

        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, array in arrays.items():
                with archive.open(name + ".npy", "w", force_zip64=True) as file:
                    _write_npy(file, array)
    else:
        _save_safetensors(arrays, path)


def _kind(op, path):
    kind = os.path.splitext(path)[1].lower() if isinstance(path, str) else ""
    if kind not in (".npy", ".npz", ".safetensors"):
        raise ValueError(f"{op}: path must end in .npy, .npz or .safetensors, got {path!r}")
    return kind


def _broken(where, what):
    return ValueError(f"load: {where}: {what}")


def _numpy_dtype(name):
    import ml_dtypes
    import numpy as np

    return np.dtype(getattr(ml_dtypes, name) if name in _EXTENDED else name)


def _host(x, name):
    """Any array as a row-major NumPy array; only strided ones are copied."""
    import numpy as np

    array = x if isinstance(x, np.ndarray) else asarray(x).numpy()
    if array.dtype.name not in _SAFETENSORS.values():
        raise DTypeError(f"save: {name} has dtype {array.dtype}, which Tenor does not have")
    return np.require(array.astype(array.dtype.newbyteorder("="), copy=False), requirements="C").reshape(array.shape)


def tensor_of_bytes(data, dtype, shape):
    """A tensor over `data`, an object with the elements' bytes in row-major order, as many as dtype and shape say."""
    import numpy as np

    dtype = _numpy_dtype(dtype)
    array = np.frombuffer(data, np.uint8).view(dtype) if len(data) else np.empty(0, dtype)
    return from_dlpack(array.reshape(shape))


def _tensor(data, dtype, shape, where):
    if dtype.name == "bool" and max(data, default=0) > 1:
        raise _broken(where, "a bool element is neither 0 nor 1")
    return tensor_of_bytes(data, dtype.name, shape)


def _elements(shape, where):
    """The element count of a shape read from a file."""
    good = isinstance(shape, (tuple, list)) and all(type(s) is int and 0 <= s < 1 << 63 for s in shape)
    if not good or len(shape) > 64:
        raise _broken(where, f"not a shape: {str(shape)[:80]}")
    if math.prod(s for s in shape if s) >= 1 << 60:  # of any dtype, and even if a zero hides it
        raise _broken(where, f"sizes beyond 64 bits: {str(shape)[:80]}")
    return math.prod(shape)


def _read(file, count, where):
    """Exactly count bytes. The buffer grows with what arrives, never with what was promised."""
    data = bytearray()
    while len(data) < count:
        chunk = file.read(min(_CHUNK, count - len(data)))
        if not chunk:
            raise _broken(where, f"truncated: {count} bytes expected, {len(data)} found")
        data += chunk
    return data


# ---- .npy and .npz --------------------------------------------------------------------------------------------------


def _npy_header(file, where):
    """(dtype name or NumPy code, whether column-major, shape)."""
    magic = file.read(8)
    if len(magic) < 8 or magic[:6] != b"\x93NUMPY" or magic[6] not in (1, 2, 3):
        raise _broken(where, "not a .npy file of version 1, 2 or 3")
    width = 2 if magic[6] == 1 else 4
    length = int.from_bytes(_read(file, width, where), "little")
    if length > _MAX_NPY_HEADER:
        raise _broken(where, f"a header of {length} bytes is too long")
    try:
        header = ast.literal_eval(_read(file, length, where).decode("utf-8" if magic[6] == 3 else "latin-1").strip())
        descr, column_major, shape = header["descr"], header["fortran_order"], header["shape"]
    except (SyntaxError, KeyError, TypeError, UnicodeDecodeError, MemoryError, RecursionError, builtins.ValueError) as error:
        raise _broken(where, "the header is no dict of descr, fortran_order and shape") from error
    if type(column_major) is not bool or not isinstance(shape, tuple):
        raise _broken(where, "the header's fortran_order or shape is malformed")
    return descr, column_major, shape, 8 + width + length


def _npy_dtype(descr, where):
    import numpy as np

    if descr in ("<V2", "|V2"):
        descr = "bfloat16"
    if isinstance(descr, str) and descr in _EXTENDED:
        return _numpy_dtype(descr)
    try:
        dtype = np.dtype(descr)
    except (TypeError, SyntaxError, builtins.ValueError) as error:
        raise _broken(where, f"not a dtype: {str(descr)[:80]}") from error
    if dtype.hasobject:
        raise _broken(where, "it holds pickled Python objects, which are never loaded")
    if dtype.name not in _SAFETENSORS.values():
        raise DTypeError(f"load: {where}: Tenor has no dtype for {dtype}")
    return dtype


def _load_npy(file, size, where):
    descr, column_major, shape, start = _npy_header(file, where)
    dtype = _npy_dtype(descr, where)
    count = _elements(shape, where) * dtype.itemsize
    if count > size - start:
        raise _broken(where, f"truncated: shape {shape} of {dtype} takes {count} bytes, {size - start} are there")
    data = _read(file, count, where)
    if file.read(1):
        raise _broken(where, f"more bytes follow than shape {shape} of {dtype} takes")
    native = dtype.newbyteorder("=")
    if dtype != native:
        import numpy as np

        data = np.frombuffer(data, dtype).astype(native).view(np.uint8)
    if not column_major:
        return _tensor(data, native, shape, where)
    flipped = _tensor(data, native, shape[::-1], where)
    return flipped.permute(*range(len(shape))[::-1]) if len(shape) > 1 else flipped


def _load_npz(path):
    import zipfile

    tensors = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                where = f"{path}[{info.filename}]"
                if not info.filename.endswith(".npy"):
                    raise _broken(where, "not a .npy member")
                name = info.filename[: -len(".npy")]
                if name in tensors:
                    raise _broken(where, "given twice")
                with archive.open(info) as file:
                    tensors[name] = _load_npy(file, info.file_size, where)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, struct.error) as error:
        if isinstance(error, OSError) and error.errno is not None or type(error).__module__.startswith("tenor"):
            raise
        raise _broken(path, f"not a readable zip archive: {error}") from error
    return tensors


def _write_npy(file, array):
    descr = array.dtype.name if array.dtype.name in _EXTENDED else array.dtype.str
    header = str({"descr": descr, "fortran_order": False, "shape": array.shape})
    padding = -(10 + len(header) + 1) % 64
    header = header.encode("latin-1") + b" " * padding + b"\n"
    file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    file.write(_bytes_of(array))


def _bytes_of(array):
    import numpy as np

    return array.reshape(-1).view(np.uint8).data


# ---- .safetensors: 8 bytes of header length, a JSON header, then the tensors' bytes without gaps ---------------------


def _unique(pairs):
    out = dict(pairs)
    if len(out) != len(pairs):
        raise KeyError("a name is given twice")
    return out


def _safetensors_header(file, size, where):
    import json

    if size < 8:
        raise _broken(where, "shorter than a safetensors header")
    (length,) = struct.unpack("<Q", file.read(8))
    if length > min(size - 8, _MAX_SAFETENSORS_HEADER):
        raise _broken(where, f"a header of {length} bytes does not fit the file's {size}")
    try:
        header = json.loads(_read(file, length, where).decode("utf-8"), object_pairs_hook=_unique)
    except (KeyError, RecursionError, builtins.ValueError) as error:
        raise _broken(where, f"the header is no JSON object of names: {error}") from error
    if not isinstance(header, dict):
        raise _broken(where, "the header is no JSON object")
    header.pop("__metadata__", None)
    return header, 8 + length


def _load_safetensors(file, size, where):
    header, start = _safetensors_header(file, size, where)
    entries = []
    for name, facts in header.items():
        here = f"{where}[{name}]"
        if not isinstance(facts, dict) or not {"dtype", "shape", "data_offsets"} <= facts.keys():
            raise _broken(here, "an entry needs dtype, shape and data_offsets")
        if not isinstance(facts["dtype"], str) or facts["dtype"] not in _SAFETENSORS:
            raise DTypeError(f"load: {here}: Tenor has no dtype for {str(facts['dtype'])[:40]!r}")
        dtype = _numpy_dtype(_SAFETENSORS[facts["dtype"]])
        offsets = facts["data_offsets"]
        if _elements(offsets, here) is None or len(offsets) != 2:
            raise _broken(here, "data_offsets must be two byte offsets")
        count = _elements(facts["shape"], here) * dtype.itemsize
        if offsets[1] - offsets[0] != count:
            raise _broken(here, f"data_offsets {offsets} do not hold the {count} bytes of shape {facts['shape']} of {facts['dtype']}")
        entries.append((offsets[0], offsets[1], name, dtype, facts["shape"], here))
    entries.sort(key=lambda e: e[:2])
    expected = 0
    for first, last, _, _, _, here in entries:
        if first != expected:
            raise _broken(here, f"its bytes start at {first}, but those before it end at {expected}")
        expected = last
    if expected != size - start:
        raise _broken(where, f"the tensors take {expected} bytes, {size - start} are there")
    loaded = {name: _tensor(_read(file, last - first, here), dtype, shape, here) for first, last, name, dtype, shape, here in entries}
    return {name: loaded[name] for name in header}


def _save_safetensors(arrays, path):
    import json

    codes = {name: code for code, name in _SAFETENSORS.items()}
    header, offset = {}, 0
    # Wide elements first, so that every tensor's bytes are aligned to its element.
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    for name in order:
        if name == "__metadata__":
            raise ValueError("save: '__metadata__' is reserved in a .safetensors file")
        array = arrays[name]
        header[name] = {"dtype": codes[array.dtype.name], "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            file.write(_bytes_of(arrays[name]))
