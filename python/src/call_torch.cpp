#include "call_torch.h"

#include <string>
#include <vector>

#include "src/core/dlpack.h"
#include "src/core/tensor_allocator.h"
#include "src/core/text.h"

namespace tenor::python {
namespace {

/// A name that Python has interned: looking an attribute up by it makes no text of it each time.
nb::handle name_of(const char* text) { return PyUnicode_InternFromString(text); }

nb::object checked(PyObject* made) {
  if (!made) throw nb::python_error();
  return nb::steal(made);
}
nb::object get(nb::handle x, nb::handle name) { return checked(PyObject_GetAttr(x.ptr(), name.ptr())); }
nb::object call_method(nb::handle x, nb::handle name) {
  return checked(PyObject_CallMethodNoArgs(x.ptr(), name.ptr()));
}
bool is_true(const nb::object& x) { return x.is(nb::handle(Py_True)); }

struct Names {
  nb::handle is_neg = name_of("is_neg"), requires_grad = name_of("requires_grad"), layout = name_of("layout"),
             is_nested = name_of("is_nested");
  nb::handle dtype = name_of("dtype"), is_cpu = name_of("is_cpu"), is_cuda = name_of("is_cuda");
  nb::handle get_device = name_of("get_device"), data_ptr = name_of("data_ptr"), shape = name_of("shape");
  nb::handle stride = name_of("stride");
};
const Names& names() {
  static const auto* made = new Names;
  return *made;
}

/// What is looked up in the torch module, once.
struct Torch {
  nb::module_ module = nb::module_::import_("torch");
  nb::object tensor = module.attr("Tensor"), parameter = module.attr("nn").attr("Parameter");
  nb::object empty = module.attr("empty"), empty_strided = module.attr("empty_strided");
  nb::object from_dlpack = module.attr("from_dlpack"), strided = module.attr("strided");
  nb::object is_grad_enabled = module.attr("is_grad_enabled"), uint8 = module.attr("uint8");
  nb::tuple of_dtype_on_device = nb::make_tuple("dtype", "device");  ///< keywords of calls
  const DLPackExchangeAPI* exchange = find_exchange();               ///< null where this PyTorch has none
  nb::object current_stream = find_current_stream();
  nb::object dtypes[kDTypes];  ///< None where this PyTorch does not have it

