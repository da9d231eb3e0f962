// Writing and adding at named places on CUDA against the CPU's, to the last bit.
#include "src/ops/index/index_cuda_testing.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;

class IndexCudaWrites : public CudaTest {};

TEST_F(IndexCudaWrites, Scatter) {
  Draw draw(6);
  for (int i = 0; i < 250; ++i) {
    const Case c = case_of(draw, kMoved[draw.upto(9)]);
    expect_parity(draw, {c.x, c.index, c.src}, "scatter",
                  [&](const auto& in, const Tensor& out) { return scatter(in[0], c.dim, in[1], in[2], {.out = out}); });
    expect_parity(draw, {c.x, c.index}, "scatter value", [&](const auto& in, const Tensor& out) {
      return scatter(in[0], c.dim, in[1], Scalar(1), {.out = out});
    });
    expect_parity_in_place({c.x, c.index, c.src}, "scatter_",
                           [&](const auto& in) { return scatter_(in[0], c.dim, in[1], in[2]); });
  }
}

/// A table far larger than the index takes the sorted way.
TEST_F(IndexCudaWrites, ScatterIntoALargeTable) {
  Draw draw(7);
  const Tensor x = small(draw, {300000}, int32), index = small(draw, {5000}, int64, 299000, 299999),
               src = small(draw, {5000}, int32, 0, 100000);
  expect_parity(draw, {x, index, src}, "scatter",
                [](const auto& in, const Tensor& out) { return scatter(in[0], 0, in[1], in[2], {.out = out}); });
  const Tensor wide = small(draw, {400, 30, 20}, float32), rows = small(draw, {3, 5}, float32);
  expect_parity(draw,
                {wide, tensor_of({3, 5}, int64, {1, 2, 3, 1, 2, 9, 9, 9, 9, 9, 399, 1, 1, 1, -1}),
                 tensor_of({3, 1}, int64, {1, 2, 3}), rows},
                "index_put", [](const auto& in, const Tensor& out) {
                  return index_put(in[0], {in[1], {}, in[2]}, unsqueeze(in[3], 2), {.out = out});
                });
}

TEST_F(IndexCudaWrites, ScatterReduce) {
  Draw draw(8);
  constexpr DType kDtypes[] = {boolean, int8,     uint8,   int32,   int64,      uint64,
                               float16, bfloat16, float32, float64, float8_e5m2};
  for (int i = 0; i < 400; ++i) {
    const DType dtype = kDtypes[draw.upto(10)];
    Case c = case_of(draw, dtype, 4);
    if (is_float(dtype)) assign(c.src, draw.normals(c.src.numel()));
    const char* reduce = (const char*[]){"sum", "prod", "mean", "amax", "amin"}[draw.upto(4)];
    const bool self = draw.coin();
    expect_parity(draw, {c.x, c.index, c.src}, std::string("scatter_reduce ") + reduce,
                  [&](const auto& in, const Tensor& out) {
                    return scatter_reduce(in[0], c.dim, in[1], in[2], reduce, {.include_self = self, .out = out});
                  });
    expect_parity_in_place({c.x, c.index, c.src}, std::string("scatter_reduce_ ") + reduce, [&](const auto& in) {
      return scatter_reduce_(in[0], c.dim, in[1], in[2], reduce, {.include_self = self});
    });
  }
}

