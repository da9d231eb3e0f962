// An allocator that makes tensors of a library of its own, and so wants to know what the memory is for.
#pragma once

#include "tenor/allocator.h"
#include "tenor/dims.h"
#include "tenor/dtype.h"

namespace tenor::core {

/// The tensor that a piece of memory is for: dense, its dims in any order.
struct TensorSpec {
  const Dims& shape;
  const Dims& strides;  ///< in elements
  DType dtype;
  Device device;
  size_t bytes;
};

class TensorAllocator : public Allocator {
 public:
  /// As allocate(tensor.bytes, tensor.device); `Tensor::empty` calls this one.
  virtual std::shared_ptr<void> allocate_tensor(const TensorSpec& tensor) = 0;
};

}  // namespace tenor::core
