// What every index operator promises: overlapping memory, threads, errors, sizes of zero, shapes alone, long offsets.
#include <gtest/gtest.h>

#include "src/core/step.h"
#include "src/ops/index/index_testing.h"
#include "tenor/index.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;

TEST(Writes, ReadWhatTheyOverwriteFirst) {
  const Tensor x = tensor_of({6}, int64, {0, 1, 2, 3, 4, 5});
  scatter_(x, 0, narrow(x, 0, 0, 5), narrow(x, 0, 1, 5));  // the index and the source are what is written
  EXPECT_EQ(values(x), (std::vector<double>{1, 2, 3, 4, 5, 5}));
  index_put_(x, {tensor_of({5}, int64, {1, 2, 3, 4, 5})}, narrow(x, 0, 0, 5));
  EXPECT_EQ(values(x), (std::vector<double>{1, 1, 2, 3, 4, 5}));
  index_select(x, 0, x, {.out = x});
  EXPECT_EQ(values(x), (std::vector<double>{1, 1, 2, 3, 4, 5}));
  assign_(narrow(x, 0, 1, 5), narrow(x, 0, 0, 5));
  EXPECT_EQ(values(x)[0], values(x)[1]);
}

/// The same bits for any thread count.
TEST(Writes, DoNotDependOnTheThreads) {
  Draw draw(9);
  const Tensor x = draw.dense({50, 300}, float32), source = draw.dense({4000, 300}, float32);
  const Tensor index = small(draw, {4000}, int64, 0, 49), wide = small(draw, {4000, 300}, int64, 0, 49);
  const Tensor line = draw.dense({1000}, float32), long_source = draw.dense({60000}, float32),
               long_index = small(draw, {60000}, int32, -1000, 999);
  std::vector<std::vector<Tensor>> results;
  for (int threads : {1, 2, 3, 8}) {
    const Threads scope(threads);
    results.push_back(
        {index_add(x, 0, index, source), scatter_add(x, 0, wide, source), scatter(x, 0, wide, source),
         scatter_add(line, 0, long_index, long_source), index_add(line, 0, long_index, long_source),
         index_put(x, {index}, source),
         scatter_add(x, 1, transpose(narrow(wide, 0, 0, 50), 0, 1).contiguous().with_layout({50, 300}, {300, 1}, 0), x),
         index_add(x.to(bfloat16), 0, index, source.to(bfloat16)),
         scatter_add(x.to(float16), 0, wide, source.to(float16))});
  }
  for (const auto& other : results)
    for (size_t i = 0; i < other.size(); ++i) EXPECT_TRUE(same_bits(other[i], results[0][i])) << i;
}

