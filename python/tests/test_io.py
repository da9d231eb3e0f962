"""load and save: what is written comes back; what is broken is refused without taking the memory it claims."""
import io
import json
import os
import pickle
import resource
import struct
import zipfile

import ml_dtypes
import numpy as np
import pytest

import tenor

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
          "bfloat16", "float8_e4m3fn", "float8_e5m2"]


def numpy_dtype(name):
    return np.dtype(getattr(ml_dtypes, name, name))


def sample(name, shape=(3, 5)):
    count = int(np.prod(shape))
    return (np.arange(count) % 2 if name == "bool" else np.arange(count)).astype(numpy_dtype(name)).reshape(shape)


def same(got, want):
    assert isinstance(got, tenor.Tensor)
    assert got.dtype == want.dtype and got.shape == want.shape
    assert got.numpy().tobytes() == np.ascontiguousarray(want).tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 5), (), (0, 4), (1,), (2, 1, 7)])
def test_every_dtype_and_shape_comes_back(tmp_path, dtype, shape):
    x = sample(dtype, shape)
    tenor.save(x, tmp_path / "x.npy")
    same(tenor.load(tmp_path / "x.npy"), x)
    named = {"weights": x, "a.b/c": sample(dtype, (2, 2)), "": sample("float32", (3,))}
    for suffix in (".npz", ".safetensors"):
        tenor.save(named, tmp_path / ("all" + suffix))
        back = tenor.load(tmp_path / ("all" + suffix))
        assert set(back) == set(named)
        for name in named:
            same(back[name], named[name])


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in ("bfloat16", "float8_e4m3fn", "float8_e5m2")])
def test_files_of_numpy(tmp_path, dtype):
    x = sample(dtype)
    for name, array in {"c": x, "f": np.asfortranarray(x), "be": x.astype(x.dtype.newbyteorder(">")), "t": x[:, ::2]}.items():
        np.save(tmp_path / f"{name}.npy", array)
        same(tenor.load(tmp_path / f"{name}.npy"), array.astype(x.dtype))
    np.savez_compressed(tmp_path / "z.npz", x=x, y=x[0])
    back = tenor.load(tmp_path / "z.npz")
    same(back["x"], x)
    same(back["y"], x[0])
    tenor.save(x, tmp_path / "ours.npy")
    assert np.array_equal(np.load(tmp_path / "ours.npy", allow_pickle=False), x)


def test_numpy_reads_our_bfloat16_and_we_read_numpys(tmp_path):
    x = sample("bfloat16")
    tenor.save(x, tmp_path / "x.npy")
    assert np.load(tmp_path / "x.npy").tobytes() == x.tobytes()
    np.save(tmp_path / "y.npy", x)
    same(tenor.load(tmp_path / "y.npy"), x)


def test_safetensors_of_the_reference_library(tmp_path):
    st = pytest.importorskip("safetensors.numpy")
    named = {f"t{i}": sample(d) for i, d in enumerate(d for d in DTYPES if not d.startswith("float8") and d != "bfloat16")}
    st.save_file(named, tmp_path / "x.safetensors", metadata={"format": "pt"})
    back = tenor.load(tmp_path / "x.safetensors")
    for name in named:
        same(back[name], named[name])
    tenor.save(named, tmp_path / "y.safetensors")
    for name, array in st.load_file(tmp_path / "y.safetensors").items():
        assert np.array_equal(array, named[name])


def test_tensors_and_strided_arrays_are_saved_by_value(tmp_path):
    x = tenor.from_dlpack(sample("float32"))
    tenor.save(x.transpose(0, 1), tmp_path / "x.npy")
    same(tenor.load(tmp_path / "x.npy"), sample("float32").T)
    tenor.save({"x": x.transpose(0, 1)}, tmp_path / "x.safetensors")
    same(tenor.load(tmp_path / "x.safetensors")["x"], sample("float32").T)


