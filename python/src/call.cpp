#include "call.h"

#include <cmath>
#include <unordered_map>

#include "call_numpy.h"
#include "call_torch.h"
#include "src/core/dlpack.h"
#include "src/core/text.h"
#include "src/cpu/canonical_bools.h"

namespace tenor::python {
namespace {

using core::fail;

bool starts_with(const char* text, const char* prefix) { return std::string_view(text).starts_with(prefix); }

/// The library of an array type, remembered: the lookup of a type's module costs more than a small operator. Types live
/// as long as their library, so the pointers stay valid; heap types that die could be reused, hence only known
/// libraries.
ArrayKind kind_of(nb::handle x) {
  if (nb::isinstance<Tensor>(x)) return ArrayKind::kTenor;
  static auto* known = new std::unordered_map<PyTypeObject*, ArrayKind>;
  PyTypeObject* type = Py_TYPE(x.ptr());
  if (auto found = known->find(type); found != known->end()) return found->second;
  ArrayKind kind = ArrayKind::kNone;
  // Subclasses count as their base's library.
  for (nb::handle base : nb::tuple(nb::handle(reinterpret_cast<PyObject*>(type)).attr("__mro__"))) {
    const std::string full =
        nb::cast<std::string>(base.attr("__module__")) + "." + nb::cast<std::string>(base.attr("__name__"));
    if (full == "numpy.ma.MaskedArray" || full == "numpy.ma.core.MaskedArray") kind = ArrayKind::kMasked;
    if (full == "numpy.ndarray" || full == "numpy.generic") kind = ArrayKind::kNumPy;
    if (full == "torch.Tensor") kind = ArrayKind::kTorch;
    if (kind != ArrayKind::kNone) break;
  }
  if (kind != ArrayKind::kNone) {
    known->emplace(type, kind);
  } else if (has_attribute(x, "__dlpack__")) {
    kind = ArrayKind::kOther;
  }
  return kind;
}

Tensor from_capsule(nb::handle capsule) {
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    auto* managed = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    PyCapsule_SetName(capsule.ptr(), "used_dltensor_versioned");
    return Tensor::from_dlpack(managed);
  }
  if (!PyCapsule_IsValid(capsule.ptr(), "dltensor"))
    fail<ValueError>("from_dlpack: expected an unused capsule named dltensor or dltensor_versioned, got {}",
                     nb::repr(capsule).c_str());
  auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  return Tensor::from_dlpack(managed);
}

/// The stream that an array's library works on, which Tenor then uses too: PyTorch's or CuPy's current one, else this
/// thread's own. None for arrays on the CPU.
std::optional<Stream> stream_of(nb::handle x) {
  if (!has_attribute(x, "__dlpack_device__")) return {};
  const nb::object device = x.attr("__dlpack_device__")();
  int type = 0, index = 0;
  if (!PyTuple_Check(device.ptr()) || nb::len(device) != 2 || !nb::try_cast(device[0], type) ||
      !nb::try_cast(device[1], index))
    fail<ValueError>("from_dlpack: __dlpack_device__ must give (device type, index), got {}", nb::repr(device).c_str());
  if (type != core::kDlCuda) return {};
  const Device cuda{DeviceType::kCuda, index};
  const auto given = [&](const nb::object& pointer) {
    return Stream{cuda, reinterpret_cast<CUstream_st*>(nb::cast<uintptr_t>(pointer))};
  };
  const std::string module =
      nb::cast<std::string>(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(x.ptr()))).attr("__module__"));
  if (module.starts_with("torch")) return torch_stream(cuda);
  if (module.starts_with("cupy"))
    return given(nb::module_::import_("cupy").attr("cuda").attr("get_current_stream")().attr("ptr"));
  return current_stream(cuda);
}

