// What the tests of sampling share.
#pragma once

#include "src/core/testing.h"
#include "src/ops/sampling/sampling_reference.h"

namespace tenor::testing {

/// The elements of an integer tensor in logical order.
inline std::vector<int64_t> ints(const Tensor& x) {
  std::vector<int64_t> out;
  for (double v : values(x)) out.push_back(static_cast<int64_t>(v));
  return out;
}

}  // namespace tenor::testing
