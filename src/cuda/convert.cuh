// Conversions between element types in kernels: the rules of core/numeric.h at the hardware's speed. NaNs may differ in
// their payload only.
#pragma once

#include <cstring>

#include "src/core/numeric.h"
#include "src/cuda/vector.cuh"

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

/// Neighbours at once; two floats to 16 bits take one instruction.
template <class To, int N, class From>
__device__ __forceinline__ Pack<To, N> convert_pack(const From (&x)[N]) {
  Pack<To, N> y;
  if constexpr (N % 2 == 0 && std::is_same_v<From, float> &&
                (std::is_same_v<To, BFloat16> || std::is_same_v<To, Float16>)) {
    uint32_t words[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      if constexpr (std::is_same_v<To, BFloat16>)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(words[i]) : "f"(x[2 * i + 1]), "f"(x[2 * i]));
      else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(words[i]) : "f"(x[2 * i + 1]), "f"(x[2 * i]));
    }
    memcpy(&y, words, sizeof(y));
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) y.at[i] = convert<To>(x[i]);
  }
  return y;
}

/// Neighbours as their operator computes with them. Two bfloat16 take two instructions, where one by one they take
/// three.
template <class To, class T, int N>
__device__ __forceinline__ void widen_pack(const Pack<T, N>& x, To (&out)[N]) {
  if constexpr (N % 2 == 0 && std::is_same_v<T, BFloat16> && std::is_same_v<To, float>) {
    uint32_t words[N / 2];
    memcpy(words, &x, sizeof(x));
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      out[2 * i] = __uint_as_float(words[i] << 16);
      out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = convert<To>(x.at[i]);
  }
}

/// x as its operator computes with it: float for 16- and 8-bit floats, else itself.
template <class T>
__device__ __forceinline__ core::Compute<T> widen(T x) {
  return convert<core::Compute<T>>(x);
}

}  // namespace tenor::cuda
