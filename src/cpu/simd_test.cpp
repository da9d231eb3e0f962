// The vector building blocks, on every instruction set that this machine has, against their scalar definitions.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/simd_test.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

// Runtime entry points: one per element type.
template <class T>
void widen_row(const T* src, core::Compute<T>* dst, size_t n) {
  const ComputeTag<T> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(load(d, src + i), d, dst + i);
  if (i < n) {
    core::Compute<T> last[HWY_MAX_BYTES / sizeof(core::Compute<T>)];
    hn::StoreU(load_n(d, src + i, n - i, core::Compute<T>(7)), d, last);
    for (size_t k = 0; i < n; ++i, ++k) dst[i] = last[k];
  }
}
template <class T>
void narrow_row(const float* src, T* dst, size_t n) {
  const hn::ScalableTag<float> d;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) store(d, hn::LoadU(d, src + i), dst + i);
  if (i < n) store_n(d, load_n(d, src + i, n - i), dst + i, n - i);
}
template <class T>
void negate_row(const T* src, T* dst, size_t n) {
  map_row(src, dst, n, [](auto, auto v) HWY_ATTR { return hn::Neg(v); });
}
template <class T>
core::Compute<T> sum_of_squares(const T* src, size_t n) {
  return reduce_row(
      src, n, core::Compute<T>(0), [](auto, auto v) HWY_ATTR { return hn::Mul(v, v); }, AddOp());
}

