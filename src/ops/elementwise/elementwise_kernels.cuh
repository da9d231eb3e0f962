// Kernels from formulas: a row's becomes a launch.
#pragma once

#include "src/cuda/pointwise.cuh"
#include "src/ops/elementwise/elementwise_cuda.h"
#include "src/ops/elementwise/formulas/formula.cuh"

namespace tenor::elementwise {

/// fn<float>() or fn<double>(); false for what is no compute float.
template <class F>
bool by_float(DType compute, F fn) {
  if (compute == float32) return fn.template operator()<float>();
  return compute == float64 && fn.template operator()<double>();
}

/// What results of 16 bits are computed by.
template <Op kOp>
struct BriefFormula {
  Formula<kOp, float> formula;
  __device__ float operator()(float v) const { return formula.brief(v); }
};

/// Launches the formula of one, two or three values of T giving R; true, as the groups' switches return it.
template <Op kOp, class T, class R = T>
bool one(const CudaCall& c, const Formula<kOp, T>& f = {}) {
  if constexpr (std::is_same_v<T, float> && requires { f.brief(0.f); })
    if (item_size(c.call.out_dtype) == 2) {
      cuda::run_pointwise<T, R, 1>(c.call, BriefFormula<kOp>{f});
      return true;
    }
  cuda::run_pointwise<T, R, 1>(c.call, f);
  return true;
}
template <Op kOp, class T, class R = T>
bool two(const CudaCall& c, const Formula<kOp, T>& f = {}) {
  cuda::run_pointwise<T, R, 2>(c.call, f);
  return true;
}
template <Op kOp, class T, class R = T>
bool three(const CudaCall& c) {
  cuda::run_pointwise<T, R, 3>(c.call, Formula<kOp, T>{});
  return true;
}

}  // namespace tenor::elementwise