def test_bad_arguments(tmp_path):
    with pytest.raises(tenor.ValueError, match="must end in"):
        tenor.load(tmp_path / "x.bin")
    with pytest.raises(tenor.ValueError, match="must end in"):
        tenor.save(np.zeros(3), tmp_path / "x.pt")
    with pytest.raises(tenor.DTypeError, match="mapping"):
        tenor.save(np.zeros(3), tmp_path / "x.npz")
    with pytest.raises(tenor.DTypeError, match="complex128"):
        tenor.save(np.zeros(3, complex), tmp_path / "x.npy")
    with pytest.raises(tenor.ValueError, match="__metadata__"):
        tenor.save({"__metadata__": np.zeros(3)}, tmp_path / "x.safetensors")
    with pytest.raises(FileNotFoundError):
        tenor.load(tmp_path / "none.npy")
    assert not list(tmp_path.iterdir())  # nothing is written before the checks


# ---- broken files -----------------------------------------------------------------------------------------------------


def npy(header, data=b"", version=1):
    text = (header if isinstance(header, bytes) else str(header).encode()) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text + data


def good_header(**changes):
    return {"descr": "<f4", "fortran_order": False, "shape": (2, 3), **changes}


def pickled():
    class Trap:
        def __reduce__(self):
            return (exec, ("raise SystemExit('a pickle was executed')",))

    return pickle.dumps(np.array([Trap()], dtype=object), protocol=2)


BROKEN_NPY = {
    "empty": b"",
    "no magic": b"PK\x03\x04" * 8,
    "version 9": npy(good_header(), bytes(24), version=1).replace(b"NUMPY\x01", b"NUMPY\x09"),
    "cut in the header": npy(good_header())[:30],
    "cut in the data": npy(good_header(), bytes(23)),
    "too long": npy(good_header(), bytes(25)),
    "huge": npy(good_header(shape=(1 << 40, 1 << 10))),
    "huge beyond 64 bits": npy(good_header(shape=(1 << 62, 1 << 62))),
    "huge times zero": npy(good_header(shape=(1 << 63, 0))),
    "huge and a zero": npy(good_header(shape=(1 << 40, 1 << 40, 0))),
    "negative": npy(good_header(shape=(-1, 3))),
    "shape of floats": npy(good_header(shape=(2.0, 3))),
    "shape of bools": npy(good_header(shape=(True, 6)), bytes(24)),
    "shape no tuple": npy(good_header(shape=6), bytes(24)),
    "too many dims": npy(good_header(shape=(1,) * 70), bytes(4)),
    "order no bool": npy(good_header(fortran_order=1), bytes(24)),
    "no shape": npy({"descr": "<f4", "fortran_order": False}, bytes(24)),
    "no dict": npy("[1, 2, 3]", bytes(24)),
    "code": npy("__import__('os').abort()"),
    "deep": npy("[" * 60000),
    "not a dtype": npy(good_header(descr="<q9z"), bytes(24)),
    "pickle": npy(good_header(descr="|O", shape=(1,)), pickled()),
    "object field": npy(good_header(descr=[("a", "|O")], shape=(1,)), pickled()),
    "header of 4 GiB": b"\x93NUMPY\x02\x00" + struct.pack("<I", 0xFFFFFFFF) + b"x" * 10,
    "a bool of 2": npy(good_header(descr="|b1"), b"\x00\x01\x02\x00\x01\x00"),
}