  Torch() {
    for (int i = 0; i < kDTypes; ++i) {
      const auto d = static_cast<DType>(i);
      dtypes[i] = nb::getattr(module, d == boolean ? "bool" : std::string(name(d)).c_str(), nb::none());
    }
  }
  /// A tensor in a tenth of the time that its attributes take.
  const DLPackExchangeAPI* find_exchange() const {
    constexpr const char* kCapsule = "dlpack_exchange_api";
    const nb::object capsule = nb::getattr(tensor, "__dlpack_c_exchange_api__", nb::none());
    if (!PyCapsule_IsValid(capsule.ptr(), kCapsule)) return nullptr;
    const auto* api = static_cast<const DLPackExchangeAPI*>(PyCapsule_GetPointer(capsule.ptr(), kCapsule));
    return api->version.major == 1 && api->tensor_from_array && api->current_stream ? api : nullptr;
  }
  /// device index -> the current stream's handle; the plain C function where PyTorch has it, which costs a tenth.
  nb::object find_current_stream() const {
    const nb::object raw = nb::getattr(module.attr("_C"), "_cuda_getCurrentRawStream", nb::none());
    if (!raw.is_none()) return raw;
    return nb::cpp_function(
        [this](int index) { return module.attr("cuda").attr("current_stream")(index).attr("cuda_stream"); });
  }
  std::optional<DType> dtype_of(nb::handle dtype) const {
    for (int i = 0; i < kDTypes; ++i)
      if (dtypes[i].is(dtype)) return static_cast<DType>(i);
    return {};
  }
  nb::handle dtype(DType d) const { return dtypes[static_cast<int>(d)]; }
};
const Torch& torch() {
  static const auto* loaded = new Torch;
  return *loaded;
}

/// The torch.device, made once. The caller holds the GIL.
nb::handle torch_device(Device device) {
  static auto* made = new std::vector<nb::object>;  // the CPU's, then those of CUDA
  const size_t place = device.type == DeviceType::kCuda ? static_cast<size_t>(device.index) + 1 : 0;
  if (place >= made->size()) made->resize(place + 1);
  nb::object& kept = (*made)[place];
  if (!kept.is_valid()) kept = torch().module.attr("device")(to_string(device));
  return kept;
}

Dims to_dims(nb::handle sizes) {
  Dims dims;
  for (nb::handle s : nb::cast<nb::tuple>(sizes)) dims.push_back(PyLong_AsLongLong(s.ptr()));
  return dims;
}

/// The device of a tensor on the CPU or a CUDA device.
std::optional<Device> device_of(nb::handle x) {
  if (is_true(get(x, names().is_cpu))) return kCpu;
  if (is_true(get(x, names().is_cuda)))
    return Device{DeviceType::kCuda, nb::cast<int>(call_method(x, names().get_device))};
  return {};
}

/// By PyTorch's C functions; undefined for what they, or Tenor, have no form for.
Tensor from_exchange(nb::handle x) {
  DLTensor borrowed{};
  if (torch().exchange->tensor_from_array(x.ptr(), &borrowed) != 0) {
    PyErr_Clear();
    return {};
  }
  try {
    return core::import_tensor(borrowed, keep(x), false);
  } catch (const Error&) {
    return {};
  }
}

void* data_of(nb::handle x) { return reinterpret_cast<void*>(nb::cast<uintptr_t>(call_method(x, names().data_ptr))); }

Tensor from_attributes(nb::handle x) {
  const auto dtype = torch().dtype_of(get(x, names().dtype));
  if (!dtype || !get(x, names().layout).is(torch().strided) || is_true(get(x, names().is_nested))) return {};
  const auto device = device_of(x);
  if (!device) return {};
  return Tensor::wrap(data_of(x), *device, *dtype, to_dims(get(x, names().shape)),
                      to_dims(call_method(x, names().stride)), keep(x));
}

/// Plain dense tensors without a capsule, which costs four times their attributes; undefined for all others. On a CUDA
/// device the work goes to PyTorch's current stream, so what that stream has yet to write is ordered before it.
Tensor from_plain_tensor(nb::handle x) {
  const nb::handle type(reinterpret_cast<PyObject*>(Py_TYPE(x.ptr())));
  if (!type.is(torch().tensor) && !type.is(torch().parameter)) return {};
  if (torch().exchange)
    if (Tensor found = from_exchange(x)) return found;
  return from_attributes(x);
}

/// str(x.attribute), for error texts.
std::string said(nb::handle x, const char* attribute) {
  const nb::object value = x.attr(attribute);
  return nb::str(nb::handle(value)).c_str();
}

/// Refuses tensors of kinds that Tenor does not hold, naming the argument.
void check_held(const char* op, const char* name, nb::handle x) {
  if (!x.attr("layout").is(torch().strided))
    core::fail<UnsupportedError>("{}: {} is a tensor of layout {}; use {}.to_dense()", op, name, said(x, "layout"),
                                 name);
  if (is_true(get(x, names().is_nested)))
    core::fail<UnsupportedError>("{}: {} is a nested tensor; use torch.nested.to_padded_tensor", op, name);
  if (!device_of(x))
    core::fail<DeviceError>("{}: {} is on {}; Tenor takes tensors on the CPU and on CUDA devices", op, name,
                            said(x, "device"));
  if (!torch().dtype_of(x.attr("dtype")))
    core::fail<DTypeError>("{}: {} has dtype {}, which Tenor does not take", op, name, said(x, "dtype"));
}

/// What holds a block of torch's memory: a dense tensor.
struct TorchMemory {
  PyObject* tensor;
  std::optional<DType> dtype;  ///< of a tensor made for a result, which its shape and strides then fit
  Dims shape, strides;

