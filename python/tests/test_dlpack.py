"""Arrays of other libraries in and out, without a copy: capsules of both versions, odd strides, read-only memory."""
import ctypes
import warnings

import ml_dtypes
import numpy as np
import pytest

import tenor

POINTER = ctypes.pythonapi.PyCapsule_GetPointer
POINTER.restype, POINTER.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
NEW = ctypes.pythonapi.PyCapsule_New
NEW.restype, NEW.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
NAME = ctypes.pythonapi.PyCapsule_GetName
NAME.restype, NAME.argtypes = ctypes.c_char_p, [ctypes.py_object]


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class ManagedVersioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", DLTensor)]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
ALIVE = []


class Exporter:
    """A library of its own: every field of the capsule as the test wants it."""

    def __init__(self, array, shape=None, strides="of the array", version=None, flags=0, code=2, bits=None, lanes=1, offset=0,
                 device=(1, 0), deleter=True):
        ALIVE.append(self)  # a capsule's structure lives until its deleter is called
        self.array, self.version, self.device, self.deleted = array, version, device, 0
        shape = list(array.shape if shape is None else shape)
        if strides == "of the array":
            strides = [s // array.itemsize for s in array.strides]
        self.shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        self.strides = None if strides is None else (ctypes.c_int64 * max(len(strides), 1))(*strides)
        tensor = DLTensor(array.ctypes.data - offset, *device, len(shape), code, bits or 8 * array.itemsize, lanes, self.shape,
                          self.strides, offset)
        self.callback = DELETER(self.delete)
        call = ctypes.cast(self.callback, ctypes.c_void_p) if deleter else None
        self.managed = Managed(tensor, None, call) if version is None else ManagedVersioned(*version, None, call, flags, tensor)

    def delete(self, _):
        self.deleted += 1

    def __dlpack_device__(self):
        return self.device

    def capsule(self):
        return NEW(ctypes.addressof(self.managed), b"dltensor" if self.version is None else b"dltensor_versioned", None)


class Old(Exporter):
    """From before DLPack 1.0: __dlpack__ knows no max_version."""

    def __dlpack__(self, stream=None):
        self.last = self.capsule()
        return self.last


class New(Exporter):
    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        self.asked = max_version
        self.last = self.capsule()
        return self.last


def x23():
    return np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("make", [lambda a: Old(a), lambda a: New(a), lambda a: New(a, version=(1, 0)), lambda a: New(a, version=(1, 3))])
def test_both_capsules_share_memory_and_are_freed_once(make):
    array = x23()
    e = make(array)
    t = tenor.from_dlpack(e)
    assert NAME(e.last).startswith(b"used_dltensor")
    array[1, 2] = 50
    assert t.tolist() == [[0, 1, 2], [3, 4, 50]] and t.data_ptr() == array.ctypes.data
    view = t.transpose(0, 1)
    del t
    assert e.deleted == 0
    del view
    assert e.deleted == 1


def test_the_newest_version_is_asked_for():
    e = New(x23())
    tenor.from_dlpack(e)
    assert e.asked[0] == 1


@pytest.mark.parametrize("strides, shape", [(None, None), ([3, 1], None), ([-7, 1], (1, 3)), ([0, 1], (1, 3)), ([1 << 60, 1], (1, 3)),
                                            ([-1, -5], (1, 1)), ([-9], (0,)), ([], ()), (None, ()), ([-4, 2, -1], (1, 3, 1))])
def test_null_and_junk_strides(strides, shape):
    array = x23()
    t = tenor.from_dlpack(Old(array, shape=shape, strides=strides))
    flat, want_shape = array.reshape(-1), array.shape if shape is None else shape
    step = 2 if strides == [-4, 2, -1] else 1
    want = flat[: int(np.prod(want_shape)) * step: step].reshape(want_shape)
    assert np.array_equal(t.numpy(), want)
    assert t.is_contiguous() == (step == 1)
    assert np.array_equal(t.contiguous().numpy(), want)


def test_byte_offset_counts():
    array = x23()
    assert tenor.from_dlpack(Old(array, offset=64)).tolist() == array.tolist()


def test_a_capsule_without_deleter():
    assert tenor.from_dlpack(Old(x23(), deleter=False)).shape == (2, 3)


@pytest.mark.parametrize("kwargs, error", [
    (dict(strides=[-3, 1]), "ValueError"), (dict(code=5, bits=64), "DTypeError"), (dict(lanes=4), "DTypeError"),
    (dict(bits=4), "DTypeError"), (dict(code=17), "DTypeError"), (dict(device=(10, 0)), "DeviceError"), (dict(shape=(-1, 3)), "ShapeError"),
    (dict(version=(2, 0)), "UnsupportedError"), (dict(shape=(1 << 40, 1 << 40)), "OutOfMemoryError")])
def test_what_tenor_does_not_hold_is_refused_and_freed(kwargs, error):
    e = New(x23(), **kwargs)
    with pytest.raises(getattr(tenor, error)):
        tenor.from_dlpack(e)
    assert e.deleted == 1


def test_every_dtype_through_a_capsule():
    codes = {"int8": 0, "int16": 0, "int32": 0, "int64": 0, "uint8": 1, "uint16": 1, "uint32": 1, "uint64": 1, "float16": 2,
             "float32": 2, "float64": 2, "bfloat16": 4, "bool": 6, "float8_e4m3fn": 10, "float8_e5m2": 12}
    for name, code in codes.items():
        array = np.ones(3, getattr(ml_dtypes, name, name))
        t = tenor.from_dlpack(New(array, code=code, version=(1, 1)))
        assert t.dtype == name and t.tolist() == [1, 1, 1]
        out = POINTER(t.__dlpack__(max_version=(1, 1)), b"dltensor_versioned")
        back = ManagedVersioned.from_address(out).tensor
        assert (back.code, back.bits, back.lanes) == (code, 8 * array.itemsize, 1)


def test_export():
    t = tenor.from_dlpack(x23()).transpose(0, 1)
    assert t.__dlpack_device__() == (1, 0)
    for kwargs, name, kind in [({}, b"dltensor", Managed), (dict(max_version=(0, 8)), b"dltensor", Managed),
                               (dict(max_version=(1, 0)), b"dltensor_versioned", ManagedVersioned)]:
        capsule = t.__dlpack__(**kwargs)
        assert NAME(capsule) == name
        d = kind.from_address(POINTER(capsule, name)).tensor
        assert d.data == t.data_ptr() and d.ndim == 2 and d.shape[:2] == [3, 2] and d.strides[:2] == [1, 3]
    assert NAME(t.__dlpack__(dl_device=(1, 0))) == b"dltensor"
    with pytest.raises(BufferError):
        t.__dlpack__(dl_device=(2, 0))
    copied = t.__dlpack__(max_version=(1, 0), copy=True)
    assert ManagedVersioned.from_address(POINTER(copied, b"dltensor_versioned")).tensor.data != t.data_ptr()


def test_an_exported_capsule_keeps_the_memory():
    array = np.from_dlpack(tenor.from_dlpack(x23()).clone())
    assert array.tolist() == x23().tolist()
    del array
    tenor.from_dlpack(x23()).__dlpack__()  # never consumed: the capsule frees it


def test_numpy_of_a_tensor_shares_its_memory():
    t = tenor.from_dlpack(x23()).clone()
    a = t.transpose(0, 1).numpy()
    assert a.shape == (3, 2) and a.strides == (4, 12)
    a[2, 1] = -1
    assert t.tolist()[1][2] == -1
    assert np.asarray(t).ctypes.data == t.data_ptr() and np.asarray(t, dtype=np.float64).dtype == np.float64
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        with pytest.raises(ValueError, match="copy"):
            np.asarray(t, dtype=np.float64, copy=False)
    assert np.array(t, copy=True).ctypes.data != t.data_ptr()


# ---- read-only memory -------------------------------------------------------------------------------------------------


def read_only():
    array = x23()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("make", [read_only, lambda: np.frombuffer(x23().tobytes(), np.float32).reshape(2, 3),
                                  lambda: New(x23(), version=(1, 0), flags=1), lambda: np.broadcast_to(x23()[0], (2, 3))])
def test_read_only_arrays_are_inputs_but_no_outputs(make):
    x = make()
    assert tenor.add(x, x).shape == (2, 3)
    with pytest.raises(tenor.ValueError, match="read-only|share memory"):
        tenor.add(x23(), x23(), out=x)


def test_read_only_survives_views_and_export():
    t = tenor.from_dlpack(read_only()).transpose(0, 1)
    assert not t.numpy().flags.writeable
    assert ManagedVersioned.from_address(POINTER(t.__dlpack__(max_version=(1, 0)), b"dltensor_versioned")).flags & 1
    with pytest.raises((tenor.Error, BufferError)):
        t.__dlpack__()
    assert t.clone().numpy().flags.writeable


# ---- kinds in, kinds out ----------------------------------------------------------------------------------------------


def test_the_result_is_of_the_first_arrays_kind():
    n, t = x23(), tenor.from_dlpack(x23())
    assert isinstance(tenor.add(n, t), np.ndarray) and isinstance(tenor.add(t, n), tenor.Tensor)
    assert isinstance(tenor.add(n, 1), np.ndarray) and isinstance(tenor.add(1, t), tenor.Tensor)
    b = tenor.add(n.astype(ml_dtypes.bfloat16), 1)
    assert isinstance(b, np.ndarray) and b.dtype == ml_dtypes.bfloat16


def test_numpy_arrays_of_any_layout():
    base = np.arange(60, dtype=np.float64).reshape(3, 4, 5)
    for x in (base.transpose(2, 0, 1), base[::2, 1:, ::3], np.asfortranarray(base), base[0, 0, 0], base[:0], np.float64(7),
              np.broadcast_to(base[0], (2, 4, 5))):
        assert np.array_equal(tenor.add(x, 1), x + 1)
    record = np.zeros(4, dtype=[("a", "<f8"), ("b", "<f8")])["a"]  # a stride that is not its size
    assert np.array_equal(tenor.add(record, 1), record + 1)


@pytest.mark.parametrize("x, error", [(np.arange(6.0)[::-1], "ValueError"), (np.zeros(3, ">f4"), "DTypeError"), (np.zeros(3, complex), "DTypeError"),
                                      (np.zeros(3, [("a", "u1"), ("b", "<f4")])["b"], "ValueError"), (np.array(["a"]), "DTypeError"),
                                      (np.array([None]), "DTypeError"), ([1, 2], "DTypeError"), ("abc", "DTypeError")])
def test_what_is_no_array_of_ours(x, error):
    with pytest.raises(getattr(tenor, error), match="add|dtype"):
        tenor.add(x, x)


def test_none_is_no_array():
    with pytest.raises(TypeError, match="add"):
        tenor.add(None, np.zeros(3))


# ---- PyTorch ----------------------------------------------------------------------------------------------------------


def test_torch_in_torch_out():
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8):
        x = torch.arange(6).reshape(2, 3).to(dtype)
        y = tenor.add(x, x)
        assert isinstance(y, torch.Tensor) and y.dtype == dtype and torch.equal(y, x + x)
        assert torch.equal(tenor.add(x.T, x.T), (x + x).T)
    out = torch.empty(2, 3)
    assert tenor.add(torch.ones(2, 3), 1, out=out) is out and out.tolist() == [[2] * 3] * 2
    assert tenor.transpose(x, 0, 1).data_ptr() == x.data_ptr()
    assert tenor.eq(x, x).dtype == torch.bool


