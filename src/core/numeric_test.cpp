// Every pattern of the 16- and 8-bit floats, and roundings against a search in the sorted list of representable values.
#include "src/core/numeric.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tenor::core {
namespace {

template <class T, int ExponentBits, int MantissaBits, bool Finite>
struct Format {
  using Type = T;
  static constexpr int kExponent = ExponentBits, kMantissa = MantissaBits;
  static constexpr bool kFinite = Finite;
  static constexpr uint32_t kPatterns = 1u << (1 + ExponentBits + MantissaBits);
  static constexpr uint32_t kTop = ((1u << ExponentBits) - 1) << MantissaBits;  // infinity's pattern, or 2^k in E4M3

  static bool is_nan(uint32_t bits) {
    const uint32_t magnitude = bits & (kPatterns / 2 - 1);
    return Finite ? magnitude == kPatterns / 2 - 1 : magnitude > kTop;
  }
  /// By the definition of the format, in double.
  static double value(uint32_t bits) {
    const int exponent = static_cast<int>((bits >> MantissaBits) & ((1u << ExponentBits) - 1));
    const double fraction = static_cast<double>(bits & ((1u << MantissaBits) - 1)) / (1 << MantissaBits);
    const int bias = (1 << (ExponentBits - 1)) - 1;
    return exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  }
  static T make(uint32_t bits) { return {static_cast<decltype(T::bits)>(bits)}; }
};
using Formats = ::testing::Types<Format<Float16, 5, 10, false>, Format<BFloat16, 8, 7, false>,
                                 Format<Float8E4M3, 4, 3, true>, Format<Float8E5M2, 5, 2, false>>;

template <class F>
class Narrow : public ::testing::Test {
 protected:
  /// Index = pattern of the positive finite values and, last, of the first value past them.
  static const std::vector<double>& ladder() {
    static const std::vector<double> values = [] {
      std::vector<double> v;
      const uint32_t end = F::kFinite ? F::kPatterns / 2 - 1 : F::kTop;
      for (uint32_t bits = 0; bits <= end; ++bits) v.push_back(F::value(bits));
      return v;
    }();
    return values;
  }
  /// Nearest, ties to the even pattern, found by search; past the last step the format's infinity or NaN.
  static uint32_t nearest(double magnitude) {
    const auto& v = ladder();
    if (magnitude >= v.back()) return static_cast<uint32_t>(v.size() - 1);
    const auto above = std::upper_bound(v.begin(), v.end(), magnitude);
    const auto high = static_cast<uint32_t>(above - v.begin()), low = high - 1;
    const double to_low = magnitude - v[low],
                 to_high = v[high] - magnitude;  // exact: the steps are far above an ulp of double
    if (to_low != to_high) return to_low < to_high ? low : high;
    return low % 2 == 0 ? low : high;
  }
  static void expect_rounds(double x) {
    const uint32_t sign = std::signbit(x) ? F::kPatterns / 2 : 0, want = sign | nearest(std::abs(x));
    ASSERT_EQ(cast<typename F::Type>(x).bits, want) << "of " << x;
    if (const float f = static_cast<float>(x); static_cast<double>(f) == x || std::isinf(x)) {
      ASSERT_EQ(cast<typename F::Type>(f).bits, want) << "of float " << x;
    }
  }
};
TYPED_TEST_SUITE(Narrow, Formats);

TYPED_TEST(Narrow, EveryPatternWidens) {
  using F = TypeParam;
  for (uint32_t bits = 0; bits < F::kPatterns; ++bits) {
    const float got = widen(F::make(bits));
    const uint32_t magnitude = bits & (F::kPatterns / 2 - 1);
    if (F::is_nan(bits)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
      continue;
    }
    const double want =
        !F::kFinite && magnitude == F::kTop ? std::numeric_limits<double>::infinity() : F::value(magnitude);
    ASSERT_EQ(std::abs(static_cast<double>(got)), want) << bits;
    ASSERT_EQ(std::signbit(got), bits >= F::kPatterns / 2) << bits;
    ASSERT_EQ(cast<typename F::Type>(got).bits, bits) << "does not come back";
  }
}

TYPED_TEST(Narrow, EveryMidpointAndItsNeighboursRound) {
  const auto& v = this->ladder();
  for (size_t i = 0; i + 1 < v.size(); ++i) {
    const double middle = (v[i] + v[i + 1]) / 2;
    for (double sign : {1.0, -1.0}) {
      this->expect_rounds(sign * middle);
      this->expect_rounds(sign * std::nextafter(middle, 0));
      this->expect_rounds(sign * std::nextafter(middle, 1e300));
      const float f = static_cast<float>(middle);
      this->expect_rounds(sign * std::nextafterf(f, 0));
      this->expect_rounds(sign * std::nextafterf(f, 1e38f));
    }
  }
}

TYPED_TEST(Narrow, RandomDoublesOfEveryExponentRound) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200000; ++i) {
    const uint64_t exponent = 1023 - 160 + random() % 320;
    this->expect_rounds(std::bit_cast<double>((random() & 0x800FFFFFFFFFFFFFull) | (exponent << 52)));
  }
}

