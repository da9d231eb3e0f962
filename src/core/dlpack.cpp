#include "src/core/dlpack.h"

#include <algorithm>

#include "src/core/layout.h"
#include "src/core/text.h"
#include "tenor/tensor.h"

namespace tenor {
namespace {

using core::fail;

DType dtype_of(DLDataType t) {
  if (t.lanes == 1) {
    for (int i = 0; i < kDTypes; ++i) {
      const auto d = static_cast<DType>(i);
      const uint8_t code = d == boolean         ? core::kDlBool
                           : is_signed(d)       ? core::kDlInt
                           : is_unsigned(d)     ? core::kDlUInt
                           : d == bfloat16      ? core::kDlBfloat
                           : d == float8_e4m3fn ? core::kDlFloat8E4M3Fn
                           : d == float8_e5m2   ? core::kDlFloat8E5M2
                                                : core::kDlFloat;
      if (t.code == code && t.bits == 8 * item_size(d)) return d;
    }
  }
  fail<DTypeError>("from_dlpack: no dtype of Tenor for DLPack type code {}, {} bits, {} lanes", int{t.code},
                   int{t.bits}, int{t.lanes});
}

DLDataType dl_dtype_of(DType d) {
  const uint8_t code = d == boolean         ? core::kDlBool
                       : is_signed(d)       ? core::kDlInt
                       : is_unsigned(d)     ? core::kDlUInt
                       : d == bfloat16      ? core::kDlBfloat
                       : d == float8_e4m3fn ? core::kDlFloat8E4M3Fn
                       : d == float8_e5m2   ? core::kDlFloat8E5M2
                                            : core::kDlFloat;
  return {code, static_cast<uint8_t>(8 * item_size(d)), 1};
}

Device device_of(DLDevice d) {
  if (d.device_type == core::kDlCpu || d.device_type == core::kDlCudaHost) return kCpu;
  if (d.device_type == core::kDlCuda || d.device_type == core::kDlCudaManaged) return {DeviceType::kCuda, d.device_id};
  fail<DeviceError>("from_dlpack: expected a CPU or CUDA tensor, got DLPack device type {}", d.device_type);
}

/// What an exporter may state wrongly, before anything that it points to is read.
/// @throws ShapeError, ValueError
void check_imported(const DLTensor& t, DType dtype) {
  if (t.ndim < 0 || t.ndim > core::kMaxDims)
    fail<ShapeError>("from_dlpack: expected 0 to {} dims, got {}", core::kMaxDims, t.ndim);
  if (t.ndim > 0 && !t.shape) fail<ShapeError>("from_dlpack: expected the sizes of {} dims, got a null shape", t.ndim);
  const auto item = static_cast<uint64_t>(item_size(dtype));
  if (t.byte_offset > static_cast<uint64_t>(INT64_MAX) || t.byte_offset % item != 0)
    fail<ValueError>("from_dlpack: byte_offset must be a multiple of the item size {} below 2^63, got {}", item,
                     t.byte_offset);
  const bool empty = std::find(t.shape, t.shape + t.ndim, 0) != t.shape + t.ndim;
  if (!t.data && !empty)
    fail<ValueError>("from_dlpack: a tensor of shape {} must have memory, got null", Dims(t.shape, t.shape + t.ndim));
}

}  // namespace

Tensor core::import_tensor(const DLTensor& t, std::shared_ptr<void> owner, bool read_only) {
  const DType dtype = dtype_of(t.dtype);
  const Device device = device_of(t.device);
  check_imported(t, dtype);
  Dims shape, strides;
  for (int d = 0; d < t.ndim; ++d) shape.push_back(t.shape[d]);
  if (t.strides)
    for (int d = 0; d < t.ndim; ++d) strides.push_back(t.strides[d]);
  char* first = t.data ? static_cast<char*>(t.data) + t.byte_offset : nullptr;
  return Tensor::wrap(first, device, dtype, shape, strides, std::move(owner), read_only);
}

namespace {

template <class Managed>
std::shared_ptr<void> owner_of(Managed* managed) {
  return {managed, [](Managed* m) {
            if (m->deleter) m->deleter(m);
          }};
}

/// What an exported capsule keeps: the tensor and the arrays its DLTensor points to.
template <class Managed>
struct Exported {
  Tensor tensor;
  Dims shape, strides;
  Managed managed;
};

template <class Managed>
Managed* export_as(const Tensor& x) {
  auto* out = new Exported<Managed>{x, x.shape(), x.strides(), {}};
  out->managed.manager_ctx = out;
  out->managed.deleter = [](Managed* m) { delete static_cast<Exported<Managed>*>(m->manager_ctx); };
  const bool cuda = x.device().type == DeviceType::kCuda;
  out->managed.dl_tensor = {x.numel() == 0 ? nullptr : x.raw(),
                            {cuda ? core::kDlCuda : core::kDlCpu, x.device().index},
                            x.ndim(),
                            dl_dtype_of(x.dtype()),
                            out->shape.data(),
                            out->strides.data(),
                            0};
  return &out->managed;
}

}  // namespace

Tensor Tensor::from_dlpack(DLManagedTensor* managed) {
  auto owner = owner_of(managed);
  return core::import_tensor(managed->dl_tensor, std::move(owner), false);
}

Tensor Tensor::from_dlpack(DLManagedTensorVersioned* managed) {
  auto owner = owner_of(managed);
  // Of another major version nothing but the deleter may be touched.
  if (managed->version.major != 1)
    fail<UnsupportedError>("from_dlpack: expected DLPack 1.x, got {}.x", managed->version.major);
  return core::import_tensor(managed->dl_tensor, std::move(owner), (managed->flags & core::kDlReadOnly) != 0);
}

DLManagedTensor* Tensor::to_dlpack() const {
  if (read_only()) fail<UnsupportedError>("to_dlpack: a read-only tensor needs a consumer of DLPack 1.0 or newer");
  return export_as<DLManagedTensor>(*this);
}

DLManagedTensorVersioned* Tensor::to_dlpack_versioned() const {
  DLManagedTensorVersioned* managed = export_as<DLManagedTensorVersioned>(*this);
  managed->version = {1, 1};
  managed->flags = read_only() ? core::kDlReadOnly : 0;
  return managed;
}

}  // namespace tenor
