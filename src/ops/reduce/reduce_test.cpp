// Reductions against the published order, bit for bit, and against the float64 reference, on every layout.
#include "tenor/reduce.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>

#include "src/core/layout.h"
#include "src/core/reduction_order.h"
#include "src/core/testing.h"
#include "src/ops/reduce/reduce_reference.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using Random = std::mt19937_64;
using namespace tenor::testing;
const DType kAll[] = {float32, float64, float16, bfloat16, boolean, int8,  int16,
                      int32,   int64,   uint8,   uint16,   uint32,  uint64};

int64_t pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

double at(const Tensor& x, int64_t i) { return get(x, offset_of(x, i)); }

Tensor numbers(const Dims& shape, DType dtype, Random& random) {
  std::normal_distribution<double> normal;
  return filled(shape, dtype, [&](int64_t) {
    return is_float(dtype) ? normal(random) : static_cast<double>(pick(random, is_signed(dtype) ? -4 : 0, 4));
  });
}
/// A tensor of up to 4 dims, permuted, sliced or broadcast.
Tensor any_layout(DType dtype, Random& random) {
  static constexpr int64_t kSizes[] = {0, 1, 2, 3, 5, 8, 17, 31, 33, 64, 70, 130};
  Dims shape;
  const int64_t ndim = pick(random, 0, 4);
  int64_t count = 1;
  for (int64_t d = 0; d < ndim; ++d) {
    const int64_t size = kSizes[pick(random, d == 0 ? 0 : 1, 11)];
    shape.push_back(count * size > 40000 ? 2 : size);
    count *= shape.back();
  }
  if (pick(random, 0, 9) == 0) shape = {pick(random, 1, 30000)};
  if (pick(random, 0, 6) == 0) shape = {pick(random, 4000, 9000), pick(random, 1, 5)};
  Tensor x = numbers(shape, dtype, random);
  if (pick(random, 0, 1)) {
    Dims order;
    for (int d = 0; d < x.ndim(); ++d) order.push_back(d);
    std::shuffle(order.begin(), order.end(), random);
    x = permute(x, order);
  }
  if (x.ndim() > 0 && pick(random, 0, 3) == 0)
    x = slice(x, pick(random, 0, x.ndim() - 1), pick(random, 0, 2), {}, pick(random, 1, 3));
  if (pick(random, 0, 7) == 0) {
    Dims wide = x.shape();
    wide.insert(0, 3);
    x = expand(x, wide);
  }
  return x;
}
Dims some_dims(const Tensor& x, Random& random) {
  Dims dims;
  for (int d = 0; d < x.ndim(); ++d)
    if (pick(random, 0, 1)) dims.push_back(pick(random, 0, 1) ? d : d - x.ndim());
  return dims;
}

/// x's elements, output by output: row-major over the dims that stay, then over those reduced, in the order of memory or
/// the logical one.
std::vector<std::vector<double>> sequences(const Tensor& x, const Dims& dims, bool logical = false) {
  Dims order, met;
  const auto reduced = [&](int d) {
    return std::find_if(dims.begin(), dims.end(), [&](int64_t r) { return (r + x.ndim()) % x.ndim() == d; }) !=
           dims.end();
  };
  int64_t outputs = 1;
  for (int d = 0; d < x.ndim(); ++d)
    if (!reduced(d)) order.push_back(d), outputs *= x.shape(d);
  for (int d = 0; d < x.ndim(); ++d)
    if (reduced(d)) met.push_back(d);
  const Dims memory = core::result_strides(x.shape(), x);
  if (!logical)
    std::stable_sort(met.begin(), met.end(), [&](int64_t a, int64_t b) { return memory[a] > memory[b]; });
  for (int64_t d : met) order.push_back(d);
  const Tensor y = permute(x, order);
  const int64_t count = outputs ? y.numel() / outputs : 0;
  std::vector<std::vector<double>> rows(static_cast<size_t>(outputs));
  for (int64_t i = 0; i < outputs * count; ++i) rows[static_cast<size_t>(i / count)].push_back(at(y, i));
  return rows;
}

