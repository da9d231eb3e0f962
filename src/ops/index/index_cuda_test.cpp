// The index operators on CUDA against the CPU's, which index_test.cpp holds against the reference: every dtype, layout
// and poisoned out=, to the last bit. Reads, masks, joins.
#include "src/ops/index/index_cuda_testing.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;

class IndexCuda : public CudaTest {};
class IndexCudaMasks : public CudaTest {};
class IndexCudaJoins : public CudaTest {};

TEST_F(IndexCuda, Gather) {
  Draw draw(1);
  for (int i = 0; i < 250; ++i) {
    const Case c = case_of(draw, kMoved[draw.upto(9)]);
    expect_parity(draw, {c.x, c.index}, "gather",
                  [&](const auto& in, const Tensor& out) { return gather(in[0], c.dim, in[1], {.out = out}); });
  }
}

TEST_F(IndexCuda, IndexSelectAndEmbedding) {
  Draw draw(2);
  for (int i = 0; i < 250; ++i) {
    const DType dtype = kMoved[draw.upto(9)];
    const Tensor x = small(draw, shape_of(draw, 1 + draw.upto(3), 7), dtype);
    const int64_t dim = draw.upto(x.ndim() - 1);
    const Tensor index = index_of(draw, {draw.upto(9)}, x.shape()[dim]),
                 many = index_of(draw, {3, draw.upto(4)}, x.shape()[0]);
    expect_parity(draw, {x, index}, "index_select",
                  [&](const auto& in, const Tensor& out) { return index_select(in[0], dim, in[1], {.out = out}); });
    expect_parity(draw, {many, x}, "embedding",
                  [&](const auto& in, const Tensor& out) { return embedding(in[0], in[1], {.out = out}); });
  }
}

/// Rows of every length and alignment.
TEST_F(IndexCuda, RowsOfEveryLength) {
  Draw draw(3);
  for (DType dtype : {uint8, float16, float32, float64})
    for (int64_t width : {1,   2,   3,   7,   8,   15,  16,  17,   24,   31,   33,   48,   63,   64,    65,
                          100, 127, 128, 129, 255, 256, 257, 1000, 1024, 2047, 2048, 4096, 5000, 20000, 70001}) {
      const int64_t offset = draw.upto(20), gap = draw.coin() ? draw.upto(20) : 0;
      const Tensor memory = Tensor::empty({offset + 9 * (width + gap)}, dtype);
      assign(memory, std::vector<double>(static_cast<size_t>(memory.numel()), 1));
      const Tensor x = memory.with_layout({9, width}, {width + gap, 1}, offset);
      for (int64_t r = 0; r < 9; ++r)
        for (int64_t j = 0; j < width; ++j) put(x, r * (width + gap) + j, static_cast<double>((r * 31 + j * 7) % 113));
      const Tensor index = tensor_of({6}, int32, {8, 0, -1, 3, 3, 7});
      expect_parity(draw, {x, index}, "rows " + std::to_string(width),
                    [](const auto& in, const Tensor& out) { return index_select(in[0], 0, in[1], {.out = out}); });
      const Tensor values = x.with_layout({6, width}, x.strides(), x.offset());
      expect_parity(draw, {x, index, values}, "put rows " + std::to_string(width),
                    [](const auto& in, const Tensor& out) { return index_put(in[0], {in[1]}, in[2], {.out = out}); });
      expect_parity(draw, {x, index, values}, "add rows " + std::to_string(width),
                    [](const auto& in, const Tensor& out) { return index_add(in[0], 0, in[1], in[2], {.out = out}); });
      expect_parity(draw, {x, values}, "cat rows " + std::to_string(width), [](const auto& in, const Tensor& out) {
        const int64_t narrow = std::min<int64_t>(3, in[1].shape(1));
        return cat({in[1], in[1].with_layout({6, narrow}, in[1].strides(), in[1].offset()), in[1]}, 1, {.out = out});
      });
    }
}