/// Through the library's own from_dlpack: jax.dlpack, cupy, or whatever the array's package has.
nb::object to_library_of(nb::handle like, const Tensor& x) {
  const nb::str module =
      nb::cast<nb::str>(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(like.ptr()))).attr("__module__"));
  const char* text = module.c_str();
  nb::object tensor = nb::cast(x);
  if (starts_with(text, "jax")) return nb::module_::import_("jax.dlpack").attr("from_dlpack")(tensor);
  const std::string root(text, std::string_view(text).find('.') == std::string_view::npos
                                   ? std::strlen(text)
                                   : std::string_view(text).find('.'));
  nb::module_ library = nb::module_::import_(root.c_str());
  if (nb::hasattr(library, "from_dlpack")) return library.attr("from_dlpack")(tensor);
  return tensor;
}

}  // namespace

nb::object find_attribute(nb::handle x, const char* name) {
  nb::object found = nb::steal(PyObject_GetAttrString(x.ptr(), name));
  if (found.is_valid()) return found;
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw nb::python_error();
  PyErr_Clear();
  return {};
}

std::optional<std::string> utf8_of(nb::handle x) {
  if (!PyUnicode_Check(x.ptr())) return {};
  Py_ssize_t size = 0;
  if (const char* text = PyUnicode_AsUTF8AndSize(x.ptr(), &size)) return std::string(text, static_cast<size_t>(size));
  if (!PyErr_ExceptionMatches(PyExc_UnicodeError)) throw nb::python_error();
  PyErr_Clear();
  return {};
}

Device to_device(nb::handle x) {
  if (const auto text = utf8_of(nb::str(x))) return device_from_name(*text);
  fail<ValueError>("device: {} is no name of a device", nb::repr(x).c_str());
}

std::optional<int64_t> to_int64(nb::handle x) {
  const nb::object index = nb::steal(PyNumber_Index(x.ptr()));
  if (!index.is_valid()) throw nb::python_error();
  int overflow = 0;
  const int64_t value = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (value == -1 && PyErr_Occurred()) throw nb::python_error();
  if (overflow) return {};
  return value;
}

bool read_int(nb::handle x, Int& to) {
  if (!is_integer_object(x)) return false;
  const auto read = to_int64(x);
  to.beyond = !read;
  to.value = read ? *read : nb::steal(PyNumber_Index(x.ptr())) < nb::int_(0) ? INT64_MIN : INT64_MAX;
  return true;
}

/// Python's complex numbers, and NumPy's, whose conversion to a float only warns that it drops the imaginary part.
static bool is_complex(nb::handle x) {
  if (PyFloat_CheckExact(x.ptr()) || PyLong_CheckExact(x.ptr())) return false;
  if (PyComplex_Check(x.ptr())) return true;
  return kind_of(x) == ArrayKind::kNumPy && x.attr("dtype").attr("kind").equal(nb::str("c"));
}

bool read_real(nb::handle x, double& value) {
  if (is_complex(x)) return false;
  value = PyFloat_AsDouble(x.ptr());
  if (value != -1 || !PyErr_Occurred()) return true;
  nb::python_error error;
  if (error.matches(PyExc_TypeError) || error.matches(PyExc_ValueError))
    return false;  // an array of texts raises the latter
  if (!error.matches(PyExc_OverflowError) || !is_integer_object(x)) throw error;
  value = nb::steal(PyNumber_Index(x.ptr())) < nb::int_(0) ? -HUGE_VAL : HUGE_VAL;
  return true;
}

bool is_integer_object(nb::handle x) {
  if (PyBool_Check(x.ptr())) return false;
  if (PyLong_Check(x.ptr()) || !PyIndex_Check(x.ptr())) return PyLong_Check(x.ptr());
  if (!is_array(x)) return true;
  const nb::object ndim = find_attribute(x, "ndim");
  if (!ndim.is_valid() || !ndim.equal(nb::int_(0))) return false;
  try {
    return is_integer(to_tensor("index", "x", x).dtype());
  } catch (const Error&) {
    return false;
  }
}

std::shared_ptr<void> keep(nb::handle x) {
  return {x.inc_ref().ptr(), [](void* p) {
            if (!Py_IsInitialized()) return;
            nb::gil_scoped_acquire locked;
            Py_DECREF(static_cast<PyObject*>(p));
          }};
}