template <class C>
double in_order(const std::vector<double>& x, C identity, const std::function<C(C)>& map,
                const std::function<C(C, C)>& combine) {
  return static_cast<double>(core::ordered_reduce<C>(
      static_cast<int64_t>(x.size()), identity,
      [&](int64_t i) { return map(static_cast<C>(x[static_cast<size_t>(i)])); }, combine));
}

template <class C>
void expect_ordered(DType dtype, Random& random) {
  const Tensor x = any_layout(dtype, random);
  const Dims dims = some_dims(x, random);
  const auto rows = sequences(x, dims);
  const auto add = [](C a, C b) { return a + b; };
  struct Check {
    const char* name;
    Tensor got;
    std::function<double(const std::vector<double>&)> want;
  };
  const Check checks[] = {
      {"sum", sum(x, {.dim = dims}),
       [&](const auto& r) {
         return in_order<C>(
             r, 0, [](C v) { return v; }, add);
       }},
      {"mean", mean(x, {.dim = dims, .keepdim = true}),
       [&](const auto& r) {
         return static_cast<C>(in_order<C>(
                    r, 0, [](C v) { return v; }, add)) /
                static_cast<C>(r.size());
       }},
      {"prod", prod(x, {.dim = dims}),
       [&](const auto& r) {
         return in_order<C>(
             r, 1, [](C v) { return v; }, [](C a, C b) { return a * b; });
       }},
      {"norm 2", norm(x, {.dim = dims}),
       [&](const auto& r) {
         return std::sqrt(static_cast<C>(in_order<C>(
             r, 0, [](C v) { return v * v; }, add)));
       }},
      {"norm 1", norm(x, {.p = 1, .dim = dims}),
       [&](const auto& r) {
         return in_order<C>(
             r, 0, [](C v) { return std::abs(v); }, add);
       }},
  };
  for (const Check& check : checks)
    for (size_t i = 0; i < rows.size(); ++i)
      ASSERT_TRUE(same(at(check.got, static_cast<int64_t>(i)), rounded(check.want(rows[i]), dtype)))
          << check.name << " of " << describe(x) << " strides " << to_string(x.strides()) << " over " << to_string(dims)
          << " at " << i << ": " << at(check.got, static_cast<int64_t>(i)) << ", want "
          << rounded(check.want(rows[i]), dtype);
}

TEST(Reduce, FollowsTheOrderBitForBitOnEveryLayout) {
  Random random(1);
  for (int round = 0; round < 30; ++round)
    for (DType dtype : kFloats) {
      if (dtype == float64)
        expect_ordered<double>(dtype, random);
      else
        expect_ordered<float>(dtype, random);
      if (HasFatalFailure()) return;
    }
}

TEST(Reduce, LongAxesInOneTileAndInOneRow) {
  Random random(2);
  for (DType dtype : {float32, bfloat16})
    for (const Dims& shape : {Dims{50000, 3}, Dims{9000, 70}, Dims{5, 60000}, Dims{300001}}) {
      const Tensor x = numbers(shape, dtype, random);
      for (const Tensor& view : {x, x.ndim() == 2 ? transpose(x, 0, 1) : x})
        for (int64_t dim = 0; dim < view.ndim(); ++dim) {
          const auto rows = sequences(view, {dim});
          const Tensor got = sum(view, {.dim = Dims{dim}});
          for (size_t i = 0; i < rows.size(); i += 17)
            ASSERT_EQ(at(got, static_cast<int64_t>(i)),
                      rounded(in_order<float>(
                                  rows[i], 0, [](float v) { return v; }, [](float a, float b) { return a + b; }),
                              dtype));
        }
      const Tensor flipped = x.ndim() == 2 ? transpose(x, 0, 1) : x;
      const double all = in_order<float>(
          sequences(flipped, x.ndim() == 2 ? Dims{0, 1} : Dims{0})[0], 0, [](float v) { return v; },
          [](float a, float b) { return a + b; });
      EXPECT_EQ(at(sum(flipped), 0), rounded(all, dtype));
    }
}

