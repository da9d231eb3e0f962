// Vector functions of float and double: exp, log, tanh, erf and their kin (circular, inverse and hyperbolic ones and
// powers are in math_circular-inl.h), right at infinities, NaN, subnormals and huge arguments. Names are those of
// <cmath>, called as math::exp(d, x) with a tag and a vector of it.
//
// float32: at most 2 ulp of error (exp, log, expm1, log1p, tanh, sigmoid, erf in float; the trigonometric and inverse
// functions in double, so about half an ulp). float64: exp, expm1, log, log1p, tanh, sigmoid at most 2 ulp, the rest is
// the C library's, lane by lane. The polynomials are own minimax fits (a Lawson iteration over Chebyshev nodes) except
// float64 log, which is fdlibm's. A kernel that calls these owns its whole formula, hence FMA where the machine has it.
#if defined(TENOR_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENOR_CPU_MATH_INL_H_
#undef TENOR_CPU_MATH_INL_H_
#else
#define TENOR_CPU_MATH_INL_H_
#endif

#include <cmath>
#include <initializer_list>
#include <limits>

#include "src/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE::math {

template <class D>
inline constexpr bool kIsFloat32 = sizeof(hn::TFromD<D>) == 4;

template <class D>
HWY_INLINE hn::Vec<D> constant(D d, double value) {
  return hn::Set(d, static_cast<hn::TFromD<D>>(value));
}
template <class D>
HWY_INLINE hn::Vec<D> infinity(D d) {
  return hn::Set(d, std::numeric_limits<hn::TFromD<D>>::infinity());
}
template <class D>
HWY_INLINE hn::Vec<D> quiet_nan(D d) {
  return hn::Set(d, std::numeric_limits<hn::TFromD<D>>::quiet_NaN());
}

/// c0 + c1 x + c2 x^2 + ..., lowest coefficient first.
template <class D, class V = hn::Vec<D>, class... C>
HWY_INLINE V polynomial(D d, V x, double c0, C... rest) {
  if constexpr (sizeof...(rest) == 0) {
    return constant(d, c0);
  } else {
    return hn::MulAdd(polynomial(d, x, rest...), x, constant(d, c0));
  }
}

/// 1 / x to 1 ulp, for finite x within [2^-100, 2^100]: inside formulas whose own error is larger than that.
template <class D, class V>
HWY_INLINE V reciprocal_bounded(D d, V x) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (kIsFloat32<D>) {  // 14 bits, doubled by a Newton step; AVX2's 12 would leave an error of several ulp
    const V r = hn::ApproximateReciprocal(x);
    return hn::MulAdd(hn::NegMulAdd(x, r, constant(d, 1)), r, r);
  }
#endif
  return hn::Div(constant(d, 1), x);
}

/// Doubles to floats, to nearest even, beyond the largest float to infinity.
template <class D, class V>
HWY_INLINE hn::Vec<D> narrow(D d, V wide) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR  // whose DemoteTo stops at the largest float
  double from[HWY_MAX_BYTES / sizeof(double)];
  float to[HWY_MAX_BYTES / sizeof(float)] = {};
  hn::StoreU(wide, hn::Rebind<double, D>(), from);
  for (size_t i = 0; i < hn::Lanes(d); ++i) to[i] = static_cast<float>(from[i]);
  return hn::LoadU(d, to);
#else
  return hn::DemoteTo(d, wide);
#endif
}

/// A float vector through a function of double vectors, half by half (one-lane targets: as it is).
template <class D, class Fn, class V, class... Vs>
HWY_INLINE V via_double(D d, Fn fn, V x, Vs... more) {
#if HWY_TARGET == HWY_SCALAR
  const hn::Rebind<double, D> wide;
  return narrow(d, fn(wide, hn::PromoteTo(wide, x), hn::PromoteTo(wide, more)...));
#else
  const hn::Half<D> half;
  const hn::Rebind<double, decltype(half)> wide;
  const auto low =
      fn(wide, hn::PromoteTo(wide, hn::LowerHalf(half, x)), hn::PromoteTo(wide, hn::LowerHalf(half, more))...);
  const auto high =
      fn(wide, hn::PromoteTo(wide, hn::UpperHalf(half, x)), hn::PromoteTo(wide, hn::UpperHalf(half, more))...);
  return hn::Combine(d, narrow(half, high), narrow(half, low));
#endif
}

