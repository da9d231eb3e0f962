// Reductions on CUDA: against CUDA's published order, bit for bit, and against the CPU's operators, on every layout.
#include <gtest/gtest.h>

#include <functional>

#include "src/core/check.h"
#include "src/core/output.h"
#include "src/cuda/reduction_order.h"
#include "src/cuda/testing.h"
#include "tenor/reduce.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace tenor::testing;
using ReduceCuda = CudaTest;
using Rows = std::vector<std::vector<double>>;

const DType kAll[] = {float32, float64, float16, bfloat16, boolean, int8,  int16,
                      int32,   int64,   uint8,   uint16,   uint32,  uint64};

double at(const Tensor& x, int64_t i) { return get(x, offset_of(x, i)); }

Tensor numbers(const Dims& shape, DType dtype, Draw& draw) {
  return filled(shape, dtype, [&](int64_t) {
    return is_float(dtype) ? draw.normal()
                           : static_cast<double>(draw.upto(is_signed(dtype) ? 8 : 4)) - (is_signed(dtype) ? 4 : 0);
  });
}
/// Up to 4 dims, permuted, sliced or broadcast, on the CPU; sizes around what lanes, warps and blocks hold.
Tensor any_view(DType dtype, Draw& draw) {
  static constexpr int64_t kSizes[] = {1, 2, 3, 5, 8, 16, 31, 33, 64, 70, 130, 256, 1030};
  Dims shape;
  int64_t count = 1;
  for (int64_t d = draw.upto(4); d > 0; --d) {
    const int64_t size = kSizes[draw.upto(12)];
    shape.push_back(count * size > 60000 ? 2 : size);
    count *= shape.back();
  }
  if (draw.upto(9) == 0) shape = {draw.upto(70000)};
  if (draw.upto(6) == 0) shape = {4000 + draw.upto(5000), 1 + draw.upto(5)};
  Tensor x = numbers(shape, dtype, draw);
  if (draw.coin())
    for (int d = 0; d < x.ndim(); ++d) x = transpose(x, d, draw.upto(x.ndim() - 1));
  if (x.ndim() > 0 && draw.upto(3) == 0) x = slice(x, draw.upto(x.ndim() - 1), draw.upto(2), {}, 1 + draw.upto(2));
  if (draw.upto(7) == 0) {
    Dims wide = x.shape();
    wide.insert(0, 3);
    x = expand(x, wide);
  }
  return x;
}
Dims some_dims(const Tensor& x, Draw& draw) {
  Dims dims;
  for (int d = 0; d < x.ndim(); ++d)
    if (draw.coin()) dims.push_back(draw.coin() ? d : d - x.ndim());
  return dims;
}

/// x's elements, output by output in logical order; of each output in the order of x in memory.
Rows sequences(const Tensor& x, const Dims& dims) {
  Dims kept, reduced;
  for (int d = 0; d < x.ndim(); ++d) {
    const bool meets = std::any_of(dims.begin(), dims.end(), [&](int64_t r) { return (r + x.ndim()) % x.ndim() == d; });
    (meets ? reduced : kept).push_back(d);
  }
  const Dims memory = core::result_strides(x.shape(), x);
  std::stable_sort(reduced.begin(), reduced.end(), [&](int64_t a, int64_t b) {
    return memory[static_cast<size_t>(a)] > memory[static_cast<size_t>(b)];
  });
  int64_t outputs = 1;
  for (int64_t d : kept) outputs *= x.shape(static_cast<int>(d));
  for (int64_t d : reduced) kept.push_back(d);
  const Tensor y = permute(x, kept);
  Rows rows(static_cast<size_t>(outputs));
  const int64_t count = outputs ? y.numel() / outputs : 0;
  for (int64_t i = 0; i < y.numel(); ++i) rows[static_cast<size_t>(i / count)].push_back(at(y, i));
  return rows;
}

