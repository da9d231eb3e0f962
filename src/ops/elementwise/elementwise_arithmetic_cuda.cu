#include "src/cuda/pointwise_turned.cuh"
#include "src/ops/elementwise/elementwise_kernels.cuh"

namespace tenor::elementwise {
namespace {

// NaN propagates: a NaN in a is returned as a, one in b makes the comparison false.
template <class T>
__device__ T maximum(T a, T b) {
  return a != a || a > b ? a : b;
}
template <class T>
__device__ T minimum(T a, T b) {
  return a != a || a < b ? a : b;
}

/// The end nearer to weight 1 is reached from b, so that weight 1 gives b exactly.
template <class T>
__device__ T interpolated(T a, T b, T w) {
  return fabs(w) < T(0.5) ? a + w * (b - a) : b - (b - a) * (T(1) - w);
}

/// One of the operands may lie across the result.
template <class T, class F>
bool two_turned(const CudaCall& c, F f) {
  if constexpr (std::is_same_v<T, float>)
    if (cuda::run_turned<float, T, T>(c.call, f) || cuda::run_turned<BFloat16, T, T>(c.call, f) ||
        cuda::run_turned<Float16, T, T>(c.call, f))
      return true;
  return two<T>(c, f);
}

template <class T>
bool two_operands(const CudaCall& c) {
  switch (c.op) {
    case Op::kAdd:
      return two_turned<T>(c, [] __device__(T a, T b) { return a + b; });
    case Op::kSub:
      return two_turned<T>(c, [] __device__(T a, T b) { return a - b; });
    case Op::kMul:
      return two_turned<T>(c, [] __device__(T a, T b) { return a * b; });
    case Op::kDiv:
      return two_turned<T>(c, [] __device__(T a, T b) { return a / b; });
    case Op::kTruncDivide:
      return two<T>(c, [] __device__(T a, T b) { return trunc(a / b); });
    case Op::kMaximum:
    case Op::kClampMin:
      return two<T>(c, [] __device__(T a, T b) { return maximum(a, b); });
    case Op::kMinimum:
    case Op::kClampMax:
      return two<T>(c, [] __device__(T a, T b) { return minimum(a, b); });
    default:
      return false;
  }
}

template <class T>
bool other_arity(const CudaCall& c) {
  switch (c.op) {
    case Op::kClamp:
      return three<T>(c, [] __device__(T v, T low, T high) { return minimum(maximum(v, low), high); });
    case Op::kLerp:
      return three<T>(c, [] __device__(T a, T b, T w) { return interpolated(a, b, w); });
    case Op::kNeg:
      return one<T>(c, [] __device__(T v) { return -v; });
    case Op::kAbs:
      return one<T>(c, [] __device__(T v) { return fabs(v); });
    case Op::kSign:
      return one<T>(c, [] __device__(T v) { return v > 0 ? T(1) : v < 0 ? T(-1) : v; });
    case Op::kRelu:
      return one<T>(c, [] __device__(T v) { return v <= 0 ? T(0) : v; });
    case Op::kFloor:
      return one<T>(c, [] __device__(T v) { return floor(v); });
    case Op::kCeil:
      return one<T>(c, [] __device__(T v) { return ceil(v); });
    case Op::kRound:
      return one<T>(c, [] __device__(T v) { return rint(v); });
    case Op::kTrunc:
      return one<T>(c, [] __device__(T v) { return trunc(v); });
    default:
      return false;
  }
}

template <class T>
bool floats(const CudaCall& c) {
  return two_operands<T>(c) || other_arity<T>(c);
}

}  // namespace

bool takes_turned(Op op) { return op == Op::kAdd || op == Op::kSub || op == Op::kMul || op == Op::kDiv; }

bool arithmetic_cuda(const CudaCall& c) {
  return by_float(c.compute, [&]<class T>() { return floats<T>(c); });
}

}  // namespace tenor::elementwise
