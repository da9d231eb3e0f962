// v * sigmoid(v) in kernels, and parameters of either type.
#pragma once

#include <cmath>
#include <type_traits>

#include "src/cuda/convert.cuh"
#include "tenor/tensor.h"

namespace tenor::delta {

/// A parameter of float32 or of the operand's own type.
struct Parameter {
  const void* data;
  int64_t row, column;
  bool is_float;

#ifdef __CUDACC__
  template <class T, class C = core::Compute<T>>
  __device__ C at(int64_t r, int64_t c = 0) const {
    const int64_t i = r * row + c * column;
    return is_float ? static_cast<C>(static_cast<const float*>(data)[i])
                    : static_cast<C>(cuda::widen(static_cast<const T*>(data)[i]));
  }
#endif
};

inline Parameter parameter(const Tensor& x) {
  if (!x.defined()) return {};
  return {x.raw(), x.ndim() > 0 ? x.stride(0) : 0, x.ndim() > 1 ? x.stride(1) : 0, x.dtype() == float32};
}

#ifdef __CUDACC__
template <class C>
__device__ __forceinline__ C sigmoid(C v) {
  const C e = exp(-fabs(v));
  return (v < C(0) ? e : C(1)) / (C(1) + e);
}
/// v * sigmoid(v), 0 at -inf.
template <class C>
__device__ __forceinline__ C silu(C v) {
  return v == -static_cast<C>(INFINITY) ? C(0) : v * sigmoid(v);
}
/// Likewise for a result of T: one of 16 bits hides the last bits of the hardware's exponential and reciprocal.
template <class T, class C>
__device__ __forceinline__ C silu_for(C v) {
  if constexpr (sizeof(T) == 2) {
    float e, y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(v * -1.44269504f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1.0f + e));
    return v == -static_cast<float>(INFINITY) ? 0.0f : v * y;
  } else {
    return silu(v);
  }
}
#endif

}  // namespace tenor::delta
