// Functions of floats.
#pragma once

#include "src/cuda/gelu.cuh"
#include "src/ops/elementwise/formulas/formula.cuh"

namespace tenor::elementwise {

template <class T>
struct Formula<Op::kExp, T> {
  __device__ T operator()(T v) const { return exp(v); }
};
template <class T>
struct Formula<Op::kExp2, T> {
  __device__ T operator()(T v) const { return exp2(v); }
};
template <class T>
struct Formula<Op::kExpm1, T> {
  __device__ T operator()(T v) const { return expm1(v); }
};
template <class T>
struct Formula<Op::kLog, T> {
  __device__ T operator()(T v) const { return log(v); }
};
template <class T>
struct Formula<Op::kLog2, T> {
  __device__ T operator()(T v) const { return log2(v); }
};
template <class T>
struct Formula<Op::kLog10, T> {
  __device__ T operator()(T v) const { return log10(v); }
};
template <class T>
struct Formula<Op::kLog1p, T> {
  __device__ T operator()(T v) const { return log1p(v); }
};
template <class T>
struct Formula<Op::kSqrt, T> {
  __device__ T operator()(T v) const { return sqrt(v); }
};
template <class T>
struct Formula<Op::kRsqrt, T> {
  __device__ T operator()(T v) const { return T(1) / sqrt(v); }
  /// No 1 / sqrt v of a bfloat16 or float16 lies nearer than three units of float32 to where two of that type meet, and
  /// the instruction errs by 2.2 of them: rounded, its results are those of the formula.
  __device__ float brief(float v) const {
    float y;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(v));
    return y;
  }
};
/// The bits of 1 / sqrt v with both steps rounded, of a negative number a NaN. Where neither step leaves the range of
/// float an approximation y serves both: the root is corrected once, and its reciprocal is y (1 + e + e^2) with e = 1 -
/// root y. A root of ones alone has a reciprocal so little above the middle of two floats that e^2 is lost.
template <>
__device__ inline float Formula<Op::kRsqrt, float>::operator()(float v) const {
  constexpr uint32_t kLeast = 0x0d800000, kMost = 0x71800000, kOnes = 0x007fffff;  // 2^-100, 2^100
  if ((__float_as_uint(v) & 0x7fffffff) - kLeast > kMost - kLeast) return 1.0f / sqrtf(v);
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(v));
  const float near = v * y, root = fmaf(fmaf(-near, near, v), 0.5f * y, near), e = fmaf(-root, y, 1.0f);
  const float result = fmaf(fmaf(e, e, e), y, y);
  return (__float_as_uint(root) & kOnes) == kOnes ? __uint_as_float(__float_as_uint(result) | 1) : result;
}
template <class T>
struct Formula<Op::kReciprocal, T> {
  __device__ T operator()(T v) const { return T(1) / v; }
};
template <class T>
struct Formula<Op::kErf, T> {
  __device__ T operator()(T v) const { return erf(v); }
};
template <class T>
struct Formula<Op::kTanh, T> {
  __device__ T operator()(T v) const { return tanh(v); }
  /// 1 - 2 / (1 + e^2v), but v where that would cancel; tanh v = v (1 - v^2 / 3 + ..).
  __device__ float brief(float v) const {
    const float far = fmaf(-2.0f, cuda::reciprocal_approx(1.0f + cuda::exp2_approx(v * 2.88539008f)), 1.0f);
    return fabsf(v) < 0x1p-7f ? v : far;
  }
};
template <class T>
struct Formula<Op::kSin, T> {
  __device__ T operator()(T v) const { return sin(v); }
};
template <class T>
struct Formula<Op::kCos, T> {
  __device__ T operator()(T v) const { return cos(v); }
};
template <class T>
struct Formula<Op::kTan, T> {
  __device__ T operator()(T v) const { return tan(v); }
};
template <class T>
struct Formula<Op::kAsin, T> {
  __device__ T operator()(T v) const { return asin(v); }
};
template <class T>
struct Formula<Op::kAcos, T> {
  __device__ T operator()(T v) const { return acos(v); }
};
template <class T>
struct Formula<Op::kAtan, T> {
  __device__ T operator()(T v) const { return atan(v); }
};
template <class T>
struct Formula<Op::kSinh, T> {
  __device__ T operator()(T v) const { return sinh(v); }
};
template <class T>
struct Formula<Op::kCosh, T> {
  __device__ T operator()(T v) const { return cosh(v); }
};
template <class T>
struct Formula<Op::kAsinh, T> {
  __device__ T operator()(T v) const { return asinh(v); }
};
template <class T>
struct Formula<Op::kAcosh, T> {
  __device__ T operator()(T v) const { return acosh(v); }
};
template <class T>
struct Formula<Op::kAtanh, T> {
  __device__ T operator()(T v) const { return atanh(v); }
};

}  // namespace tenor::elementwise