/// A function of doubles, lane by lane: for what is rare or has no vector form of its accuracy.
template <class D, class V, class Fn>
HWY_NOINLINE V per_lane(D d, V x, Fn fn) {
  HWY_ALIGN hn::TFromD<D> lanes[HWY_MAX_BYTES / sizeof(hn::TFromD<D>)];
  hn::Store(x, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = static_cast<hn::TFromD<D>>(fn(static_cast<double>(lanes[i])));
  return hn::Load(d, lanes);
}
template <class D, class V, class Fn>
HWY_NOINLINE V per_lane(D d, V x, V y, Fn fn) {
  using T = hn::TFromD<D>;
  HWY_ALIGN T a[HWY_MAX_BYTES / sizeof(T)], b[HWY_MAX_BYTES / sizeof(T)];
  hn::Store(x, d, a);
  hn::Store(y, d, b);
  for (size_t i = 0; i < hn::Lanes(d); ++i)
    a[i] = static_cast<T>(fn(static_cast<double>(a[i]), static_cast<double>(b[i])));
  return hn::Load(d, a);
}
/// `v` with the lanes of `mask` recomputed by fn(x). What a lane gets depends on that lane alone.
template <class D, class V, class M, class Fn>
HWY_INLINE V patch_lanes(D d, V v, M mask, V x, Fn fn) {
  if (HWY_LIKELY(hn::AllFalse(d, mask))) return v;
  return hn::IfThenElse(mask, per_lane(d, x, fn), v);
}

// ---- exponentials
// ----------------------------------------------------------------------------------------------------------

/// 2^n, for n in the exponent range.
template <class D, class VI>
HWY_INLINE hn::Vec<D> power_of_two(D d, VI n) {
  const hn::RebindToSigned<D> di;
  using I = hn::TFromD<decltype(di)>;
  constexpr int kMantissa = kIsFloat32<D> ? 23 : 52;
  return hn::BitCast(d, hn::ShiftLeft<kMantissa>(hn::Add(n, hn::Set(di, static_cast<I>(kIsFloat32<D> ? 127 : 1023)))));
}
#if HWY_TARGET <= HWY_AVX3
HWY_INLINE hn::Vec<hn::Full128<float>> scalef(hn::Vec<hn::Full128<float>> v, hn::Vec<hn::Full128<float>> n) {
  return {_mm_scalef_ps(v.raw, n.raw)};
}
HWY_INLINE hn::Vec<hn::Full256<float>> scalef(hn::Vec<hn::Full256<float>> v, hn::Vec<hn::Full256<float>> n) {
  return {_mm256_scalef_ps(v.raw, n.raw)};
}
HWY_INLINE hn::Vec<hn::Full512<float>> scalef(hn::Vec<hn::Full512<float>> v, hn::Vec<hn::Full512<float>> n) {
  return {_mm512_scalef_ps(v.raw, n.raw)};
}
inline constexpr bool kHasScale = true;  // the same bits as the two steps below, in one instruction
#else
template <class V>
HWY_INLINE V scalef(V v, V) {
  return v;
}
inline constexpr bool kHasScale = false;
#endif

/// v * 2^n in two steps, so that n may leave the exponent range and a subnormal result is rounded once.
template <class D, class V, class VI>
HWY_INLINE V scale(D d, V v, VI n) {
  const hn::RebindToSigned<D> di;
  if constexpr (kHasScale && kIsFloat32<D> && hn::MaxLanes(D()) * 4 >= 16) {
    return scalef(v, hn::ConvertTo(d, n));
  } else if constexpr (kIsFloat32<D>) {
    const auto half = hn::ShiftRight<1>(n);
    return hn::Mul(hn::Mul(v, power_of_two(d, half)), power_of_two(d, hn::Sub(n, half)));
  } else {  // a 64-bit arithmetic shift is slow on AVX2: n + 2048 is positive, so shift it logically
    const hn::RebindToUnsigned<D> du;
    const auto half =
        hn::Sub(hn::BitCast(di, hn::ShiftRight<1>(hn::BitCast(du, hn::Add(n, hn::Set(di, 2048))))), hn::Set(di, 1024));
    return hn::Mul(hn::Mul(v, power_of_two(d, half)), power_of_two(d, hn::Sub(n, half)));
  }
}

template <class D>
struct Rounded {
  hn::Vec<D> value;
  hn::Vec<hn::RebindToSigned<D>> integer;
};
/// The nearest integer to x * factor, below 2^21 in magnitude: as a float and as an integer.
template <class D, class V>
HWY_INLINE Rounded<D> round_small(D d, V x, double factor) {
  const hn::RebindToSigned<D> di;
  const V magic = constant(d, kIsFloat32<D> ? 12582912.0 : 6755399441055744.0);  // 1.5 * 2^mantissa
  const V shifted = hn::MulAdd(x, constant(d, factor), magic);
  return {hn::Sub(shifted, magic), hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, magic))};
}