/// Dims reduced together meet as they lie in memory, in a part of a tensor too.
TEST(Reduce, ATransposedTensorHasTheBitsOfItsMemory) {
  Random random(12);
  for (DType dtype : {float32, bfloat16, float64, int32})
    for (const auto& [length, rows] : {std::pair{2048, 71}, {4096, 21}, {16, 4000}, {3000, 20}}) {
      const Tensor whole = numbers({2, length, rows}, dtype, random), part = slice(whole, 2, 0, rows - 3);
      const auto check = [&](const char* op, const std::function<Tensor(const Tensor&, Dims)>& run) {
        for (const Tensor& x : {whole, part}) {
          const Tensor got = run(transpose(x, 1, 2), {1, 2}), one = run(transpose(select(x, 0, 1), 0, 1), {1, 0});
          EXPECT_TRUE(same_bits(got, run(x.contiguous(), {2, 1}))) << op << ' ' << name(dtype) << ' ' << describe(x);
          EXPECT_TRUE(same_bits(one, run(select(x, 0, 1), {0, 1}))) << op << ' ' << name(dtype) << ' ' << describe(x);
        }
      };
      check("sum", [](const Tensor& x, Dims dim) { return sum(x, {.dim = dim}); });
      check("amax", [](const Tensor& x, Dims dim) { return amax(x, {.dim = dim}); });
      if (dtype == int32) continue;
      check("var", [](const Tensor& x, Dims dim) { return var(x, {.dim = dim}); });
      check("logsumexp", [](const Tensor& x, Dims dim) { return logsumexp(x, {.dim = dim}); });
    }
}

TEST(Reduce, EveryOperatorAgreesWithFloat64) {
  Random random(3);
  for (int round = 0; round < 15; ++round)
    for (DType dtype : kAll) {
      const Tensor x = any_layout(dtype, random);
      const Dims dims = some_dims(x, random);
      const auto rows = sequences(x, dims);
      const bool empty = !rows.empty() && rows[0].empty();
      const double tolerance = dtype == float64 ? 1e-12 : dtype == float16 ? 1e-3 : dtype == bfloat16 ? 8e-3 : 1e-5;
      const auto expect = [&](const char* name, const Tensor& got,
                              const std::function<double(const std::vector<double>&)>& want) {
        for (size_t i = 0; i < rows.size(); ++i) {
          const double g = at(got, static_cast<int64_t>(i)), w = want(rows[i]);
          ASSERT_TRUE((std::isnan(g) && std::isnan(w)) || g == w || std::abs(g - w) <= tolerance * (1 + std::abs(w)))
              << name << " of " << describe(x) << " strides " << to_string(x.strides()) << " over " << to_string(dims)
              << " at " << i << ": " << g << ", want " << w;
        }
      };
      expect("var", var(x, {.dim = dims, .correction = 0.5}),
             [](const auto& r) { return reduce::reference_var(r, 0.5); });
      expect("std", tenor::std(x, {.dim = dims, .keepdim = true}),
             [](const auto& r) { return std::sqrt(reduce::reference_var(r, 1)); });
      expect("logsumexp", logsumexp(x, {.dim = dims}), [](const auto& r) { return reduce::reference_logsumexp(r); });
      expect("any", any(x, {.dim = dims}),
             [](const auto& r) { return std::any_of(r.begin(), r.end(), [](double v) { return v != 0; }); });
      expect("all", all(x, {.dim = dims}),
             [](const auto& r) { return std::all_of(r.begin(), r.end(), [](double v) { return v != 0; }); });
      expect("count_nonzero", count_nonzero(x, {.dim = dims}), [](const auto& r) {
        return static_cast<double>(std::count_if(r.begin(), r.end(), [](double v) { return v != 0; }));
      });
      for (double p : {0.0, 3.0, 1.5})
        expect("norm", norm(x, {.p = p, .dim = dims}), [p](const auto& r) { return reduce::reference_norm(r, p); });
      if (!is_float(dtype))
        expect("sum", sum(x, {.dim = dims}), [](const auto& r) { return reduce::reference_sum(r); });
      if (empty || rows.empty()) continue;
      expect("amax", amax(x, {.dim = dims}), [](const auto& r) { return reduce::reference_extreme(r, true); });
      expect("amin", amin(x, {.dim = dims}), [](const auto& r) { return reduce::reference_extreme(r, false); });
      expect("norm inf", norm(x, {.p = kInf, .dim = dims}),
             [](const auto& r) { return reduce::reference_norm(r, kInf); });
      expect("norm -inf", norm(x, {.p = -kInf, .dim = dims}),
             [](const auto& r) { return reduce::reference_norm(r, -kInf); });
      if (HasFatalFailure()) return;
    }
}

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
      Tensor x = permute(filled({7, 90, 41}, dtype, [&](int64_t) { return static_cast<double>(pick(random, 0, 5000) / 4990); }),
                         round % 2 ? Dims{2, 0, 1} : Dims{1, 2, 0});
      if (round % 3 == 1) x = slice(x, 0, 3);
      if (is_float(dtype) && round % 4 == 3)
        for (int i = 0; i < 5; ++i) put(x, offset_of(x, pick(random, 0, x.numel() - 1)), kNan);
      const auto row = sequences(x, {0, 1, 2}, true)[0];
      ASSERT_EQ(at(argmax(x), 0), reduce::reference_arg(row, true)) << describe(x);
      ASSERT_EQ(at(argmin(x), 0), reduce::reference_arg(row, false)) << describe(x);
    }
}