template <class C>
C in_order(const std::vector<double>& x, C identity, const std::function<C(C)>& map,
           const std::function<C(C, C)>& combine) {
  return cuda::ordered_reduce<C>(
      static_cast<int64_t>(x.size()), identity,
      [&](int64_t i) { return map(static_cast<C>(x[static_cast<size_t>(i)])); }, combine);
}
template <class C>
C ordered_sum(const std::vector<double>& x) {
  return in_order<C>(
      x, 0, [](C v) { return v; }, [](C a, C b) { return a + b; });
}

template <class C>
void expect_ordered(const Tensor& x, const Dims& dims) {
  const Rows rows = sequences(x, dims);
  const Tensor g = on_gpu(x);
  const auto add = [](C a, C b) { return a + b; };
  struct Check {
    const char* name;
    Tensor got;
    std::function<C(const std::vector<double>&)> want;
  };
  const Check checks[] = {
      {"sum", sum(g, {.dim = dims}), [&](const auto& r) { return ordered_sum<C>(r); }},
      {"mean", mean(g, {.dim = dims, .keepdim = true}),
       [&](const auto& r) { return ordered_sum<C>(r) / static_cast<C>(r.size()); }},
      {"prod", prod(g, {.dim = dims, .dtype = sizeof(C) == 8 ? float64 : float32}),
       [&](const auto& r) {
         return in_order<C>(
             r, 1, [](C v) { return v; }, [](C a, C b) { return a * b; });
       }},
      {"norm 2", norm(g, {.dim = dims}),
       [&](const auto& r) {
         return std::sqrt(in_order<C>(
             r, 0, [](C v) { return v * v; }, add));
       }},
      {"norm 1", norm(g, {.p = 1, .dim = dims}),
       [&](const auto& r) {
         return in_order<C>(
             r, 0, [](C v) { return std::abs(v); }, add);
       }},
  };
  for (const Check& check : checks) {
    const Tensor got = on_cpu(check.got);
    for (size_t i = 0; i < rows.size(); ++i) {
      const double want = rounded(static_cast<double>(check.want(rows[i])), got.dtype()),
                   have = at(got, static_cast<int64_t>(i));
      ASSERT_TRUE(same(have, want)) << check.name << " of " << describe(x) << " strides " << to_string(x.strides())
                                    << " over " << to_string(dims) << " at " << i << ": " << have << ", want " << want;
    }
  }
}
void expect_ordered(const Tensor& x, const Dims& dims) {
  x.dtype() == float64 ? expect_ordered<double>(x, dims) : expect_ordered<float>(x, dims);
}

TEST_F(ReduceCuda, FollowsTheOrderBitForBitOnEveryLayout) {
  Draw draw(1);
  for (int round = 0; round < 40; ++round)
    for (DType dtype : kFloats) {
      const Tensor x = any_view(dtype, draw);
      expect_ordered(x, some_dims(x, draw));
      if (HasFatalFailure()) return;
    }
}

TEST_F(ReduceCuda, FollowsTheOrderWhereTheWorkIsSplit) {
  Draw draw(2);
  for (const Dims& shape :
       {Dims{1}, Dims{255}, Dims{257}, Dims{1024}, Dims{1025}, Dims{33000}, Dims{300001}, Dims{3, 300007},
        Dims{3, 131072}, Dims{300007, 3}, Dims{9001, 70}, Dims{4096, 512}, Dims{65, 1000}, Dims{513, 8192}})
    for (DType dtype : {float32, bfloat16, float64}) {
      const Tensor x = numbers(shape, dtype, draw), g = on_gpu(x);
      for (int64_t dim = 0; dim < x.ndim(); ++dim)
        for (bool flip : {false, true}) {
          if (flip && x.ndim() == 1) continue;
          const Tensor view = flip ? transpose(x, 0, 1) : x;
          const Rows rows = sequences(view, {dim});
          const Tensor got = on_cpu(sum(on_gpu(view), {.dim = Dims{dim}}));
          for (size_t i = 0; i < rows.size(); i += 1 + rows.size() / 50) {
            const double want = dtype == float64 ? ordered_sum<double>(rows[i]) : ordered_sum<float>(rows[i]);
            ASSERT_EQ(at(got, static_cast<int64_t>(i)), rounded(want, dtype))
                << describe(view) << " along " << dim << " at " << i;
          }
        }
      const auto all = sequences(x, x.ndim() == 1 ? Dims{0} : Dims{0, 1})[0];
      EXPECT_EQ(at(on_cpu(sum(g)), 0),
                rounded(dtype == float64 ? ordered_sum<double>(all) : ordered_sum<float>(all), dtype))
          << describe(x);
    }
}

