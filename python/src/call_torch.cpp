#include "call_torch.h"

#include "src/core/text.h"

namespace tenor::python {
namespace {

/// What is looked up in the torch module, once.
struct Torch {
  nb::module_ module = nb::module_::import_("torch");
  nb::object tensor = module.attr("Tensor"), parameter = module.attr("nn").attr("Parameter");
  nb::object empty = module.attr("empty"), from_dlpack = module.attr("from_dlpack"), strided = module.attr("strided");
  nb::object is_grad_enabled = module.attr("is_grad_enabled"), uint8 = module.attr("uint8");
  nb::object current_stream = find_current_stream();
  nb::object dtypes[kDTypes];  ///< None where this PyTorch does not have it

  Torch() {
    for (int i = 0; i < kDTypes; ++i) {
      const auto d = static_cast<DType>(i);
      dtypes[i] = nb::getattr(module, d == boolean ? "bool" : std::string(name(d)).c_str(), nb::none());
    }
  }
  /// device index -> the current stream's handle; the plain C function where PyTorch has it, which costs a tenth.
  nb::object find_current_stream() const {
    const nb::object raw = nb::getattr(module.attr("_C"), "_cuda_getCurrentRawStream", nb::none());
    if (!raw.is_none()) return raw;
    return nb::cpp_function([this](int index) { return module.attr("cuda").attr("current_stream")(index).attr("cuda_stream"); });
  }
  std::optional<DType> dtype_of(nb::handle dtype) const {
    for (int i = 0; i < kDTypes; ++i)
      if (dtypes[i].is(dtype)) return static_cast<DType>(i);
    return {};
  }
};
const Torch& torch() {
  static const auto* loaded = new Torch;
  return *loaded;
}

Dims to_dims(nb::handle sizes) {
  Dims dims;
  for (nb::handle s : nb::cast<nb::tuple>(sizes)) dims.push_back(PyLong_AsLongLong(s.ptr()));
  return dims;
}

/// The device of a tensor on the CPU or a CUDA device.
std::optional<Device> device_of(nb::handle x) {
  if (x.attr("is_cpu").is(nb::handle(Py_True))) return kCpu;
  if (x.attr("is_cuda").is(nb::handle(Py_True))) return Device{DeviceType::kCuda, nb::cast<int>(x.attr("get_device")())};
  return {};
}

/// Plain dense tensors by their attributes, which costs a quarter of a capsule; undefined for all others. On a CUDA device
/// the work goes to PyTorch's current stream, so what that stream has yet to write is ordered before it.
Tensor from_plain_tensor(nb::handle x) {
  const nb::handle type(reinterpret_cast<PyObject*>(Py_TYPE(x.ptr())));
  if (!type.is(torch().tensor) && !type.is(torch().parameter)) return {};
  const auto dtype = torch().dtype_of(x.attr("dtype"));
  if (!dtype || !x.attr("layout").is(torch().strided)) return {};
  const auto device = device_of(x);
  if (!device) return {};
  auto* data = reinterpret_cast<void*>(nb::cast<uintptr_t>(x.attr("data_ptr")()));
  return Tensor::wrap(data, *device, *dtype, to_dims(x.attr("shape")), to_dims(x.attr("stride")()), keep(x));
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
  if (!device_of(x))
    core::fail<DeviceError>("{}: {} is on {}; Tenor takes tensors on the CPU and on CUDA devices", op, name,
                            said(x, "device"));
  if (!torch().dtype_of(x.attr("dtype")))
    core::fail<DTypeError>("{}: {} has dtype {}, which Tenor does not take", op, name, said(x, "dtype"));
}

/// What holds a block of torch's memory.
struct TorchMemory {
  PyObject* tensor;
  void operator()(void*) const {
    if (!Py_IsInitialized()) return;
    nb::gil_scoped_acquire locked;
    Py_DECREF(tensor);
  }
};

class TorchAllocator final : public Allocator {
 public:
  std::shared_ptr<void> allocate(size_t bytes, Device device) override {
    nb::gil_scoped_acquire locked;
    nb::object x = torch().empty(bytes, "dtype"_a = torch().uint8, "device"_a = to_string(device));
    auto* data = reinterpret_cast<void*>(nb::cast<uintptr_t>(x.attr("data_ptr")()));
    return {data, TorchMemory{x.release().ptr()}};
  }
};

}  // namespace

Stream torch_stream(Device device) {
  return {device, reinterpret_cast<CUstream_st*>(nb::cast<uintptr_t>(torch().current_stream(device.index)))};
}

Tensor from_torch(const char* op, const char* name, nb::handle x) {
  if (x.attr("is_neg")().is(nb::handle(Py_True)))
    core::fail<UnsupportedError>("{}: {} is a view that PyTorch negates when it reads; use {}.resolve_neg()", op, name,
                                 name);
  const bool requires_grad = x.attr("requires_grad").is(nb::handle(Py_True));
  if (requires_grad && torch().is_grad_enabled().is(nb::handle(Py_True)))
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
  const nb::object typed = nb::borrow(memory->tensor).attr("view")(torch().dtypes[static_cast<int>(x.dtype())]);
  const bool whole = x.is_contiguous() &&
                     x.numel() * static_cast<int64_t>(item_size(x.dtype())) == static_cast<int64_t>(x.storage()->bytes);
  if (whole) return x.ndim() == 1 ? typed : typed.attr("view")(to_tuple(x.shape()));
  return typed.attr("as_strided")(to_tuple(x.shape()), to_tuple(x.strides()), x.offset());
}

}  // namespace tenor::python
