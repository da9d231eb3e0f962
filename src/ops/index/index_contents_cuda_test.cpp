// Index operators on CUDA: contents that the host never sees, overlaps, and sizes from nothing to beyond 2^32 places.
#include "src/ops/index/index_cuda_testing.h"
#include "tenor/create.h"
#include "tenor/elementwise.h"
#include "tenor/reduce.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;

class IndexCudaContents : public CudaTest {};
class IndexCudaSizes : public CudaTest {};

TEST_F(IndexCudaContents, BadEntriesAreDroppedAndNamed) {
  const Tensor x = tensor_of({3, 2}, float32, {1, 2, 3, 4, 5, 6}).to(kGpu),
               bad = tensor_of({3}, int32, {1, 7, -1}).to(kGpu),
               rows = tensor_of({3, 2}, float32, {10, 20, 30, 40, 50, 60}).to(kGpu),
               at = tensor_of({1, 2}, int64, {-4, 2}).to(kGpu);
  const auto check = [](const std::vector<double>& want, const std::string& text, const std::function<Tensor()>& call) {
    const Tensor got = call();
    EXPECT_EQ(take_error_after_wait(), text);
    EXPECT_EQ(values(on_cpu(got)), want) << text;
  };
  const std::vector<double> selected{3, 4, 0, 0, 5, 6};
  check(selected, "index_select: index holds 7 at position 1, which is out of range",
        [&] { return index_select(x, 0, bad); });
  check(selected, "embedding: index holds 7 at position 1, which is out of range", [&] { return embedding(bad, x); });
  check(selected, "index_get: index holds 7 at position 1, which is out of range", [&] { return index_get(x, {bad}); });
  check({0, 6}, "gather: index holds -4 at position 0, which is out of range", [&] { return gather(x, 0, at); });
  check({0, 3}, "take_along_dim: indices holds 6 at position 0, which is out of range", [&] {
    return take_along_dim(x, tensor_of({2}, uint8, {6, 2}).to(kGpu));
  });
  check({1, 2, 3, 4, 5, 20}, "scatter: index holds -4 at position 0, which is out of range",
        [&] { return scatter(x, 0, at, rows); });
  check({1, 2, 3, 4, 5, 26}, "scatter_add: index holds -4 at position 0, which is out of range",
        [&] { return scatter_add(x, 0, at, rows); });
  check({1, 2, 13, 24, 55, 66}, "index_add: index holds 7 at position 1, which is out of range",
        [&] { return index_add(x, 0, bad, rows); });
  check({1, 2, 10, 20, 50, 60}, "index_put: index holds 7 at position 1, which is out of range",
        [&] { return index_put(x, {bad}, rows); });
  check({1, 10, 3, 4, 5, 50}, "index_put: index holds 7 at position 1, which is out of range", [&] {
    return index_put(x, {tensor_of({3}, int64, {0, 7, 2}).to(kGpu), tensor_of({1}, int8, {1}).to(kGpu)},
                     select(rows, 1, 0));
  });
  check({0, 0, 0, 1}, "one_hot: class holds 2 at position 0, which is out of range", [&] {
    return one_hot(tensor_of({2}, int64, {2, 1}).to(kGpu), {.num_classes = 2});
  });
  check({1, 0, 0, 0}, "one_hot: class holds -1 at position 1, which is out of range", [&] {
    return one_hot(tensor_of({2}, int64, {0, -1}).to(kGpu), {.num_classes = 2});
  });
  check({7, 8, 9, 4, 5, 6},
        "masked_scatter: mask, which selects more than source has, holds 1 at position 3, which is out of range", [&] {
          return masked_scatter(x, testing::full({3, 2}, boolean, 1).to(kGpu),
                                tensor_of({3}, float32, {7, 8, 9}).to(kGpu));
        });
  expect_error<IndexError>(
      [&] {
        repeat_interleave(x, tensor_of({3}, int64, {1, -2, 1}).to(kGpu), {.dim = 0});
      },
      "repeat_interleave: repeats holds -2 at position 1, which is out of range");
  EXPECT_FALSE(take_error(kGpu).has_value());
}

