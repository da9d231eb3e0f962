#include "call_numpy.h"

#include <nanobind/ndarray.h>

#include "call_torch.h"
#include "src/core/dlpack.h"
#include "src/core/read_observer.h"
#include "src/core/text.h"

namespace tenor::python {
namespace {

using core::fail;

/// The dtype of a buffer's struct format, in native byte order.
std::optional<DType> dtype_of_format(const char* format, size_t size) {
  if (!format) return uint8;
  if (*format == '@' || *format == '=') ++format;
  if (*format == '<') ++format;  // little-endian, as every machine Tenor runs on
  if (format[0] == '\0' || format[1] != '\0') return {};
  const bool wide = size == 8;
  switch (*format) {
    case '?':
      return boolean;
    case 'b':
      return int8;
    case 'B':
      return uint8;
    case 'h':
      return int16;
    case 'H':
      return uint16;
    case 'i':
      return int32;
    case 'I':
      return uint32;
    case 'l':
      return wide ? int64 : int32;
    case 'L':
      return wide ? uint64 : uint32;
    case 'q':
      return int64;
    case 'Q':
      return uint64;
    case 'e':
      return float16;
    case 'f':
      return float32;
    case 'd':
      return float64;
    default:
      return {};
  }
}

/// Strides in elements from strides in bytes.
Dims element_strides(const char* op, const char* name, const Dims& shape, const Dims& bytes, int64_t size) {
  Dims strides;
  for (size_t d = 0; d < bytes.size(); ++d) {
    if (shape[d] > 1 && bytes[d] % size != 0)
      fail<ValueError>("{}: {} has a stride of {} bytes, which is no multiple of its element's {}", op, name, bytes[d],
                       size);
    if (shape[d] > 1 && bytes[d] < 0)
      fail<ValueError>("{}: {} has a negative stride in dim {}; copy it first (numpy.ascontiguousarray)", op, name, d);
    strides.push_back(bytes[d] / size);
  }
  return strides;
}

/// The dtype of an array, whose error names the argument.
DType array_dtype(const char* op, const char* name, nb::handle dtype) {
  try {
    return to_dtype(dtype);
  } catch (const DTypeError&) {
    fail<DTypeError>("{}: {} has dtype {}, which Tenor does not take", op, name, nb::str(dtype).c_str());
  }
}

/// NumPy arrays whose dtype the buffer protocol does not know: those of ml_dtypes.
Tensor from_array_interface(const char* op, const char* name, nb::handle given) {
  const DType dtype = array_dtype(op, name, given.attr("dtype"));
  nb::object x = nb::borrow(given);
  // A NumPy scalar's interface is that of an array made for the question, and gone with the answer.
  if (nb::len(nb::object(x.attr("shape"))) == 0) x = nb::module_::import_("numpy").attr("asarray")(x);
  const nb::dict facts = nb::cast<nb::dict>(x.attr("__array_interface__"));
  const nb::tuple data = nb::cast<nb::tuple>(facts["data"]);
  Dims shape, bytes;
  for (nb::handle s : nb::cast<nb::tuple>(facts["shape"])) shape.push_back(nb::cast<int64_t>(s));
  for (nb::handle s : nb::cast<nb::tuple>(x.attr("strides"))) bytes.push_back(nb::cast<int64_t>(s));
  const Dims strides = element_strides(op, name, shape, bytes, static_cast<int64_t>(item_size(dtype)));
  return Tensor::wrap(reinterpret_cast<void*>(nb::cast<uintptr_t>(data[0])), kCpu, dtype, shape, strides, keep(x),
                      nb::cast<bool>(data[1]));
}

}  // namespace

Tensor from_numpy(const char* op, const char* name, nb::handle x) {
  auto* buffer = new Py_buffer;
  if (PyObject_GetBuffer(x.ptr(), buffer, PyBUF_RECORDS_RO) != 0) {
    delete buffer;
    PyErr_Clear();
    return from_array_interface(op, name, x);
  }
  std::shared_ptr<void> owner(buffer, [](Py_buffer* b) {
    if (!Py_IsInitialized()) return;
    nb::gil_scoped_acquire locked;
    PyBuffer_Release(b);
    delete b;
  });
  const auto dtype = dtype_of_format(buffer->format, static_cast<size_t>(buffer->itemsize));
  // A scalar of a type that the buffer protocol does not know (datetime64) comes as its bytes, without strides.
  const bool lies = buffer->ndim == 0 || (buffer->shape && buffer->strides);
  if (!dtype || !lies) return from_array_interface(op, name, x);
  Dims shape(buffer->shape, buffer->shape + buffer->ndim), bytes(buffer->strides, buffer->strides + buffer->ndim);
  return Tensor::wrap(buffer->buf, kCpu, *dtype, shape, element_strides(op, name, shape, bytes, buffer->itemsize),
                      std::move(owner), buffer->readonly != 0);
}

nb::object to_numpy(const Tensor& x) {
  core::announce_read(x);
  if (x.device().type != DeviceType::kCpu) {
    const auto on_host = [&] {
      nb::gil_scoped_release unlocked;
      return x.to(kCpu);
    }();
    return to_numpy(on_host);
  }
  const bool extended = x.dtype() == bfloat16 || is_float8(x.dtype());
  const DType shown = !extended ? x.dtype() : item_size(x.dtype()) == 2 ? uint16 : uint8;
  const uint8_t code = shown == boolean     ? core::kDlBool
                       : is_signed(shown)   ? core::kDlInt
                       : is_unsigned(shown) ? core::kDlUInt
                                            : core::kDlFloat;
  const nb::dlpack::dtype dtype{code, static_cast<uint8_t>(8 * item_size(shown)), 1};
  std::vector<size_t> shape(x.shape().begin(), x.shape().end());
  std::vector<int64_t> strides(x.strides().begin(), x.strides().end());
  nb::capsule owner(new Tensor(x), [](void* p) noexcept { delete static_cast<Tensor*>(p); });
  nb::ndarray<nb::numpy> view(x.raw(), shape.size(), shape.data(), owner, strides.data(), dtype);
  nb::object array = nb::cast(view, nb::rv_policy::reference);
  if (extended)
    array = array.attr("view")(nb::module_::import_("ml_dtypes").attr(std::string(name(x.dtype())).c_str()));
  if (x.read_only()) array.attr("setflags")("write"_a = false);
  return array;
}

}  // namespace tenor::python