TEST(Reduce, ThreadsDoNotShowInTheBits) {
  Random random(5);
  const int before = num_threads();
  for (const Dims& shape : {Dims{1000003}, Dims{70001, 5}, Dims{5, 70001}, Dims{600, 600}, Dims{20, 30, 500}}) {
    const Tensor x = numbers(shape, float32, random);
    const auto run = [&](int threads) {
      set_num_threads(threads);
      return std::vector<Tensor>{sum(x),
                                 sum(x, {.dim = Dims{0}}),
                                 sum(x, {.dim = Dims{-1}}),
                                 var(x, {.dim = Dims{0}}),
                                 logsumexp(x),
                                 argmax(x),
                                 norm(x)};
    };
    const auto one = run(1), two = run(2), seven = run(7);
    for (size_t i = 0; i < one.size(); ++i)
      for (const Tensor& other : {two[i], seven[i]})
        EXPECT_EQ(
            std::memcmp(one[i].raw(), other.raw(), static_cast<size_t>(one[i].numel()) * item_size(one[i].dtype())), 0)
            << i << to_string(shape);
  }
  set_num_threads(before);
}

TEST(Reduce, ARowAloneHasTheBitsItHasInABatch) {
  Random random(6);
  for (DType dtype : kFloats)
    for (int64_t length : {3, 40, 1000, 5000}) {
      const Tensor x = numbers({37, length}, dtype, random), t = transpose(x, 0, 1).contiguous();
      const auto check = [&](const std::function<Tensor(const Tensor&, int64_t)>& op) {
        const Tensor rows = op(x, 1), columns = op(t, 0);
        for (int64_t i : {0, 5, 36}) {
          const double alone = at(op(select(x, 0, i), 0), 0);
          EXPECT_TRUE(same(at(rows, i), alone)) << length;
          EXPECT_TRUE(same(at(columns, i), alone)) << length;
        }
      };
      check([](const Tensor& v, int64_t d) { return sum(v, {.dim = Dims{d}}); });
      check([](const Tensor& v, int64_t d) { return var(v, {.dim = Dims{d}}); });
      check([](const Tensor& v, int64_t d) { return logsumexp(v, {.dim = Dims{d}}); });
      check([](const Tensor& v, int64_t d) { return norm(v, {.p = 3, .dim = Dims{d}}); });
    }
}

