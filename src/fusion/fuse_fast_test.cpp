// fast=True on the CPU: contractions take epilogues, with one rounding.
#include "src/core/testing.h"
#include "src/fusion/fuse_fast_testing.h"
#include "src/ops/contract/gemm.h"
#include "tenor/explain.h"

namespace tenor {
namespace {

using fast_testing::Case;
using fast_testing::Shape;

Tensor random(const Dims& shape, DType dtype, uint64_t seed) {
  const Tensor x = Tensor::empty(shape, float32);
  uint64_t state = seed * 2654435761u + 88172645463325252u;
  for (int64_t i = 0; i < x.numel(); ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    x.data<float>()[i] = static_cast<float>(static_cast<int64_t>(state >> 40) - (1 << 23)) / (1 << 23);
  }
  return x.to(dtype);
}

FusedFunction fast(const Case& c) {
  return FusedFunction([&](const std::vector<Tensor>& in) { return std::vector<Tensor>{c.fn(in)}; }, {.fast = true});
}

TEST(FuseFast, EpiloguesRoundOnce) {
  for (DType dtype : {float32, bfloat16, float16})
    for (const Shape& s : {Shape{{}, 33, 47, 70}, Shape{{}, 1, 300, 64}, Shape{{3}, 5, 64, 129},
                           Shape{{2, 3}, 17, 9, 8}, Shape{{}, 700, 1100, 40}})
      for (const Case& c : fast_testing::cases()) {
        const std::vector<Tensor> in = fast_testing::inputs_of(s, dtype, random);
        std::vector<Tensor> wide;
        for (const Tensor& x : in) wide.push_back(x.to(float64));
        const FusedFunction fused = fast(c);
        ASSERT_EQ(fused.kernels(in), 1) << c.name << ": " << fused.why_not(in);
        const Tensor got = fused(in)[0], reference = c.fn(wide);
        ASSERT_EQ(got.dtype(), dtype);
        ASSERT_EQ(got.shape(), reference.shape());
        const auto errors = fast_testing::errors_of(got, reference, s.k);
        EXPECT_LE(errors.worst, 1) << c.name << " " << name(dtype) << " m=" << s.m;
        EXPECT_GE(errors.exact, dtype == float32 ? 0 : 0.98) << c.name << " " << name(dtype) << " m=" << s.m;
      }
}

/// Of several matrices and strides: the same numbers as of contiguous copies.
TEST(FuseFast, StridesAndBatches) {
  const auto fn = [](Tensor x, Tensor w, Tensor r) { return add(relu(matmul(x, w)), r); };
  const auto fused = fuse(fn, {.fast = true});
  const auto check = [&](const Tensor& x, const Tensor& w, const Tensor& r) {
    ASSERT_EQ(fused.function().kernels({x, w, r}), 1);
    const Tensor got = fused(x, w, r);
    const auto errors = fast_testing::errors_of(got, fn(x.to(float64), w.to(float64), r.to(float64)), x.shape(-1));
    EXPECT_LE(errors.worst, 1) << describe(x) << describe(w) << describe(r);
  };
  const Tensor x = random({4, 3, 20, 30}, float32, 1), w = random({30, 25}, float32, 2);
  check(x, w, random({4, 3, 20, 25}, float32, 3));
  check(transpose(x, 0, 1), w, random({3, 4, 20, 25}, float32, 3));
  check(transpose(x, 0, 1), random({4, 30, 25}, float32, 4), random({1, 25}, float32, 3));
  check(x, w, random({20, 1}, float32, 3));
  check(transpose(random({30, 20}, float32, 5), 0, 1), transpose(random({25, 30}, float32, 6), 0, 1),
        transpose(random({25, 20}, float32, 7), 0, 1));
}

TEST(FuseFast, WritesInPlace) {
  const auto fn = [](const std::vector<Tensor>& in) {
    add_(in[2], gelu(linear(in[0], in[1])));
    return std::vector<Tensor>{};
  };
  const FusedFunction fused(fn, {.fast = true});
  const Tensor x = random({50, 64}, bfloat16, 1), w = random({70, 64}, bfloat16, 2), y = random({50, 70}, bfloat16, 3);
  std::vector<Tensor> wide = {x.to(float64), w.to(float64), y.to(float64)};
  EXPECT_EQ(fused.kernels({x, w, y}), 1) << fused.why_not({x, w, y});
  fused({x, w, y}), fn(wide);
  EXPECT_LE(fast_testing::errors_of(y, wide[2], 64).worst, 1);
}

/// What a product does not take keeps the function's bits.
TEST(FuseFast, DeclinedChainsKeepTheirBits) {
  const Tensor x = random({40, 32}, bfloat16, 1), w = random({24, 32}, bfloat16, 2), r = random({40, 24}, bfloat16, 3);
  const auto same = [&](auto fn, const char* reason) {
    const auto fused = fuse(fn, {.fast = true});
    const Tensor got = fused(x, w, r), want = fn(x, w, r);
    EXPECT_EQ(testing::values(got), testing::values(want)) << reason;
    const Explanation e =
        explain([&](const std::vector<Tensor>& in) { return std::vector<Tensor>{fn(in[0], in[1], in[2])}; }, {x, w, r},
                {.fast = true});
    bool said = false;
    for (const auto& cut : e.cuts) said = said || cut.reason.find(reason) != std::string::npos;
    EXPECT_TRUE(said) << to_string(e);
  };
  same(
      [](Tensor x, Tensor w, Tensor) {
        const Tensor y = linear(x, w);
        return mul(y, sigmoid(y));
      },
      "twice");
  same(
      [](Tensor x, Tensor w, Tensor) {
        const Tensor y = relu(linear(x, w));
        return div(y, sum(y, {.dim = Dims{-1}, .keepdim = true}));
      },
      "reduction");
  same([](Tensor x, Tensor w, Tensor r) { return mul(linear(x, w), exp(r)); }, "no number and no float array");
  same([](Tensor x, Tensor w, Tensor) { return exp(linear(x, w)); }, "exp is no epilogue step");
  same(
      [](Tensor x, Tensor w, Tensor r) {
        return add(reshape(linear(x, w), {24, 40}), reshape(r, {24, 40}));
      },
      "another shape");
}

/// Under batch_invariant() a row has its bits alone and among others, with an epilogue (CPU) or without (CUDA), also of
/// a function that has run without the mode.
TEST(FuseFast, BatchInvariant) {
  const auto fused = fuse([](Tensor x, Tensor w) { return relu(linear(x, w)); }, {.fast = true});
  for (DType dtype : {float32, bfloat16}) {
    const Tensor x = random({300, 200}, dtype, 1), w = random({1500, 200}, dtype, 2);
    fused(x, w), fused(narrow(x, 0, 7, 1), w);
    const BatchInvariantGuard guard;
    const Tensor all = fused(x, w);
    for (int64_t rows : {1, 5, 70}) {
      const Tensor some = fused(narrow(x, 0, 7, rows), w);
      EXPECT_EQ(testing::values(some), testing::values(narrow(all, 0, 7, rows))) << rows << " " << name(dtype);
    }
  }
}

TEST(FuseFast, ExplainSaysWhatCudaDeclines) {
  const Device meta{DeviceType::kMeta};
  const std::vector<Tensor> in = {Tensor::empty({2048, 512}, bfloat16, meta),
                                  Tensor::empty({1024, 512}, bfloat16, meta)};
  const auto declined = [&](double divisor) {
    const auto fn = [&](const std::vector<Tensor>& x) { return std::vector<Tensor>{div(linear(x[0], x[1]), divisor)}; };
    std::string reasons;
    for (const auto& cut : explain(fn, in, {.device = "h200", .fast = true}).cuts) reasons += cut.reason;
    return reasons;
  };
  for (double divisor : {3.0, -1e-37, 0.0, double(INFINITY)}) EXPECT_EQ(declined(divisor), "") << divisor;
  EXPECT_NE(declined(1e-39).find("reciprocal"), std::string::npos) << "1 / 1e-39 is infinite";
  EXPECT_NE(declined(3e38).find("reciprocal"), std::string::npos) << "1 / 3e38 is subnormal";
  const BatchInvariantGuard guard;
  EXPECT_NE(declined(3).find("batch_invariant()"), std::string::npos);
}

TEST(FuseFast, ExplainShowsTheEpilogue) {
  const std::vector<Tensor> in = {Tensor::empty({2048, 512}, bfloat16, {DeviceType::kMeta}),
                                  Tensor::empty({1024, 512}, bfloat16, {DeviceType::kMeta})};
  const auto fn = [](const std::vector<Tensor>& x) { return std::vector<Tensor>{relu(linear(x[0], x[1]))}; };
  for (const char* device : {"cpu", "h200"}) {
    const Explanation plain = explain(fn, in, {.device = device}),
                      e = explain(fn, in, {.device = device, .fast = true});
    ASSERT_EQ(e.kernels.size(), 1u) << to_string(e);
    EXPECT_NE(e.kernels[0].strategy.find("epilogue"), std::string::npos) << e.kernels[0].strategy;
    EXPECT_TRUE(e.cuts.empty() && e.intermediates.empty());
    EXPECT_EQ(e.bytes_moved, e.bytes_needed);
    EXPECT_EQ(plain.bytes_moved - e.bytes_moved, 2 * 2048 * 1024 * 2);
  }
}

}  // namespace
}  // namespace tenor