  void operator()(void*) const {
    if (!Py_IsInitialized()) return;
    nb::gil_scoped_acquire locked;
    Py_DECREF(tensor);
  }
  bool is_made_for(const Tensor& x) const {
    return dtype == x.dtype() && x.offset() == 0 && shape == x.shape() && strides == x.strides();
  }
};

/// torch.empty or torch.empty_strided.
nb::object make_torch(nb::handle function, std::initializer_list<nb::handle> sizes, nb::handle dtype, Device device) {
  PyObject* args[5] = {};
  size_t count = 0;
  for (nb::handle s : sizes) args[1 + count++] = s.ptr();
  args[1 + count] = dtype.ptr(), args[2 + count] = torch_device(device).ptr();
  return checked(PyObject_Vectorcall(function.ptr(), args + 1, count | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                     torch().of_dtype_on_device.ptr()));
}

class TorchAllocator final : public core::TensorAllocator {
 public:
  std::shared_ptr<void> allocate(size_t bytes, Device device) override {
    const nb::gil_scoped_acquire locked;
    nb::object x = make_torch(torch().empty, {nb::int_(bytes)}, torch().uint8, device);
    return {data_of(x), TorchMemory{x.release().ptr(), {}, {}, {}}};
  }
  /// As what the result will be, so that nothing is left to do with it.
  std::shared_ptr<void> allocate_tensor(const core::TensorSpec& t) override {
    const nb::gil_scoped_acquire locked;
    const nb::handle dtype = torch().dtype(t.dtype);
    if (dtype.is_none()) return allocate(t.bytes, t.device);
    const nb::tuple shape = to_tuple(t.shape);
    nb::object x = t.strides == contiguous_strides(t.shape)
                       ? make_torch(torch().empty, {shape}, dtype, t.device)
                       : make_torch(torch().empty_strided, {shape, to_tuple(t.strides)}, dtype, t.device);
    return {data_of(x), TorchMemory{x.release().ptr(), t.dtype, t.shape, t.strides}};
  }
};

}  // namespace

Stream torch_stream(Device device) {
  void* handle = nullptr;
  if (torch().exchange) {
    if (torch().exchange->current_stream(core::kDlCuda, device.index, &handle) != 0) throw nb::python_error();
    return {device, static_cast<CUstream_st*>(handle)};
  }
  return {device, reinterpret_cast<CUstream_st*>(nb::cast<uintptr_t>(torch().current_stream(device.index)))};
}

Tensor from_torch(const char* op, const char* name, nb::handle x) {
  if (is_true(call_method(x, names().is_neg)))
    core::fail<UnsupportedError>("{}: {} is a view that PyTorch negates when it reads; use {}.resolve_neg()", op, name,
                                 name);
  const bool requires_grad = is_true(get(x, names().requires_grad));
  if (requires_grad && is_true(torch().is_grad_enabled()))
    core::fail<UnsupportedError>(
        "{}: {} requires grad, and Tenor does not record gradients; use torch.no_grad() or {}.detach()", op, name,
        name);
  if (Tensor plain = from_plain_tensor(x)) return plain;
  check_held(op, name, x);
  return from_dlpack_exporter(requires_grad ? x.attr("detach")() : nb::borrow(x));
}

Allocator& torch_allocator() {
  static auto* allocator = new TorchAllocator;
  return *allocator;
}

nb::object to_torch(const Tensor& x) {
  const auto* memory = std::get_deleter<TorchMemory>(x.storage()->memory);
  if (!memory) return torch().from_dlpack(nb::cast(x));
  nb::object tensor = nb::borrow(memory->tensor);
  if (memory->is_made_for(x)) return tensor;
  if (memory->dtype != x.dtype()) {  // bytes, or a result that is seen as another dtype
    if (memory->dtype) tensor = tensor.attr("as_strided")(nb::make_tuple(product(memory->shape)), nb::make_tuple(1));
    tensor = tensor.attr("view")(torch().dtype(x.dtype()));
  }
  return tensor.attr("as_strided")(to_tuple(x.shape()), to_tuple(x.strides()), x.offset());
}

}  // namespace tenor::python
