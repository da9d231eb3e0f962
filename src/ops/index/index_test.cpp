// Reading, writing and adding at named places, against the float64 reference.
#include "tenor/index.h"

#include <functional>

#include "src/core/step.h"
#include "src/ops/index/index_reference.h"
#include "src/ops/index/index_testing.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;
using reference::Array;

Array array_of(const Tensor& x) { return {x.shape(), values(x)}; }

Dims shape_of(Draw& draw, int64_t rank, int64_t most) {
  Dims shape;
  for (int64_t d = 0; d < rank; ++d) shape.push_back(1 + draw.upto(most - 1));
  return shape;
}

/// Indices into n places, negative ones too where the dtype has them.
Tensor index_of(Draw& draw, const Dims& shape, int64_t n) {
  const DType dtype = kIndexTypes[draw.upto(7)];
  return small(draw, shape, dtype, is_signed(dtype) ? -n : 0, n - 1);
}

void expect_values(const Tensor& got, const std::vector<double>& want, const std::string& what) {
  ASSERT_EQ(values(got), want) << what;
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
  for (size_t d = 0; d < at.size(); ++d)
    at[d] = static_cast<int>(d) == dim ? draw.upto(9) : draw.upto(at[d] - 1) + (draw.upto(15) != 0);
  for (int64_t n : at) source.push_back(n + draw.upto(1));
  return {small(draw, shape, dtype), index_of(draw, at, shape[static_cast<size_t>(dim)]), small(draw, source, dtype),
          dim};
}
/// src, as large as the index.
Array source_of(const Case& c) {
  Array out{c.index.shape(), std::vector<double>(static_cast<size_t>(c.index.numel()))};
  const Array all = array_of(c.src);
  reference::for_each(out.shape, [&](const Dims& at) { out[at] = all[at]; });
  return out;
}

TEST(Gather, EveryDtypeAndLayout) {
  Draw draw(1);
  for (int i = 0; i < 400; ++i) {
    const DType dtype = kMoved[draw.upto(9)];
    const Case c = case_of(draw, dtype);
    const std::vector<double> want =
        reference::gather(array_of(c.x), static_cast<size_t>(c.dim), array_of(c.index)).values;
    expect_values(gather(c.x, c.dim, c.index), want, describe(c.x));
    const Tensor out = draw.poisoned(c.index.shape(), dtype);
    expect_values(gather(c.x, c.dim - c.x.ndim(), c.index, {.out = out}), want, describe(c.x));
    EXPECT_EQ(values(out), want);
  }
}

TEST(IndexSelect, EveryDtypeAndLayout) {
  Draw draw(2);
  for (int i = 0; i < 400; ++i) {
    const DType dtype = kMoved[draw.upto(9)];
    const Tensor x = small(draw, shape_of(draw, 1 + draw.upto(3), 7), dtype);
    const auto dim = static_cast<size_t>(draw.upto(x.ndim() - 1));
    const Tensor index = index_of(draw, {draw.upto(9)}, x.shape()[dim]);
    const Array want = reference::index_select(array_of(x), dim, values(index));
    const Tensor got = index_select(x, static_cast<int64_t>(dim), index);
    ASSERT_EQ(got.shape(), want.shape);
    expect_values(got, want.values, describe(x));
    expect_values(index_select(x, static_cast<int64_t>(dim), index, {.out = draw.poisoned(want.shape, dtype)}),
                  want.values, describe(x));
    if (dim == 0) expect_values(embedding(index, x), want.values, describe(x));
    std::vector<Tensor> entries(dim);
    entries.push_back(index);
    expect_values(index_get(x, entries), want.values, describe(x));
  }
}

TEST(IndexSelect, KeepsTheDimensionOrder) {
  const Tensor x = transpose(full({3, 4}, float32, 1), 0, 1);
  EXPECT_EQ(index_select(x, 0, tensor_of({5}, int64, {0, 1, 2, 3, 0})).strides(), (Dims{1, 5}));
}

