// A tracer that must know the numbers that operators turn into tensors, which have no memory while they are traced.
#pragma once

#include "src/core/step.h"

namespace tenor::core {

/// What a Tracer may be besides: told of each such tensor.
class ConstantKeeper {
 public:
  virtual ~ConstantKeeper() = default;
  /// `x`, 0-d and of no memory, stands for the element of its dtype.
  virtual void keep(const Tensor& x, const void* element) = 0;
};

}  // namespace tenor::core
