// The gated activations in float64: what the kernels are tested against.
#pragma once

#include <cmath>

namespace tenor::reference {

/// At -inf both have the limit 0.
inline double silu(double v) { return v == -INFINITY ? 0 : v / (1 + std::exp(-v)); }
inline double gelu(double v) { return v == -INFINITY ? 0 : v * 0.5 * std::erfc(-v / std::sqrt(2.0)); }
inline double gelu_tanh(double v) {
  if (v == -INFINITY) return 0;
  const double u = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
  return v / (1 + std::exp(-2 * u));  // (1 + tanh(u)) / 2 without its cancellation
}

}  // namespace tenor::reference
