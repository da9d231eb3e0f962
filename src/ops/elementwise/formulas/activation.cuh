// Activations.
#pragma once

#include "src/cuda/gelu.cuh"
#include "src/ops/elementwise/formulas/formula.cuh"

namespace tenor::elementwise {

template <class T>
__device__ T sigmoid_of(T v) {
  return T(1) / (T(1) + exp(-v));
}
/// For results of 16 bits: 2^-32 / (2^-32 + 2^-32 e^-v), of which no part overflows before the result is 0 there.
__device__ inline float sigmoid_brief(float v) {
  return cuda::reciprocal_approx(cuda::exp2_approx(fmaf(v, -1.44269504f, -32.0f)) + 0x1p-32f) * 0x1p-32f;
}
/// v * gate for a gate that vanishes long before v is -200: -0 at -inf. A NaN gate stays.
__device__ inline float gated_brief(float v, float gate) { return fmaxf(v, -200.0f) * gate; }

/// v * gate, with the limit -0 at -inf, where the gate vanishes faster than v grows.
template <class T>
__device__ T gated(T v, T gate) {
  return v == -static_cast<T>(INFINITY) ? T(-0.0) : v * gate;
}

template <class T>
struct Formula<Op::kSigmoid, T> {
  __device__ T operator()(T v) const { return sigmoid_of(v); }
  __device__ float brief(float v) const { return sigmoid_brief(v); }
};
template <class T>
struct Formula<Op::kSilu, T> {
  __device__ T operator()(T v) const { return gated(v, sigmoid_of(v)); }
  __device__ float brief(float v) const { return gated_brief(v, sigmoid_brief(v)); }
};
template <class T>
struct Formula<Op::kGelu, T> {
  __device__ T operator()(T v) const {
    if constexpr (std::is_same_v<T, float>)
      return cuda::gelu_full(v);
    else
      return gated(v, normcdf(v));
  }
  __device__ float brief(float v) const { return cuda::gelu_short(v); }
};
/// 0.5 (1 + tanh z) = sigmoid(2 z), without the cancellation at z < 0.
template <class T>
struct Formula<Op::kGeluTanh, T> {
  __device__ T operator()(T v) const {
    return gated(v, sigmoid_of(T(1.5957691216057307117598) * (v * v * v * T(0.044715) + v)));
  }
  __device__ float brief(float v) const {
    return gated_brief(v, sigmoid_brief(1.59576912f * (v * v * v * 0.044715f + v)));
  }
};
/// tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2) with e = exp(v); 1 to working precision from v = 20 on.
template <class T>
struct Formula<Op::kMish, T> {
  __device__ T operator()(T v) const {
    const T e = exp(v > T(20) ? T(20) : v), p = e * (e + T(2));
    return gated(v, p / (p + T(2)));
  }
};
template <class T>
struct Formula<Op::kHardswish, T> {
  __device__ T operator()(T v) const {
    const T shifted = v + T(3), gate = shifted < T(0) ? T(0) : shifted > T(6) ? T(6) : shifted;
    return gated(v, gate / T(6));
  }
};

// Those with a parameter.

template <class T>
struct Formula<Op::kLeakyRelu, T> {
  T slope;
  __device__ T operator()(T v) const { return v > T(0) ? v : v * slope; }
};
template <class T>
struct Formula<Op::kElu, T> {
  T alpha;
  __device__ T operator()(T v) const { return v > T(0) ? v : alpha * expm1(v); }
};
template <class T>
struct Formula<Op::kSoftplus, T> {
  T beta;
  __device__ T operator()(T v) const {
    const T x = v * beta, rest = log1p(exp(-fabs(x)));
    const T sum = (x < T(0) ? T(0) : x) + rest;
    return beta == T(1) ? sum : sum / beta;  // alike for all threads
  }
};

}  // namespace tenor::elementwise