TEST_F(IndexCuda, TakeAlongDim) {
  Draw draw(4);
  for (int i = 0; i < 60; ++i) {
    const Tensor x = small(draw, {3, 1, 4}, float32), index = index_of(draw, {1, 5, 1 + draw.upto(8)}, 4),
                 flat = index_of(draw, {2, 3}, 12);
    expect_parity(draw, {x, index}, "take_along_dim",
                  [](const auto& in, const Tensor& out) { return take_along_dim(in[0], in[1], 2, {.out = out}); });
    expect_parity(draw, {x, flat}, "take_along_dim flat",
                  [](const auto& in, const Tensor& out) { return take_along_dim(in[0], in[1], {}, {.out = out}); });
  }
}

TEST_F(IndexCuda, AdvancedReads) {
  Draw draw(5);
  for (int i = 0; i < 300; ++i) {
    const Tensor x = small(draw, shape_of(draw, 1 + draw.upto(3), 6), kMoved[draw.upto(9)]);
    const std::vector<Tensor> entries = entries_of(draw, x, true), gpu = on_gpu_all(entries);
    expect_parity(draw, {x}, "index_get", [&](const auto& in, const Tensor& out) {
      return index_get(in[0], in[0].device() == kGpu ? gpu : entries, {.out = out});
    });
  }
}

TEST_F(IndexCudaMasks, SelectScatterNonzero) {
  Draw draw(11);
  for (int i = 0; i < 200; ++i) {
    const DType dtype = kMoved[draw.upto(9)];
    Dims shape = shape_of(draw, 1 + draw.upto(2), 6);
    if (i % 8 == 0) shape = {3, 70, 100 + draw.upto(50)};
    const Tensor x = small(draw, shape, dtype, 0, draw.coin() ? 1 : 4), mask = small(draw, shape, boolean, 0, 1),
                 row = small(draw, {shape.back()}, boolean, 0, 1);
    expect_parity(draw, {x, mask}, "masked_select",
                  [](const auto& in, const Tensor& out) { return masked_select(in[0], in[1], {.out = out}); });
    expect_parity(draw, {x, row}, "masked_select row",
                  [](const auto& in, const Tensor& out) { return masked_select(in[0], in[1], {.out = out}); });
    expect_parity(draw, {x}, "nonzero", [](const auto& in, const Tensor& out) { return nonzero(in[0], {.out = out}); });
    const Tensor source = small(draw, {x.numel()}, dtype);
    expect_parity(draw, {x, mask, source}, "masked_scatter",
                  [](const auto& in, const Tensor& out) { return masked_scatter(in[0], in[1], in[2], {.out = out}); });
    expect_parity_in_place({x, mask, source}, "masked_scatter_",
                           [](const auto& in) { return masked_scatter_(in[0], in[1], in[2]); });
    const Tensor picked = masked_select(source.with_layout(shape, contiguous_strides(shape), source.offset()), mask);
    expect_parity_in_place({x, mask, picked}, "x[mask] = values",
                           [](const auto& in) { return index_put_(in[0], {in[1]}, in[2]); });
    expect_parity_in_place({x, mask}, "x[mask] = 1",
                           [](const auto& in) { return index_put_(in[0], {in[1]}, Scalar(1)); });
  }
}

TEST_F(IndexCudaMasks, NonzeroOfFloatsAndScalars) {
  Draw draw(12);
  for (DType dtype : {float32, float16, float8_e4m3fn, float64}) {
    const Tensor x = tensor_of({6}, dtype, {0.0, -0.0, kNan, 1, 0, -2});
    expect_parity(draw, {x}, "nonzero", [](const auto& in, const Tensor& out) { return nonzero(in[0], {.out = out}); });
  }
  expect_parity(draw, {tensor_of({}, int32, {3})}, "nonzero 0-d",
                [](const auto& in, const Tensor& out) { return nonzero(in[0], {.out = out}); });
  expect_parity(draw, {Tensor::empty({0, 3}, int32)}, "nonzero of nothing",
                [](const auto& in, const Tensor& out) { return nonzero(in[0], {.out = out}); });
}

