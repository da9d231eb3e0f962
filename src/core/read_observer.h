// A tracer that must know when values are read on the host.
#pragma once

#include "src/core/step.h"

namespace tenor::core {

/// What a Tracer may be besides: asked before elements are read.
class ReadObserver {
 public:
  virtual ~ReadObserver() = default;
  /// May throw, and then nothing is read.
  virtual void reads(const Tensor& x) = 0;
};

/// Said by whoever hands x's elements to the host.
inline void announce_read(const Tensor& x) {
  if (auto* observer = dynamic_cast<ReadObserver*>(current_tracer)) observer->reads(x);
}

}  // namespace tenor::core
