// The index operators on CUDA against the CPU's, which index_test.cpp holds against the reference: every dtype, layout and
// poisoned out=, to the last bit.
#include <functional>

#include "src/cuda/testing.h"
#include "tenor/create.h"
#include "tenor/elementwise.h"
#include "tenor/index.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;

constexpr DType kIndexTypes[] = {int64, int32, int16, int8, uint8, uint16, uint32, uint64};
constexpr DType kMoved[] = {boolean, int8, uint16, int32, int64, float16, bfloat16, float32, float64, float8_e4m3fn};

class IndexCuda : public CudaTest {};
class IndexCudaWrites : public CudaTest {};
class IndexCudaMasks : public CudaTest {};
class IndexCudaJoins : public CudaTest {};
class IndexCudaContents : public CudaTest {};
class IndexCudaSizes : public CudaTest {};

Tensor small(Draw& draw, const Dims& shape, DType dtype, int64_t least = 0, int64_t most = 5) {
  const Tensor x = draw.any_layout(shape, dtype);
  std::vector<double> v(static_cast<size_t>(product(shape)));
  for (double& e : v) e = static_cast<double>(least + draw.upto(most - least));
  assign(x, v);
  return x;
}

/// Sizes 1 to most; the last one now and then long enough for whole rows, odd ones included.
Dims shape_of(Draw& draw, int64_t rank, int64_t most) {
  Dims shape;
  for (int64_t d = 0; d < rank; ++d) shape.push_back(1 + draw.upto(most - 1));
  if (draw.upto(2) == 0) shape.back() = draw.coin() ? 64 * (1 + draw.upto(3)) : 40 + draw.upto(200);
  return shape;
}

Tensor index_of(Draw& draw, const Dims& shape, int64_t n) {
  DType dtype = kIndexTypes[draw.upto(7)];
  if (n > 120 && item_size(dtype) == 1) dtype = int32;
  return small(draw, shape, dtype, is_signed(dtype) ? -n : 0, n - 1);
}

/// Everything from the first element of x's memory to its last.
Tensor memory_of(const Tensor& x) {
  int64_t reach = x.offset() + 1;
  for (int d = 0; d < x.ndim(); ++d) reach += (x.shape(d) - 1) * x.stride(d);
  return x.with_layout({x.numel() == 0 ? 0 : reach}, {1}, 0);
}

void expect_same(const Tensor& got, const Tensor& want, const std::string& what) {
  ASSERT_EQ(got.device(), kGpu) << what;
  ASSERT_EQ(got.shape(), want.shape()) << what;
  ASSERT_EQ(got.dtype(), want.dtype()) << what;
  const Tensor host = on_cpu(got);
  if (same_bits(host, want)) return;
  const std::vector<double> a = values(host), b = values(want);
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_TRUE(same(a[i], b[i])) << what << ": element " << i << " of " << to_string(want.shape()) << " is " << a[i] << ", expected " << b[i];
}

using Call = std::function<Tensor(const std::vector<Tensor>&, const Tensor&)>;

/// call(inputs, out) on both devices: the result, its strides, and through a poisoned out= with its surroundings.
void expect_parity(Draw& draw, const std::vector<Tensor>& inputs, const std::string& what, const Call& call) {
  std::vector<Tensor> gpu;
  std::string text = what;
  for (const Tensor& x : inputs) {
    gpu.push_back(on_gpu(x));
    if (x.defined()) text += " " + describe(x) + to_string(x.strides());
  }
  const Tensor want = call(inputs, {}), got = call(gpu, {});
  expect_same(got, want, text);
  const Tensor out = draw.poisoned(want.shape(), want.dtype()), gpu_out = on_gpu(out);
  call(inputs, out);
  call(gpu, gpu_out);
  if (want.numel() > 0) expect_same(memory_of(gpu_out), memory_of(out), text + " out=" + to_string(out.strides()));
  ASSERT_FALSE(take_error(kGpu).has_value()) << text;
}

/// The same for a form that writes its first argument.
void expect_parity_in_place(const std::vector<Tensor>& inputs, const std::string& what, const std::function<Tensor(const std::vector<Tensor>&)>& call) {
  std::vector<Tensor> gpu;
  for (const Tensor& x : inputs) gpu.push_back(on_gpu(x));
  call(inputs);
  call(gpu);
  expect_same(memory_of(gpu[0]), memory_of(inputs[0]), what + " in place " + describe(inputs[0]));
}