Tensor from_dlpack_exporter(nb::handle x) {
  nb::object export_method = x.attr("__dlpack__");
  nb::dict options;
  // On a CUDA device the exporter makes its data ready for that stream; DLPack calls the legacy default stream 1.
  if (const auto stream = stream_of(x))
    options["stream"] = stream->handle ? reinterpret_cast<uintptr_t>(stream->handle) : uintptr_t{1};
  try {
    return from_capsule(export_method("max_version"_a = nb::make_tuple(1, 1), **options));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return from_capsule(export_method(**options));  // an exporter from before DLPack 1.0
}

nb::tuple to_tuple(const Dims& dims) {
  nb::object items = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(dims.size())));
  for (size_t i = 0; i < dims.size(); ++i)
    PyTuple_SET_ITEM(items.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(dims[i]));
  return nb::borrow<nb::tuple>(items);
}

bool is_array(nb::handle x) { return kind_of(x) != ArrayKind::kNone; }

/// Bools of another library as kernels read them. Operators named with a trailing underscore write into their x, so
/// that is put right where it lies; every other argument is only read.
static Tensor with_canonical_bools(std::string_view op, std::string_view name, const Tensor& x) {
  if (x.dtype() != boolean || x.device().type != DeviceType::kCpu || name == "out") return x;
  if (!op.ends_with('_') || name != "x" || x.read_only()) return cpu::canonical_bools(x);
  cpu::make_canonical(x);
  return x;
}

/// The array as its library hands it out.
static Tensor imported(const char* op, const char* name, nb::handle x, ArrayKind kind) {
  switch (kind) {
    case ArrayKind::kNumPy:
      return from_numpy(op, name, x);
    case ArrayKind::kMasked:
      fail<UnsupportedError>(
          "{}: {} is a masked array, and its mask would be ignored; pass its .data or .filled(value)", op, name);
    case ArrayKind::kTorch:
      return from_torch(op, name, x);
    case ArrayKind::kOther:
      return from_dlpack_exporter(x);
    default:
      break;
  }
  const nb::str type = nb::str(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(x.ptr()))).attr("__name__"));
  fail<DTypeError>("{}: {} must be an array (tenor.Tensor, NumPy, PyTorch or any DLPack exporter), got {}", op, name,
                   type.c_str());
}

Tensor to_tensor(const char* op, const char* name, nb::handle x, ArrayKind* kind) {
  const ArrayKind found = kind_of(x);
  if (kind) *kind = found;
  if (found == ArrayKind::kTenor) return *nb::inst_ptr<Tensor>(x);
  return with_canonical_bools(op, name, imported(op, name, x, found));
}

std::optional<Scalar> to_scalar(nb::handle x, const char* op, const char* name) {
  PyObject* p = x.ptr();
  if (PyBool_Check(p)) return Scalar(p == Py_True);
  if (PyFloat_Check(p) && kind_of(x) == ArrayKind::kNone) return Scalar(PyFloat_AS_DOUBLE(p));
  if (!PyLong_Check(p)) return {};
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(p, &overflow);
  if (overflow == 0) return Scalar(static_cast<int64_t>(value));
  const unsigned long long wide = PyLong_AsUnsignedLongLong(p);
  if (!PyErr_Occurred()) return Scalar(static_cast<uint64_t>(wide));
  PyErr_Clear();
  if (op) fail<ValueError>("{}: {}: the integer {} fits no dtype", op, name, nb::str(x).c_str());
  fail<ValueError>("the integer {} fits no dtype", nb::str(x).c_str());
}

/// The dtype of that name, which may have the prefix.
static DType dtype_named(nb::handle x, const char* prefix = "") {
  const auto text = utf8_of(x);
  if (!text) fail<DTypeError>("dtype: {} is no name of a dtype", nb::repr(x).c_str());
  return dtype_from_name(starts_with(text->c_str(), prefix) ? text->substr(std::strlen(prefix)) : *text);
}

