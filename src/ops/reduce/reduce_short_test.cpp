// Rows shorter than the order's lanes: any count beside each other, with and without gaps, against the order bit for
// bit.
#include <gtest/gtest.h>

#include "src/core/reduction_order.h"
#include "src/core/testing.h"
#include "src/ops/reduce/reduce_reference.h"
#include "tenor/reduce.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;

/// The reduction of row r of x by the order, in C, with that combine.
template <class C, class Combine>
double ordered(const Tensor& x, int64_t r, C identity, Combine combine) {
  return static_cast<double>(core::ordered_reduce<C>(
      x.shape(1), identity, [&](int64_t i) { return static_cast<C>(get(x, offset_of(x, r * x.shape(1) + i))); },
      combine));
}

template <class C>
void expect_rows(const Tensor& x) {
  const Tensor sums = sum(x, {.dim = Dims{1}}), tops = amax(x, {.dim = Dims{1}}), all = prod(x, {.dim = Dims{1}});
  for (int64_t r = 0; r < x.shape(0); ++r) {
    const double want = ordered<C>(x, r, 0, [](C a, C b) { return a + b; });
    const double product = ordered<C>(x, r, 1, [](C a, C b) { return a * b; });
    std::vector<double> row;
    for (int64_t i = 0; i < x.shape(1); ++i) row.push_back(get(x, offset_of(x, r * x.shape(1) + i)));
    const std::string where = describe(x) + to_string(x.strides()) + " row " + std::to_string(r);
    ASSERT_TRUE(same(get(sums, r), rounded(want, x.dtype()))) << where << ": " << get(sums, r) << ", want " << want;
    ASSERT_TRUE(same(get(all, r), rounded(product, x.dtype()))) << where << " prod";
    ASSERT_TRUE(same(get(tops, r), reduce::reference_extreme(row, true))) << where << " amax";
  }
}

TEST(ShortRows, FollowTheOrderBitForBit) {
  Draw draw(3);
  for (DType dtype : kFloats)
    for (int64_t n = 1; n <= 34; ++n)
      for (int64_t rows : {1, 7, 16, 50}) {
        const Tensor wide = draw.dense({rows, n + 3}, dtype);
        for (const Tensor& x : {draw.dense({rows, n}, dtype), narrow(wide, 1, 2, n)})
          dtype == float64 ? expect_rows<double>(x) : expect_rows<float>(x);
        if (HasFatalFailure()) return;
      }
}

TEST(ShortRows, NanInfinityAndZerosStayInTheirRows) {
  for (int64_t n : {2, 3, 8, 13, 32}) {
    std::vector<double> v(static_cast<size_t>(40 * n), -0.0);
    v[static_cast<size_t>(5 * n)] = kNan, v[static_cast<size_t>(9 * n + 1)] = kInf;
    const Tensor x = tensor_of({40, n}, float32, v), sums = sum(x, {.dim = Dims{1}}), least = amin(x, {.dim = Dims{1}});
    for (int64_t r = 0; r < 40; ++r) {
      EXPECT_TRUE(same(get(sums, r), r == 5 ? kNan : r == 9 ? kInf : 0)) << n << " row " << r;
      EXPECT_EQ(std::signbit(get(sums, r)), false) << "a lane starts from +0";
      EXPECT_TRUE(same(get(least, r), r == 5 ? kNan : -0.0)) << n << " row " << r;
    }
  }
}

TEST(ShortRows, HaveTheSameBitsAloneOnAnyThreadsAndInTheirPlace) {
  Draw draw(5);
  const Tensor x = draw.dense({30, 400, 11}, bfloat16), y = sum(x, {.dim = Dims{2}});
  {
    const Threads one(1);
    EXPECT_TRUE(same_bits(sum(x, {.dim = Dims{2}}), y));
  }
  {
    const Threads many(5);
    EXPECT_TRUE(same_bits(sum(x, {.dim = Dims{2}}), y));
  }
  for (int64_t r : {0, 17, 399}) EXPECT_TRUE(same_bits(sum(select(x, 1, r), {.dim = Dims{1}}), select(y, 1, r)));
  const Tensor out = draw.poisoned({30, 400}, bfloat16);
  sum(x, {.dim = Dims{2}, .out = out});
  EXPECT_TRUE(same_bits(out, y));
}

}  // namespace
}  // namespace tenor