/// The text of the error that the next wait throws, if any.
std::string take_error_after_wait() {
  try {
    synchronize(kGpu);
  } catch (const IndexError& e) {
    return e.what();
  }
  return "";
}

/// A gather's or scatter's arguments.
struct Case {
  Tensor x, index, src;
  int dim;
};
Case case_of(Draw& draw, DType dtype, int64_t most = 6) {
  const Dims shape = shape_of(draw, 1 + draw.upto(3), most);
  const int dim = static_cast<int>(draw.upto(static_cast<int64_t>(shape.size()) - 1));
  Dims at = shape, source;
  for (size_t d = 0; d < at.size(); ++d) at[d] = static_cast<int>(d) == dim ? draw.upto(9) * (draw.coin() ? 4 : 1) : draw.upto(at[d] - 1) + (draw.upto(15) != 0);
  for (int64_t n : at) source.push_back(n + draw.upto(1));
  return {small(draw, shape, dtype), index_of(draw, at, shape[static_cast<size_t>(dim)]), small(draw, source, dtype), dim};
}

TEST_F(IndexCuda, Gather) {
  Draw draw(1);
  for (int i = 0; i < 250; ++i) {
    const Case c = case_of(draw, kMoved[draw.upto(9)]);
    expect_parity(draw, {c.x, c.index}, "gather", [&](const auto& in, const Tensor& out) { return gather(in[0], c.dim, in[1], {.out = out}); });
  }
}

TEST_F(IndexCuda, IndexSelectAndEmbedding) {
  Draw draw(2);
  for (int i = 0; i < 250; ++i) {
    const DType dtype = kMoved[draw.upto(9)];
    const Tensor x = small(draw, shape_of(draw, 1 + draw.upto(3), 7), dtype);
    const int64_t dim = draw.upto(x.ndim() - 1);
    const Tensor index = index_of(draw, {draw.upto(9)}, x.shape()[dim]), many = index_of(draw, {3, draw.upto(4)}, x.shape()[0]);
    expect_parity(draw, {x, index}, "index_select", [&](const auto& in, const Tensor& out) { return index_select(in[0], dim, in[1], {.out = out}); });
    expect_parity(draw, {many, x}, "embedding", [&](const auto& in, const Tensor& out) { return embedding(in[0], in[1], {.out = out}); });
  }
}

/// Rows of every length and alignment.
TEST_F(IndexCuda, RowsOfEveryLength) {
  Draw draw(3);
  for (DType dtype : {uint8, float16, float32, float64})
    for (int64_t width : {1, 2, 3, 7, 8, 15, 16, 17, 24, 31, 33, 48, 63, 64, 65, 100, 127, 128, 129, 255, 256, 257, 1000, 1024, 2047, 2048, 4096, 5000, 20000, 70001}) {
      const int64_t offset = draw.upto(20), gap = draw.coin() ? draw.upto(20) : 0;
      const Tensor memory = Tensor::empty({offset + 9 * (width + gap)}, dtype);
      assign(memory, std::vector<double>(static_cast<size_t>(memory.numel()), 1));
      const Tensor x = memory.with_layout({9, width}, {width + gap, 1}, offset);
      for (int64_t r = 0; r < 9; ++r)
        for (int64_t j = 0; j < width; ++j) put(x, r * (width + gap) + j, static_cast<double>((r * 31 + j * 7) % 113));
      const Tensor index = tensor_of({6}, int32, {8, 0, -1, 3, 3, 7});
      expect_parity(draw, {x, index}, "rows " + std::to_string(width), [](const auto& in, const Tensor& out) { return index_select(in[0], 0, in[1], {.out = out}); });
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
    const Tensor x = small(draw, {3, 1, 4}, float32), index = index_of(draw, {1, 5, 1 + draw.upto(8)}, 4), flat = index_of(draw, {2, 3}, 12);
    expect_parity(draw, {x, index}, "take_along_dim", [](const auto& in, const Tensor& out) { return take_along_dim(in[0], in[1], 2, {.out = out}); });
    expect_parity(draw, {x, flat}, "take_along_dim flat", [](const auto& in, const Tensor& out) { return take_along_dim(in[0], in[1], {}, {.out = out}); });
  }
}

