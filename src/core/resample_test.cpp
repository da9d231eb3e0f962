// The index map of resampling: every size to every size, each output and each source.
#include "src/core/resample.h"

#include <gtest/gtest.h>

#include <string>

namespace tenor::core {
namespace {

constexpr ResampleKind kKinds[] = {ResampleKind::kNearest, ResampleKind::kNearestExact, ResampleKind::kLinear,
                                   ResampleKind::kCubic,   ResampleKind::kArea,         ResampleKind::kLanczos};

/// Every axis from sizes up to those, with and without a factor, as the kinds allow.
template <class F>
void for_axes(int64_t most_in, int64_t most_out, F&& check) {
  for (const ResampleKind kind : kKinds)
    for (int64_t in = 1; in <= most_in; ++in)
      for (int64_t out = 1; out <= most_out; ++out)
        for (int flags = 0; flags < 8; ++flags) {
          const bool align = flags & 1, antialias = flags & 2, scaled = flags & 4;
          const bool smooth =
              kind == ResampleKind::kLinear || kind == ResampleKind::kCubic || kind == ResampleKind::kLanczos;
          if ((align || antialias) && !smooth) continue;
          if (scaled && kind == ResampleKind::kArea) continue;
          check(ResampleAxis{in, out, kind, align, antialias,
                             scaled ? (static_cast<double>(out) + 0.3) / static_cast<double>(in) : 0});
        }
}
std::string text(const ResampleAxis& a) {
  return "kind " + std::to_string(static_cast<int>(a.kind)) + ", " + std::to_string(a.in) + " to " +
         std::to_string(a.out) + (a.align_corners ? " aligned" : "") + (a.antialias ? " antialiased" : "") +
         (a.scale != 0 ? " by a factor" : "");
}

TEST(Resample, EveryOutputsTapsLieInTheImageAndSumToOne) {
  for_axes(24, 40, [](const ResampleAxis& a) {
    const ResampleTable table = resample_table(a, false);
    int64_t last = -4;
    for (int64_t i = 0; i < a.out; ++i) {
      const ResampleTaps t = resample_taps(a, i);
      ASSERT_GE(t.count, 1) << text(a);
      ASSERT_LE(t.count, table.width) << text(a);
      ASSERT_GE(t.first, last) << text(a) << ": taps go back at " << i;
      last = t.first;
      if (fixed_taps(a) == 0) {
        ASSERT_TRUE(t.first >= 0 && t.first + t.count <= a.in) << text(a) << ": " << i;
      } else {
        ASSERT_EQ(t.count, fixed_taps(a));
        ASSERT_TRUE(t.first >= -2 && t.first < a.in) << text(a) << ": " << i << " reads " << t.first;
      }
      double sum = 0;
      for (int64_t k = 0; k < t.count; ++k) sum += table.weight[static_cast<size_t>(i * table.width + k)];
      ASSERT_NEAR(sum, 1, 1e-12) << text(a) << ": " << i;
    }
  });
}

TEST(Resample, TheTransposedTableIsTheTranspose) {
  for_axes(20, 36, [](const ResampleAxis& a) {
    const ResampleTable readers = resample_table(a, true), taps = resample_table(a, false);
    std::vector<double> dense(static_cast<size_t>(a.in * a.out), 0.0);
    for (int64_t i = 0; i < a.out; ++i)
      for (int64_t k = 0; k < taps.count[static_cast<size_t>(i)]; ++k)
        dense[static_cast<size_t>(clamp_index(taps.first[static_cast<size_t>(i)] + k, a.in) * a.out + i)] +=
            taps.weight[static_cast<size_t>(i * taps.width + k)];
    for (int64_t j = 0; j < a.in; ++j) {
      const auto row = static_cast<size_t>(j);
      ASSERT_LE(readers.count[row], readers.width) << text(a);
      for (int64_t k = 0; k < readers.count[row]; ++k) {
        double& want = dense[static_cast<size_t>(j * a.out + readers.first[row] + k)];
        ASSERT_NEAR(readers.weight[static_cast<size_t>(j * readers.width + k)], want, 1e-15) << text(a) << ": " << j;
        ASSERT_NEAR(reader_weight(a, readers.first[row] + k, j), want, 1e-15) << text(a) << ": " << j;
        want = 0;
      }
      const ResampleReaders found = resample_readers(a, j);
      ASSERT_EQ(found.end - found.first, readers.count[row]) << text(a) << ": " << j;
      if (readers.count[row] > 0) ASSERT_EQ(found.first, readers.first[row]) << text(a) << ": " << j;
    }
    for (const double left : dense)
      ASSERT_EQ(left, 0) << text(a) << ": an output that no row of the transposed table names";
  });
}

template <int K, class C>
void expect_fixed(const ResampleAxis& a, double bound) {
  for (int64_t i = 0; i < a.out; ++i) {
    const ResampleTaps want = resample_taps(a, i);
    const FixedTaps<K, C> got = fixed_taps_at<K, C>(a, i);
    ASSERT_EQ(got.first, want.first) << text(a) << ": " << i;
    for (int k = 0; k < K; ++k) ASSERT_NEAR(got.weight[k], tap_weight(a, want, k), bound) << text(a) << ": " << i;
  }
}
TEST(Resample, FixedTapsAreTheTaps) {
  for_axes(16, 30, [](const ResampleAxis& a) {
    for (const ResampleAxis& axis : {a, with_step(a)}) {
      if (fixed_taps(a) == 1) expect_fixed<1, double>(axis, 0);
      if (fixed_taps(a) == 2) expect_fixed<2, double>(axis, 0), expect_fixed<2, float>(axis, 1e-7);
      if (fixed_taps(a) == 4) expect_fixed<4, double>(axis, 1e-14), expect_fixed<4, float>(axis, 3e-7);
    }
  });
}

TEST(Resample, NearestIsExactBeyond32Bits) {
  constexpr int64_t kIn = (int64_t{1} << 33) + 1, kOut = 3 * kIn;
  const ResampleAxis a{kIn, kOut, ResampleKind::kNearest};
  for (const int64_t i : {int64_t{0}, int64_t{5}, kOut / 2, kOut - 4, kOut - 1}) EXPECT_EQ(nearest_source(a, i), i / 3);
}

}  // namespace
}  // namespace tenor::core