@pytest.fixture
def little_memory():
    """Address space for 512 MiB more than now: what a lying file claims cannot be had."""
    with open("/proc/self/statm") as f:
        used = int(f.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (512 << 20), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def refuse(path, data):
    path.write_bytes(data)
    with pytest.raises(tenor.ValueError, match=path.name):
        tenor.load(path)


@pytest.mark.parametrize("name", BROKEN_NPY)
def test_broken_npy(tmp_path, little_memory, name):
    refuse(tmp_path / "x.npy", BROKEN_NPY[name])


@pytest.mark.parametrize("descr", ["<c16", "<U4", "<M8[s]", "<f16", "|V1", [("a", "<f4")]])
def test_dtypes_that_tenor_has_not(tmp_path, descr):
    (tmp_path / "x.npy").write_bytes(npy(good_header(descr=descr, shape=(1,)), bytes(np.dtype(descr).itemsize)))
    with pytest.raises(tenor.DTypeError):
        tenor.load(tmp_path / "x.npy")


def archive(members, compression=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as z:
        for name, data in members:
            z.writestr(name, data)
    return out.getvalue()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_broken_npz(tmp_path, little_memory):
    whole = archive([("x.npy", npy(good_header(), bytes(24)))], zipfile.ZIP_STORED)
    refuse(tmp_path / "a.npz", b"")
    refuse(tmp_path / "b.npz", whole[:-30])
    refuse(tmp_path / "c.npz", archive([("x.txt", b"hello")]))
    refuse(tmp_path / "d.npz", archive([("x.npy", npy(good_header(), bytes(24)))] * 2))
    refuse(tmp_path / "e.npz", archive([("x.npy", npy(good_header(shape=(1 << 40,))))]))
    refuse(tmp_path / "f.npz", archive([("x.npy", npy(good_header(descr="|O", shape=(1,)), pickled()))]))
    at = whole.index(bytes(24)) + 5
    refuse(tmp_path / "g.npz", whole[:at] + b"\x01" + whole[at + 1:])  # the checksum is wrong
    # The directory says that the member is 2 GiB long, and its header claims as much.
    lying = archive([("x.npy", npy(good_header(shape=(1 << 29,)), bytes(24)))], zipfile.ZIP_STORED)
    size = len(npy(good_header(shape=(1 << 29,)), bytes(24)))
    refuse(tmp_path / "h.npz", lying.replace(struct.pack("<I", size), struct.pack("<I", (1 << 31) + 128)))


def test_zip_bombs(tmp_path, little_memory, monkeypatch):
    monkeypatch.setattr(tenor._io_npy, "_MOST_EXPANDED", 1 << 16)
    zeros = npy(good_header(descr="|i1", shape=(1 << 20,)), bytes(1 << 20))
    with pytest.raises(tenor.ValueError, match="zip bomb"):
        load_bytes(tmp_path / "a.npz", archive([("x.npy", zeros)]))
    load_bytes(tmp_path / "b.npz", archive([("x.npy", zeros)], zipfile.ZIP_STORED))
    # Two entries of the directory stand for the bytes of one member.
    whole = archive([("x.npy", npy(good_header(), bytes(24))), ("y.npy", npy(good_header(), bytes(24)))], zipfile.ZIP_STORED)
    first, second = (i for i in range(len(whole)) if whole[i:i + 4] == b"PK\x01\x02")
    shared = bytearray(whole)
    shared[second + 42:second + 46] = shared[first + 42:first + 46]
    with pytest.raises(tenor.ValueError, match="another member"):
        load_bytes(tmp_path / "c.npz", bytes(shared))


def load_bytes(path, data):
    path.write_bytes(data)
    return tenor.load(path)


def test_what_is_no_file_or_larger_than_memory(tmp_path):
    os.mkfifo(tmp_path / "pipe.npy")
    with pytest.raises(tenor.ValueError, match="not a regular file"):
        tenor.load(tmp_path / "pipe.npy")
    (tmp_path / "d.npy").mkdir()
    with pytest.raises(tenor.ValueError, match="not a regular file"):
        tenor.load(tmp_path / "d.npy")
    path = tmp_path / "sparse.npy"
    header = npy(good_header(descr="|i1", shape=(1 << 42,)))
    path.write_bytes(header)
    os.truncate(path, len(header) + (1 << 42))
    with pytest.raises(tenor.OutOfMemoryError, match="more than this machine's memory"):
        tenor.load(path)


@pytest.mark.parametrize("descr", ["('f4', 10**20)", "{'names': ['a'], 'formats': ['f4']}", "[('a', 'f4')] * 2", "'('", "b'f4'", "None", "'f4' * 5000",
                                   "('f4', (2,) * 100)", "{'names': ['a'] * 9, 'formats': 1}", "object", "'1000000000f4'"])
def test_odd_dtypes(tmp_path, descr):
    text = b"{'descr': %s, 'fortran_order': False, 'shape': (2,)}" % descr.encode()
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(8))
    try:
        tenor.load(path)
    except (tenor.ValueError, tenor.DTypeError):
        pass


def safetensors(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype="F32", shape=(2, 3), offsets=(0, 24)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


BROKEN_SAFETENSORS = {
    "empty": b"",
    "short": b"\x00" * 7,
    "header past the end": safetensors({"x": entry()}, bytes(24), length=1 << 20),
    "header of 2^63": safetensors({"x": entry()}, bytes(24), length=1 << 63),
    "no json": safetensors(b"{not json", bytes(24)),
    "no utf-8": safetensors(b"\xff\xfe{}", bytes(24)),
    "a list": safetensors([1, 2], bytes(24)),
    "deep": safetensors(b"[" * 100000),
    "name twice": safetensors(b'{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"1"),
    "entry no object": safetensors({"x": 3}, bytes(24)),
    "no shape": safetensors({"x": {"dtype": "F32", "data_offsets": [0, 24]}}, bytes(24)),
    "cut": safetensors({"x": entry()}, bytes(20)),
    "too long": safetensors({"x": entry()}, bytes(28)),
    "offsets and shape disagree": safetensors({"x": entry(shape=(2, 4))}, bytes(24)),
    "offsets past the end": safetensors({"x": entry(shape=(1 << 40,), offsets=(0, 1 << 42))}, bytes(24)),
    "offsets backwards": safetensors({"x": entry(offsets=(24, 0))}, bytes(24)),
    "offsets negative": safetensors({"x": entry(offsets=(-24, 0))}, bytes(24)),
    "three offsets": safetensors({"x": entry(offsets=(0, 24, 48))}, bytes(24)),
    "product overflows": safetensors({"x": entry(shape=(1 << 62, 1 << 62, 0), offsets=(0, 1 << 60))}, b""),
    "negative size": safetensors({"x": entry(shape=(-2, -3))}, bytes(24)),
    "float size": safetensors({"x": entry(shape=(2.0, 3))}, bytes(24)),
    "overlap": safetensors({"x": entry(), "y": entry()}, bytes(24)),
    "hole": safetensors({"x": entry(), "y": entry(offsets=(32, 56))}, bytes(56)),
    "a bool of 7": safetensors({"x": entry("BOOL", (2,), (0, 2))}, b"\x01\x07"),
}


@pytest.mark.parametrize("name", BROKEN_SAFETENSORS)
def test_broken_safetensors(tmp_path, little_memory, name):
    refuse(tmp_path / "x.safetensors", BROKEN_SAFETENSORS[name])


def test_a_safetensors_dtype_that_tenor_has_not(tmp_path):
    (tmp_path / "x.safetensors").write_bytes(safetensors({"x": entry("C64", (1,), (0, 8))}, bytes(8)))
    with pytest.raises(tenor.DTypeError, match="C64"):
        tenor.load(tmp_path / "x.safetensors")


def test_every_cut_and_flip_of_a_file_loads_or_is_refused(tmp_path):
    rng = np.random.default_rng(0)
    for suffix in (".npy", ".npz", ".safetensors"):
        path = tmp_path / ("x" + suffix)
        x = sample("float32", (2, 3))
        tenor.save(x if suffix == ".npy" else {"x": x, "y": x[0]}, path)
        whole = path.read_bytes()
        for _ in range(1000):
            data = bytearray(whole)
            data[rng.integers(len(data))] ^= 1 << rng.integers(8)
            if rng.random() < 0.3:
                data = data[: rng.integers(len(data))]
            path.write_bytes(data)
            try:
                tenor.load(path)
            except (tenor.ValueError, tenor.DTypeError):
                pass


@pytest.mark.parametrize("suffix, name", [("npz", "\ud800"), ("npz", "a\0b"), ("npz", "n" * 70000), ("safetensors", "\ud800"),
                                          ("safetensors", "__metadata__")])
def test_a_refused_save_leaves_the_old_file(tmp_path, suffix, name):
    path = tmp_path / f"x.{suffix}"
    tenor.save({"x": sample("float32")}, path)
    with pytest.raises(tenor.ValueError):
        tenor.save({"x": sample("int8"), name: sample("int8")}, path)
    same(tenor.load(path)["x"], sample("float32"))
    assert os.listdir(tmp_path) == [path.name]


def test_a_save_over_a_link_or_a_restricted_file_keeps_them(tmp_path):
    path, link = tmp_path / "x.npy", tmp_path / "link.npy"
    tenor.save(sample("float32"), path)
    path.chmod(0o600)
    link.symlink_to(path)
    tenor.save(sample("int8"), link)
    assert link.is_symlink() and path.stat().st_mode & 0o777 == 0o600
    same(tenor.load(path), sample("int8"))