/// e^r - 1 for |r| <= ln(2) / 2.
template <class D, class V>
HWY_INLINE V expm1_reduced(D d, V r) {
  V q;
  if constexpr (kIsFloat32<D>) {
    q = polynomial(d, r, 0.50000000961, 0.16666517699, 0.04166620293, 0.0083690258798, 0.0013950683919);
  } else {
    q = polynomial(d, r, 0.49999999999999999985, 0.16666666666666676791, 0.041666666666666702008,
                   0.0083333333333214354619, 0.001388888888886651431, 0.0001984126988667515293,
                   0.000024801587361201074933, 2.7557243607603931255e-6, 2.7557242204474510457e-7,
                   2.510926231079364004e-8, 2.0924615925645173581e-9);
  }
  return hn::MulAdd(hn::Mul(r, r), q, r);
}

template <class D>
struct ReducedExp {
  hn::Vec<D> fraction;  // e^x = (1 + fraction) * 2^exponent
  hn::Vec<hn::RebindToSigned<D>> exponent;
  hn::Vec<D> exponent_value;  // the same as a float
};
template <class D, class V>
HWY_INLINE ReducedExp<D> reduce_exp(D d, V x) {
  const Rounded<D> n = round_small(d, x, 1.4426950408889634);
  // ln 2 in two parts, of which n times the first is exact.
  V r = hn::NegMulAdd(n.value, constant(d, kIsFloat32<D> ? 0.693359375 : 0x1.62e42fefa0000p-1), x);
  r = hn::NegMulAdd(n.value, constant(d, kIsFloat32<D> ? -2.12194440e-4 : 0x1.cf79abc9e3b39p-40), r);
  return {expm1_reduced(d, r), n.integer, n.value};
}

template <class D, class V>
HWY_INLINE V exp(D d, V x) {
  if constexpr (kHasScale && kIsFloat32<D> && hn::MaxLanes(D()) * 4 >= 16) {
    // x86's max and min give their second operand when either is NaN, so a NaN comes through by itself.
    const ReducedExp<D> e = reduce_exp(d, hn::Min(constant(d, 89.0), hn::Max(constant(d, -104.0), x)));
    return scalef(hn::Add(e.fraction, constant(d, 1)), e.exponent_value);
  }
  const V bounded =
      hn::Min(hn::Max(x, constant(d, kIsFloat32<D> ? -104.0 : -746.0)), constant(d, kIsFloat32<D> ? 89.0 : 710.0));
  const ReducedExp<D> e = reduce_exp(d, bounded);
  return hn::IfThenElse(hn::IsNaN(x), x, scale(d, hn::Add(e.fraction, constant(d, 1)), e.exponent));
}

/// e^x for x in [-88, 88] without the limits: below -87.7 it may be 0.
template <class D, class V>
HWY_INLINE V exp_bounded(D d, V x) {
  const ReducedExp<D> e = reduce_exp(d, x);
  return hn::Mul(hn::Add(e.fraction, constant(d, 1)), power_of_two(d, e.exponent));
}

template <class D, class V>
HWY_INLINE V exp2(D d, V x) {
  const V bounded =
      hn::Min(hn::Max(x, constant(d, kIsFloat32<D> ? -151.0 : -1076.0)), constant(d, kIsFloat32<D> ? 129.0 : 1025.0));
  const Rounded<D> n = round_small(d, bounded, 1);
  const V fraction = expm1_reduced(d, hn::Mul(hn::Sub(bounded, n.value), constant(d, 0.6931471805599453)));
  return hn::IfThenElse(hn::IsNaN(x), x, scale(d, hn::Add(fraction, constant(d, 1)), n.integer));
}