/// Some index entries for x: arrays that broadcast, undefined ones, masks.
std::vector<Tensor> entries_of(Draw& draw, const Tensor& x, bool masks) {
  const Dims places = draw.coin() ? Dims{3} : Dims{2, 3};
  std::vector<Tensor> entries;
  for (int d = 0; d < x.ndim(); ++d) {
    const int64_t kind = draw.upto(3);
    if (kind == 0) entries.emplace_back();
    if (kind == 1) entries.push_back(index_of(draw, places, x.shape(d)));
    if (kind == 2) entries.push_back(index_of(draw, {places.back()}, x.shape(d)));
    if (kind == 3) entries.push_back(index_of(draw, draw.coin() ? Dims{1} : Dims{}, x.shape(d)));
  }
  if (masks && draw.coin()) {
    const int64_t covered = x.ndim() > 1 && draw.coin() ? 2 : 1;
    Dims shape(x.shape().begin(), x.shape().begin() + covered);
    entries = {small(draw, shape, boolean, 0, 1)};
  }
  return entries;
}

std::vector<Tensor> on_gpu_all(const std::vector<Tensor>& list) {
  std::vector<Tensor> out;
  for (const Tensor& x : list) out.push_back(on_gpu(x));
  return out;
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

TEST_F(IndexCudaWrites, Scatter) {
  Draw draw(6);
  for (int i = 0; i < 250; ++i) {
    const Case c = case_of(draw, kMoved[draw.upto(9)]);
    expect_parity(draw, {c.x, c.index, c.src}, "scatter", [&](const auto& in, const Tensor& out) { return scatter(in[0], c.dim, in[1], in[2], {.out = out}); });
    expect_parity(draw, {c.x, c.index}, "scatter value", [&](const auto& in, const Tensor& out) { return scatter(in[0], c.dim, in[1], Scalar(1), {.out = out}); });
    expect_parity_in_place({c.x, c.index, c.src}, "scatter_", [&](const auto& in) { return scatter_(in[0], c.dim, in[1], in[2]); });
  }
}

/// A table far larger than the index takes the sorted way.
TEST_F(IndexCudaWrites, ScatterIntoALargeTable) {
  Draw draw(7);
  const Tensor x = small(draw, {300000}, int32), index = small(draw, {5000}, int64, 299000, 299999), src = small(draw, {5000}, int32, 0, 100000);
  expect_parity(draw, {x, index, src}, "scatter", [](const auto& in, const Tensor& out) { return scatter(in[0], 0, in[1], in[2], {.out = out}); });
  const Tensor wide = small(draw, {400, 30, 20}, float32), rows = small(draw, {3, 5}, float32);
  expect_parity(draw, {wide, tensor_of({3, 5}, int64, {1, 2, 3, 1, 2, 9, 9, 9, 9, 9, 399, 1, 1, 1, -1}), tensor_of({3, 1}, int64, {1, 2, 3}), rows}, "index_put",
                [](const auto& in, const Tensor& out) { return index_put(in[0], {in[1], {}, in[2]}, unsqueeze(in[3], 2), {.out = out}); });
}

TEST_F(IndexCudaWrites, ScatterReduce) {
  Draw draw(8);
  constexpr DType kDtypes[] = {boolean, int8, uint8, int32, int64, uint64, float16, bfloat16, float32, float64, float8_e5m2};
  for (int i = 0; i < 400; ++i) {
    const DType dtype = kDtypes[draw.upto(10)];
    Case c = case_of(draw, dtype, 4);
    if (is_float(dtype)) assign(c.src, draw.normals(c.src.numel()));
    const char* reduce = (const char*[]){"sum", "prod", "mean", "amax", "amin"}[draw.upto(4)];
    const bool self = draw.coin();
    expect_parity(draw, {c.x, c.index, c.src}, std::string("scatter_reduce ") + reduce, [&](const auto& in, const Tensor& out) {
      return scatter_reduce(in[0], c.dim, in[1], in[2], reduce, {.include_self = self, .out = out});
    });
    expect_parity_in_place({c.x, c.index, c.src}, std::string("scatter_reduce_ ") + reduce,
                           [&](const auto& in) { return scatter_reduce_(in[0], c.dim, in[1], in[2], reduce, {.include_self = self}); });
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
      expect_parity(draw, {x, index, source}, "index_add",
                    [&](const auto& in, const Tensor& out) { return index_add(in[0], dim, in[1], in[2], {.alpha = alpha, .out = out}); });
    const std::vector<Tensor> entries = entries_of(draw, x, true), gpu = on_gpu_all(entries);
    const Tensor read = index_get(x, entries);
    const Tensor values = small(draw, read.shape(), dtype);
    for (const bool accumulate : {false, true}) {
      expect_parity(draw, {x, values}, "index_put", [&](const auto& in, const Tensor& out) {
        return index_put(in[0], in[0].device() == kGpu ? gpu : entries, in[1], {.accumulate = accumulate, .out = out});
      });
      expect_parity(draw, {x}, "index_put scalar", [&](const auto& in, const Tensor& out) {
        return index_put(in[0], in[0].device() == kGpu ? gpu : entries, Scalar(1), {.accumulate = accumulate, .out = out});
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
      const Tensor x = draw.dense({places, 96}, dtype), index = small(draw, {700}, int64, 0, places - 1), source = draw.dense({700, 96}, dtype);
      expect_parity(draw, {x, index, source}, "index_add", [](const auto& in, const Tensor& out) { return index_add(in[0], 0, in[1], in[2], {.out = out}); });
      const Tensor flat = draw.dense({places}, dtype), at = small(draw, {20000}, int32, 0, places - 1), values = draw.dense({20000}, dtype);
      expect_parity(draw, {flat, at, values}, "scatter_add", [](const auto& in, const Tensor& out) { return scatter_add(in[0], 0, in[1], in[2], {.out = out}); });
    }
}

/// Many lines along the last dim take the way through shared memory, with few places as with many.
TEST_F(IndexCudaWrites, Lines) {
  Draw draw(17);
  for (DType dtype : {boolean, int8, int64, float16, bfloat16, float32, float64})
    for (int64_t places : {1, 7, 1000, 3000}) {
      const Tensor x = small(draw, {20, 17, places}, dtype), index = index_of(draw, {20, 17, 900 + places}, places), src = small(draw, index.shape(), dtype);
      if (is_float(dtype)) assign(src, draw.normals(src.numel()));
      const std::string what = "lines " + std::to_string(places);
      expect_parity(draw, {x, index, src}, what, [](const auto& in, const Tensor& out) { return scatter(in[0], 2, in[1], in[2], {.out = out}); });
      expect_parity(draw, {x, index}, what, [](const auto& in, const Tensor& out) { return scatter(in[0], 2, in[1], Scalar(1), {.out = out}); });
      for (const char* reduce : {"sum", "prod", "amax", "amin", "mean"})
        expect_parity(draw, {x, index, src}, what + reduce,
                      [&](const auto& in, const Tensor& out) { return scatter_reduce(in[0], 2, in[1], in[2], reduce, {.out = out}); });
      expect_parity(draw, {x, select(select(index, 0, 0), 0, 0), src}, what + " shared", [](const auto& in, const Tensor& out) {
        return scatter_add(in[0], 2, expand(in[1], in[2].shape()), in[2], {.out = out});
      });
    }
  const Tensor x = testing::full({300, 4}, float32, 0).to(kGpu), index = testing::full({300, 5}, int32, 3), src = testing::full({300, 5}, float32, 1).to(kGpu);
  put(index, 5 * 100 + 2, -5);
  const Tensor sums = scatter_add(x, 1, index.to(kGpu), src);
  const auto error = take_error_after_wait();
  EXPECT_EQ(error, "scatter_add: index holds -5 at position 502, which is out of range");
  EXPECT_EQ(values(on_cpu(select(sums, 0, 99))), (std::vector<double>{0, 0, 0, 5}));
  EXPECT_EQ(values(on_cpu(select(sums, 0, 100))), (std::vector<double>{0, 0, 0, 4}));
}

TEST_F(IndexCudaMasks, SelectScatterNonzero) {
  Draw draw(11);
  for (int i = 0; i < 200; ++i) {
    const DType dtype = kMoved[draw.upto(9)];
    Dims shape = shape_of(draw, 1 + draw.upto(2), 6);
    if (i % 8 == 0) shape = {3, 70, 100 + draw.upto(50)};
    const Tensor x = small(draw, shape, dtype, 0, draw.coin() ? 1 : 4), mask = small(draw, shape, boolean, 0, 1), row = small(draw, {shape.back()}, boolean, 0, 1);
    expect_parity(draw, {x, mask}, "masked_select", [](const auto& in, const Tensor& out) { return masked_select(in[0], in[1], {.out = out}); });
    expect_parity(draw, {x, row}, "masked_select row", [](const auto& in, const Tensor& out) { return masked_select(in[0], in[1], {.out = out}); });
    expect_parity(draw, {x}, "nonzero", [](const auto& in, const Tensor& out) { return nonzero(in[0], {.out = out}); });
    const Tensor source = small(draw, {x.numel()}, dtype);
    expect_parity(draw, {x, mask, source}, "masked_scatter", [](const auto& in, const Tensor& out) { return masked_scatter(in[0], in[1], in[2], {.out = out}); });
    expect_parity_in_place({x, mask, source}, "masked_scatter_", [](const auto& in) { return masked_scatter_(in[0], in[1], in[2]); });
    const Tensor picked = masked_select(source.with_layout(shape, contiguous_strides(shape), source.offset()), mask);
    expect_parity_in_place({x, mask, picked}, "x[mask] = values", [](const auto& in) { return index_put_(in[0], {in[1]}, in[2]); });
    expect_parity_in_place({x, mask}, "x[mask] = 1", [](const auto& in) { return index_put_(in[0], {in[1]}, Scalar(1)); });
  }
}

TEST_F(IndexCudaMasks, NonzeroOfFloatsAndScalars) {
  Draw draw(12);
  for (DType dtype : {float32, float16, float8_e4m3fn, float64}) {
    const Tensor x = tensor_of({6}, dtype, {0.0, -0.0, kNan, 1, 0, -2});
    expect_parity(draw, {x}, "nonzero", [](const auto& in, const Tensor& out) { return nonzero(in[0], {.out = out}); });
  }
  expect_parity(draw, {tensor_of({}, int32, {3})}, "nonzero 0-d", [](const auto& in, const Tensor& out) { return nonzero(in[0], {.out = out}); });
  expect_parity(draw, {Tensor::empty({0, 3}, int32)}, "nonzero of nothing", [](const auto& in, const Tensor& out) { return nonzero(in[0], {.out = out}); });
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
  const std::vector<Tensor> mixed{small(draw, {3, 4}, float16), small(draw, {2, 4}, float32), small(draw, {1, 4}, int32)};
  expect_parity(draw, mixed, "cat of several dtypes", [](const auto& in, const Tensor& out) { return cat(in, 0, {.out = out}); });
}

TEST_F(IndexCudaJoins, TileRepeatRollFlip) {
  Draw draw(14);
  for (int i = 0; i < 250; ++i) {
    const Tensor x = small(draw, shape_of(draw, 1 + draw.upto(3), 6), kMoved[draw.upto(9)]);
    Dims counts;
    for (int d = draw.coin() ? x.ndim() : x.ndim() + 1; d > 0; --d) counts.push_back(draw.upto(3));
    expect_parity(draw, {x}, "tile" + to_string(counts), [&](const auto& in, const Tensor& out) { return tile(in[0], counts, {.out = out}); });
    Dims dims, shifts;
    for (int d = 0; d < x.ndim(); ++d)
      if (draw.coin()) dims.push_back(d), shifts.push_back(draw.upto(300) - 150);
    expect_parity(draw, {x}, "flip" + to_string(dims), [&](const auto& in, const Tensor& out) { return flip(in[0], dims, {.out = out}); });
    if (dims.empty()) shifts = {draw.upto(20) - 10};
    expect_parity(draw, {x}, "roll" + to_string(shifts) + to_string(dims), [&](const auto& in, const Tensor& out) { return roll(in[0], shifts, dims, {.out = out}); });
    const int64_t dim = draw.upto(x.ndim() - 1), n = draw.upto(4);
    expect_parity(draw, {x}, "repeat_interleave", [&](const auto& in, const Tensor& out) { return repeat_interleave(in[0], n, {.dim = dim, .out = out}); });
    const Tensor repeats = small(draw, {x.shape()[dim]}, int32, 0, 3);
    expect_parity(draw, {x, repeats}, "repeat_interleave by array",
                  [&](const auto& in, const Tensor& out) { return repeat_interleave(in[0], in[1], {.dim = dim, .out = out}); });
  }
}

TEST_F(IndexCudaJoins, OneHot) {
  Draw draw(15);
  for (DType dtype : kIndexTypes) {
    const Tensor x = small(draw, {7, 5}, dtype, 0, 9);
    expect_parity(draw, {x}, "one_hot", [](const auto& in, const Tensor& out) { return one_hot(in[0], {.out = out}); });
    expect_parity(draw, {x}, "one_hot 13", [](const auto& in, const Tensor& out) { return one_hot(in[0], {.num_classes = 13, .out = out}); });
  }
}

TEST_F(IndexCudaContents, BadEntriesAreDroppedAndNamed) {
  const Tensor x = tensor_of({3, 2}, float32, {1, 2, 3, 4, 5, 6}).to(kGpu), bad = tensor_of({3}, int32, {1, 7, -1}).to(kGpu),
               rows = tensor_of({3, 2}, float32, {10, 20, 30, 40, 50, 60}).to(kGpu), at = tensor_of({1, 2}, int64, {-4, 2}).to(kGpu);
  const auto check = [](const std::vector<double>& want, const std::string& text, const std::function<Tensor()>& call) {
    const Tensor got = call();
    EXPECT_EQ(take_error_after_wait(), text);
    EXPECT_EQ(values(on_cpu(got)), want) << text;
  };
  const std::vector<double> selected{3, 4, 0, 0, 5, 6};
  check(selected, "index_select: index holds 7 at position 1, which is out of range", [&] { return index_select(x, 0, bad); });
  check(selected, "embedding: index holds 7 at position 1, which is out of range", [&] { return embedding(bad, x); });
  check(selected, "index_get: index holds 7 at position 1, which is out of range", [&] { return index_get(x, {bad}); });
  check({0, 6}, "gather: index holds -4 at position 0, which is out of range", [&] { return gather(x, 0, at); });
  check({0, 3}, "take_along_dim: indices holds 6 at position 0, which is out of range",
        [&] { return take_along_dim(x, tensor_of({2}, uint8, {6, 2}).to(kGpu)); });
  check({1, 2, 3, 4, 5, 20}, "scatter: index holds -4 at position 0, which is out of range", [&] { return scatter(x, 0, at, rows); });
  check({1, 2, 3, 4, 5, 26}, "scatter_add: index holds -4 at position 0, which is out of range", [&] { return scatter_add(x, 0, at, rows); });
  check({1, 2, 13, 24, 55, 66}, "index_add: index holds 7 at position 1, which is out of range", [&] { return index_add(x, 0, bad, rows); });
  check({1, 2, 10, 20, 50, 60}, "index_put: index holds 7 at position 1, which is out of range", [&] { return index_put(x, {bad}, rows); });
  check({1, 10, 3, 4, 5, 50}, "index_put: index holds 7 at position 1, which is out of range",
        [&] { return index_put(x, {tensor_of({3}, int64, {0, 7, 2}).to(kGpu), tensor_of({1}, int8, {1}).to(kGpu)}, select(rows, 1, 0)); });
  check({0, 0, 0, 1}, "one_hot: class holds 2 at position 0, which is out of range",
        [&] { return one_hot(tensor_of({2}, int64, {2, 1}).to(kGpu), {.num_classes = 2}); });
  check({1, 0, 0, 0}, "one_hot: class holds -1 at position 1, which is out of range",
        [&] { return one_hot(tensor_of({2}, int64, {0, -1}).to(kGpu), {.num_classes = 2}); });
  check({7, 8, 9, 4, 5, 6}, "masked_scatter: mask, which selects more than source has, holds 1 at position 3, which is out of range",
        [&] { return masked_scatter(x, testing::full({3, 2}, boolean, 1).to(kGpu), tensor_of({3}, float32, {7, 8, 9}).to(kGpu)); });
  expect_error<IndexError>([&] { repeat_interleave(x, tensor_of({3}, int64, {1, -2, 1}).to(kGpu), {.dim = 0}); },
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
  const Tensor flat = x.with_layout({kRows * kWidth}, {1}, 0), at = tensor_of({4}, int64, {kRows * kWidth - 1, -2, 5, -1}).to(kGpu);
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

TEST_F(IndexCudaSizes, NothingToDo) {
  Draw draw(16);
  const Tensor x = small(draw, {3, 0, 4}, float32), none = Tensor::empty({0}, int64), y = small(draw, {3, 2}, float32);
  expect_parity(draw, {y, none}, "index_select", [](const auto& in, const Tensor& out) { return index_select(in[0], 1, in[1], {.out = out}); });
  expect_parity(draw, {x}, "roll", [](const auto& in, const Tensor& out) { return roll(in[0], {1}, {2}, {.out = out}); });
  expect_parity(draw, {x, x}, "cat", [](const auto& in, const Tensor& out) { return cat(in, 1, {.out = out}); });
  expect_parity(draw, {y, none, Tensor::empty({0, 2}, float32)}, "index_add",
                [](const auto& in, const Tensor& out) { return index_add(in[0], 0, in[1], in[2], {.out = out}); });
}

}  // namespace
}  // namespace tenor
