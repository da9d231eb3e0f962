// How CUDA kernels walk through memory, as decided on the host: collapsed layouts, division by constants, the pointwise
// engine's units. Needs no GPU.
#include <algorithm>
#include <utility>

#include "src/core/testing.h"
#include "src/cuda/layout.h"
#include "src/cuda/pointwise.h"

namespace tenor::cuda {
namespace {

using testing::Draw;
using Places = std::vector<std::pair<int64_t, int64_t>>;

/// divide() of layout.h, on the host.
uint32_t quotient(uint32_t n, const Divider& d) {
  return (static_cast<uint32_t>((uint64_t{n} * d.magic) >> 32) + n) >> d.shift;
}

TEST(Divider, DividesEveryKindOfNumber) {
  Draw draw(1);
  const int64_t most = INT32_MAX;
  for (int64_t d : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{7}, int64_t{641}, int64_t{65536}, most - 1, most,
                    1 + draw.upto(most - 1), 1 + draw.upto(1000)}) {
    const Divider divider = make_divider(d);
    for (int64_t n : {int64_t{0}, d - 1, d, std::min(most, d + 1), most - 1, most})
      EXPECT_EQ(quotient(static_cast<uint32_t>(n), divider), n / d) << n << " / " << d;
    for (int i = 0; i < 1000; ++i) {
      const int64_t n = draw.upto(most);
      ASSERT_EQ(quotient(static_cast<uint32_t>(n), divider), n / d) << n << " / " << d;
    }
  }
  EXPECT_EQ(make_divider(0).divisor, 1u) << "an empty dim";
}

/// The offsets of element i, as offsets() of layout.h finds them.
std::pair<int64_t, int64_t> place(const Layout<2>& layout, int64_t i) {
  std::pair<int64_t, int64_t> at{0, 0};
  for (int d = layout.ndim - 1; d >= 0; --d) {
    const int64_t next = d == 0 ? 0 : quotient(static_cast<uint32_t>(i), layout.divider[d]),
                  along = i - next * layout.size[d];
    at.first += along * layout.stride[0][d];
    at.second += along * layout.stride[1][d];
    i = next;
  }
  return at;
}
Places places(const Layout<2>& layout) {
  Places out;
  for (int64_t i = 0; i < layout.count; ++i) out.push_back(place(layout, i));
  return out;
}
Places places(const Tensor& a, const Tensor& b) {
  Places out;
  for (int64_t i = 0; i < a.numel(); ++i) out.emplace_back(testing::offset_of(a, i), testing::offset_of(b, i));
  return out;
}

TEST(Layout, CollapsedWalksMeetTheSamePairs) {
  Draw draw(2);
  for (int i = 0; i < 300; ++i) {
    Dims shape;
    for (int64_t d = draw.upto(4); d > 0; --d) shape.push_back(draw.upto(4));
    const Tensor a = draw.any_layout(shape, float32), b = draw.any_layout(shape, float32);
    const int lead = static_cast<int>(draw.upto(2)) - 1;
    Places got = places(collapse("test", shape, {a.strides(), b.strides()}, lead)), want = places(a, b);
    if (lead < 0) {
      EXPECT_EQ(got, want) << "unsorted walks keep the logical order";
    }
    std::sort(got.begin(), got.end());
    std::sort(want.begin(), want.end());
    ASSERT_EQ(got, want) << to_string(shape) << to_string(a.strides()) << to_string(b.strides());
  }
}

TEST(Layout, MergesWhatIsDenseAndDropsOnes) {
  const Dims shape{4, 1, 5, 6}, dense{30, 30, 6, 1};
  EXPECT_EQ(collapse("test", shape, {dense, dense}, 0).ndim, 1);
  EXPECT_TRUE(collapse("test", shape, {dense, dense}, 0).is_dense(1));
  const Layout<2> rows = collapse("test", shape, {dense, Dims{0, 0, 6, 1}}, 0);
  EXPECT_EQ(rows.ndim, 2);
  EXPECT_EQ(rows.size[1], 30);
  EXPECT_EQ(without(rows, 1).count, 4);
  EXPECT_EQ(without(rows, 0).count, 30);
  EXPECT_TRUE(collapse("test", Dims{}, {Dims{}, Dims{}}, 0).is_single(0));
  EXPECT_EQ(collapse("test", Dims{3, 0}, {Dims{1, 1}, Dims{1, 1}}, 0).count, 0);
  Dims many(13, 2), apart(13, 0);
  for (size_t d = 0; d < 13; ++d) apart[d] = int64_t{1} << (2 * (13 - d));
  EXPECT_THROW(collapse("test", many, {apart, apart}, 0), UnsupportedError);
}

/// The places of a walk whose every dim is divided by its divider, as kernels do below 2^31 elements.
int64_t divided_offset(const Layout<2>& layout, int t, int64_t i) {
  int64_t at = 0;
  for (int d = layout.ndim - 1; d >= 0; --d) {
    const int64_t next = d == 0 ? 0 : quotient(static_cast<uint32_t>(i), layout.divider[d]);
    at += (i - next * layout.size[d]) * layout.stride[t][d];
    i = next;
  }
  return at;
}

TEST(Layout, GroupsOfAHugeWalkAreDividedByTheirOwnSizes) {
  // 2^31 elements and more, 2^29 groups: dims that did not change need dividers too.
  const Dims shape{5, 3 * 1024, 7 * 1024, 24}, wide{int64_t{7} << 40, int64_t{3} << 30, 48, 1};
  const Dims far{int64_t{5} << 41, int64_t{1} << 31, 100, 1};
  for (int64_t n : {4, 8, 16}) {
    Layout<2> layout = collapse("test", shape, {wide, far}, 0);
    ASSERT_GT(layout.count, INT32_MAX);
    ASSERT_EQ(layout.ndim, 4);
    group_innermost(layout, n);
    ASSERT_EQ(layout.count, int64_t{5} * 3 * 1024 * 7 * 1024 * ((24 + n - 1) / n));
    ASSERT_LE(layout.count, INT32_MAX);
    Draw draw(static_cast<uint32_t>(n));
    for (int round = 0; round < 1000; ++round) {
      const int64_t at[4] = {draw.upto(4), draw.upto(3 * 1024 - 1), draw.upto(7 * 1024 - 1), draw.upto((24 - 1) / n)};
      const int64_t i = ((at[0] * shape[1] + at[1]) * shape[2] + at[2]) * layout.size[3] + at[3];
      const int64_t want = at[0] * far[0] + at[1] * far[1] + at[2] * far[2] + at[3] * n;
      ASSERT_EQ(divided_offset(layout, 1, i), want) << i;
    }
  }
}

TEST(Layout, GroupsOfAnEmptyWalk) {
  Layout<2> layout = collapse("test", Dims{3, 0}, {Dims{7, 1}, Dims{9, 1}}, 0);
  group_innermost(layout, 4);
  EXPECT_EQ(layout.count, 0);
}

/// A call of one operand over a result that starts `offset` elements past an aligned address.
PointwiseCall call_of(const Dims& shape, DType dtype, int64_t offset, int64_t input_offset, const Dims& input_strides) {
  static const Tensor memory = Tensor::empty({1 << 20}, float64);
  const Tensor held = Tensor::wrap(memory.raw(), kCpu, dtype, {1 << 20});
  PointwiseCall call{"test", {}, 1, held.with_layout(shape, contiguous_strides(shape), offset), dtype};
  call.in[0].data = held.with_layout({1}, {1}, input_offset).raw();
  call.in[0].dtype = dtype;
  call.in[0].strides = input_strides;
  return call;
}

TEST(Pointwise, UnitsCoverEveryPlaceOnce) {
  for (int64_t n : {16, 17, 100, 1000, 1003})
    for (int64_t offset = 0; offset < 9; ++offset) {
      PointwiseWalk walk = walk_pointwise(call_of({n}, bfloat16, offset, offset, {1}));
      if (!cut_pointwise(walk, 8)) {
        EXPECT_LT(n, 24) << "misaligned alike, so a head suffices";
        continue;
      }
      const PointwiseArgs& a = walk.args;
      EXPECT_EQ(a.head + a.units * 8 + a.tail, n);
      EXPECT_LT(a.head, 8);
      EXPECT_LT(a.tail, 8);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(a.out) % 16, 0u);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(a.in[0]) % 16, 0u);
    }
}

