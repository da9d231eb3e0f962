// The DLPack ABI, version 1.1, and the exchange table of 1.3: the structures as dlpack.h of dmlc/dlpack lays them out,
// declared here because Tenor needs nothing else of it. https://dmlc.github.io/dlpack/latest/c_api.html
#pragma once

#include <cstdint>
#include <memory>

#include "tenor/tensor.h"

struct DLPackVersion {
  uint32_t major, minor;
};
struct DLDevice {
  int32_t device_type;
  int32_t device_id;
};
struct DLDataType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  ///< in elements; may be null for a row-major tensor
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
};

/// What a library offers in C, as a capsule "dlpack_exchange_api" of its array type. Entries that Tenor does not call are
/// plain pointers. A call that fails returns other than 0 and sets a Python error.
struct DLPackExchangeAPI {
  DLPackVersion version;
  void* previous;
  void* make_managed;
  void* managed_from_array;
  void* array_from_managed;
  int (*tensor_from_array)(void* array, DLTensor* out);  ///< borrowed; null: not offered
  int (*current_stream)(int32_t device_type, int32_t device_id, void** out);
};

namespace tenor::core {

/// The tensor that `t` describes, in memory that `owner` holds.
/// @throws DTypeError, DeviceError, ShapeError, ValueError for what is no tensor of Tenor's
Tensor import_tensor(const DLTensor& t, std::shared_ptr<void> owner, bool read_only);

inline constexpr uint64_t kDlReadOnly = 1;
inline constexpr int32_t kDlCpu = 1, kDlCuda = 2, kDlCudaHost = 3, kDlCudaManaged = 13;
enum : uint8_t { kDlInt = 0, kDlUInt = 1, kDlFloat = 2, kDlBfloat = 4, kDlBool = 6, kDlFloat8E4M3Fn = 10, kDlFloat8E5M2 = 12 };

}  // namespace tenor::core
