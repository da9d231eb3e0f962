// What the gathering kernels share (pool_window.h says what they gather): how elements combine, in packs as they lie.
#pragma once

#include <limits>

#include "src/cuda/convert.cuh"
#include "src/cuda/layout.h"
#include "src/ops/pool/pool_kernels.h"

namespace tenor::cuda {

using pool::Gather;
using pool::PoolDim;
using pool::PoolDivisor;
using pool::PoolGrid;
using pool::PoolSpace;
using pool::reach;
using pool::WindowRange;

/// Elementwise, without a conversion: two 16-bit floats an instruction. NaN wins.
template <class T>
struct MaxOp {
  using Held = T;
  static constexpr bool kSum = false;

  /// What leaves every result as it is: as an element, and as it is held.
  __device__ static T nothing() { return identity(); }
  __device__ static Held identity() {
    if constexpr (core::kStorageFloat<T>)
      return core::cast<T>(-std::numeric_limits<float>::infinity());
    else if constexpr (std::is_floating_point_v<T>)
      return -std::numeric_limits<T>::infinity();
    else
      return std::numeric_limits<T>::lowest();
  }
  __device__ __forceinline__ static T join(T a, T b) {
    if constexpr (std::is_same_v<T, BFloat16>) {
      T out;
      asm("max.NaN.bf16 %0, %1, %2;" : "=h"(out.bits) : "h"(a.bits), "h"(b.bits));
      return out;
    } else if constexpr (std::is_same_v<T, Float16>) {
      T out;
      asm("max.NaN.f16 %0, %1, %2;" : "=h"(out.bits) : "h"(a.bits), "h"(b.bits));
      return out;
    } else if constexpr (std::is_same_v<T, float>) {
      float out;
      asm("max.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
      return out;
    } else if constexpr (std::is_same_v<T, double>) {
      return a > b || a != a ? a : b;
    } else {
      return a > b ? a : b;
    }
  }
  template <int V>
  __device__ __forceinline__ static void join(Pack<T, V>& acc, const Pack<T, V>& x) {
    if constexpr (V % 2 == 0 && sizeof(T) == 2 && core::kStorageFloat<T>) {
      uint32_t a[V / 2], b[V / 2];
      memcpy(a, &acc, sizeof(acc));
      memcpy(b, &x, sizeof(x));
#pragma unroll
      for (int i = 0; i < V / 2; ++i) {
        if constexpr (std::is_same_v<T, BFloat16>)
          asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(a[i]) : "r"(a[i]), "r"(b[i]));
        else
          asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(a[i]) : "r"(a[i]), "r"(b[i]));
      }
      memcpy(&acc, a, sizeof(acc));
    } else {
#pragma unroll
      for (int i = 0; i < V; ++i) acc.at[i] = join(acc.at[i], x.at[i]);
    }
  }
};

/// Sums in the compute type.
template <class T>
struct SumOp {
  using Held = core::Compute<T>;
  static constexpr bool kSum = true;

  __device__ static T nothing() { return T{}; }
  __device__ static Held identity() { return 0; }
  __device__ __forceinline__ static Held join(Held a, Held b) { return a + b; }
  template <int V>
  __device__ __forceinline__ static void join(Pack<Held, V>& acc, const Pack<Held, V>& x) {
#pragma unroll
    for (int i = 0; i < V; ++i) acc.at[i] += x.at[i];
  }
};

/// 16 bytes of neighbours past L1, where they are `there`; else what leaves every result as it is. Chosen in whole
/// words: element by element the choice waits for its load before the next one is under way.
template <class Op, int V, class T>
__device__ __forceinline__ Pack<T, V> load_or_nothing(const T* from, bool there) {
  static_assert(sizeof(T) * V == kVectorBytes);
  Pack<T, V> x;
#pragma unroll
  for (int e = 0; e < V; ++e) x.at[e] = Op::nothing();
  uint4 words;
  memcpy(&words, &x, sizeof(words));
  if (there)
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "l"(from));
  memcpy(&x, &words, sizeof(words));
  return x;
}

/// Elements as an operator holds them.
template <class Op, class T, int V>
__device__ __forceinline__ Pack<typename Op::Held, V> held(const Pack<T, V>& x) {
  if constexpr (std::is_same_v<typename Op::Held, T>) {
    return x;
  } else {
    Pack<typename Op::Held, V> out;
    widen_pack(x, out.at);
    return out;
  }
}
template <class Op, int V>
__device__ __forceinline__ Pack<typename Op::Held, V> identity_pack() {
  Pack<typename Op::Held, V> out;
#pragma unroll
  for (int i = 0; i < V; ++i) out.at[i] = Op::identity();
  return out;
}
/// What a sum is divided by (a count, or a product of them), as quotient_of() takes it. Averages of 16-bit floats are
/// products with the reciprocal: its error is far below their rounding, and a division is ten instructions.
template <class T, class Held, class N>
__device__ __forceinline__ Held divisor_of(N divisor) {
  if constexpr (core::kStorageFloat<T>) return 1 / static_cast<Held>(divisor);
  return static_cast<Held>(divisor);
}
/// Of the window at (d, h, w), whose counts multiply beyond 64 bits.
template <class T, class Held, class Windows, class I>
__device__ __forceinline__ Held volume(const Windows& g, I d, I h, I w) {
  return divisor_of<T, Held>(static_cast<Held>(g.count(0, d) * g.count(1, h)) * static_cast<Held>(g.count(2, w)));
}
template <class T, class Held>
__device__ __forceinline__ Held quotient_of(Held x, Held divisor) {
  if constexpr (core::kStorageFloat<T>) return x * divisor;
  return x / divisor;
}
template <class T, class Held, int V>
__device__ __forceinline__ void divide_pack(Pack<Held, V>& x, Held divisor) {
#pragma unroll
  for (int i = 0; i < V; ++i) x.at[i] = quotient_of<T>(x.at[i], divisor);
}

}  // namespace tenor::cuda