TEST_F(IndexCudaContents, AMaskOfAnotherCountIsNamed) {
  const Tensor x = testing::full({4}, float32, 0).to(kGpu), mask = tensor_of({4}, boolean, {1, 0, 1, 1}).to(kGpu);
  index_put_(x, {mask}, tensor_of({2}, float32, {5, 6}).to(kGpu));
  EXPECT_THROW(synchronize(kGpu), IndexError);
  index_put_(x, {mask}, tensor_of({3}, float32, {5, 6, 7}).to(kGpu));
  synchronize(kGpu);
  EXPECT_EQ(values(on_cpu(x)), (std::vector<double>{5, 0, 6, 7}));
}

/// Nothing is read or written there, and the entries are bad all the same.
TEST_F(IndexCudaContents, EntriesOfEmptyMovesAreLookedAt) {
  const Tensor x = Tensor::empty({3, 0}, float32, kGpu), index = tensor_of({2}, int64, {1, 3}).to(kGpu),
               one = tensor_of({1}, int64, {1}).to(kGpu), none = Tensor::empty({0}, float32, kGpu);
  index_select(x, 0, index);
  EXPECT_EQ(take_error_after_wait(), "index_select: index holds 3 at position 1, which is out of range");
  index_add(x, 0, index, Tensor::empty({2, 0}, float32, kGpu));
  EXPECT_EQ(take_error_after_wait(), "index_add: index holds 3 at position 1, which is out of range");
  scatter(none, 0, one, Scalar(1));
  EXPECT_EQ(take_error_after_wait(), "scatter: index holds 1 at position 0, which is out of range");
  const Tensor selected = index_select(none, 0, one);
  EXPECT_EQ(take_error_after_wait(), "index_select: index holds 1 at position 0, which is out of range");
  EXPECT_EQ(values(on_cpu(selected)), std::vector<double>{0});
}

TEST_F(IndexCudaContents, SixtyFourUnsignedBitsAreNotNegative) {
  const Tensor x = testing::full({4}, float32, 3).to(kGpu), index = Tensor::empty({1}, uint64);
  *index.data<uint64_t>() = UINT64_MAX;
  EXPECT_EQ(values(on_cpu(testing::full({1}, float32, 0).to(kGpu))), std::vector<double>{0});
  const Tensor got = index_select(x, 0, index.to(kGpu));
  EXPECT_THROW(synchronize(kGpu), IndexError);
  EXPECT_EQ(values(on_cpu(got)), std::vector<double>{0});
}

TEST_F(IndexCudaContents, OverlapsAreReadFirst) {
  const Tensor memory = filled({8}, float32, [](int64_t i) { return i; }), gpu = on_gpu(memory);
  const Tensor index = tensor_of({4}, int64, {3, 2, 1, 0});
  const auto run = [](const Tensor& m, const Tensor& i) {
    index_put_(m.with_layout({4}, {1}, 0), {i}, m.with_layout({4}, {1}, 1));
    scatter_add_(m.with_layout({4}, {1}, 2), 0, i, m.with_layout({4}, {1}, 1));
    index_select(m.with_layout({4}, {1}, 0), 0, i, {.out = m.with_layout({4}, {1}, 3)});
    roll(m, {3}, {}, {.out = m});
    cat({m.with_layout({4}, {1}, 4), m.with_layout({4}, {1}, 0)}, 0, {.out = m});
  };
  run(memory, index);
  run(gpu, index.to(kGpu));
  expect_same(gpu, memory, "overlaps");
}

