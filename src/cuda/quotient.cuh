// Quotients in kernels: 64-bit ones take a hundred instructions, most need not.
#pragma once

#include <cstdint>

namespace tenor::cuda {

/// a / b, 0 <= a, 0 < b.
__device__ __forceinline__ int64_t quotient(int64_t a, int64_t b) {
  if (((a | b) >> 32) == 0) return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
  return a / b;
}

}  // namespace tenor::cuda
