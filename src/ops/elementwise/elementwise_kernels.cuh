// Kernels from formulas: a captureless (or small) device lambda over plain values becomes a launch.
#pragma once

#include <cmath>

#include "src/cuda/pointwise.cuh"
#include "src/ops/elementwise/elementwise_cuda.h"

namespace tenor::elementwise {

/// Below zero; an unsigned value never is.
template <class T>
__device__ constexpr bool is_negative(T v) {
  if constexpr (std::is_signed_v<T>) return v < 0;
  return false;
}

/// fn<float>() or fn<double>(); false for what is no compute float.
template <class F>
bool by_float(DType compute, F fn) {
  if (compute == float32) return fn.template operator()<float>();
  return compute == float64 && fn.template operator()<double>();
}

/// Launches the formula of one, two or three values of T giving R; true, as the groups' switches return it.
template <class T, class R = T, class F>
bool one(const CudaCall& c, F f) {
  cuda::run_pointwise<T, R, 1>(c.call, f);
  return true;
}
/// Likewise with a shorter formula for results that are stored in 16 bits; it errs by less than 2^-14 of them.
template <class T, class F, class G>
bool one(const CudaCall& c, F f, G short_formula) {
  if (item_size(c.call.out_dtype) != 2) return one<T>(c, f);
  if constexpr (std::is_same_v<T, float>) return one<T>(c, short_formula);
  return one<T>(c, f);
}
template <class T, class R = T, class F>
bool two(const CudaCall& c, F f) {
  cuda::run_pointwise<T, R, 2>(c.call, f);
  return true;
}
template <class T, class R = T, class F>
bool three(const CudaCall& c, F f) {
  cuda::run_pointwise<T, R, 3>(c.call, f);
  return true;
}

}  // namespace tenor::elementwise
