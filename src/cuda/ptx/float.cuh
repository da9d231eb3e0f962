// Arithmetic on floats by single instructions. PTX ISA, "ex2" and "cvt".
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "tenor/dtype.h"

namespace tenor::cuda::ptx {

/// 2^x, within 2^-22 of it; subnormal numbers count as 0.
__device__ __forceinline__ float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Two numbers rounded to T, the first in the low half. T is a 16-bit float, the library's or the toolkit's.
template <class T>
__device__ __forceinline__ uint32_t pack_pair(float low, float high) {
  uint32_t two;
  if constexpr (std::is_same_v<T, __half> || std::is_same_v<T, Float16>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  return two;
}

/// 0 * two, each half by itself: 0 or -0, but NaN where `two` is NaN or infinite. T as above.
template <class T>
__device__ __forceinline__ uint32_t times_zero(uint32_t two) {
  uint32_t product;
  if constexpr (std::is_same_v<T, __half> || std::is_same_v<T, Float16>)
    asm("fma.rn.f16x2 %0, %1, %2, %2;" : "=r"(product) : "r"(two), "r"(0));
  else
    asm("fma.rn.bf16x2 %0, %1, %2, %2;" : "=r"(product) : "r"(two), "r"(0));
  return product;
}

}  // namespace tenor::cuda::ptx
