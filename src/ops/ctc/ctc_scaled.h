// Probabilities of any size: a mantissa and an exponent of its own. What the recursion adds and multiplies spans
// e^±10^6 and more, which no float holds; logarithms hold it, but round to 1e-4 where they are in the thousands and
// cost two exponentials and a logarithm a sum. A mantissa beside a power of two keeps all of its bits, whatever the
// size.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "src/core/numeric.h"

namespace tenor::ctc {

/// m * 2^e, m >= 0; zero is (0, -inf). e is a whole number. Sums and products may leave m as large as 4.3 times that of
/// their operands, so they are normalised now and then.
template <class C>
struct alignas(2 * sizeof(C)) Scaled {
  C m, e;
};

template <class C>
TENOR_HOST_DEVICE inline Scaled<C> zero() {
  return {C(0), -std::numeric_limits<C>::infinity()};
}
template <class C>
TENOR_HOST_DEVICE inline Scaled<C> one() {
  return {C(1), C(0)};
}

/// The shape of C's bits.
template <class C>
struct Bits;
template <>
struct Bits<float> {
  using Word = uint32_t;
  static constexpr int kMantissa = 23;
  static constexpr Word kField = 0xFF;
  static constexpr float kBias = 127, kRound = 12582912;  // 1.5 * 2^23: added to a whole number, its low bits are that
};
template <>
struct Bits<double> {
  using Word = uint64_t;
  static constexpr int kMantissa = 52;
  static constexpr Word kField = 0x7FF;
  static constexpr double kBias = 1023, kRound = 6755399441055744;
};

template <class C>
TENOR_HOST_DEVICE inline C greater(C a, C b) {  // b where a is NaN
#ifdef __CUDA_ARCH__
  return std::fmax(a, b);  // one instruction; where both are NaN, so is it
#else
  return a > b ? a : b;
#endif
}

/// 2^d of a whole number d below the largest exponent; 0 below the smallest one, and for NaN.
template <class C>
TENOR_HOST_DEVICE inline C power_of_two(C d) {
  using B = Bits<C>;
  const C field = greater(d, -B::kBias) + (B::kRound + B::kBias);
  return std::bit_cast<C>(static_cast<typename B::Word>(std::bit_cast<typename B::Word>(field) << B::kMantissa));
}

template <class C>
TENOR_HOST_DEVICE inline Scaled<C> add(Scaled<C> a, Scaled<C> b) {
  const C e = greater(a.e, b.e);
  return {std::fma(a.m, power_of_two(a.e - e), b.m * power_of_two(b.e - e)), e};
}
template <class C>
TENOR_HOST_DEVICE inline Scaled<C> add(Scaled<C> a, Scaled<C> b, Scaled<C> c) {
  const C e = greater(greater(a.e, b.e), c.e);
  const C two = std::fma(a.m, power_of_two(a.e - e), b.m * power_of_two(b.e - e));
  return {std::fma(c.m, power_of_two(c.e - e), two), e};
}
template <class C>
TENOR_HOST_DEVICE inline Scaled<C> multiply(Scaled<C> a, Scaled<C> b) {
  return {a.m * b.m, a.e + b.e};
}

/// The same with m in [1, 2); zero, NaN and infinity as they are.
template <class C>
TENOR_HOST_DEVICE inline Scaled<C> normalized(Scaled<C> a) {
  using B = Bits<C>;
  using Word = typename B::Word;
  const bool proper = a.m > 0 && a.m < std::numeric_limits<C>::infinity();
  const Word bits = std::bit_cast<Word>(a.m), field = bits >> B::kMantissa;
  const C whole = std::bit_cast<C>(static_cast<Word>(std::bit_cast<Word>(B::kRound) + field)) - B::kRound;
  const Word rest = bits & ((Word{1} << B::kMantissa) - 1);
  const C m = std::bit_cast<C>(static_cast<Word>(rest | std::bit_cast<Word>(C(1))));
  if (proper && a.e == -std::numeric_limits<C>::infinity()) return {C(0), a.e};  // less than any exponent tells
  return {proper ? m : a.m, proper ? a.e + (whole - B::kBias) : a.e};
}

/// 2^f for |f| <= 1/2. In double the same bits on every device; in float the device's own instruction.
TENOR_HOST_DEVICE inline double fraction_power(double f) {
  constexpr double kLn2 = 0.6931471805599453;
  const double x = f * kLn2;
  double p = 1.0;  // Horner's form of exp's series: x^14 / 14! is below 5e-18
  for (int k = 13; k > 0; --k) p = std::fma(p, x / k, 1.0);
  return p;
}
TENOR_HOST_DEVICE inline float fraction_power(float f) {
#ifdef __CUDA_ARCH__
  float p;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(p) : "f"(f));
  return p;
#else
  return static_cast<float>(fraction_power(static_cast<double>(f)));
#endif
}

template <class C>
inline constexpr C kLog2e = static_cast<C>(1.4426950408889634074);
/// log2(e) less its rounding to C.
template <class C>
inline constexpr C kLog2eRest = sizeof(C) == 4 ? static_cast<C>(1.4426950408889634074 - 1.44269502162933349609375)
                                               : static_cast<C>(2.0355273740931033e-17);

/// exp(x).
template <class C>
TENOR_HOST_DEVICE inline Scaled<C> exponential(C x) {
  constexpr C kInfinity = std::numeric_limits<C>::infinity(), kRound = Bits<C>::kRound;
  constexpr C kMost = std::numeric_limits<C>::max() / 2;  // times log2(e) it is a number still
  const C y = std::fmin(std::fmax(x, -kMost), kMost);
  const C n = (y * kLog2e<C> + kRound) - kRound;
  const C f = std::fma(y, kLog2eRest<C>, std::fma(y, kLog2e<C>, -n));
  const C p = fraction_power(std::fmin(std::fmax(f, C(-0.5625)), C(0.5625)));  // past 2^22, n has no digits for f
  const bool finite = std::fabs(x) < kInfinity;
  return {finite ? p : x == -kInfinity ? C(0) : x, finite ? n : x == -kInfinity ? x : C(0)};  // +inf and NaN stay
}

/// Whether it is no probability at all; its exponent then tells nothing.
template <class C>
TENOR_HOST_DEVICE inline bool is_zero(Scaled<C> a) {
  return a.m == 0 || (a.m > 0 && a.e == -std::numeric_limits<C>::infinity());
}

/// The natural logarithm.
template <class C>
TENOR_HOST_DEVICE inline double logarithm(Scaled<C> a) {
  if (a.m == 0) return -std::numeric_limits<double>::infinity();
  return std::log(static_cast<double>(a.m)) + static_cast<double>(a.e) * 0.6931471805599453;
}

}  // namespace tenor::ctc