TEST(Reduce, NaNWinsWhereverItStands) {
  for (DType dtype : kFloats)
    for (int64_t n : {1, 7, 32, 33, 4096, 9001})
      for (int64_t where : {int64_t{0}, n / 2, n - 1}) {
        const Tensor x =
            filled({n}, dtype, [&](int64_t i) { return i == where ? kNan : static_cast<double>(i % 100); });
        EXPECT_TRUE(std::isnan(at(amax(x), 0)) && std::isnan(at(amin(x), 0)) && std::isnan(at(sum(x), 0)));
        EXPECT_TRUE(std::isnan(at(max(x), 0)) && std::isnan(at(logsumexp(x), 0)) &&
                    std::isnan(at(norm(x, {.p = kInf}), 0)));
        EXPECT_EQ(at(argmax(x), 0), where);
        EXPECT_EQ(at(argmin(x), 0), where);
      }
}

TEST(Reduce, DtypesOfResults) {
  EXPECT_EQ(sum(list({1, 1}, boolean)).dtype(), int64);
  EXPECT_EQ(sum(list({1, 1}, uint8)).dtype(), uint64);
  EXPECT_EQ(at(sum(list({2147483647, 2147483647}, int32)), 0), 4294967294.0);
  EXPECT_EQ(at(sum(list({127, 127}, int8), {.dtype = int8}), 0), -2);
  EXPECT_EQ(at(sum(list({1.9, 2.9}), {.dtype = int64}), 0), 3);
  EXPECT_EQ(at(sum(list({300}), {.dtype = int8}), 0), 127);
  EXPECT_EQ(at(sum(list({1e30}), {.dtype = int32}), 0), 2147483647);
  EXPECT_EQ(at(sum(list({-1}), {.dtype = uint8}), 0), 0);
  EXPECT_EQ(at(sum(list({300, 300}), {.dtype = int8}), 0), -2);  // sums wrap
  EXPECT_EQ(at(prod(list({1e30, 1}), {.dtype = int16}), 0), 32767);
  EXPECT_EQ(at(sum(list({0, 3}), {.dtype = boolean}), 0), 1);
  EXPECT_EQ(at(prod(list({0, 3}), {.dtype = boolean}), 0), 0);
  EXPECT_EQ(mean(list({1, 2}, int64)).dtype(), float32);
  EXPECT_EQ(at(mean(list({1, 2, 2}, int64), {.dtype = float64}), 0), 5.0 / 3);
  EXPECT_EQ(at(sum(list({40000, 40000}, float16)), 0), kInf);
  EXPECT_EQ(at(mean(list({40000, 40000}, float16)), 0), 40000);
  EXPECT_EQ(at(sum(list({40000, 40000}, float16), {.dtype = float32}), 0), 80000);
  const Tensor huge = Tensor::empty({2}, uint64);
  huge.data<uint64_t>()[0] = ~uint64_t{0}, huge.data<uint64_t>()[1] = 3;
  EXPECT_EQ(*sum(huge).data<uint64_t>(), 2u);
  EXPECT_EQ(*max(huge).data<uint64_t>(), ~uint64_t{0});
  EXPECT_EQ(*argmin(huge).data<int64_t>(), 1);
}

TEST(Reduce, AccuracyOfLongSumsAndOfVariancesFarFromZero) {
  EXPECT_NEAR(at(sum(filled({1000000}, float32, [](int64_t) { return 0.1; })), 0), 1e5, 1e5 * 1e-7 * 10);
  // The mean of an even count falls between floats: its rounding error must not reach the variance.
  for (double mean : {1e4, 1e7})
    EXPECT_NEAR(
        at(var(filled({4}, float32, [&](int64_t i) { return mean + static_cast<double>(i); }), {.correction = 0}), 0),
        1.25, 1e-6);
  EXPECT_EQ(at(var(filled({1001}, float32, [](int64_t) { return 0.1; })), 0), 0);
  for (double correction : {1.0, 2.0}) EXPECT_TRUE(std::isnan(at(var(list({5}), {.correction = correction}), 0)));
}