/// Rows of so many whole shares that one launch adds them: the last block to end finishes. Twice, for its counter.
TEST_F(ReduceCuda, LongLinesFollowTheOrderInOneLaunch) {
  for (DType dtype : {bfloat16, float16, float32})
    for (int64_t shares : {160, 1037}) {
      const int64_t n = shares << (item_size(dtype) == 2 ? 15 : 14);
      const Tensor x = filled({n}, dtype, [](int64_t i) { return static_cast<double>(i * 7919 % 2003) / 512 - 1.9; });
      const Tensor g = on_gpu(x), nan = on_gpu(filled({}, dtype, [](int64_t) { return kNan; }));
      const double want = ordered_sum<float>(values(x));
      for (int round = 0; round < 2; ++round) {
        sum(g, {.out = nan});
        ASSERT_EQ(at(on_cpu(nan), 0), rounded(want, dtype)) << describe(x);
      }
      ASSERT_EQ(at(on_cpu(mean(g)), 0), rounded(static_cast<float>(want) / static_cast<float>(n), dtype));
      ASSERT_EQ(at(on_cpu(norm(g, {.p = 1})), 0), at(on_cpu(norm(reshape(g, {1, n}), {.p = 1, .dim = Dims{1}})), 0));
    }
}

/// Whole blocks, whose counts are known, and the rest: the same bits along rows and down columns, and the CPU's value.
TEST_F(ReduceCuda, VariancesAreAlikeAlongRowsAndColumns) {
  Draw draw(21);
  for (DType dtype : {bfloat16, float16, float32, float64})
    for (const Dims& shape : {Dims{64, 300}, Dims{8, 1024}, Dims{72, 5003}, Dims{64, 9001}, Dims{64, 897},
                              Dims{40, 20480}, Dims{1032, 1025}}) {
      const Tensor x = numbers(shape, dtype, draw), down = transpose(x, 0, 1).contiguous();
      const Tensor along = on_cpu(var(on_gpu(x), {.dim = Dims{1}})),
                   across = on_cpu(var(on_gpu(down), {.dim = Dims{0}}));
      ASSERT_TRUE(same_bits(along, across)) << describe(x);
      expect_close(along, values(var(x, {.dim = Dims{1}})), "var " + describe(x), item_size(dtype) == 2 ? 2 : 64);
    }
}

/// Matrices reduced along their columns: narrow ones and those whose rows are no whole vectors, which are copied into
/// shared memory, and wide ones, of which a thread takes whole subtrees; more and fewer rows than blocks and pieces
/// have.
TEST_F(ReduceCuda, ColumnsFollowTheOrderBitForBit) {
  Draw draw(12);
  for (int64_t columns : {2, 3, 7, 8, 33, 64, 100, 257, 1001, 1024, 2056})
    for (int64_t rows : {257, 1000, 1024, 5001, 20000})
      for (DType dtype : {bfloat16, float16, float32, float64}) {
        if (rows * columns > 300000) continue;
        const int64_t first = draw.upto(1000);
        const Tensor x = filled({rows, columns}, dtype,
                                [&](int64_t i) { return static_cast<double>((i + first) * 7919 % 2003) / 512 - 1.9; });
        const Tensor g = on_gpu(x);
        const Tensor total = on_cpu(sum(g, {.dim = Dims{0}})), middle = on_cpu(mean(g, {.dim = Dims{0}}));
        const Tensor again = on_cpu(sum(on_gpu(x), {.dim = Dims{0}}));
        ASSERT_TRUE(same_bits(total, again));
        for (int64_t c = 0; c < columns; c += 1 + columns / 9) {
          std::vector<double> column;
          for (int64_t r = 0; r < rows; ++r) column.push_back(at(x, r * columns + c));
          const double want = dtype == float64 ? ordered_sum<double>(column) : ordered_sum<float>(column);
          ASSERT_EQ(at(total, c), rounded(want, dtype)) << describe(x) << " column " << c;
          const double share =
              dtype == float64 ? want / static_cast<double>(rows) : static_cast<float>(want) / static_cast<float>(rows);
          ASSERT_EQ(at(middle, c), rounded(share, dtype)) << describe(x) << " column " << c;
        }
      }
}