TEST_F(IndexCudaJoins, CatAndStack) {
  Draw draw(13);
  for (int i = 0; i < 200; ++i) {
    const DType dtype = kMoved[draw.upto(9)];
    const Dims shape = shape_of(draw, 1 + draw.upto(3), 5);
    const int64_t dim = draw.upto(static_cast<int64_t>(shape.size()) - 1);
    std::vector<Tensor> pieces;
    for (int64_t k = draw.upto(i % 20 == 0 ? 80 : 4); k >= 0; --k) {
      Dims own = shape;
      own[dim] = draw.upto(own[dim] + 2);
      pieces.push_back(draw.upto(3) == 0 ? small(draw, own, dtype) : small(draw, own, dtype).contiguous());
    }
    expect_parity(draw, pieces, "cat", [&](const auto& in, const Tensor& out) { return cat(in, dim, {.out = out}); });
    const std::vector<Tensor> equal{small(draw, shape, dtype), small(draw, shape, dtype), small(draw, shape, dtype)};
    const int64_t at = draw.upto(static_cast<int64_t>(shape.size()));
    expect_parity(draw, equal, "stack", [&](const auto& in, const Tensor& out) { return stack(in, at, {.out = out}); });
  }
  const std::vector<Tensor> mixed{small(draw, {3, 4}, float16), small(draw, {2, 4}, float32),
                                  small(draw, {1, 4}, int32)};
  expect_parity(draw, mixed, "cat of several dtypes",
                [](const auto& in, const Tensor& out) { return cat(in, 0, {.out = out}); });
}

TEST_F(IndexCudaJoins, TileRepeatRollFlip) {
  Draw draw(14);
  for (int i = 0; i < 250; ++i) {
    const Tensor x = small(draw, shape_of(draw, 1 + draw.upto(3), 6), kMoved[draw.upto(9)]);
    Dims counts;
    for (int d = draw.coin() ? x.ndim() : x.ndim() + 1; d > 0; --d) counts.push_back(draw.upto(3));
    expect_parity(draw, {x}, "tile" + to_string(counts),
                  [&](const auto& in, const Tensor& out) { return tile(in[0], counts, {.out = out}); });
    Dims dims, shifts;
    for (int d = 0; d < x.ndim(); ++d)
      if (draw.coin()) dims.push_back(d), shifts.push_back(draw.upto(300) - 150);
    expect_parity(draw, {x}, "flip" + to_string(dims),
                  [&](const auto& in, const Tensor& out) { return flip(in[0], dims, {.out = out}); });
    if (dims.empty()) shifts = {draw.upto(20) - 10};
    expect_parity(draw, {x}, "roll" + to_string(shifts) + to_string(dims),
                  [&](const auto& in, const Tensor& out) { return roll(in[0], shifts, dims, {.out = out}); });
    const int64_t dim = draw.upto(x.ndim() - 1), n = draw.upto(4);
    expect_parity(draw, {x}, "repeat_interleave", [&](const auto& in, const Tensor& out) {
      return repeat_interleave(in[0], n, {.dim = dim, .out = out});
    });
    const Tensor repeats = small(draw, {x.shape()[dim]}, int32, 0, 3);
    expect_parity(draw, {x, repeats}, "repeat_interleave by array", [&](const auto& in, const Tensor& out) {
      return repeat_interleave(in[0], in[1], {.dim = dim, .out = out});
    });
  }
}

TEST_F(IndexCudaJoins, OneHot) {
  Draw draw(15);
  for (DType dtype : kIndexTypes) {
    const Tensor x = small(draw, {7, 5}, dtype, 0, 9);
    expect_parity(draw, {x}, "one_hot", [](const auto& in, const Tensor& out) { return one_hot(in[0], {.out = out}); });
    expect_parity(draw, {x}, "one_hot 13",
                  [](const auto& in, const Tensor& out) { return one_hot(in[0], {.num_classes = 13, .out = out}); });
  }
}

}  // namespace
}  // namespace tenor
