// argmax, argmin, and max and min along a dim.
#include <gtest/gtest.h>

#include "src/ops/reduce/reduce_reference.h"
#include "src/ops/reduce/reduce_testing.h"
#include "tenor/reduce.h"

namespace tenor {
namespace {

using namespace tenor::testing;

TEST(Reduce, ArgAndExtremesAlongADim) {
  Random random(4);
  for (int round = 0; round < 15; ++round)
    for (DType dtype : kAll) {
      Tensor x = any_layout(dtype, random);
      if (x.ndim() == 0 || x.numel() == 0) continue;
      if (is_float(dtype) && round % 3 == 0) put(x, offset_of(x, pick(random, 0, x.numel() - 1)), kNan);
      const int64_t dim = pick(random, 0, x.ndim() - 1);
      const auto rows = sequences(x, {dim});
      const ExtremeResult high = max(x, dim), low = min(x, dim, {.keepdim = true});
      const Tensor first = argmax(x, {.dim = dim}), last = argmin(x, {.dim = dim, .keepdim = true});
      for (size_t i = 0; i < rows.size(); ++i) {
        const int64_t o = static_cast<int64_t>(i);
        ASSERT_EQ(at(first, o), reduce::reference_arg(rows[i], true))
            << describe(x) << " strides " << to_string(x.strides()) << " along " << dim;
        ASSERT_EQ(at(last, o), reduce::reference_arg(rows[i], false))
            << describe(x) << " strides " << to_string(x.strides()) << " along " << dim;
        ASSERT_EQ(at(high.indices, o), at(first, o));
        ASSERT_EQ(at(low.indices, o), at(last, o));
        ASSERT_TRUE(same(std::abs(at(high.values, o)), std::abs(reduce::reference_extreme(rows[i], true))));
        ASSERT_TRUE(same(std::abs(at(low.values, o)), std::abs(reduce::reference_extreme(rows[i], false))));
      }
      Dims all;
      for (int d = 0; d < x.ndim(); ++d) all.push_back(d);
      ASSERT_EQ(at(argmax(x), 0), reduce::reference_arg(sequences(x, all, true)[0], true));
    }
}

/// Places count in logical order, whatever that of memory, which is the one that is read.
TEST(Reduce, TheFirstOfEqualsInATransposedTensor) {
  Random random(14);
  for (DType dtype : {float32, bfloat16, int32, uint8})
    for (int round = 0; round < 12; ++round) {
      Tensor x = permute(
          filled({7, 90, 41}, dtype, [&](int64_t) { return static_cast<double>(pick(random, 0, 5000) / 4990); }),
          round % 2 ? Dims{2, 0, 1} : Dims{1, 2, 0});
      if (round % 3 == 1) x = slice(x, 0, 3);
      if (is_float(dtype) && round % 4 == 3)
        for (int i = 0; i < 5; ++i) put(x, offset_of(x, pick(random, 0, x.numel() - 1)), kNan);
      const auto row = sequences(x, {0, 1, 2}, true)[0];
      ASSERT_EQ(at(argmax(x), 0), reduce::reference_arg(row, true)) << describe(x);
      ASSERT_EQ(at(argmin(x), 0), reduce::reference_arg(row, false)) << describe(x);
    }
}

/// Rows of floats are looked at in pieces, whose sums tell of a NaN: infinities of both signs, and sums that overflow
/// to one, are none.
TEST(Reduce, PlacesInLongRowsOfFloats) {
  Random random(15);
  for (DType dtype : {float64, float32, float16, bfloat16})
    for (int64_t n : {1, 15, 16, 17, 127, 128, 511, 512, 513, 700, 1024, 1500, 4095, 4097})
      for (int kind = 0; kind < 8; ++kind) {
        const double large = dtype == float64 ? 1.7e308 : dtype == float16 ? 6e4 : 3.3e38;
        const Tensor wide = filled({3, n + 1}, dtype, [&](int64_t) -> double {
          const auto draw = static_cast<double>(pick(random, -50, 50));
          const int64_t seldom = pick(random, 0, n);
          if (kind == 0) return -kInf;
          if (kind == 1) return seldom < 2 ? kInf : -kInf;
          if (kind == 2) return seldom < 2 ? -kInf : large;
          if (kind == 3) return seldom < 2 ? kNan : draw;
          if (kind == 4) return seldom < 2 ? kNan : seldom < 4 ? kInf : -kInf;
          if (kind == 5) return kNan;
          return kind == 6 ? 0 * draw : draw / 7;  // zeros of both signs; many equals
        });
        const Tensor x = slice(wide, 1, 1);
        const auto rows = sequences(x, {1});
        const Tensor first = argmax(x, {.dim = 1}), last = argmin(x, {.dim = 1});
        for (size_t i = 0; i < rows.size(); ++i) {
          const int64_t o = static_cast<int64_t>(i);
          ASSERT_EQ(at(first, o), reduce::reference_arg(rows[i], true)) << describe(x) << " kind " << kind;
          ASSERT_EQ(at(last, o), reduce::reference_arg(rows[i], false)) << describe(x) << " kind " << kind;
        }
      }
}

}  // namespace
}  // namespace tenor