TEST(Errors, NameOperatorValueAndPosition) {
  const Tensor x = tensor_of({2, 3}, float32, {0, 1, 2, 3, 4, 5});
  const Tensor bad = tensor_of({2, 2}, int32, {0, 1, 3, 0});
  expect_error<IndexError>([&] { gather(x, 1, bad); },
                           "gather: index at (1, 0) is 3, out of range for size 3 (expected -3 to 2)");
  expect_error<IndexError>(
      [&] {
        index_select(x, 0, tensor_of({2}, int64, {1, -3}));
      },
      "index_select: index at (1,) is -3, out of range for size 2 (expected -2 to 1)");
  expect_error<IndexError>(
      [&] { embedding(tensor_of({1}, uint64, {18446744073709549568.0}), x); },
      "embedding: index at (0,) is 18446744073709549568, out of range for size 2 (expected -2 to 1)");
  const std::vector<double> before = values(x);
  expect_error<IndexError>([&] { scatter_(x, 1, bad, 1.0); },
                           "scatter_: index at (1, 0) is 3, out of range for size 3 (expected -3 to 2)");
  expect_error<IndexError>(
      [&] {
        index_put_(x, {tensor_of({2}, int64, {0, 2})}, 1.0);
      },
      "index_put_: index at (1,) is 2, out of range for size 2 (expected -2 to 1)");
  EXPECT_EQ(values(x), before);
  expect_error<DTypeError>([&] { gather(x, 1, x); }, "gather: index must be an integer array, got float32");
  expect_error<ShapeError>([&] { gather(x, 1, tensor_of({1}, int64, {0})); },
                           "gather: index must have x's 2 dims, got shape (1,)");
  expect_error<ShapeError>(
      [&] {
        gather(x, 1, full({3, 1}, int64, 0));
      },
      "gather: index of shape (3, 1) is larger than x of shape (2, 3) in dim 0");
  expect_error<DTypeError>(
      [&] {
        scatter(x, 1, full({1, 1}, int64, 0), full({1, 1}, int32, 0));
      },
      "scatter: src must have x's dtype float32, got int32");
  expect_error<ShapeError>(
      [&] {
        scatter(x, 1, full({1, 2}, int64, 0), full({1, 1}, float32, 0));
      },
      "scatter: index of shape (1, 2) is larger than src of shape (1, 1) in dim 1");
  expect_error<ValueError>(
      [&] {
        scatter(x.to(int8), 1, full({1, 2}, int64, 0), 200);
      },
      "scatter: src 200 does not fit int8");
  expect_error<ValueError>(
      [&] {
        scatter_reduce(x, 1, full({1, 2}, int64, 0), 1.0, "max");
      },
      "scatter_reduce: reduce must be 'sum', 'prod', 'mean', 'amax' or 'amin', got 'max'");
  expect_error<ShapeError>([&] { index_add(x, 0, full({1}, int64, 0), x); },
                           "index_add: source must have shape (1, 3) (x's, with index's size in dim 0), got (2, 3)");
  expect_error<ValueError>([&] { index_add(x.to(int32), 0, full({2}, int64, 0), x.to(int32), {.alpha = 0.5}); },
                           "index_add: alpha 0.5 does not fit int32");
  expect_error<IndexError>(
      [&] {
        index_get(x, {bad, bad, bad});
      },
      "index_get: too many indices: 3 for x of shape (2, 3)");
  expect_error<ShapeError>(
      [&] {
        index_put(x, {full({2}, int64, 0)}, full({2, 2}, float32, 0));
      },
      "index_put: values of shape (2, 2) cannot broadcast to the indexed shape (2, 3)");
  expect_error<ValueError>(
      [&] { scatter_(expand(full({1}, float32, 0), {3}), 0, full({1}, int64, 0), 1.0); },
      "scatter_: x has elements that share memory (shape (3,), strides (0,)), so it cannot be written");
  expect_error<ShapeError>([&] { index_select(x, 0, bad); },
                           "index_select: index must have at most 1 dim, got shape (2, 2)");
}

TEST(Empty, SizesOfZero) {
  const Tensor x = full({0, 3}, float32, 0), none = full({0}, int64, 0);
  EXPECT_EQ(index_select(x, 0, none).shape(), (Dims{0, 3}));
  EXPECT_EQ(gather(x, 0, full({0, 3}, int64, 0)).shape(), (Dims{0, 3}));
  EXPECT_EQ(index_add(full({2}, float32, 1), 0, none, full({0}, float32, 0)).numel(), 2);
  EXPECT_EQ(embedding(full({2, 0}, int64, 0), full({5, 4}, float32, 0)).shape(), (Dims{2, 0, 4}));
  expect_error<IndexError>([&] { index_select(x, 0, full({1}, int64, 0)); },
                           "index_select: index at (0,) is 0, but size 0 has no valid index");
}

TEST(ZeroDims, CountAsOne) {
  const Tensor x = full({}, float32, 3), zero = full({}, int64, 0);
  EXPECT_EQ(gather(x, 0, zero).shape(), Dims());
  EXPECT_EQ(values(gather(x, 0, full({2}, int64, -1))), (std::vector<double>{3, 3}));
  EXPECT_EQ(values(scatter_add(x, -1, zero, 4.0)), std::vector<double>{7});
  EXPECT_EQ(index_select(x, 0, zero).shape(), Dims());
  EXPECT_EQ(embedding(zero, full({2, 3}, float32, 1)).shape(), Dims{3});
}

