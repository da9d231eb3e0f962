"""load and save: .npy, .npz and .safetensors files.

A file is data of unknown origin: every size that it states is compared with the bytes that are there before memory is
taken for it, nothing in it is executed (no pickles), and what is wrong with it is a ValueError that says where.
"""
import os
import stat

from tenor._io_common import host, replacing, tensor_of_bytes  # noqa: F401
from tenor._io_npy import load_npy, load_npz, write_npy
from tenor._io_safetensors import load_safetensors, save_safetensors
from tenor._tenor import DTypeError, ValueError


def load(path):
    """The tensor in a .npy file, or a dict of the tensors in a .npz or .safetensors file, on the CPU.

    A .npy file's dtype may also be written 'bfloat16', 'float8_e4m3fn' or 'float8_e5m2' (as save does); two-byte void
    elements, what numpy.save makes of bfloat16, are taken as bfloat16. Raises ValueError for a file that is not what it
    says (truncated, lying sizes, pickled objects), DTypeError for an element type that Tenor does not have.
    """
    path = os.fspath(path)
    kind = _kind("load", path)
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"load: {path}: not a regular file")
    size = os.path.getsize(path)
    if kind == ".npz":
        return load_npz(path)
    with open(path, "rb") as file:
        return load_npy(file, size, path) if kind == ".npy" else load_safetensors(file, size, path)


def save(x, path):
    """Writes an array to a .npy file, or a mapping of names to arrays to a .npz or .safetensors file.

    Arrays may be of any library. Raises ValueError for another suffix or for names that the format cannot hold.
    """
    if isinstance(x, (str, os.PathLike)) and not isinstance(path, (str, os.PathLike)):
        raise DTypeError(f"save: the array comes first: save(x, {os.fspath(x)!r})")
    path = os.fspath(path)
    kind = _kind("save", path)
    if kind == ".npy":
        array = host(x, "x")
        with replacing(path) as file:
            write_npy(file, array)
        return
    if not hasattr(x, "items"):
        raise DTypeError(f"save: a {kind} file holds named arrays: x must be a mapping of names to arrays, got {type(x).__name__}")
    arrays = {}
    for name, value in x.items():
        if not isinstance(name, str):
            raise DTypeError(f"save: names must be strings, got {name!r}")
        _check_name(name, kind)
        arrays[name] = host(value, name)
    if kind == ".npz":
        import zipfile

        with replacing(path) as whole, zipfile.ZipFile(whole, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, array in arrays.items():
                with archive.open(name + ".npy", "w", force_zip64=True) as file:
                    write_npy(file, array)
    else:
        save_safetensors(arrays, path)


def _check_name(name, kind):
    """Refuses what the format cannot hold, or would give back under another name, before anything is written."""
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise ValueError(f"save: the name {name!r} cannot be written as UTF-8") from error
    if kind == ".npz" and ("\0" in name or size > 65000):
        raise ValueError(f"save: a .npz file cannot hold the name {name[:80]!r}: it has a zero byte or more than 65000 bytes")


def _kind(op, path):
    kind = os.path.splitext(path)[1].lower() if isinstance(path, str) else ""
    if kind not in (".npy", ".npz", ".safetensors"):
        raise ValueError(f"{op}: path must end in .npy, .npz or .safetensors, got {path!r}")
    return kind