/// Extremes of 16-bit floats go two an instruction: zeros of both signs, NaN and infinities, along rows and columns.
TEST_F(ReduceCuda, PairsOfHalvesKeepTheRulesOfExtremes) {
  Draw draw(13);
  for (DType dtype : {bfloat16, float16})
    for (const Dims& shape : {Dims{40, 1024}, Dims{33, 8200}, Dims{1100, 72}, Dims{2048, 8}, Dims{9, 5000}}) {
      const Tensor x = filled(shape, dtype, [&](int64_t i) {
        const auto draws = draw.upto(2000);
        return draws == 0   ? kNan
               : draws == 1 ? kInf
               : draws == 2 ? -kInf
               : i % 3 == 0 ? -0.0
               : draws % 5  ? 0.0
                            : draw.normal();
      });
      const Tensor g = on_gpu(x);
      for (int64_t dim : {0, 1}) {
        const std::string what = describe(x) + " along " + std::to_string(dim);
        const Tensor pairs[][2] = {{amax(g, {.dim = Dims{dim}}), amax(x, {.dim = Dims{dim}})},
                                   {amin(g, {.dim = Dims{dim}}), amin(x, {.dim = Dims{dim}})},
                                   {argmax(g, {.dim = dim}), argmax(x, {.dim = dim})},
                                   {argmin(g, {.dim = dim}), argmin(x, {.dim = dim})}};
        for (const auto& pair : pairs) {
          const Tensor got = on_cpu(pair[0]);
          for (int64_t i = 0; i < got.numel(); ++i) {
            const double a = at(got, i), b = at(pair[1], i);
            ASSERT_TRUE(a == b || (std::isnan(a) && std::isnan(b)))
                << what << " at " << i << ": " << a << ", want " << b;
          }
        }
      }
    }
}

/// Both devices' results of one call: exact for what is not a float, else within the CPU tests' tolerance.
void expect_alike(const char* name, const Tensor& x, const Dims& dims, const Tensor& got, const Tensor& want) {
  const double tolerance = want.dtype() == float64    ? 1e-12
                           : want.dtype() == float16  ? 1e-3
                           : want.dtype() == bfloat16 ? 8e-3
                                                      : 1e-5;
  const Tensor g = on_cpu(got);
  ASSERT_EQ(g.shape(), want.shape()) << name;
  ASSERT_EQ(g.dtype(), want.dtype()) << name;
  EXPECT_EQ(got.strides(), want.strides()) << name;
  for (int64_t i = 0; i < want.numel(); ++i) {
    const double a = at(g, i), b = at(want, i);
    ASSERT_TRUE((std::isnan(a) && std::isnan(b)) || a == b ||
                (is_float(want.dtype()) && std::abs(a - b) <= tolerance * (1 + std::abs(b))))
        << name << " of " << describe(x) << " strides " << to_string(x.strides()) << " over " << to_string(dims)
        << " at " << i << ": " << a << ", want " << b;
  }
}