/// e^x - 1.
template <class D, class V>
HWY_INLINE V expm1(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V bounded =
      hn::Min(hn::Max(x, constant(d, kIsFloat32<D> ? -20.0 : -40.0)), constant(d, kIsFloat32<D> ? 89.0 : 710.0));
  const ReducedExp<D> e = reduce_exp(d, bounded);
  // 2^n f + (2^n - 1), halved so that n = 128 (1024) still has a power, then doubled.
  const V half_power = power_of_two(d, hn::Sub(e.exponent, hn::Set(di, 1)));
  const V half = hn::MulAdd(half_power, e.fraction, hn::Sub(half_power, constant(d, 0.5)));
  const auto keep = hn::Gt(hn::Abs(x), constant(d, kIsFloat32<D> ? 1e-8 : 1e-17));  // false for NaN: x itself
  return hn::IfThenElse(keep, hn::Add(half, half), x);
}

// ---- logarithms
// ------------------------------------------------------------------------------------------------------------

template <class D>
struct ReducedLog {
  hn::Vec<D> t, rest;  // log of the significand in [sqrt(1/2), sqrt(2)): t + rest, where t is that less 1
  hn::Vec<D> exponent;
  hn::Vec<D> significand;
};
/// For finite x > 0.
template <class D, class V>
HWY_INLINE ReducedLog<D> reduce_log(D d, V x) {
  const hn::RebindToSigned<D> di;
  constexpr int kMantissa = kIsFloat32<D> ? 23 : 52;
  const auto tiny = hn::Lt(x, constant(d, kIsFloat32<D> ? 1.17549435e-38 : 2.2250738585072014e-308));
  const V normal = hn::IfThenElse(tiny, hn::Mul(x, constant(d, kIsFloat32<D> ? 16777216.0 : 18014398509481984.0)), x);
  const auto root_half = hn::BitCast(di, constant(d, 0.70710678118654752));
  const auto above = hn::Sub(hn::BitCast(di, normal), root_half);
  const auto k = hn::ShiftRight<kMantissa>(above);
  const V m = hn::BitCast(d, hn::Sub(hn::BitCast(di, normal), hn::ShiftLeft<kMantissa>(k)));
  const V exponent = hn::Sub(hn::ConvertTo(d, k), hn::IfThenElseZero(tiny, constant(d, kIsFloat32<D> ? 24 : 54)));
  const V t = hn::Sub(m, constant(d, 1));
  const V square = hn::Mul(t, t), half = constant(d, 0.5);
  V rest;
  if constexpr (kIsFloat32<D>) {
    const V p = polynomial(d, t, 0.33333310323, -0.24999986419, 0.20002234826, -0.16669269794, 0.14218499451,
                           -0.12383857505, 0.11873677599, -0.11793392948, 0.069183898111);
    rest = hn::NegMulAdd(half, square, hn::Mul(hn::Mul(square, t), p));
  } else {
    const V s = hn::Div(t, hn::Add(t, constant(d, 2))), z = hn::Mul(s, s), half_square = hn::Mul(half, square);
    const V r = hn::Mul(z, polynomial(d, z, 6.666666666666735130e-01, 3.999999999940941908e-01,
                                      2.857142874366239149e-01, 2.222219843214978396e-01, 1.818357216161805012e-01,
                                      1.531383769920937332e-01, 1.479819860511658591e-01));
    rest = hn::Sub(hn::Mul(s, hn::Add(half_square, r)), half_square);
  }
  return {t, rest, exponent, m};
}
/// The limits: log(0) = -inf, log(inf) = inf, NaN below 0.
template <class D, class V>
HWY_INLINE V log_limits(D d, V x, V result) {
  const V zero = hn::Zero(d);
  result = hn::IfThenElse(hn::Gt(x, zero), result, hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity(d)), quiet_nan(d)));
  return hn::IfThenElse(hn::Eq(x, infinity(d)), x, result);
}
template <class D, class V>
HWY_INLINE V add_exponent(D d, const ReducedLog<D>& l, V correction) {
  const V high = constant(d, kIsFloat32<D> ? 0.693359375 : 6.93147180369123816490e-01);
  const V low = constant(d, kIsFloat32<D> ? -2.12194440e-4 : 1.90821492927058770002e-10);
  const V rest = hn::MulAdd(l.exponent, low, hn::Add(l.rest, correction));
  return hn::MulAdd(l.exponent, high, hn::Add(l.t, rest));
}

