// Sums follow the published order bit for bit, on every layout, alone, in a batch and on any number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "src/core/reduction_order.h"
#include "src/ops/reduce/reduce_testing.h"
#include "tenor/reduce.h"

namespace tenor {
namespace {

using namespace tenor::testing;

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

/// Dense runs of whole sets of lanes, of several outputs side by side: channels of images.
TEST(Reduce, RunsOfSeveralOutputsFollowTheOrder) {
  Random random(13);
  for (DType dtype : kFloats)
    for (const Dims& shape : {Dims{3, 5, 8, 8}, Dims{70, 3, 32, 2}, Dims{2, 19, 100, 32}, Dims{9, 1, 16, 32}}) {
      const Tensor x = numbers(shape, dtype, random), shifted = slice(numbers(shape, dtype, random), 1, shape[1] / 2);
      for (const Tensor& view : {x, shifted}) {
        const auto rows = sequences(view, {0, 2, 3});
        const Tensor got = sum(view, {.dim = Dims{0, 2, 3}}), top = amax(view, {.dim = Dims{0, 2, 3}});
        for (size_t i = 0; i < rows.size(); ++i) {
          const auto want = [&]<class C>(C) {
            return in_order<C>(
                rows[i], 0, [](C v) { return v; }, [](C a, C b) { return a + b; });
          };
          const double total = dtype == float64 ? want(0.0) : want(0.0f);
          EXPECT_EQ(at(got, static_cast<int64_t>(i)), rounded(total, dtype)) << describe(view);
          EXPECT_EQ(at(top, static_cast<int64_t>(i)), *std::max_element(rows[i].begin(), rows[i].end()));
        }
      }
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

}  // namespace
}  // namespace tenor