TEST_F(ReduceCuda, EveryOperatorAgreesWithTheCpu) {
  Draw draw(3);
  for (int round = 0; round < 25; ++round)
    for (DType dtype : kAll) {
      const Tensor x = any_view(dtype, draw);
      if (is_float(dtype) && x.numel() > 0 && round % 4 == 0)
        put(x, offset_of(x, draw.upto(x.numel() - 1)), draw.coin() ? kNan : draw.coin() ? kInf : -kInf);
      const Tensor g = on_gpu(x);
      const Dims dims = some_dims(x, draw);
      const auto both = [&](const char* name, const std::function<Tensor(const Tensor&)>& op) {
        expect_alike(name, x, dims, op(g), op(x));
      };
      const bool keepdim = draw.coin();
      both("sum", [&](const Tensor& t) { return sum(t, {.dim = dims, .keepdim = keepdim}); });
      both("mean", [&](const Tensor& t) { return mean(t, {.dim = dims, .keepdim = keepdim}); });
      both("var", [&](const Tensor& t) { return var(t, {.dim = dims, .correction = 0.5}); });
      both("std", [&](const Tensor& t) { return tenor::std(t, {.dim = dims, .keepdim = keepdim}); });
      both("logsumexp", [&](const Tensor& t) { return logsumexp(t, {.dim = dims}); });
      both("any", [&](const Tensor& t) { return any(t, {.dim = dims}); });
      both("all", [&](const Tensor& t) { return all(t, {.dim = dims}); });
      both("count_nonzero", [&](const Tensor& t) { return count_nonzero(t, {.dim = dims}); });
      for (double p : {0.0, 1.0, 2.0, 3.0, 1.5})
        both("norm", [&](const Tensor& t) { return norm(t, {.p = p, .dim = dims}); });
      if (!is_float(dtype)) both("prod", [&](const Tensor& t) { return prod(t, {.dim = dims}); });
      if (x.numel() == 0) continue;
      both("amax", [&](const Tensor& t) { return amax(t, {.dim = dims, .keepdim = keepdim}); });
      both("amin", [&](const Tensor& t) { return amin(t, {.dim = dims}); });
      both("norm inf", [&](const Tensor& t) { return norm(t, {.p = kInf, .dim = dims}); });
      both("norm -inf", [&](const Tensor& t) { return norm(t, {.p = -kInf, .dim = dims}); });
      both("argmax of all", [&](const Tensor& t) { return argmax(t); });
      if (x.ndim() > 0) {
        const int64_t dim = draw.upto(x.ndim() - 1);
        both("argmax", [&](const Tensor& t) { return argmax(t, {.dim = dim}); });
        both("argmin", [&](const Tensor& t) { return argmin(t, {.dim = dim, .keepdim = keepdim}); });
        both("max values", [&](const Tensor& t) { return max(t, dim).values; });
        both("max indices", [&](const Tensor& t) { return max(t, dim).indices; });
        both("min indices", [&](const Tensor& t) { return min(t, dim, {.keepdim = keepdim}).indices; });
      }
      if (HasFatalFailure()) return;
    }
}

TEST_F(ReduceCuda, DtypesMeetAsOnTheCpu) {
  Draw draw(4);
  for (DType dtype : kAll)
    for (DType result : {float32, float64, float16, bfloat16, boolean, int8, int32, int64, uint64, uint8}) {
      const Tensor x = numbers({7, 300}, dtype, draw), g = on_gpu(x);
      expect_alike("sum", x, {1}, sum(g, {.dim = Dims{1}, .dtype = result}), sum(x, {.dim = Dims{1}, .dtype = result}));
      expect_alike("prod", x, {0}, prod(g, {.dim = Dims{0}, .dtype = result}),
                   prod(x, {.dim = Dims{0}, .dtype = result}));
      if (is_float(result)) {
        expect_alike("mean", x, {1}, mean(g, {.dim = Dims{1}, .dtype = result}),
                     mean(x, {.dim = Dims{1}, .dtype = result}));
        expect_alike("norm", x, {1}, norm(g, {.dim = Dims{1}, .dtype = result}),
                     norm(x, {.dim = Dims{1}, .dtype = result}));
      }
      if (HasFatalFailure()) return;
    }
}