class Recorder final : public core::Tracer {
 public:
  void record(const core::Step& step) override { names.push_back(step.op); }
  std::vector<std::string> names;
};

/// Shapes without memory: every operator states one step and touches nothing.
TEST(ShapeOnly, OneStepEach) {
  const Device meta{DeviceType::kMeta};
  const Tensor x = Tensor::empty({4, 5}, float32, meta), index = Tensor::empty({3}, int64, meta),
               wide = Tensor::empty({4, 3}, int64, meta);
  const Tensor src = Tensor::empty({4, 3}, float32, meta), mask = Tensor::empty({4, 5}, boolean, meta);
  Recorder recorder;
  const core::TracerGuard guard(&recorder);
  EXPECT_EQ(index_select(x, 1, index).shape(), (Dims{4, 3}));
  EXPECT_EQ(embedding(wide, x).shape(), (Dims{4, 3, 5}));
  EXPECT_EQ(gather(x, 1, wide).shape(), (Dims{4, 3}));
  EXPECT_EQ(take_along_dim(x, wide, 1).shape(), (Dims{4, 3}));
  EXPECT_EQ(take_along_dim(x, wide).shape(), Dims{12});
  EXPECT_EQ(scatter(x, 1, wide, src).shape(), x.shape());
  EXPECT_EQ(scatter_reduce(x, 1, wide, 2.0, "mean").shape(), x.shape());
  scatter_add_(x, 1, wide, src);
  EXPECT_EQ(index_add(x, 1, index, src).shape(), x.shape());
  EXPECT_EQ(index_get(x, {index, index}).shape(), Dims{3});
  EXPECT_EQ(index_put(x, {index}, 1.0).shape(), x.shape());
  EXPECT_EQ(masked_scatter(x, mask, x).shape(), x.shape());
  EXPECT_EQ(cat({x, x}, 0).shape(), (Dims{8, 5}));
  EXPECT_EQ(stack({x, x}, 0).shape(), (Dims{2, 4, 5}));
  EXPECT_EQ(tile(x, {2}).shape(), (Dims{4, 10}));
  EXPECT_EQ(repeat_interleave(x, 2).shape(), Dims{40});
  EXPECT_EQ(roll(x, {1}).shape(), x.shape());
  EXPECT_EQ(flip(x, {0}).shape(), x.shape());
  EXPECT_EQ(one_hot(index, {.num_classes = 7}).shape(), (Dims{3, 7}));
  EXPECT_EQ(recorder.names,
            (std::vector<std::string>{"index_select", "embedding", "gather", "take_along_dim", "take_along_dim",
                                      "scatter", "scatter_reduce", "scatter_add_", "index_add", "index_get",
                                      "index_put", "masked_scatter", "cat", "stack", "tile", "repeat_interleave",
                                      "roll", "flip", "one_hot"}));
  EXPECT_THROW(nonzero(x), UnsupportedError);
  EXPECT_THROW(masked_select(x, mask), UnsupportedError);
  EXPECT_THROW(one_hot(index), UnsupportedError);
}

/// Element offsets beyond 2^31, in memory of which a few pages exist.
TEST(Large, OffsetsPast31Bits) {
  const int64_t n = (int64_t{1} << 31) + 100;
  const Tensor x = Tensor::empty({n}, uint8);
  x.data<uint8_t>()[n - 1] = 9;
  EXPECT_EQ(values(index_select(x, 0, tensor_of({2}, int64, {-1, static_cast<double>(n - 1)}))),
            (std::vector<double>{9, 9}));
  scatter_(x, 0, tensor_of({1}, int64, {static_cast<double>(n - 2)}), 8);
  EXPECT_EQ(x.data<uint8_t>()[n - 2], 8);
}

}  // namespace
}  // namespace tenor