template <class D, class V>
HWY_INLINE V log(D d, V x) {
  return log_limits(d, x, add_exponent(d, reduce_log(d, x), hn::Zero(d)));
}

/// log(1 + x): the logarithm of the rounded sum, and its derivative times what the sum lost.
template <class D, class V>
HWY_INLINE V log1p(D d, V x) {
  const V one = constant(d, 1), sum = hn::Add(one, x);
  const V lost = hn::IfThenElse(hn::Gt(x, one), hn::Sub(one, hn::Sub(sum, x)), hn::Sub(x, hn::Sub(sum, one)));
  const V result = log_limits(d, sum, add_exponent(d, reduce_log(d, sum), hn::Div(lost, sum)));
  const auto keep = hn::Gt(hn::Abs(x), constant(d, kIsFloat32<D> ? 1e-8 : 1e-17));  // false for NaN: x itself
  return hn::IfThenElse(keep, result, x);
}

/// Base 2 and 10: float32 through double, so that exact powers give exact logarithms.
template <class D, class V>
HWY_INLINE V log2(D d, V x) {
  if constexpr (kIsFloat32<D>) {
    return via_double(
        d,
        [](auto w, auto v) HWY_ATTR {
          const auto l = reduce_log(w, v);
          return log_limits(w, v, hn::MulAdd(hn::Add(l.t, l.rest), constant(w, 1.4426950408889634), l.exponent));
        },
        x);
  } else {
    return per_lane(d, x, [](double v) { return std::log2(v); });
  }
}
template <class D, class V>
HWY_INLINE V log10(D d, V x) {
  if constexpr (kIsFloat32<D>) {
    return via_double(
        d, [](auto w, auto v) HWY_ATTR { return hn::Mul(log(w, v), constant(w, 0.43429448190325182765)); }, x);
  } else {
    return per_lane(d, x, [](double v) { return std::log10(v); });
  }
}

// ---- sigmoids
// --------------------------------------------------------------------------------------------------------------

/// a / b to within an ulp for b in [1, 2]: on AVX-512 the division of a float vector costs as much as all of exp.
template <class D, class V>
HWY_INLINE V quotient(D d, V a, V b) {
  if constexpr (kIsFloat32<D> && kHasScale) {
    V r = hn::ApproximateReciprocal(b);
    r = hn::MulAdd(r, hn::NegMulAdd(r, b, constant(d, 1)), r);
    const V q = hn::Mul(a, r);
    return hn::MulAdd(hn::NegMulAdd(q, b, a), r, q);
  } else {
    return hn::Div(a, b);
  }
}