TEST_F(IndexCudaWrites, IndexAddAndPut) {
  Draw draw(9);
  constexpr DType kDtypes[] = {boolean, int8, uint16, int64, float16, bfloat16, float32, float64};
  for (int i = 0; i < 300; ++i) {
    const DType dtype = kDtypes[draw.upto(7)];
    const Tensor x = small(draw, shape_of(draw, 1 + draw.upto(3), 7), dtype);
    const int64_t dim = draw.upto(x.ndim() - 1);
    const Tensor index = index_of(draw, {draw.upto(9)}, x.shape()[dim]);
    Dims shape = x.shape();
    shape[dim] = index.numel();
    const Tensor source = small(draw, shape, dtype);
    if (is_float(dtype)) assign(source, draw.normals(source.numel()));
    const Scalar alpha = draw.coin() ? Scalar(1) : is_float(dtype) ? Scalar(0.3) : Scalar(3);
    if (dtype != boolean)
      expect_parity(draw, {x, index, source}, "index_add", [&](const auto& in, const Tensor& out) {
        return index_add(in[0], dim, in[1], in[2], {.alpha = alpha, .out = out});
      });
    const std::vector<Tensor> entries = entries_of(draw, x, true), gpu = on_gpu_all(entries);
    const Tensor read = index_get(x, entries);
    const Tensor values = small(draw, read.shape(), dtype);
    for (const bool accumulate : {false, true}) {
      expect_parity(draw, {x, values}, "index_put", [&](const auto& in, const Tensor& out) {
        return index_put(in[0], in[0].device() == kGpu ? gpu : entries, in[1], {.accumulate = accumulate, .out = out});
      });
      expect_parity(draw, {x}, "index_put scalar", [&](const auto& in, const Tensor& out) {
        return index_put(in[0], in[0].device() == kGpu ? gpu : entries, Scalar(1),
                         {.accumulate = accumulate, .out = out});
      });
      expect_parity_in_place({x, values}, "index_put_", [&](const auto& in) {
        return index_put_(in[0], in[0].device() == kGpu ? gpu : entries, in[1], {.accumulate = accumulate});
      });
    }
  }
}

/// Sums add in the index's order: the bits are the CPU's, also where one place takes everything.
TEST_F(IndexCudaWrites, SumsAreInOrder) {
  Draw draw(10);
  for (DType dtype : {float32, bfloat16, float16})
    for (int64_t places : {1, 3, 1000}) {
      const Tensor x = draw.dense({places, 96}, dtype), index = small(draw, {700}, int64, 0, places - 1),
                   source = draw.dense({700, 96}, dtype);
      expect_parity(draw, {x, index, source}, "index_add",
                    [](const auto& in, const Tensor& out) { return index_add(in[0], 0, in[1], in[2], {.out = out}); });
      const Tensor flat = draw.dense({places}, dtype), at = small(draw, {20000}, int32, 0, places - 1),
                   values = draw.dense({20000}, dtype);
      expect_parity(draw, {flat, at, values}, "scatter_add", [](const auto& in, const Tensor& out) {
        return scatter_add(in[0], 0, in[1], in[2], {.out = out});
      });
    }
}

/// scatter, of a value too, and every reduction.
void expect_writes(Draw& draw, const Tensor& x, const Tensor& index, const Tensor& src, int64_t dim,
                   const std::string& what) {
  expect_parity(draw, {x, index, src}, what,
                [&](const auto& in, const Tensor& out) { return scatter(in[0], dim, in[1], in[2], {.out = out}); });
  expect_parity(draw, {x, index}, what,
                [&](const auto& in, const Tensor& out) { return scatter(in[0], dim, in[1], Scalar(1), {.out = out}); });
  for (const char* reduce : {"sum", "prod", "amax", "amin", "mean"})
    expect_parity(draw, {x, index, src}, what + reduce, [&](const auto& in, const Tensor& out) {
      return scatter_reduce(in[0], dim, in[1], in[2], reduce, {.out = out});
    });
}

