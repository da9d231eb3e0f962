// The float32 scratch in which 16-bit sums are kept.
#pragma once

#include "src/core/backend.h"
#include "src/core/step.h"

namespace tenor::index {

/// What a step says of it: nothing where x's dtype is summed as it is.
inline std::vector<core::Copy> scratch_copies(const Tensor& x) {
  if (compute_dtype(x.dtype()) == x.dtype() || core::on_cuda(x)) return {};  // on CUDA sums stay in registers
  const int64_t bytes = x.numel() * static_cast<int64_t>(item_size(float32));
  return {{"x", bytes, "sums of narrow floats may need a float32 copy, rounded once"}};
}

}  // namespace tenor::index