TEST_F(ReduceCuda, ARowAloneHasTheBitsItHasInABatch) {
  Draw draw(5);
  for (DType dtype : kFloats)
    for (int64_t length : {3, 40, 250, 1000, 5001, 9001, 70000}) {
      const Tensor x = on_gpu(numbers({length == 9001 ? 500 : 37, length}, dtype, draw)),
                   t = on_gpu(on_cpu(transpose(x, 0, 1)).contiguous());
      const auto check = [&](const char* name, const std::function<Tensor(const Tensor&, int64_t)>& op) {
        const Tensor rows = on_cpu(op(x, 1)), columns = on_cpu(op(t, 0)), again = on_cpu(op(x, 1));
        EXPECT_TRUE(same_bits(rows, again)) << name << length;
        EXPECT_TRUE(same_bits(rows, columns)) << name << length;
        for (int64_t i : {0, 5, 36}) {
          const double alone = at(on_cpu(op(select(x, 0, i), 0)), 0);
          EXPECT_TRUE(same(at(rows, i), alone)) << name << " row " << i << " of " << length << name;
          EXPECT_TRUE(same(at(columns, i), alone)) << name << " column " << i << " of " << length;
        }
      };
      check("sum", [](const Tensor& v, int64_t d) { return sum(v, {.dim = Dims{d}}); });
      check("var", [](const Tensor& v, int64_t d) { return var(v, {.dim = Dims{d}}); });
      check("logsumexp", [](const Tensor& v, int64_t d) { return logsumexp(v, {.dim = Dims{d}}); });
      check("norm", [](const Tensor& v, int64_t d) { return norm(v, {.p = 3, .dim = Dims{d}}); });
    }
}

TEST_F(ReduceCuda, NaNWinsWhereverItStandsAndTheFirstOfEquals) {
  for (DType dtype : kFloats)
    for (int64_t n : {1, 7, 33, 1025, 4096, 9001, 400003})
      for (int64_t where : {int64_t{0}, n / 2, n - 1}) {
        const Tensor x =
            on_gpu(filled({n}, dtype, [&](int64_t i) { return i == where ? kNan : static_cast<double>(i % 100); }));
        const auto value = [](const Tensor& t) { return at(on_cpu(t), 0); };
        EXPECT_TRUE(std::isnan(value(amax(x))) && std::isnan(value(amin(x))) && std::isnan(value(sum(x))) &&
                    std::isnan(value(var(x))));
        EXPECT_TRUE(std::isnan(value(logsumexp(x))) && std::isnan(value(norm(x, {.p = kInf}))));
        EXPECT_EQ(value(argmax(x)), where);
        EXPECT_EQ(value(argmin(x)), where);
        const Tensor level = on_gpu(filled({n}, dtype, [&](int64_t i) { return i < where ? 1.0 : 2.0; }));
        EXPECT_EQ(value(argmax(level)), where);
        const Tensor low = on_gpu(filled({n}, dtype, [&](int64_t) { return -kInf; }));
        EXPECT_EQ(value(argmax(low)), 0);
        EXPECT_EQ(value(amax(low)), -kInf);
      }
}

TEST_F(ReduceCuda, AccuracyOfLongSumsAndOfVariancesFarFromZero) {
  const auto value = [](const Tensor& t) { return at(on_cpu(t), 0); };
  EXPECT_NEAR(value(sum(on_gpu(filled({1000000}, float32, [](int64_t) { return 0.1; })))), 1e5, 1e5 * 1e-7 * 10);
  for (double mean : {1e4, 1e7})
    EXPECT_NEAR(value(var(on_gpu(filled({4}, float32, [&](int64_t i) { return mean + static_cast<double>(i); })),
                          {.correction = 0})),
                1.25, 1e-6);
  EXPECT_EQ(value(var(on_gpu(filled({1001}, float32, [](int64_t) { return 0.1; })))), 0);
  // An outlier in front, about which the deviations are taken.
  const Tensor far = filled({100000}, float32, [](int64_t i) { return i == 0 ? 1e6 : static_cast<double>(i % 7); });
  EXPECT_NEAR(value(var(on_gpu(far))) / at(var(far.to(float64)), 0), 1, 1e-5);
  for (double correction : {1.0, 2.0})
    EXPECT_TRUE(std::isnan(value(var(on_gpu(list({5})), {.correction = correction}))));
}