DType to_dtype(nb::handle x) {
  if (nb::isinstance<DTypeObject>(x)) return nb::inst_ptr<DTypeObject>(x)->value;
  if (x.is(reinterpret_cast<PyObject*>(&PyFloat_Type))) return float64;
  if (x.is(reinterpret_cast<PyObject*>(&PyLong_Type))) return int64;
  if (x.is(reinterpret_cast<PyObject*>(&PyBool_Type))) return boolean;
  if (PyUnicode_Check(x.ptr())) return dtype_named(x);
  if (has_attribute(x, "byteorder") && x.attr("byteorder").equal(nb::str(">")))
    fail<DTypeError>("dtype: big-endian {} is not supported", nb::str(x).c_str());
  if (has_attribute(x, "name")) return dtype_named(nb::str(x.attr("name")));  // numpy.dtype
  if (PyType_Check(x.ptr())) return dtype_named(x.attr("__name__"));          // numpy.float32
  return dtype_named(nb::str(x), "torch.");                                   // torch.float32
}

Call::Call(const char* op, Out out, Workspace workspace) : op_(op), out_(out.object), workspace_(workspace.object) {}

Tensor Call::convert(const char* name, nb::handle x) {
  ArrayKind kind;
  Tensor t = to_tensor(op_, name, x, &kind);
  if (kind_ == ArrayKind::kNone) {
    kind_ = kind;
    like_ = x;
    device_ = t.device();
    if (t.device().type == DeviceType::kCuda && kind != ArrayKind::kTenor)
      stream_ = kind == ArrayKind::kTorch ? torch_stream(t.device()) : stream_of(x);
  }
  return t;
}

Tensor Call::array(const char* name, Array x) { return convert(name, x.object); }
Tensor Call::array(const char* name, OptionalArray x) {
  return x.object.is_none() ? Tensor() : convert(name, x.object);
}

Operand Call::operand(const char* name, ArrayOrScalar x) {
  if (kind_of(x.object) == ArrayKind::kTenor) return convert(name, x.object);
  if (auto scalar = to_scalar(x.object, op_, name)) return *scalar;
  return convert(name, x.object);
}

std::vector<Tensor> Call::arrays(const char* name, ArrayList xs) {
  if (is_array(xs.object) || !PySequence_Check(xs.object.ptr()))
    fail<DTypeError>("{}: {} must be a sequence of arrays", op_, name);
  std::vector<Tensor> out;
  for (nb::handle x : nb::borrow<nb::sequence>(xs.object)) out.push_back(convert(name, x));
  return out;
}

/// Whether the entries of that argument are dims, not counts.
static bool names_dims(std::string_view op, std::string_view name) {
  return (name.starts_with("dim") && op != "tile") || name == "source" || name == "destination";
}

/// A sequence with a length that is no text; an array without dims has none.
static bool is_sequence(nb::handle x) {
  if (!PySequence_Check(x.ptr()) || PyUnicode_Check(x.ptr())) return false;
  if (PyObject_Length(x.ptr()) >= 0) return true;
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
  PyErr_Clear();
  return false;
}

std::optional<Dims> Call::optional_dims(const char* name, DimList x, size_t most) {
  if (x.object.is_none()) return {};
  Dims out;
  const auto add = [&](nb::handle item) {
    if (!is_integer_object(item))
      fail<DTypeError>("{}: {} must be an int or a sequence of ints, got {}", op_, name, nb::repr(x.object).c_str());
    if (out.size() == most) fail<ShapeError>("{}: {} holds more than {} entries", op_, name, most);
    const auto value = to_int64(item);
    if (!value && names_dims(op_, name))
      fail<IndexError>("{}: {} {} is out of range", op_, name, nb::repr(item).c_str());
    if (!value) fail<ValueError>("{}: {} holds {}, which is beyond 64 bits", op_, name, nb::repr(item).c_str());
    out.push_back(*value);
  };
  if (is_integer_object(x.object)) {
    add(x.object);
  } else if (is_sequence(x.object)) {
    for (nb::handle item : nb::borrow<nb::sequence>(x.object)) add(item);
  } else {
    fail<DTypeError>("{}: {} must be an int or a sequence of ints, got {}", op_, name, nb::repr(x.object).c_str());
  }
  return out;
}