TEST(TakeAlongDim, BroadcastsOutsideOfDim) {
  Draw draw(3);
  const Tensor x = small(draw, {3, 1, 4}, float32), index = index_of(draw, {1, 5, 6}, 4);
  const Tensor wide_x = expand(x, {3, 5, 4}), wide_index = expand(index, {3, 5, 6});
  EXPECT_EQ(values(take_along_dim(x, index, 2)), values(gather(wide_x, 2, wide_index)));
  EXPECT_EQ(values(take_along_dim(x, tensor_of({2}, int64, {-1, 0}))),
            (std::vector<double>{values(x).back(), values(x)[0]}));
}

TEST(Scatter, TheLastWriteWins) {
  Draw draw(4);
  for (int i = 0; i < 300; ++i) {
    const Case c = case_of(draw, kMoved[draw.upto(9)]);
    const std::vector<double> before = values(c.x);
    const auto want = reference::scatter(array_of(c.x), static_cast<size_t>(c.dim), array_of(c.index), source_of(c),
                                         [](double, double b) { return b; });
    expect_values(scatter(c.x, c.dim, c.index, c.src), want.values, describe(c.x));
    EXPECT_EQ(values(c.x), before);
    expect_values(scatter(c.x, c.dim, c.index, c.src, {.out = draw.poisoned(c.x.shape(), c.x.dtype())}), want.values,
                  describe(c.x));
    scatter_(c.x, c.dim, c.index, c.src);
    expect_values(c.x, want.values, "in place");
  }
}

TEST(ScatterReduce, EveryReductionAndDtype) {
  Draw draw(5);
  const std::pair<const char*, std::function<double(double, double)>> reductions[] = {
      {"sum", [](double a, double b) { return a + b; }},
      {"prod", [](double a, double b) { return a * b; }},
      {"mean", [](double a, double b) { return a + b; }},
      {"amax", [](double a, double b) { return std::max(a, b); }},
      {"amin", [](double a, double b) { return std::min(a, b); }}};
  constexpr DType kDtypes[] = {int32, int64, uint64, float16, bfloat16, float32, float64};
  for (int i = 0; i < 600; ++i) {
    const Case c = case_of(draw, kDtypes[draw.upto(6)], 4);
    const auto& [name, put] = reductions[draw.upto(4)];
    const bool include_self = draw.coin();
    const auto d = static_cast<size_t>(c.dim);
    const Array n = reference::counts(array_of(c.x), d, array_of(c.index));
    Array start = array_of(c.x);
    const double identity = name == std::string("prod")   ? 1
                            : name == std::string("amax") ? -kInf
                            : name == std::string("amin") ? kInf
                                                          : 0;
    for (size_t k = 0; !include_self && k < n.values.size(); ++k)
      if (n.values[k] > 0) start.values[k] = identity;
    Array want = reference::scatter(start, d, array_of(c.index), source_of(c), put);
    for (size_t k = 0; name == std::string("mean") && k < n.values.size(); ++k) {
      want.values[k] /= std::max(n.values[k] + include_self, 1.0);
      if (is_integer(c.x.dtype())) want.values[k] = std::floor(want.values[k]);
    }
    const Tensor got = scatter_reduce(c.x, c.dim, c.index, c.src, name, {.include_self = include_self});
    for (double& v : want.values) v = is_float(c.x.dtype()) ? rounded(v, c.x.dtype()) : v;
    expect_values(got, want.values, std::string(name) + " " + describe(c.x));
    scatter_reduce_(c.x, c.dim, c.index, c.src, name, {.include_self = include_self});
    expect_values(c.x, want.values, std::string(name) + " in place");
  }
}

