// gelu(v) = v P(N(0,1) <= v) in float32. With t = |v| it is max(v, 0) - t Q(t), Q the normal distribution's upper tail:
// nothing cancels on either side, and the sign of zero, infinities and NaN come out of the maximum. t Q(t) is
// exp(-t^2 / 2) y P(y), y = t / (1 + c t), P a polynomial fitted for the least relative error (Lawson's reweighted
// least squares; c such that a polynomial of low degree will do).
#pragma once

namespace tenor::cuda {

__device__ __forceinline__ float exp2_approx(float v) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(v));
  return y;
}
__device__ __forceinline__ float reciprocal_approx(float v) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(v));
  return y;
}
/// v, or -0 where it is negative; a NaN stays.
__device__ __forceinline__ float positive_part(float v) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(v), "f"(-0.0f));
  return y;
}
/// coefficients[0] + coefficients[1] x + ..
template <int N>
__device__ __forceinline__ float polynomial(const float (&coefficients)[N], float x) {
  float y = coefficients[N - 1];
#pragma unroll
  for (int i = N - 2; i >= 0; --i) y = fmaf(y, x, coefficients[i]);
  return y;
}

/// For results of 16 bits: within 3.0e-5 of it, relative, where it is not subnormal.
__device__ __forceinline__ float gelu_short(float v) {
  constexpr float kTerms[] = {0.499994278f, -0.211152494f, 0.0197249241f, 0.00858375523f, -0.00179788552f};
  const float t = fminf(fabsf(v), 1e4f), y = t * reciprocal_approx(fmaf(0.375f, t, 1.0f));
  return fmaf(-(y * polynomial(kTerms, y)), exp2_approx(v * v * -0.72134752f), positive_part(v));
}

/// Within 4.7e-7 of it, relative, down to where it is subnormal; 0 below -14.3.
__device__ __forceinline__ float gelu_full(float v) {
  constexpr float kTerms[] = {0.5f,
                              -0.227067232f,
                              0.0348055437f,
                              0.00374313071f,
                              -0.00100466795f,
                              -0.000120419929f,
                              -6.95444614e-05f,
                              4.40717231e-05f,
                              -5.36895595e-06f};
  const float t = fminf(fabsf(v), 15.0f), y = t * reciprocal_approx(fmaf(0.34375f, t, 1.0f));
  // exp(-t^2 / 2) = 2^(n + f): t^2 and log2(e) / 2 in two floats each, n rounded by adding 1.5 * 2^23. 2^64 is taken
  // out at the end, so that the result alone may be subnormal.
  constexpr float kRound = 12582912.0f + 64.0f, kHalfLog2e = 0.72134751f, kHalfLog2eRest = 9.62997104e-9f;
  const float square = t * t, rest = fmaf(t, t, -square), rounded = fmaf(square, -kHalfLog2e, kRound);
  float f = fmaf(square, -kHalfLog2e, -(rounded - kRound));
  f = fmaf(square, -kHalfLog2eRest, f);
  f = fmaf(rest, -kHalfLog2e, f);
  const float power = __int_as_float(__float_as_int(exp2_approx(f)) + (__float_as_int(rounded) << 23));
  return fmaf(y * polynomial(kTerms, y) * power, -0x1p-64f, positive_part(v));
}

}  // namespace tenor::cuda