Dims Call::dims(const char* name, DimList x, size_t most) {
  if (auto out = optional_dims(name, x, most)) return *out;
  fail<DTypeError>("{}: {} must be an int or a sequence of ints, got None", op_, name);
}

int64_t Call::count(const char* name, Int x) {
  if (x.beyond) fail<ValueError>("{}: {} is beyond 64 bits", op_, name);
  return x;
}

std::optional<DType> Call::dtype(DTypeLike x) {
  if (x.object.is_none()) return {};
  return to_dtype(x.object);
}

Device Call::device(DeviceLike x, Device fallback) {
  if (x.object.is_none()) return fallback;
  return to_device(x.object);
}

Tensor Call::out(size_t i, size_t count) {
  if (out_.is_none()) return {};
  nb::gil_scoped_acquire locked;  // also called inside run()
  if (PyTuple_Check(out_.ptr()) || PyList_Check(out_.ptr())) {
    const auto items = nb::borrow<nb::sequence>(out_);
    if (nb::len(items) != count) fail<ValueError>("{}: out= must hold {} arrays, got {}", op_, count, nb::len(items));
    return to_tensor(op_, "out", items[i]);
  }
  if (count != 1) fail<ValueError>("{}: out= must be a tuple of {} arrays", op_, count);
  return to_tensor(op_, "out", out_);
}

nb::object Call::out_object() const { return nb::borrow(out_); }

std::unique_ptr<AllocatorGuard> Call::allocator_guard() const {
  return kind_ == ArrayKind::kTorch ? std::make_unique<AllocatorGuard>(&torch_allocator()) : nullptr;
}

std::unique_ptr<WorkspaceGuard> Call::workspace_guard() const {
  if (workspace_.is_none()) return nullptr;
  const Tensor workspace = to_tensor(op_, "workspace", workspace_);
  if (workspace.device() != device_)
    fail<DeviceError>("{}: workspace is on {}, its input on {}", op_, workspace.device(), device_);
  return std::make_unique<WorkspaceGuard>(workspace, op_);
}

nb::object Call::wrap_one(const Tensor& result) const {
  switch (kind_) {
    case ArrayKind::kNumPy:
      return to_numpy(result);
    case ArrayKind::kTorch:
      return to_torch(result);
    case ArrayKind::kOther:
      return to_library_of(like_, result);
    default:
      return nb::cast(result);
  }
}

nb::object Call::wrap(const Tensor& result) const { return out_.is_none() ? wrap_one(result) : out_object(); }

nb::object Call::wrap(const std::vector<Tensor>& results) const {
  if (!out_.is_none()) return out_object();
  nb::list items;
  for (const Tensor& r : results) items.append(wrap_one(r));
  return nb::tuple(items);
}

nb::object named_tuple(const char* name, std::initializer_list<const char*> fields) {
  nb::list names;
  for (const char* f : fields) names.append(f);
  return named_tuple(name, nb::tuple(names));
}

nb::object named_tuple(const std::string& name, nb::tuple fields) {
  static auto* made = new nb::dict;
  const nb::object key = nb::make_tuple(name, fields);
  if (made->contains(key)) return (*made)[key];
  nb::object type = nb::module_::import_("collections").attr("namedtuple")(name, fields);
  type.attr("__module__") = "tenor";
  // Some have a function's name, so pickles hold name and fields instead of a place in the module.
  type.attr("__reduce__") = nb::cpp_function(
      [](nb::handle x) { return nb::module_::import_("tenor._copying").attr("reduce_result")(x); }, nb::is_method());
  (*made)[key] = type;
  return type;
}

std::vector<std::string>& method_names() {
  static std::vector<std::string> names;
  return names;
}

}  // namespace tenor::python