TEST(Reduce, VarianceOfIntegersBeyondFloats) {
  for (DType dtype : {uint64, int64, int32, uint32}) {
    const Tensor x = Tensor::empty({3, 2}, dtype);
    const int64_t low = dtype == int32 ? INT32_MIN : dtype == int64 ? INT64_MIN : 0;
    const uint64_t high = dtype == uint64 ? UINT64_MAX : dtype == int64 ? INT64_MAX : dtype == int32 ? INT32_MAX : UINT32_MAX;
    const uint64_t values[] = {high, static_cast<uint64_t>(low), high - 2, static_cast<uint64_t>(low) + 4, high - 4, static_cast<uint64_t>(low) + 8};
    for (int i = 0; i < 6; ++i) std::memcpy(x.data<char>() + i * static_cast<int64_t>(item_size(dtype)), &values[i], item_size(dtype));
    EXPECT_EQ(at(var(x, {.dim = Dims{0}}), 0), 4) << name(dtype);
    EXPECT_EQ(at(var(x, {.dim = Dims{0}}), 1), 16) << name(dtype);
    EXPECT_EQ(at(tenor::std(select(x, 1, 0), {.correction = 0}), 0), static_cast<float>(std::sqrt(8.0 / 3))) << name(dtype);
    const double span = static_cast<double>(high) - static_cast<double>(low);
    EXPECT_NEAR(at(var(select(x, 0, 0)), 0) / (span * span / 2), 1, 1e-6) << name(dtype);
  }
}

TEST(Reduce, EmptyAxes) {
  const Tensor e = Tensor::empty({0, 3}, float32);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(at(sum(e, {.dim = Dims{0}}), i), 0);
    EXPECT_EQ(at(prod(e, {.dim = Dims{0}}), i), 1);
    EXPECT_TRUE(std::isnan(at(mean(e, {.dim = Dims{0}}), i)));
    EXPECT_EQ(at(logsumexp(e, {.dim = Dims{0}}), i), -kInf);
    EXPECT_EQ(at(all(e, {.dim = Dims{0}}), i), 1);
    EXPECT_EQ(at(any(e, {.dim = Dims{0}}), i), 0);
  }
  for (const auto& op :
       {std::function<void()>([&] { amax(e, {.dim = Dims{0}}); }),
        std::function<void()>([&] { argmin(e, {.dim = 0}); }), std::function<void()>([&] { max(e, 0); }),
        std::function<void()>([&] { min(e); }), std::function<void()>([&] { norm(e, {.p = kInf}); })})
    EXPECT_THROW(op(), ShapeError);
  EXPECT_EQ(amax(e, {.dim = Dims{1}}).shape(), Dims{0});
  EXPECT_EQ(max(e, 1).indices.shape(), Dims{0});
}

TEST(Reduce, NoDimsAndNoRank) {
  const Tensor x = list({1.5, -2});
  EXPECT_EQ(sum(x, {.dim = Dims{}}).shape(), Dims{2});
  EXPECT_EQ(at(amax(x, {.dim = Dims{}}), 1), -2);
  EXPECT_TRUE(std::isnan(at(var(x, {.dim = Dims{}}), 0)));
  const Tensor scalar = select(x, 0, 1);
  EXPECT_EQ(at(sum(scalar, {.dim = Dims{0}}), 0), -2);
  EXPECT_EQ(at(argmax(scalar, {.dim = -1}), 0), 0);
  EXPECT_EQ(at(max(scalar, 0).values, 0), -2);
}