TEST_F(ReduceCuda, EmptyAxesAndNoRank) {
  const Tensor e = Tensor::empty({0, 3}, float32, kGpu);
  const auto value = [](const Tensor& t) { return at(on_cpu(t), 0); };
  EXPECT_EQ(value(sum(e, {.dim = Dims{0}})), 0);
  EXPECT_EQ(value(prod(e, {.dim = Dims{0}})), 1);
  EXPECT_TRUE(std::isnan(value(mean(e, {.dim = Dims{0}}))) && std::isnan(value(var(e))));
  EXPECT_EQ(value(logsumexp(e, {.dim = Dims{0}})), -kInf);
  EXPECT_EQ(value(all(e)), 1);
  EXPECT_EQ(value(any(e)), 0);
  EXPECT_THROW(amax(e), ShapeError);
  EXPECT_THROW(argmin(e, {.dim = 0}), ShapeError);
  EXPECT_EQ(amax(e, {.dim = Dims{1}}).shape(), Dims{0});
  const Tensor x = on_gpu(list({1.5, -2})), scalar = select(x, 0, 1);
  EXPECT_EQ(values(on_cpu(sum(x, {.dim = Dims{}}))), (std::vector<double>{1.5, -2}));
  EXPECT_EQ(value(sum(scalar, {.dim = Dims{0}})), -2);
  EXPECT_EQ(value(argmax(scalar, {.dim = -1})), 0);
}

TEST_F(ReduceCuda, OutIsWrittenWhateverItHeldAndWhereverItLies) {
  Draw draw(7);
  const Tensor x = numbers({6, 10}, float32, draw), want = sum(x, {.dim = Dims{1}}), g = on_gpu(x);
  const Tensor memory = on_gpu(filled({18}, float32, [](int64_t) { return kNan; })),
               strided = slice(memory, 0, 0, {}, 3);
  EXPECT_EQ(sum(g, {.dim = Dims{1}, .out = strided}).raw(), strided.raw());
  const Tensor back = on_cpu(memory);
  for (int64_t i = 0; i < 18; ++i)
    EXPECT_TRUE(i % 3 ? std::isnan(at(back, i)) : std::abs(at(back, i) - at(want, i / 3)) < 1e-5);
  const Tensor y = on_gpu(x);
  sum(y, {.dim = Dims{1}, .out = select(y, 1, 0)});
  EXPECT_TRUE(same_bits(on_cpu(select(y, 1, 0)).contiguous(), on_cpu(strided).contiguous()));
  const Tensor places = transpose(Tensor::empty({10, 1}, int64, kGpu), 0, 1);
  const ExtremeResult r = max(g, 0, {.keepdim = true, .out_indices = places});
  EXPECT_TRUE(same_bits(on_cpu(r.indices).contiguous(), max(x, 0, {.keepdim = true}).indices.contiguous()));
  EXPECT_THROW(sum(g, {.out = Tensor::empty({}, float32)}), DeviceError);
}

TEST_F(ReduceCuda, OffsetsBeyondTwoToThe31) {
  const int64_t far = int64_t{3} << 30;
  const Tensor memory = Tensor::empty({far + 2}, uint8, kGpu);
  core::copy_into(on_gpu(list({3, 4}, uint8)), narrow(memory, 0, 0, 2));
  core::copy_into(on_gpu(list({5, 7}, uint8)), narrow(memory, 0, far, 2));
  const Tensor x = memory.with_layout({2, 2}, {far, 1}, 0);
  EXPECT_EQ(values(on_cpu(sum(x, {.dim = Dims{0}}))), (std::vector<double>{8, 11}));
  EXPECT_EQ(values(on_cpu(sum(x, {.dim = Dims{1}}))), (std::vector<double>{7, 12}));
  EXPECT_EQ(at(on_cpu(argmax(x)), 0), 3);
  // More elements than 2^31 that meet in one output, and the extreme behind them all.
  const Tensor many = Tensor::empty({far}, int8, kGpu);
  core::copy_into(expand(on_gpu(list({1}, int8)), {far}), many);
  core::copy_into(on_gpu(list({2}, int8)), narrow(many, 0, far - 5, 1));
  EXPECT_EQ(at(on_cpu(sum(many)), 0), static_cast<double>(far + 1));
  EXPECT_EQ(at(on_cpu(argmax(many)), 0), static_cast<double>(far - 5));
}

}  // namespace
}  // namespace tenor
