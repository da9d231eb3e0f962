// Conversions between element types in kernels: the rules of core/numeric.h at the hardware's speed. NaNs may differ in
// their payload only.
#pragma once

#include "src/core/numeric.h"

namespace tenor::cuda {

/// To one of the types computed in, or back, rounding once.
template <class To, class From>
__device__ __forceinline__ To convert(From x) {
  if constexpr (std::is_same_v<From, Float16> && std::is_same_v<To, float>) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
  } else if constexpr (std::is_same_v<From, float> && std::is_same_v<To, Float16>) {
    Float16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
  } else if constexpr (std::is_same_v<From, float> && std::is_same_v<To, BFloat16>) {
    BFloat16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
  } else if constexpr (core::kStorageFloat<From> && !std::is_same_v<To, float> && !std::is_same_v<To, From>) {
    return convert<To>(convert<float>(x));
  } else {
    return core::cast<To>(x);
  }
}

/// x as its operator computes with it: float for 16- and 8-bit floats, else itself.
template <class T>
__device__ __forceinline__ core::Compute<T> widen(T x) {
  return convert<core::Compute<T>>(x);
}

}  // namespace tenor::cuda
