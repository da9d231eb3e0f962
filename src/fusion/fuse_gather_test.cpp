// Gathers inside fused kernels: the bits of the function as it is written, and its errors before anything is written.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "src/core/testing.h"
#include "tenor/tenor.h"

namespace tenor {
namespace {

Tensor random(const Dims& shape, DType dtype, uint32_t seed) { return testing::Draw(seed).dense(shape, dtype); }

/// Entries -size..size-1.
Tensor entries(const Dims& shape, int64_t size, DType dtype, uint32_t seed) {
  const Tensor x = Tensor::empty(shape, int64);
  uint64_t state = seed * 2654435761u + 88172645463325252u;
  for (int64_t i = 0; i < x.numel(); ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    x.data<int64_t>()[i] =
        static_cast<int64_t>(state >> 20) % (is_signed(dtype) ? 2 * size : size) - (is_signed(dtype) ? size : 0);
  }
  return x.to(dtype);
}

/// One kernel, and the function's own bits.
template <class Fn, class... X>
void expect_one_kernel(const char* what, Fn fn, const X&... x) {
  const auto fused = fuse(fn);
  EXPECT_EQ(fused.function().kernels({x...}), 1) << what << ": " << fused.function().why_not({x...});
  EXPECT_TRUE(testing::same_bits(fused(x...), fn(x...))) << what;
}

TEST(FuseGather, FeedsChainsAndRows) {
  const auto embedded = [](Tensor ids, Tensor weight, Tensor bias) {
    return relu(add(mul(embedding(ids, weight), 0.5), bias));
  };
  const auto normed = [](Tensor ids, Tensor weight, Tensor gamma) {
    const Tensor x = embedding(ids, weight), wide = x.to(float32);
    const Tensor scale = rsqrt(add(mean(mul(wide, wide), {.dim = Dims{-1}, .keepdim = true}), 1e-6));
    return mul(mul(wide, scale).to(x.dtype()), gamma);
  };
  for (DType dtype : {float32, bfloat16, float16, float64})
    for (DType index : {int64, int32, uint8})
      for (const Dims& shape : {Dims{}, Dims{1}, Dims{5, 7}, Dims{300}})
        for (int64_t n : {1, 33, 5000}) {
          const Tensor ids = entries(shape, 50, index, 1), weight = random({50, n}, dtype, 2);
          const Tensor row = random({n}, dtype, 3);
          expect_one_kernel("embedding", embedded, ids, weight, row);
          expect_one_kernel("embedding and norm", normed, ids, weight, row);
        }
}

TEST(FuseGather, FormsAndLayouts) {
  const Tensor x = random({40, 30}, float32, 4), across = transpose(random({30, 40}, float32, 5), 0, 1);
  const Tensor rows = entries({17}, 40, int64, 6), cols = entries({9}, 30, int32, 7);
  const auto select = [](int64_t dim) {
    return [dim](Tensor x, Tensor i) { return add(exp(index_select(x, dim, i)), 1); };
  };
  expect_one_kernel("rows", select(0), x, rows);
  expect_one_kernel("columns", select(-1), x, cols);
  expect_one_kernel("rows of a transposed table", select(0), across, rows);
  expect_one_kernel("columns of a transposed table", select(1), across, cols);
  expect_one_kernel(
      "gather", [](Tensor x, Tensor i) { return mul(gather(x, 1, i), 2).to(float16); }, x,
      entries({40, 9}, 30, int64, 8));
  expect_one_kernel(
      "gather along rows", [](Tensor x, Tensor i) { return sub(gather(x, 0, i), 2); }, across,
      entries({6, 30}, 40, int32, 9));
  expect_one_kernel(
      "take_along_dim broadcast", [](Tensor x, Tensor i) { return neg(add(take_along_dim(x, i, 0), 1)); }, x,
      entries({5, 1}, 40, int64, 10));
  expect_one_kernel(
      "a part of a gather", [](Tensor x, Tensor i) { return abs(narrow(index_select(x, 0, i), 0, 3, 8)); }, x, rows);
  expect_one_kernel(
      "cross-entropy",
      [](Tensor x, Tensor i) { return sub(logsumexp(x, {.dim = Dims{-1}, .keepdim = true}), gather(x, -1, i)); }, x,
      entries({40, 1}, 30, int64, 11));
  const auto rope = [](Tensor x, Tensor cosine, Tensor sine, Tensor at) {
    const Tensor c = unsqueeze(index_select(cosine, 0, at), 1), s = unsqueeze(index_select(sine, 0, at), 1);
    const Tensor a = narrow(x, -1, 0, 32), b = narrow(x, -1, 32, 32);
    return sub(mul(a, c), mul(b, s));
  };
  expect_one_kernel("rope", rope, random({50, 4, 64}, bfloat16, 12), random({100, 32}, bfloat16, 13),
                    random({100, 32}, bfloat16, 14), entries({50}, 100, int64, 15));
}

TEST(FuseGather, WhatIsMadeInTheFunctionIsInMemoryFirst) {
  const Tensor x = random({40, 30}, float32, 16), ids = entries({12}, 20, int64, 17);
  const auto computed = [](Tensor x, Tensor i) { return exp(index_select(mul(x, 2), 0, add(i, 20))); };
  EXPECT_TRUE(testing::same_bits(fuse(computed)(x, ids), computed(x, ids)));
  const auto written = [](Tensor x, Tensor i) {
    const Tensor y = add(index_select(x, 0, i), 1);
    mul_(x, 2);
    return add(y, index_select(x, 0, i));
  };
  const Tensor a = x.clone(), b = x.clone();
  EXPECT_TRUE(testing::same_bits(fuse(written)(a, ids), written(b, ids)));
  EXPECT_TRUE(testing::same_bits(a, b));
  const auto moved = [](Tensor x, Tensor i) {
    const Tensor y = gather(x, 1, i);
    add_(i, 1);
    return mul(y, i);
  };
  const Tensor places = entries({40, 3}, 20, int64, 18), c = places.clone(), d = places.clone();
  EXPECT_TRUE(testing::same_bits(fuse(moved)(x, c), moved(x, d)));
  EXPECT_TRUE(testing::same_bits(c, d));
}

TEST(FuseGather, BadEntriesAreTheOperatorsErrorsBeforeAnythingIsWritten) {
  const auto fn = [](Tensor x, Tensor i, Tensor y) {
    add_(y, index_select(x, 0, i));
    return y;
  };
  const auto fused = fuse(fn);
  const Tensor x = random({40, 30}, float32, 19), y = random({5, 30}, float32, 20), before = y.clone();
  const auto error_of = [&](auto&& call) -> std::string {
    try {
      call();
    } catch (const IndexError& e) {
      return e.what();
    }
    return "no IndexError";
  };
  for (int64_t bad :
       {int64_t{40}, int64_t{-41}, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    Tensor i = entries({5}, 40, int64, 21);
    EXPECT_EQ(fused.function().kernels({x, i, y}), 1);
    i.data<int64_t>()[3] = bad;
    const std::string want = error_of([&] { fn(x, i, y.clone()); });
    EXPECT_NE(want.find("out of range for size 40"), std::string::npos) << want;
    EXPECT_EQ(error_of([&] { fused(x, i, y); }), want);
    EXPECT_TRUE(testing::same_bits(y, before));
  }
}

/// Blocks of what is gathered run one after the other; a step on fewer dims writes in place once.
TEST(FuseGather, AnInPlaceStepOnFewerDimsRunsOnce) {
  const auto fn = [](Tensor x, Tensor table, Tensor index) {
    tanh_(x);
    return mul(clamp(index_select(table, 0, index), -1.0, 1.0), x);
  };
  const Tensor table = testing::Draw(3).dense({50, 1}, float64), index = testing::tensor_of({64}, int64, [] {
                                                                   std::vector<double> places;
                                                                   for (int i = 0; i < 64; ++i)
                                                                     places.push_back(i * 7 % 50);
                                                                   return places;
                                                                 }());
  const Tensor x = testing::Draw(4).dense({8}, float64), a = x.clone(), b = x.clone();
  const Tensor want = fn(a, table, index), got = fuse(fn)(b, table, index);
  EXPECT_TRUE(testing::same_bits(a, b));
  EXPECT_TRUE(testing::same_bits(want, got));
}

}  // namespace
}  // namespace tenor