void widen_f16(const Float16* s, float* d, size_t n) { widen_row(s, d, n); }
void widen_bf16(const BFloat16* s, float* d, size_t n) { widen_row(s, d, n); }
void narrow_f16(const float* s, Float16* d, size_t n) { narrow_row(s, d, n); }
void narrow_bf16(const float* s, BFloat16* d, size_t n) { narrow_row(s, d, n); }
void negate_f32(const float* s, float* d, size_t n) { negate_row(s, d, n); }
void negate_f64(const double* s, double* d, size_t n) { negate_row(s, d, n); }
void negate_f16(const Float16* s, Float16* d, size_t n) { negate_row(s, d, n); }
void negate_bf16(const BFloat16* s, BFloat16* d, size_t n) { negate_row(s, d, n); }
float squares_f32(const float* s, size_t n) { return sum_of_squares(s, n); }
double squares_f64(const double* s, size_t n) { return sum_of_squares(s, n); }
float squares_f16(const Float16* s, size_t n) { return sum_of_squares(s, n); }
float squares_bf16(const BFloat16* s, size_t n) { return sum_of_squares(s, n); }

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tenor::cpu {
namespace {

HWY_EXPORT(widen_f16);
HWY_EXPORT(widen_bf16);
HWY_EXPORT(narrow_f16);
HWY_EXPORT(narrow_bf16);
HWY_EXPORT(negate_f32);
HWY_EXPORT(negate_f64);
HWY_EXPORT(negate_f16);
HWY_EXPORT(negate_bf16);
HWY_EXPORT(squares_f32);
HWY_EXPORT(squares_f64);
HWY_EXPORT(squares_f16);
HWY_EXPORT(squares_bf16);

// By element type, dispatched to the instruction set in force.
void widen_row(const Float16* s, float* d, size_t n) { HWY_DYNAMIC_DISPATCH(widen_f16)(s, d, n); }
void widen_row(const BFloat16* s, float* d, size_t n) { HWY_DYNAMIC_DISPATCH(widen_bf16)(s, d, n); }
void narrow_row(const float* s, Float16* d, size_t n) { HWY_DYNAMIC_DISPATCH(narrow_f16)(s, d, n); }
void narrow_row(const float* s, BFloat16* d, size_t n) { HWY_DYNAMIC_DISPATCH(narrow_bf16)(s, d, n); }
void negate_row(const float* s, float* d, size_t n) { HWY_DYNAMIC_DISPATCH(negate_f32)(s, d, n); }
void negate_row(const double* s, double* d, size_t n) { HWY_DYNAMIC_DISPATCH(negate_f64)(s, d, n); }
void negate_row(const Float16* s, Float16* d, size_t n) { HWY_DYNAMIC_DISPATCH(negate_f16)(s, d, n); }
void negate_row(const BFloat16* s, BFloat16* d, size_t n) { HWY_DYNAMIC_DISPATCH(negate_bf16)(s, d, n); }
float sum_of_squares(const float* s, size_t n) { return HWY_DYNAMIC_DISPATCH(squares_f32)(s, n); }
double sum_of_squares(const double* s, size_t n) { return HWY_DYNAMIC_DISPATCH(squares_f64)(s, n); }
float sum_of_squares(const Float16* s, size_t n) { return HWY_DYNAMIC_DISPATCH(squares_f16)(s, n); }
float sum_of_squares(const BFloat16* s, size_t n) { return HWY_DYNAMIC_DISPATCH(squares_bf16)(s, n); }

/// Runs the body once on each instruction set compiled in that this machine has.
template <class Body>
void on_every_target(Body body) {
  for (int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    SCOPED_TRACE(hwy::TargetName(target));
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

uint32_t bits_of(float x) { return std::isnan(x) ? 0x7FC00000u : std::bit_cast<uint32_t>(x); }
uint64_t bits_of(double x) { return std::bit_cast<uint64_t>(x); }
template <class T>
requires core::kStorageFloat<T> uint32_t bits_of(T x) { return x.bits; }

template <class T>
class Simd : public ::testing::Test {};
using Halves = ::testing::Types<Float16, BFloat16>;
TYPED_TEST_SUITE(Simd, Halves);

TYPED_TEST(Simd, EveryPatternWidens) {
  std::vector<TypeParam> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<uint16_t>(i);
  on_every_target([&] {
    std::vector<float> wide(all.size());
    widen_row(all.data(), wide.data(), all.size());
    for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(bits_of(wide[i]), bits_of(core::widen(all[i]))) << i;
  });
}

TYPED_TEST(Simd, NarrowingRoundsAsTheScalarRule) {
  std::vector<float> from;
  for (uint32_t i = 0; i < 65536; ++i) {  // every value, the middle to the next and the neighbours of that
    const float low = core::widen(TypeParam{static_cast<uint16_t>(i)}),
                high = core::widen(TypeParam{static_cast<uint16_t>(i + 1)});
    const float middle = (low + high) / 2;
    for (float x : {low, middle, std::nextafterf(middle, 0), std::nextafterf(middle, 1e38f)}) from.push_back(x);
  }
  std::mt19937 random(3);
  for (int i = 0; i < 100000; ++i) from.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  on_every_target([&] {
    std::vector<TypeParam> got(from.size());
    narrow_row(from.data(), got.data(), from.size());
    for (size_t i = 0; i < from.size(); ++i) {
      const TypeParam want = core::cast<TypeParam>(from[i]);
      if (std::isnan(from[i])) {
        ASSERT_TRUE(std::isnan(core::widen(got[i]))) << from[i];
      } else {
        ASSERT_EQ(got[i].bits, want.bits) << from[i];
      }
    }
  });
}

template <class T>
class SimdRow : public ::testing::Test {
 protected:
  static std::vector<T> random_row(size_t n) {
    std::mt19937 random(static_cast<unsigned>(n));
    std::normal_distribution<float> normal;
    std::vector<T> row(n);
    for (T& x : row) x = core::cast<T>(normal(random));
    return row;
  }
};
using Floats = ::testing::Types<float, double, Float16, BFloat16>;
TYPED_TEST_SUITE(SimdRow, Floats);

TYPED_TEST(SimdRow, MapWritesExactlyItsRow) {
  for (size_t n = 0; n < 70; ++n) {
    const auto row = this->random_row(n);
    on_every_target([&] {
      std::vector<TypeParam> out(n + 8, core::cast<TypeParam>(99.0f));
      negate_row(row.data(), out.data(), n);
      for (size_t i = 0; i < n; ++i)
        ASSERT_EQ(bits_of(out[i]), bits_of(core::cast<TypeParam>(-core::widen(row[i])))) << n << " " << i;
      for (size_t i = n; i < out.size(); ++i)
        ASSERT_EQ(bits_of(out[i]), bits_of(core::cast<TypeParam>(99.0f))) << "written past " << n;
    });
  }
}

TYPED_TEST(SimdRow, ReductionsFollowTheOrderBitForBit) {
  using C = core::Compute<TypeParam>;
  for (size_t n :
       {0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 65, 100, 1000, 4095, 4096, 4097, 8191, 8192, 8193, 12288, 12300, 50000}) {
    const auto row = this->random_row(n);
    const C want = core::ordered_reduce(
        static_cast<int64_t>(n), C(0),
        [&](int64_t i) {
          const C x = core::widen(row[static_cast<size_t>(i)]);
          return x * x;
        },
        [](C a, C b) { return a + b; });
    on_every_target([&] { ASSERT_EQ(bits_of(sum_of_squares(row.data(), n)), bits_of(want)) << n; });
  }
}

TEST(ReductionOrder, BlocksMeetAsABinaryCounter) {
  // The value is a text of who met whom.
  const auto join = [](const std::string& a, const std::string& b) { return "(" + a + b + ")"; };
  core::BlockCounter<std::string> blocks;
  EXPECT_EQ(blocks.finish("none", join), "none");
  const char* want[] = {
      "a", "(ab)", "((ab)c)", "((ab)(cd))", "(((ab)(cd))e)", "(((ab)(cd))(ef))", "(((ab)(cd))((ef)g))"};
  for (int i = 0; i < 7; ++i) {
    blocks.push(std::string(1, static_cast<char>('a' + i)), join);
    EXPECT_EQ(blocks.finish("none", join), want[i]);
  }
}

TEST(ReductionOrder, ErrsLittle) {
  const int64_t n = 1000000;
  const float sum = core::ordered_reduce(
      n, 0.0f, [](int64_t) { return 0.1f; }, [](float a, float b) { return a + b; });
  EXPECT_NEAR(sum, 100000.0, 1e-4 * 100000);
  EXPECT_LT(std::abs(sum - static_cast<double>(0.1f) * static_cast<double>(n)), 0.5);
}

}  // namespace
}  // namespace tenor::cpu
#endif  // HWY_ONCE
