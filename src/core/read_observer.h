// A tracer that must know when values are read on the host.
#pragma once

#include "tenor/tensor.h"

namespace tenor::core {

/// What a Tracer may be besides: asked before an element is read.
class ReadObserver {
 public:
  virtual ~ReadObserver() = default;
  /// May throw, and then nothing is read.
  virtual void reads(const Tensor& x) = 0;
};

}  // namespace tenor::core
