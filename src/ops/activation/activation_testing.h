// What the tests of the gated activations on both devices share.
#pragma once

#include "src/core/testing.h"
#include "src/ops/activation/activation_reference.h"

namespace tenor::testing {

/// activation(gate) * up, element by element.
inline std::vector<double> gated(const Tensor& gate, const Tensor& up, double (*activation)(double)) {
  std::vector<double> out = values(gate);
  const std::vector<double> factor = values(up);
  for (size_t i = 0; i < out.size(); ++i) out[i] = activation(out[i]) * factor[i];
  return out;
}

}  // namespace tenor::testing