/// Many lines along the last dim take the way through shared memory, with few places as with many.
TEST_F(IndexCudaWrites, Lines) {
  Draw draw(17);
  for (DType dtype : {boolean, int8, int64, float16, bfloat16, float32, float64})
    for (int64_t places : {1, 7, 1000, 3000}) {
      const Tensor x = small(draw, {20, 17, places}, dtype), index = index_of(draw, {20, 17, 900 + places}, places),
                   src = small(draw, index.shape(), dtype);
      if (is_float(dtype)) assign(src, draw.normals(src.numel()));
      const std::string what = "lines " + std::to_string(places);
      expect_writes(draw, x, index, src, 2, what);
      expect_parity(draw, {x, select(select(index, 0, 0), 0, 0), src}, what + " shared",
                    [](const auto& in, const Tensor& out) {
                      return scatter_add(in[0], 2, expand(in[1], in[2].shape()), in[2], {.out = out});
                    });
    }
  const Tensor x = testing::full({300, 4}, float32, 0).to(kGpu), index = testing::full({300, 5}, int32, 3),
               src = testing::full({300, 5}, float32, 1).to(kGpu);
  put(index, 5 * 100 + 2, -5);
  const Tensor sums = scatter_add(x, 1, index.to(kGpu), src);
  const auto error = take_error_after_wait();
  EXPECT_EQ(error, "scatter_add: index holds -5 at position 502, which is out of range");
  EXPECT_EQ(values(on_cpu(select(sums, 0, 99))), (std::vector<double>{0, 0, 0, 5}));
  EXPECT_EQ(values(on_cpu(select(sums, 0, 100))), (std::vector<double>{0, 0, 0, 4}));
}

/// Many columns down another dim likewise; 8 of them a block, or 4 where the table is higher.
TEST_F(IndexCudaWrites, Columns) {
  Draw draw(18);
  for (DType dtype : {boolean, int8, int64, float16, bfloat16, float32, float64})
    for (int64_t places : {1, 7, 300, 2600}) {
      const int64_t length = places + 1 + draw.upto(300);
      const Tensor x = small(draw, {2, places, 133}, dtype), index = index_of(draw, {2, length, 131}, places),
                   src = small(draw, {2, length, 131}, dtype);
      if (is_float(dtype)) assign(src, draw.normals(src.numel()));
      const std::string what = "columns " + std::to_string(places);
      expect_writes(draw, x, index, src, 1, what);
      expect_parity_in_place({x.contiguous(), index.contiguous(), src.contiguous()}, what,
                             [](const auto& in) { return scatter_add_(in[0], 1, in[1], in[2]); });
    }
  for (DType dtype : {float32, bfloat16, int8}) {  // wide enough for 16 columns a block
    const Tensor x = small(draw, {40, 4000}, dtype), index = index_of(draw, {90, 3999}, 40),
                 src = small(draw, {90, 3999}, dtype);
    if (is_float(dtype)) assign(src, draw.normals(src.numel()));
    expect_writes(draw, x, index, src, 0, "wide columns");
  }
  const Tensor x = testing::full({4, 300}, float32, 0).to(kGpu), index = testing::full({5, 300}, int32, 3),
               src = testing::full({5, 300}, float32, 1).to(kGpu);
  put(index, 300 * 2 + 100, -5);
  const Tensor sums = scatter_add(x, 0, index.to(kGpu), src);
  EXPECT_EQ(take_error_after_wait(), "scatter_add: index holds -5 at position 700, which is out of range");
  EXPECT_EQ(values(on_cpu(select(sums, 1, 99))), (std::vector<double>{0, 0, 0, 5}));
  EXPECT_EQ(values(on_cpu(select(sums, 1, 100))), (std::vector<double>{0, 0, 0, 4}));
}

/// A few rows are put in order by the blocks that add them, more by a sort.
TEST_F(IndexCudaWrites, FewRowsAreAddedInOrder) {
  Draw draw(19);
  for (DType dtype : {float32, bfloat16, float16})
    for (int64_t count : {1, 2, 31, 127, 128, 129})
      for (int64_t width : {8, 264, 5000}) {
        const Tensor x = draw.dense({9, width}, dtype), index = small(draw, {count}, int64, -9, 8),
                     source = draw.dense({count, width}, dtype);
        const Scalar alpha = draw.coin() ? Scalar(1) : Scalar(0.3);
        expect_parity(draw, {x, index, source}, "index_add of " + std::to_string(count),
                      [&](const auto& in, const Tensor& out) {
                        return index_add(in[0], 0, in[1], in[2], {.alpha = alpha, .out = out});
                      });
        expect_parity_in_place({x, index, source}, "index_add_ of " + std::to_string(count),
                               [&](const auto& in) { return index_add_(in[0], 0, in[1], in[2], {.alpha = alpha}); });
      }
}

}  // namespace
}  // namespace tenor