TEST(Pointwise, WidthsNeedStridesAndAlignment) {
  const auto fits = [](const PointwiseCall& call, int width) {
    PointwiseWalk walk = walk_pointwise(call);
    return cut_pointwise(walk, width);
  };
  EXPECT_TRUE(fits(call_of({64, 64}, float32, 0, 4, {64, 1}), 4));
  EXPECT_FALSE(fits(call_of({1000}, float32, 0, 1, {1}), 4)) << "misaligned apart";
  EXPECT_FALSE(fits(call_of({64, 30}, float32, 0, 0, {0, 1}), 4)) << "rows that no vector divides";
  EXPECT_FALSE(fits(call_of({64, 64}, float32, 0, 0, {1, 64}), 4)) << "across";
  EXPECT_TRUE(fits(call_of({64, 64}, float32, 0, 0, {1, 0}), 4)) << "one element a row";
  EXPECT_TRUE(fits(call_of({7}, float32, 0, 3, {1}), 1));
}

TEST(RowBlocks, FollowLongRows) {
  RowBlocks<kPointwiseInputs + 1> blocks;
  PointwiseWalk walk = walk_pointwise(call_of({100, 4096}, bfloat16, 0, 0, {0, 1}));
  ASSERT_TRUE(cut_pointwise(walk, 8));
  EXPECT_EQ(lay_blocks(walk.args.layout, 512, blocks), 100);
  EXPECT_EQ(blocks.row_units, 512);
  EXPECT_EQ(blocks.rows.count, 100);
  EXPECT_EQ(blocks.rows.stride[kPointwiseInputs][0], 4096);
  RowBlocks<kPointwiseInputs + 1> shared;
  PointwiseWalk narrow = walk_pointwise(call_of({100, 64}, bfloat16, 0, 0, {0, 1}));
  ASSERT_TRUE(cut_pointwise(narrow, 8));
  EXPECT_EQ(lay_blocks(narrow.args.layout, 512, shared), 2);
  EXPECT_EQ(shared.row_units, 0) << "short rows share a block";
}

}  // namespace
}  // namespace tenor::cuda