def test_torch_results_come_from_torchs_allocator():
    torch = pytest.importorskip("torch")
    y = tenor.add(torch.ones(1000, 1000), 1)
    kept = y.untyped_storage()
    assert kept.nbytes() >= 4_000_000 and kept.resizable()  # memory of another library is not resizable


def test_torch_results_of_any_layout():
    torch = pytest.importorskip("torch")
    for shape in ((), (0, 3), (1, 1), (2, 3, 4), (5,)):
        x = torch.arange(float(np.prod(shape, dtype=int))).reshape(shape)
        y = tenor.add(x, 1)
        assert y.stride() == x.stride() and torch.equal(y, x + 1)
    x = torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)  # the result keeps the order of the dims in memory
    y = tenor.add(x, 1)
    assert y.stride() == x.stride() and y.storage_offset() == 0 and torch.equal(y, x + 1)
    pieces = tenor.rms_norm(x, torch.ones(3)), tenor.cumsum(x, 0), tenor.sum(x, 1)
    for ours, theirs in zip(pieces, (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6), x.cumsum(0), x.sum(1))):
        assert torch.allclose(ours, theirs, atol=1e-6)
    first, second = tenor.add(x, 1), tenor.add(x, 2)
    assert torch.equal(second - first, torch.ones_like(x))  # results share nothing


