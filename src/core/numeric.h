// Conversions between element types, one value at a time: the rules that every kernel's vector code must match.
// Float to narrower float rounds once, to nearest even; float to integer truncates, saturates, NaN becomes 0; integer to
// narrower integer wraps; anything to bool is "not zero" (NaN is true).
#pragma once

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tenor/dtype.h"

// CUDA kernels convert by the same functions.
#ifdef __CUDACC__
#define TENOR_HOST_DEVICE __host__ __device__
#else
#define TENOR_HOST_DEVICE
#endif

namespace tenor::core {

template <class T>
inline constexpr bool kStorageFloat = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16> ||
                                      std::is_same_v<T, Float8E4M3> || std::is_same_v<T, Float8E5M2>;

/// What T is computed in: float for the storage floats, else itself.
template <class T>
using Compute = std::conditional_t<kStorageFloat<T>, float, T>;

/// A double rounded to a binary float of `Mantissa` explicit bits, `Bias`, as its bit pattern; ties to even.
/// `Finite` formats (E4M3) have no infinity: the top exponent holds numbers but for all-ones.
template <int ExponentBits, int Mantissa, bool Finite>
TENOR_HOST_DEVICE inline uint32_t narrow_bits(double value) {
  constexpr int kBias = (1 << (ExponentBits - 1)) - 1;
  constexpr uint32_t kTop = (1u << ExponentBits) - 1;
  constexpr uint32_t kInf = kTop << Mantissa;
  constexpr uint32_t kNan = Finite ? (kInf | ((1u << Mantissa) - 1)) : (kInf | (1u << (Mantissa - 1)));
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const uint32_t sign = static_cast<uint32_t>(bits >> 63) << (ExponentBits + Mantissa);
  if (std::isnan(value)) return sign | kNan;
  const int exponent = static_cast<int>((bits >> 52) & 0x7FF) - 1023;
  if (exponent < 1 - kBias - Mantissa - 1) return sign;  // below half the smallest subnormal (and float64 subnormals)
  if (exponent > kBias + 1) return sign | (Finite ? kNan : kInf);
  // The significand as an integer with 52 fraction bits, shifted so that its last kept bit is the result's last.
  const uint64_t significand = (bits & ((1ull << 52) - 1)) | (1ull << 52);
  const int below = exponent < 1 - kBias ? (1 - kBias) - exponent : 0;
  const int shift = 52 - Mantissa + below;
  const uint64_t half = 1ull << (shift - 1), rest = significand & ((1ull << shift) - 1);
  uint64_t kept = significand >> shift;
  if (rest > half || (rest == half && (kept & 1))) ++kept;
  // Adding the exponent lets a carry out of the significand raise it; a subnormal that rounds up becomes normal likewise.
  const uint64_t biased = below ? 0 : static_cast<uint64_t>(exponent + kBias - 1);
  const uint64_t magnitude = (biased << Mantissa) + kept;
  if constexpr (Finite) return magnitude >= kNan ? sign | kNan : sign | static_cast<uint32_t>(magnitude);
  return magnitude >= kInf ? sign | kInf : sign | static_cast<uint32_t>(magnitude);
}

template <int ExponentBits, int Mantissa, bool Finite>
TENOR_HOST_DEVICE inline float widen_bits(uint32_t bits) {
  constexpr int kBias = (1 << (ExponentBits - 1)) - 1;
  constexpr uint32_t kTop = (1u << ExponentBits) - 1, kMask = (1u << Mantissa) - 1;
  const bool negative = (bits >> (ExponentBits + Mantissa)) & 1;
  const uint32_t exponent = (bits >> Mantissa) & kTop, fraction = bits & kMask;
  float magnitude;
  if (exponent == kTop && (!Finite || fraction == kMask)) {
    magnitude = fraction ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(fraction), 1 - kBias - Mantissa);
  } else {
    magnitude = std::bit_cast<float>(((exponent + 127 - kBias) << 23) | (fraction << (23 - Mantissa)));
  }
  return negative ? -magnitude : magnitude;
}

TENOR_HOST_DEVICE inline float widen(Float16 x) { return widen_bits<5, 10, false>(x.bits); }
TENOR_HOST_DEVICE inline float widen(BFloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
TENOR_HOST_DEVICE inline float widen(Float8E4M3 x) { return widen_bits<4, 3, true>(x.bits); }
TENOR_HOST_DEVICE inline float widen(Float8E5M2 x) { return widen_bits<5, 2, false>(x.bits); }
template <class T>
  requires std::is_arithmetic_v<T>
TENOR_HOST_DEVICE inline T widen(T x) {
  return x;
}

TENOR_HOST_DEVICE inline BFloat16 round_to_bfloat16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return {static_cast<uint16_t>((bits >> 16) | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)};
}

/// Converts between any two element types by the rules above.
template <class To, class From>
TENOR_HOST_DEVICE inline To cast(From from) {
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else if constexpr (kStorageFloat<From>) {
    return cast<To>(widen(from));
  } else if constexpr (std::is_same_v<To, BFloat16> && std::is_same_v<From, float>) {
    return round_to_bfloat16(from);
  } else if constexpr (std::is_same_v<To, BFloat16>) {
    return {static_cast<uint16_t>(narrow_bits<8, 7, false>(static_cast<double>(from)))};
  } else if constexpr (std::is_same_v<To, Float16>) {
    return {static_cast<uint16_t>(narrow_bits<5, 10, false>(static_cast<double>(from)))};
  } else if constexpr (std::is_same_v<To, Float8E4M3>) {
    return {static_cast<uint8_t>(narrow_bits<4, 3, true>(static_cast<double>(from)))};
  } else if constexpr (std::is_same_v<To, Float8E5M2>) {
    return {static_cast<uint8_t>(narrow_bits<5, 2, false>(static_cast<double>(from)))};
  } else if constexpr (std::is_same_v<To, bool>) {
    return from != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if (std::isnan(from)) return 0;
    // The bounds as floats: 2^k is exact, so compare with >= against one past the largest.
    constexpr From kPast = static_cast<From>(std::numeric_limits<To>::max() / 2 + 1) * 2;
    if (from >= kPast) return std::numeric_limits<To>::max();
    if (from <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    return static_cast<To>(from);
  } else {
    return static_cast<To>(from);
  }
}

}  // namespace tenor::core
