""".safetensors files: 8 bytes of header length, a JSON header, then the tensors' bytes without gaps."""
import builtins
import struct

from tenor._io_common import broken, bytes_of, elements, numpy_dtype, read, replacing, tensor
from tenor._tenor import DTypeError, ValueError

_MAX_HEADER = 100 << 20
_DTYPES = {
    "BOOL": "bool", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "U8": "uint8", "U16": "uint16",
    "U32": "uint32", "U64": "uint64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}


def _unique(pairs):
    out = dict(pairs)
    if len(out) != len(pairs):
        raise KeyError("a name is given twice")
    return out


def _safetensors_header(file, size, where):
    import json

    if size < 8:
        raise broken(where, "shorter than a safetensors header")
    (length,) = struct.unpack("<Q", file.read(8))
    if length > min(size - 8, _MAX_HEADER):
        raise broken(where, f"a header of {length} bytes does not fit the file's {size}")
    try:
        header = json.loads(read(file, length, where).decode("utf-8"), object_pairs_hook=_unique)
    except (KeyError, RecursionError, builtins.ValueError) as error:
        raise broken(where, f"the header is no JSON object of names: {error}") from error
    if not isinstance(header, dict):
        raise broken(where, "the header is no JSON object")
    header.pop("__metadata__", None)
    return header, 8 + length


def load_safetensors(file, size, where):
    header, start = _safetensors_header(file, size, where)
    entries = []
    for name, facts in header.items():
        here = f"{where}[{name}]"
        if not isinstance(facts, dict) or not {"dtype", "shape", "data_offsets"} <= facts.keys():
            raise broken(here, "an entry needs dtype, shape and data_offsets")
        if not isinstance(facts["dtype"], str) or facts["dtype"] not in _DTYPES:
            raise DTypeError(f"load: {here}: Tenor has no dtype for {str(facts['dtype'])[:40]!r}")
        dtype = numpy_dtype(_DTYPES[facts["dtype"]])
        offsets = facts["data_offsets"]
        if elements(offsets, here) is None or len(offsets) != 2:
            raise broken(here, "data_offsets must be two byte offsets")
        count = elements(facts["shape"], here) * dtype.itemsize
        if offsets[1] - offsets[0] != count:
            raise broken(here, f"data_offsets {offsets} do not hold the {count} bytes of shape {facts['shape']} of {facts['dtype']}")
        entries.append((offsets[0], offsets[1], name, dtype, facts["shape"], here))
    entries.sort(key=lambda e: e[:2])
    expected = 0
    for first, last, _, _, _, here in entries:
        if first != expected:
            raise broken(here, f"its bytes start at {first}, but those before it end at {expected}")
        expected = last
    if expected != size - start:
        raise broken(where, f"the tensors take {expected} bytes, {size - start} are there")
    loaded = {name: tensor(read(file, last - first, here), dtype, shape, here) for first, last, name, dtype, shape, here in entries}
    return {name: loaded[name] for name in header}


def save_safetensors(arrays, path):
    import json

    codes = {name: code for code, name in _DTYPES.items()}
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
    with replacing(path) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            file.write(bytes_of(arrays[name]))