def test_torch_tensors_that_require_grad():
    torch = pytest.importorskip("torch")
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(tenor.UnsupportedError, match="add.*requires grad.*no_grad"):
        tenor.add(x, 1)
    with torch.no_grad():
        assert tenor.add(x, 1).tolist() == [2, 2, 2]
    with torch.inference_mode():
        assert tenor.add(x, 1).tolist() == [2, 2, 2]
    assert tenor.add(x.detach(), 1).tolist() == [2, 2, 2]


def test_torch_views_conjugates_and_subclasses():
    torch = pytest.importorskip("torch")
    x = torch.arange(24.0).reshape(2, 3, 4)
    assert torch.equal(tenor.add(x[:, 1:, ::2], 0), x[:, 1:, ::2])
    assert torch.equal(tenor.add(x.expand(5, 2, 3, 4), 0), x.expand(5, 2, 3, 4))
    assert torch.equal(tenor.add(torch.nn.Parameter(x, requires_grad=False), 0), x)
    for strange in (torch.ones(3).to_sparse(), torch.ones(3, dtype=torch.complex64).conj(), torch.ones(3, device="meta")):
        with pytest.raises((tenor.Error, BufferError, RuntimeError)):
            tenor.add(strange, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that they are a prototype
        nested = torch.nested.nested_tensor([x[0], x[1, :1]])
    with pytest.raises(tenor.UnsupportedError, match="add: x is a nested tensor"):
        tenor.add(nested, 1)
    with pytest.raises(tenor.UnsupportedError, match="resolve_neg"):  # its memory holds the values' negatives
        tenor.add(torch.tensor([1 + 2j]).conj().imag, 1)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float16", "float32", "int16", "bool"])
def test_numpy_scalars_are_read_while_they_live(dtype):
    kind = getattr(ml_dtypes, dtype, None) or np.dtype(dtype).type
    scalars = [kind(i % 2) for i in range(100)]
    tensors = [tenor.asarray(s) for s in scalars]
    assert [float(t.item()) for t in tensors] == [i % 2 for i in range(100)]
    if dtype == "bfloat16":
        assert float(np.asarray(tenor.fmod(kind(5), kind(4)))) == 1 and float(np.asarray(tenor.sub(kind(5), kind(3)))) == 2


class Exporter:
    """Exports what it is given."""

    def __init__(self, device=(1, 0), capsule=None):
        self.device, self.capsule = device, capsule

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        return self.capsule


def test_what_protocols_give_is_checked():
    for device in (None, "x", (1,), (10**30, 0), ("a", 0)):
        with pytest.raises(tenor.ValueError, match="from_dlpack: __dlpack_device__ must give"):
            tenor.from_dlpack(Exporter(device))
    with pytest.raises(tenor.DTypeError, match="max_version must be"):
        tenor.zeros(2).__dlpack__(max_version="ab")
    with pytest.raises(tenor.DTypeError, match="dtype: "):
        tenor.zeros(2, dtype="\ud800")
    with pytest.raises(tenor.ValueError, match="device: "):
        tenor.zeros(2, device="\ud800")
    with pytest.raises(tenor.ValueError, match="beyond 64 bits"):
        tenor.explain("x+1", x="f32[9223372036854775808]", device="h200")


def test_a_capsule_that_holds_no_tensor_is_refused():
    used = tenor.zeros(2).__dlpack__()
    tenor.from_dlpack(Exporter(capsule=used))
    for capsule in (used, None, 3):
        with pytest.raises(tenor.ValueError, match="from_dlpack: expected an unused capsule"):
            tenor.from_dlpack(Exporter(capsule=capsule))
