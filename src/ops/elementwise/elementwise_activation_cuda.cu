#include "src/cuda/gelu.cuh"
#include "src/ops/elementwise/elementwise_kernels.cuh"

namespace tenor::elementwise {
namespace {

template <class T>
__device__ T sigmoid_of(T v) {
  return T(1) / (T(1) + exp(-v));
}
/// v * gate, with the limit -0 at -inf, where the gate vanishes faster than v grows.
template <class T>
__device__ T gated(T v, T gate) {
  return v == -static_cast<T>(INFINITY) ? T(-0.0) : v * gate;
}
/// tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2) with e = exp(v); 1 to working precision from v = 20 on.
template <class T>
__device__ T mish_of(T v) {
  const T e = exp(v > T(20) ? T(20) : v), p = e * (e + T(2));
  return gated(v, p / (p + T(2)));
}
template <class T>
__device__ T softplus_of(T v, T beta) {
  const T x = v * beta, rest = log1p(exp(-fabs(x)));
  return ((x < T(0) ? T(0) : x) + rest) / beta;
}
template <class T>
__device__ T hardswish_of(T v) {
  const T shifted = v + T(3), gate = shifted < T(0) ? T(0) : shifted > T(6) ? T(6) : shifted;
  return gated(v, gate / T(6));
}

// Formulas of approximate functions, for results of 16 bits.
__device__ float sigmoid_short(float v) { return __fdividef(1.f, 1.f + cuda::exp2_approx(v * -1.44269504f)); }
template <class T>
__device__ T gelu_of(T v) {
  if constexpr (std::is_same_v<T, float>) return cuda::gelu_full(v);
  return gated(v, normcdf(v));
}

template <class T>
bool floats(const CudaCall& c) {
  const T p = c.params ? static_cast<T>(c.params[0]) : T(0);
  switch (c.op) {
    case Op::kLeakyRelu:
      return one<T>(c, [p] __device__(T v) { return v > T(0) ? v : v * p; });
    case Op::kElu:
      return one<T>(c, [p] __device__(T v) { return v > T(0) ? v : p * expm1(v); });
    case Op::kSilu:
      return one<T>(
          c, [] __device__(T v) { return gated(v, sigmoid_of(v)); },
          [] __device__(float v) { return gated(v, sigmoid_short(v)); });
    case Op::kGelu:
      return one<T>(
          c, [] __device__(T v) { return gelu_of(v); }, [] __device__(float v) { return cuda::gelu_short(v); });
    // 0.5 (1 + tanh z) = sigmoid(2 z), without the cancellation at z < 0.
    case Op::kGeluTanh:
      return one<T>(
          c,
          [] __device__(T v) {
            return gated(v, sigmoid_of(T(1.5957691216057307117598) * (v * v * v * T(0.044715) + v)));
          },
          [] __device__(float v) { return gated(v, sigmoid_short(1.59576912f * (v * v * v * 0.044715f + v))); });
    case Op::kSoftplus:
      return one<T>(c, [p] __device__(T v) { return softplus_of(v, p); });
    case Op::kMish:
      return one<T>(c, [] __device__(T v) { return mish_of(v); });
    case Op::kHardswish:
      return one<T>(c, [] __device__(T v) { return hardswish_of(v); });
    default:
      return false;
  }
}

}  // namespace

bool activation_cuda(const CudaCall& c) {
  return by_float(c.compute, [&]<class T>() { return floats<T>(c); });
}

}  // namespace tenor::elementwise