/// 1 / (1 + e^-x), accurate relative to itself down to the smallest numbers.
template <class D, class V>
HWY_INLINE V sigmoid(D d, V x) {
  if constexpr (kHasScale && kIsFloat32<D> && hn::MaxLanes(D()) * 4 >= 16) {
    // With x = n ln 2 - r this is 2^n / (2^n + e^r), for either sign of x. From 20 on it is 1; a NaN comes through as
    // in exp.
    const V bounded = hn::Min(constant(d, 20.0), hn::Max(constant(d, -104.0), x));
    const V n = round_small(d, bounded, 1.4426950408889634).value;
    const V r = hn::MulAdd(n, constant(d, -2.12194440e-4), hn::MulSub(n, constant(d, 0.693359375), bounded));
    const V p = hn::Add(expm1_reduced(d, r), constant(d, 1));
    const V inverse = reciprocal_bounded(d, hn::Add(scalef(constant(d, 1), n), p));
    return scalef(inverse, n);
  }
  const V one = constant(d, 1), e = exp(d, hn::Neg(hn::Abs(x)));
  return quotient(d, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
}

template <class D, class V>
HWY_INLINE V tanh(D d, V x) {
  const V magnitude = hn::Abs(x), one = constant(d, 1), two = constant(d, 2);
  if constexpr (kIsFloat32<D>) {
    const V z = hn::Mul(x, x);
    const V p = polynomial(d, z, -0.33333330567, 0.13333195776, -0.053945363777, 0.021692536771, -0.0081561251599,
                           0.0021226171733);
    const V small = hn::MulAdd(hn::Mul(z, magnitude), p, magnitude);  // NaN comes this way
    const V e = exp_bounded(d, hn::Min(hn::Add(magnitude, magnitude), constant(d, 20)));
    const V large = hn::NegMulAdd(two, reciprocal_bounded(d, hn::Add(e, one)), one);
    return hn::CopySignToAbs(hn::IfThenElse(hn::Ge(magnitude, constant(d, 0.625)), large, small), x);
  } else {
    const V e =
        expm1(d, hn::IfThenElse(hn::Gt(magnitude, constant(d, 20)), constant(d, 40), hn::Add(magnitude, magnitude)));
    return hn::CopySignToAbs(hn::Div(e, hn::Add(e, two)), x);
  }
}

// ---- the error function
// ----------------------------------------------------------------------------------------------------

/// erfc(t) e^(t^2) for 0 <= t <= 20 in float32, to 2 ulp: u times a polynomial of u = 1 / (1 + t / 2).
template <class D, class V>
HWY_INLINE V scaled_erfc(D d, V t) {
  const V u = reciprocal_bounded(d, hn::MulAdd(t, constant(d, 0.5), constant(d, 1)));
  return hn::Mul(u, polynomial(d, u, 0.28208510131, 0.28239844386, 0.24293524348, 0.20335412867, -0.028203246864,
                               0.28035737256, -0.48920149407, 0.28554136939, -0.059266962022));
}
/// x^2 minus its rounded value.
template <class D, class V>
HWY_INLINE V square_error(D d, V x, V square) {
#if HWY_NATIVE_FMA
  (void)d;
  return hn::MulSub(x, x, square);
#else  // Dekker: the halves' products are exact
  const hn::RebindToUnsigned<D> du;
  const V high = hn::BitCast(d, hn::And(hn::BitCast(du, x), hn::Set(du, 0xFFFFF000u))), low = hn::Sub(x, high);
  return hn::Add(hn::Add(hn::Sub(hn::Mul(high, high), square), hn::Mul(hn::Add(high, high), low)), hn::Mul(low, low));
#endif
}
/// e^(-x^2 / 2) for 0 <= x <= 20 in float32, with the square's rounding error carried along; 0 from x = 13.2 on.
template <class D, class V>
HWY_INLINE V exp_minus_half_square(D d, V x) {
  const V half = constant(d, 0.5), square = hn::Mul(x, x);
  const V e = exp_bounded(d, hn::Max(hn::Mul(square, constant(d, -0.5)), constant(d, -88)));
  return hn::NegMulAdd(e, hn::Mul(square_error(d, x, square), half), e);
}

template <class D, class V>
HWY_INLINE V erf(D d, V x) {
  if constexpr (kIsFloat32<D>) {
    const V t = hn::Min(hn::Abs(x), constant(d, 5)), z = hn::Mul(x, x);  // 1 to working precision from 4 on
    const V small = hn::MulAdd(t,
                               polynomial(d, z, 0.1283791659, -0.37612627135, 0.11283600169, -0.026854444289,
                                          0.0051895347544, -0.00080208360724, 7.889102152e-5),
                               t);
    const V large = hn::NegMulAdd(scaled_erfc(d, t), exp_bounded(d, hn::Neg(hn::Mul(t, t))), constant(d, 1));
    const V both = hn::CopySignToAbs(hn::IfThenElse(hn::Lt(t, constant(d, 1)), small, large), x);
    return hn::IfThenElse(hn::IsNaN(x), x, both);
  } else {
    return per_lane(d, x, [](double v) { return std::erf(v); });
  }
}

/// The standard normal distribution function, 0.5 erfc(-x / sqrt(2)): accurate relative to itself on the negative side
/// too (float32: 0 below -13.2). A NaN gives NaN or any value between 0 and 1: what weighs x with it keeps x's NaN.
template <class D, class V>
HWY_INLINE V normal_cdf(D d, V x) {
  if constexpr (kIsFloat32<D>) {
    const V magnitude = hn::Min(hn::Abs(x), constant(d, 20));
    const V scaled = scaled_erfc(d, hn::Mul(magnitude, constant(d, 0.70710678118654752)));
    const V tail = hn::Mul(hn::Mul(constant(d, 0.5), scaled), exp_minus_half_square(d, magnitude));
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(constant(d, 1), tail));
  } else {
    return per_lane(d, x, [](double v) { return 0.5 * std::erfc(-v * 0.70710678118654752440); });
  }
}

}  // namespace tenor::cpu::HWY_NAMESPACE::math
HWY_AFTER_NAMESPACE();

#endif  // TENOR_CPU_MATH_INL_H_