TYPED_TEST(Narrow, Extremes) {
  using F = TypeParam;
  const double inf = std::numeric_limits<double>::infinity();
  for (double x : {0.0, -0.0, inf, -inf, 1e300, -1e300, 5e-324, -5e-324}) this->expect_rounds(x);
  for (float nan : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
                    std::bit_cast<float>(0x7F800001u), std::bit_cast<float>(0xFFFFFFFFu)}) {
    EXPECT_TRUE(F::is_nan(cast<typename F::Type>(nan).bits));
    EXPECT_TRUE(F::is_nan(cast<typename F::Type>(static_cast<double>(nan)).bits));
  }
}

TEST(BFloat16, EveryUpperHalfWithTrickyLowerHalvesMatchesTheGeneralRounding) {
  for (uint32_t high = 0; high < 0x10000; ++high)
    for (uint32_t low : {0x0000u, 0x0001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      const float x = std::bit_cast<float>(high << 16 | low);
      if (std::isnan(x)) {
        ASSERT_TRUE(std::isnan(widen(round_to_bfloat16(x))));
      } else {
        ASSERT_EQ(round_to_bfloat16(x).bits, (narrow_bits<8, 7, false>(x))) << x;
      }
    }
}

template <class To, class From>
void expect_saturates() {
  using L = std::numeric_limits<To>;
  EXPECT_EQ(cast<To>(std::numeric_limits<From>::quiet_NaN()), 0);
  EXPECT_EQ(cast<To>(std::numeric_limits<From>::infinity()), L::max());
  EXPECT_EQ(cast<To>(-std::numeric_limits<From>::infinity()), L::min());
  EXPECT_EQ(cast<To>(From(1e30)), L::max());
  EXPECT_EQ(cast<To>(From(-1e30)), L::min());
  EXPECT_EQ(cast<To>(From(100.99)), To(100));
  EXPECT_EQ(cast<To>(From(-0.99)), To(0));
  if constexpr (std::is_signed_v<To>) {
    EXPECT_EQ(cast<To>(From(-100.99)), To(-100));
  } else {
    EXPECT_EQ(cast<To>(From(-1)), To(0));
  }
  // The last value below the bound of 2^k stays exact, the bound saturates.
  const From past = std::ldexp(From(1), L::digits), below = std::nextafter(past, From(0));
  EXPECT_EQ(cast<To>(past), L::max());
  EXPECT_EQ(cast<To>(below), static_cast<To>(std::trunc(below)));
}

TEST(Cast, FloatToIntegerTruncatesAndSaturates) {
  const auto all = []<class... To>() { (expect_saturates<To, float>(), ...), (expect_saturates<To, double>(), ...); };
  all.operator()<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t>();
  EXPECT_EQ(cast<int32_t>(Float16{0x7C00}), std::numeric_limits<int32_t>::max());
  EXPECT_EQ(cast<uint8_t>(BFloat16{0x7FC0}), 0);
}

TEST(Cast, IntegersWrapAndBoolIsNotZero) {
  EXPECT_EQ(cast<int8_t>(int64_t{300}), 44);
  EXPECT_EQ(cast<uint8_t>(int32_t{-1}), 255);
  EXPECT_EQ(cast<uint64_t>(int8_t{-1}), UINT64_MAX);
  EXPECT_TRUE(cast<bool>(std::numeric_limits<float>::quiet_NaN()));
  EXPECT_TRUE(cast<bool>(0.25));
  EXPECT_FALSE(cast<bool>(-0.0f));
  EXPECT_FALSE(cast<bool>(Float16{0x8000}));
  EXPECT_TRUE(cast<bool>(Float8E4M3{0x01}));
  EXPECT_EQ(cast<int32_t>(true), 1);
  EXPECT_EQ(cast<float>(int64_t{16777217}), 16777216.0f);
}

}  // namespace
}  // namespace tenor::core
