// Functions of float vectors whose results are rounded to bfloat16: relative errors below 2^-13, where math-inl.h has
// 2^-23: at most 0.54 units of the last place. Polynomials are summed in pairs: chains of dependent FMAs set these
// kernels' pace.
#if defined(TENOR_CPU_MATH_SHORT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENOR_CPU_MATH_SHORT_INL_H_
#undef TENOR_CPU_MATH_SHORT_INL_H_
#else
#define TENOR_CPU_MATH_SHORT_INL_H_
#endif

#include "src/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE::math_short {
using math::constant;

/// 1 / x for x in [1, 2^100].
template <class D, class V>
HWY_INLINE V reciprocal(D d, V x) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  (void)d;
  return hn::ApproximateReciprocal(x);  // 14 bits; AVX2's has 12
#else
  return hn::Div(constant(d, 1), x);
#endif
}

/// 2^(n + r) for integers n >= -151 and |r| <= 0.5; a subnormal result is rounded once.
template <class D, class V>
HWY_INLINE V exp2_parts(D d, const math::Rounded<D>& n, V r) {
  const V square = hn::Mul(r, r);
  const V low = hn::MulAdd(r, constant(d, 0.6931218148), constant(d, 0.9999992614));
  const V high = hn::MulAdd(r, constant(d, 0.05591786009), constant(d, 0.240247449));
  const V p = hn::MulAdd(square, hn::MulAdd(square, constant(d, 0.009570098947), high), low);
  if constexpr (math::kHasScale && hn::MaxLanes(D()) * 4 >= 16)
    return math::scalef(p, n.value);
  else
    return math::scale(d, p, n.integer);
}

/// 1 / (1 + e^-x), accurate relative to itself down to the smallest numbers. A NaN gives NaN or any value between 0
/// and 1.
template <class D, class V>
HWY_INLINE V sigmoid(D d, V x) {
  const V one = constant(d, 1), y = hn::Max(hn::Mul(hn::Abs(x), constant(d, -1.4426950408889634)), constant(d, -151));
  const math::Rounded<D> n = math::round_small(d, y, 1);
  const V e = exp2_parts(d, n, hn::Sub(y, n.value));
  return hn::Mul(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), reciprocal(d, hn::Add(one, e)));
}

/// x times a quotient of two polynomials of x^2, to 2^-16 before the reciprocal: 1 to working precision from 3.7 on.
template <class D, class V>
HWY_INLINE V tanh(D d, V x) {
  // In this order x86 lets a NaN through.
  const V t = hn::Min(constant(d, 3.7), hn::Max(constant(d, -3.7), x)), z = hn::Mul(t, t), one = constant(d, 1);
  const V p = hn::MulAdd(hn::MulAdd(z, constant(d, 0.000806075037549), constant(d, 0.106263354931)), z, one);
  const V q = hn::MulAdd(hn::MulAdd(z, constant(d, 0.014063776034), constant(d, 0.439550922661)), z, one);
  const V y = hn::Mul(hn::Mul(t, p), reciprocal(d, q));
  if constexpr (math::kHasScale) return y;
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

/// The standard normal distribution function of N vectors: accurate relative to itself on the negative side too. NaN as
/// in sigmoid. Step by step through all N, since one vector's chain of operations is too long for a processor to see
/// the next one behind it.
template <size_t N, class D, class V>
HWY_INLINE void normal_cdf(D d, const V (&x)[N], V (&y)[N]) {
  constexpr double kScale = 0.84932180028801904;  // e^(-x^2 / 2) = 2^-(kScale x)^2
  const hn::RebindToSigned<D> di;
  const V one = constant(d, 1), magic = constant(d, 12582912.0);
  V t[N], u[N], square[N], low[N], high[N];
  math::Rounded<D> n[N];
  for (size_t k = 0; k < N; ++k) t[k] = hn::Min(hn::Mul(hn::Abs(x[k]), constant(d, kScale)), constant(d, 12.28));
  for (size_t k = 0; k < N; ++k)
    u[k] = reciprocal(d, hn::MulAdd(t[k], constant(d, 0.65 * 0.70710678118654752 / kScale), one));
  for (size_t k = 0; k < N; ++k) {
    const V shifted = hn::NegMulAdd(t[k], t[k], magic);
    n[k] = {hn::Sub(shifted, magic), hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, magic))};
  }
  // Half of erfc(x / sqrt 2) e^(x^2 / 2), over u.
  for (size_t k = 0; k < N; ++k) {
    square[k] = hn::Mul(u[k], u[k]);
    low[k] = hn::MulAdd(u[k], constant(d, 0.18697764345), constant(d, 0.18322022145));
    high[k] = hn::MulAdd(u[k], constant(d, 0.0721256614), constant(d, -0.23665312955));
  }
  for (size_t k = 0; k < N; ++k) {
    const V middle = hn::MulAdd(u[k], constant(d, 0.1786367123), constant(d, 0.11572710285));
    low[k] = hn::MulAdd(square[k], hn::MulAdd(square[k], high[k], middle), low[k]);
  }
  for (size_t k = 0; k < N; ++k) low[k] = hn::Mul(low[k], u[k]);
  for (size_t k = 0; k < N; ++k) high[k] = exp2_parts(d, n[k], hn::Neg(hn::MulAdd(t[k], t[k], n[k].value)));
  for (size_t k = 0; k < N; ++k) {
    const V tail = hn::Mul(low[k], high[k]);
    y[k] = hn::IfThenElse(hn::Lt(x[k], hn::Zero(d)), tail, hn::Sub(one, tail));
  }
}

template <class D, class V>
HWY_INLINE V erf(D d, V x) {
  const V t = hn::Min(hn::Max(x, constant(d, -3.2)), constant(d, 3.2));  // 1 to working precision from there on
  const V z = hn::Mul(t, t), z2 = hn::Mul(z, z), z4 = hn::Mul(z2, z2);
  const auto pair = [&](double even, double odd)
                        HWY_ATTR { return hn::MulAdd(z, constant(d, odd), constant(d, even)); };
  const V low = hn::MulAdd(z2, pair(0.112186763, -0.0260469336), pair(1.12836727, -0.375916215));
  const V high = hn::MulAdd(z2, pair(6.16215863e-05, -4.01198976e-06), pair(0.004676595, -0.000633161507));
  const V p = hn::MulAdd(z4, hn::MulAdd(z4, pair(1.54829057e-07, -2.65911285e-09), high), low);
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Mul(t, p));
}

}  // namespace tenor::cpu::HWY_NAMESPACE::math_short
HWY_AFTER_NAMESPACE();

#endif  // TENOR_CPU_MATH_SHORT_INL_H_