TEST(Reduce, Errors) {
  const Tensor x = list({1, 2, 3});
  expect_error<IndexError>([&] { sum(x, {.dim = Dims{1}}); },
                           "sum: dim 1 is out of range for 1 dims (expected -1 to 0)");
  expect_error<ValueError>([&] { sum(x, {.dim = Dims{0, -1}}); }, "sum: dim -1 is given twice in (0, -1)");
  expect_error<ShapeError>(
      [&] {
        argmax(Tensor::empty({2, 0}, float32), {.dim = 1});
      },
      "argmax: dim 1 of x is empty (shape (2, 0)), so there is no value to return");
  expect_error<DTypeError>([&] { mean(x, {.dtype = int32}); },
                           "mean: dtype must be float16, bfloat16, float32 or float64, got int32");
  expect_error<DTypeError>([&] { amax(Tensor::empty({2}, float8_e5m2)); },
                           "amax: x must not be an 8-bit float, got float8_e5m2; convert it with to(float32)");
  expect_error<ValueError>([&] { var(x, {.correction = kNan}); }, "var: correction must be finite, got nan");
  expect_error<ValueError>([&] { norm(x, {.p = kNan}); }, "norm: p must be a number, got nan");
  expect_error<DTypeError>([&] { sum(Tensor()); }, "sum: x is required, got nothing");
  expect_error<DTypeError>([&] { sum(x, {.out = Tensor::empty({}, int64)}); }, "sum: out must be float32, got int64");
  expect_error<ShapeError>([&] { sum(x, {.keepdim = true, .out = Tensor::empty({}, float32)}); },
                           "sum: out must have shape (1,), got ()");
}

TEST(Reduce, OutIsWrittenWhateverItHeldAndWhereverItLies) {
  Random random(7);
  const Tensor x = numbers({6, 10}, float32, random), want = sum(x, {.dim = Dims{1}});
  const Tensor memory = filled({18}, float32, [](int64_t) { return kNan; }), strided = slice(memory, 0, 0, {}, 3);
  EXPECT_EQ(sum(x, {.dim = Dims{1}, .out = strided}).raw(), strided.raw());
  for (int64_t i = 0; i < 18; ++i)
    EXPECT_TRUE(i % 3 ? std::isnan(at(memory, i)) : same(at(memory, i), at(want, i / 3)));
  // Over x itself: as if computed before writing.
  const Tensor y = x.clone();
  sum(y, {.dim = Dims{1}, .out = select(y, 1, 0)});
  for (int64_t i = 0; i < 6; ++i) EXPECT_TRUE(same(at(y, i * 10), at(want, i)));
  // Values and places that lie differently.
  const Tensor places = transpose(Tensor::empty({10, 1}, int64), 0, 1),
               values = slice(filled({1, 20}, float32, [](int64_t) { return kNan; }), 1, 0, {}, 2);
  const ExtremeResult r = max(x, 0, {.keepdim = true, .out = values, .out_indices = places});
  for (int64_t c = 0; c < 10; ++c) EXPECT_EQ(at(r.values, c), at(x, static_cast<int64_t>(at(r.indices, c)) * 10 + c));
}

TEST(Reduce, KeptDimsKeepTheirOrderInMemory) {
  const Tensor x = permute(Tensor::empty({2, 5, 6, 3}, float32), {0, 3, 1, 2});  // channels last
  EXPECT_EQ(amax(filled({2, 3}, float32, [](int64_t i) { return i; }), {.dim = Dims{0}}).strides(), Dims{1});
  EXPECT_EQ(sum(x, {.dim = Dims{2}, .keepdim = true}).stride(1), 1);
}

TEST(Reduce, OffsetsBeyondTwoToThe31) {
  // A byte a row, 2^31 + 2^30 bytes apart, without ever touching most of the memory.
  const int64_t far = (int64_t{3} << 30);
  const Tensor memory = Tensor::empty({far + 2}, uint8);
  memory.data<uint8_t>()[0] = 3, memory.data<uint8_t>()[1] = 4, memory.data<uint8_t>()[far] = 5,
  memory.data<uint8_t>()[far + 1] = 7;
  const Tensor x = memory.with_layout({2, 2}, {far, 1}, 0);
  EXPECT_EQ(at(sum(x, {.dim = Dims{0}}), 1), 11);
  EXPECT_EQ(at(sum(x, {.dim = Dims{1}}), 1), 12);
  EXPECT_EQ(at(argmax(x), 0), 3);
}

}  // namespace
}  // namespace tenor