/// Beyond 2^31 elements, and beyond 2^32 places.
TEST_F(IndexCudaSizes, LargeTables) {
  constexpr int64_t kRows = 70000, kWidth = 65536;
  const Tensor x = zeros({kRows, kWidth}, {.dtype = uint8, .device = kGpu});
  const Tensor last = select(x, 0, kRows - 1);
  fill_(last, Scalar(7));
  const Tensor index = tensor_of({3}, int64, {kRows - 1, 0, -1}).to(kGpu);
  EXPECT_EQ(values(on_cpu(select(index_select(x, 0, index), 1, kWidth - 1))), (std::vector<double>{7, 0, 7}));
  const Tensor flat = x.with_layout({kRows * kWidth}, {1}, 0),
               at = tensor_of({4}, int64, {kRows * kWidth - 1, -2, 5, -1}).to(kGpu);
  EXPECT_EQ(values(on_cpu(gather(flat, 0, at))), (std::vector<double>{7, 7, 0, 7}));
  scatter_add_(flat, 0, at, tensor_of({4}, uint8, {1, 2, 3, 4}).to(kGpu));
  EXPECT_EQ(values(on_cpu(gather(flat, 0, at))), (std::vector<double>{12, 9, 3, 12}));
  scatter_(flat, 0, at, tensor_of({4}, uint8, {1, 2, 3, 4}).to(kGpu));
  EXPECT_EQ(values(on_cpu(gather(flat, 0, at))), (std::vector<double>{4, 2, 3, 4}));
  const Tensor places = on_cpu(nonzero(flat));
  EXPECT_EQ(places.shape(), (Dims{kWidth + 1, 1}));
  EXPECT_EQ(places.data<int64_t>()[0], 5);
  EXPECT_EQ(places.data<int64_t>()[kWidth], kRows * kWidth - 1);
  const Tensor rolled = roll(flat, {1}, {0});
  EXPECT_EQ(values(on_cpu(slice(rolled, 0, 0, 7))), (std::vector<double>{4, 0, 0, 0, 0, 0, 3}));
  const Tensor joined = cat({slice(flat, 0, 0, 3), flat}, 0);
  EXPECT_EQ(values(on_cpu(slice(joined, 0, joined.numel() - 2, {}))), (std::vector<double>{2, 4}));
  EXPECT_EQ(values(on_cpu(slice(flip(flat, {0}), 0, 0, 2))), (std::vector<double>{4, 2}));
}

/// More than 2^31 elements along three dims that do not merge, fewer runs of them.
TEST_F(IndexCudaSizes, LargeWalksOfSeveralDims) {
  constexpr int64_t kRows = 40000, kWidth = 28000;
  const auto part = [&](DType dtype, int64_t more_rows, int64_t more_width) {
    const Tensor all = zeros({2, kRows + more_rows, kWidth + more_width}, {.dtype = dtype, .device = kGpu});
    return narrow(narrow(all, 1, 0, kRows), 2, 0, kWidth);
  };
  const Tensor table = part(uint8, 0, 1), index = part(int32, 1, 0);
  fill_(select(table, 0, 0), 3), fill_(select(table, 0, 1), 5), fill_(select(index, 0, 1), 1);
  const Tensor got = gather(table, 0, index);
  ASSERT_GT(got.numel(), INT32_MAX);
  const std::vector<double> want = {3.0 * kRows * kWidth, 5.0 * kRows * kWidth};
  EXPECT_EQ(values(on_cpu(sum(got, {.dim = Dims{1, 2}}))), want);
  EXPECT_EQ(values(on_cpu(sum(scatter(zeros_like(table), 0, index, got), {.dim = Dims{1, 2}}))), want);
}

TEST_F(IndexCudaSizes, NothingToDo) {
  Draw draw(16);
  const Tensor x = small(draw, {3, 0, 4}, float32), none = Tensor::empty({0}, int64), y = small(draw, {3, 2}, float32);
  expect_parity(draw, {y, none}, "index_select",
                [](const auto& in, const Tensor& out) { return index_select(in[0], 1, in[1], {.out = out}); });
  expect_parity(draw, {x}, "roll",
                [](const auto& in, const Tensor& out) { return roll(in[0], {1}, {2}, {.out = out}); });
  expect_parity(draw, {x, x}, "cat", [](const auto& in, const Tensor& out) { return cat(in, 1, {.out = out}); });
  expect_parity(draw, {y, none, Tensor::empty({0, 2}, float32)}, "index_add",
                [](const auto& in, const Tensor& out) { return index_add(in[0], 0, in[1], in[2], {.out = out}); });
}

}  // namespace
}  // namespace tenor