TEST(ScatterReduce, NanWinsExtremes) {
  const Tensor x = full({1}, float32, 0), index = tensor_of({3}, int64, {0, 0, 0}),
               src = tensor_of({3}, float32, {1, kNan, 2});
  for (const char* reduce : {"amax", "amin", "sum", "prod", "mean"})
    EXPECT_TRUE(std::isnan(values(scatter_reduce(x, 0, index, src, reduce))[0])) << reduce;
}

TEST(ScatterAdd, IntegersWrapAndFloorTheirMean) {
  const Tensor index = tensor_of({2}, int64, {0, 0});
  for (DType dtype : {int16, uint16, int32, uint8}) {  // also where 16-bit floats would take lines of float32
    const Tensor rows = full({64, 2}, int64, 0), most = full({64, 2}, dtype,
                                                             dtype == uint8   ? 255
                                                             : dtype == int32 ? 2147483647
                                                             : dtype == int16 ? 32767
                                                                              : 65535);
    const Tensor got = scatter_add(full({64, 3}, dtype, 3), 1, rows, most);
    EXPECT_EQ(values(select(got, 1, 0)), std::vector<double>(64, 1)) << describe(got);
    EXPECT_EQ(values(index_add(full({1, 64}, dtype, 3), 0, index, transpose(most, 0, 1))), std::vector<double>(64, 1))
        << describe(got);
  }
  EXPECT_EQ(values(scatter_add(full({1}, int8, 100), 0, index, full({2}, int8, 100))), std::vector<double>{44});
  EXPECT_EQ(values(scatter_reduce(full({1}, int32, 0), 0, index, tensor_of({2}, int32, {-4, -5}), "mean",
                                  {.include_self = false})),
            std::vector<double>{-5});
}

TEST(IndexAdd, EveryDtypeAndLayout) {
  Draw draw(6);
  constexpr DType kDtypes[] = {int8, uint16, int64, float16, bfloat16, float32, float64};
  for (int i = 0; i < 400; ++i) {
    const DType dtype = kDtypes[draw.upto(6)];
    const Tensor x = small(draw, shape_of(draw, 1 + draw.upto(3), i % 10 == 0 ? 30 : 6), dtype);
    const auto dim = static_cast<size_t>(draw.upto(x.ndim() - 1));
    const Tensor index = index_of(draw, {draw.upto(9)}, std::min<int64_t>(x.shape()[dim], 100));
    Dims shape = x.shape();
    shape[dim] = index.numel();
    const Tensor source = small(draw, shape, dtype);
    const int64_t alpha = 1 + draw.upto(1);
    const Array want =
        reference::index_add(array_of(x), dim, values(index), array_of(source), static_cast<double>(alpha));
    expect_values(index_add(x, static_cast<int64_t>(dim), index, source, {.alpha = alpha}), want.values, describe(x));
    index_add_(x, static_cast<int64_t>(dim), index, source, {.alpha = alpha});
    expect_values(x, want.values, "in place");
  }
}

/// 16-bit sums in float32, in index order, rounded once.
TEST(Sums, NarrowFloatsRoundOnce) {
  for (DType dtype : {float16, bfloat16}) {
    const int64_t count = 700, width = 40;
    Draw draw(7);
    const Tensor x = draw.dense({3, width}, dtype), source = draw.dense({count, width}, dtype);
    std::vector<double> at(static_cast<size_t>(count));
    for (double& i : at) i = static_cast<double>(draw.upto(2));
    std::vector<float> sums;
    for (double v : values(x)) sums.push_back(static_cast<float>(v));
    const std::vector<double> rows = values(source);
    for (int64_t p = 0; p < count; ++p)
      for (int64_t j = 0; j < width; ++j)
        sums[static_cast<size_t>(at[static_cast<size_t>(p)]) * width + j] +=
            static_cast<float>(rows[static_cast<size_t>(p * width + j)]);
    std::vector<double> want;
    for (float s : sums) want.push_back(rounded(s, dtype));
    const Tensor index = tensor_of({count}, int64, at);
    expect_values(index_add(x, 0, index, source), want, "index_add");
    expect_values(index_put(x, {index}, source, {.accumulate = true}), want, "index_put");
    const Tensor wide = expand(unsqueeze(index, 1), {count, width});
    expect_values(scatter_add(x, 0, wide, source), want, "scatter_add dim 0");
    const auto turned = [](const Tensor& t) { return transpose(t, 0, 1); };
    expect_values(turned(scatter_add(turned(x).contiguous(), 1, turned(wide), turned(source))), want,
                  "scatter_add dim 1");
    index_add_(x, 0, index, source);
    expect_values(x, want, "index_add_");
  }
}

