// Places in arrays of any integers.
#pragma once

#include <cstdint>

#include "tenor/dtype.h"

namespace tenor::cuda {

__device__ __forceinline__ int64_t index_at(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kInt8:
      return static_cast<const int8_t*>(data)[i];
    case DType::kInt16:
      return static_cast<const int16_t*>(data)[i];
    case DType::kInt32:
      return static_cast<const int32_t*>(data)[i];
    case DType::kUInt8:
      return static_cast<const uint8_t*>(data)[i];
    case DType::kUInt16:
      return static_cast<const uint16_t*>(data)[i];
    case DType::kUInt32:
      return static_cast<const uint32_t*>(data)[i];
    default:
      return static_cast<const int64_t*>(data)[i];
  }
}

}  // namespace tenor::cuda