TEST(IndexPut, WritesAndAddsWithSeveralArrays) {
  Draw draw(8);
  for (DType dtype : {int32, float32, bfloat16}) {
    const Tensor x = small(draw, {4, 5, 3}, dtype), rows = tensor_of({2, 1}, int32, {-1, 1}),
                 columns = tensor_of({3}, int64, {0, 2, 0});
    const Tensor put_values = small(draw, {2, 3, 3}, dtype);
    std::vector<double> written = values(x), added = values(x);
    for (size_t r = 0; r < 2; ++r)
      for (size_t c = 0; c < 3; ++c)
        for (size_t k = 0; k < 3; ++k) {
          const size_t at = ((r == 0 ? 3u : 1u) * 5 + (c == 1 ? 2u : 0u)) * 3 + k;
          written[at] = values(put_values)[(r * 3 + c) * 3 + k];
          added[at] += values(put_values)[(r * 3 + c) * 3 + k];
        }
    expect_values(index_put(x, {rows, columns}, put_values), written, "write");
    expect_values(index_put(x, {rows, columns}, put_values, {.accumulate = true}), added, "add");
    expect_values(index_get(index_put(x, {rows, columns}, 7), {rows, columns}), std::vector<double>(18, 7),
                  "one value");
    index_put_(x, {rows, columns}, put_values, {.accumulate = true});
    expect_values(x, added, "in place");
  }
}

TEST(IndexPut, AMaskOfTheWholeShape) {
  Draw draw(10);
  for (int i = 0; i < 30; ++i) {
    const Tensor x = small(draw, {3, 1 + draw.upto(50), 4}, bfloat16), mask = small(draw, x.shape(), boolean, 0, 1);
    const int64_t count = nonzero(mask).shape(0);
    const Tensor some = small(draw, {count}, bfloat16);
    std::vector<double> filled = values(x), put = filled;
    const std::vector<double> bits = values(mask), from = values(some);
    for (size_t k = 0, next = 0; k < bits.size(); ++k)
      if (bits[k] != 0) filled[k] = -2, put[k] = from[next++];
    EXPECT_EQ(values(index_put(x, {mask}, -2)), filled);
    EXPECT_EQ(values(index_put(x, {mask}, some)), put);
    index_put_(x, {mask}, some);
    EXPECT_EQ(values(x), put);
    EXPECT_EQ(values(index_get(x, {mask})), from);
    index_put_(x, {mask}, full({1}, bfloat16, -2));
    EXPECT_EQ(values(x), filled);
  }
  const Tensor x = full({2, 2}, float32, 0), all = full({2, 2}, boolean, 1);
  expect_error<ShapeError>([&] { index_put_(x, {all}, full({3}, float32, 0)); },
                           "index_put_: values of shape (3,) cannot broadcast to the indexed shape (4,)");
  expect_error<DTypeError>([&] { index_put_(x, {all}, full({4}, int32, 0)); },
                           "index_put_: values must have x's dtype float32, got int32");
}

TEST(IndexGet, KeepsTheDimensionOrder) {
  const Tensor x = transpose(full({3, 4}, float32, 1), 0, 1);
  EXPECT_EQ(index_get(x, {tensor_of({5}, int64, {0, 1, 2, 3, 0})}).strides(), (Dims{1, 5}));
}

}  // namespace
}  // namespace tenor
