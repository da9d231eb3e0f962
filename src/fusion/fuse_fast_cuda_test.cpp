// fast=True on CUDA: the Hopper GEMM's epilogues.
#include <tuple>
#include <utility>

#include "src/cuda/capture_testing.h"
#include "src/fusion/fuse_fast_testing.h"
#include "src/ops/contract/epilogue.h"
#include "tenor/explain.h"

namespace tenor {
namespace {

using fast_testing::Case;
using fast_testing::Shape;
using testing::Draw;

/// Of shapes that are not measured to be too small for an epilogue.
class FuseFastCudaTest : public testing::CudaTest {
 protected:
  FuseFastCudaTest() { std::swap(least_, contract::least_epilogue_tiles()); }
  ~FuseFastCudaTest() override { std::swap(least_, contract::least_epilogue_tiles()); }

 private:
  int64_t least_ = 0;
};

/// In [-1, 1].
Tensor random(const Dims& shape, DType dtype, uint32_t seed) {
  return clamp(mul(Draw(seed).dense(shape, float32), 0.4), -1.0, 1.0).to(dtype);
}

TEST_F(FuseFastCudaTest, EpiloguesRoundOnce) {
  for (DType dtype : {bfloat16, float16})
    for (const Shape& s : {Shape{{}, 100, 300, 200}, Shape{{}, 257, 77, 64}, Shape{{3}, 130, 264, 136},
                           Shape{{2, 3}, 65, 72, 96}, Shape{{}, 1000, 2000, 72}})
      for (const Case& c : fast_testing::cases()) {
        if (!c.on_cuda) continue;
        const std::vector<Tensor> in = fast_testing::inputs_of(s, dtype, random);
        std::vector<Tensor> there, wide;
        for (const Tensor& x : in) there.push_back(testing::on_gpu(x)), wide.push_back(x.to(float64));
        const FusedFunction fused([&](const std::vector<Tensor>& x) { return std::vector<Tensor>{c.fn(x)}; },
                                  {.fast = true});
        ASSERT_EQ(fused.kernels(there), 1) << c.name << ": " << fused.why_not(there);
        const Tensor got = testing::on_cpu(fused(there)[0]);
        const auto errors = fast_testing::errors_of(got, c.fn(wide), s.k);
        EXPECT_LE(errors.worst, 1) << c.name << " " << name(dtype) << " m=" << s.m;
        EXPECT_GE(errors.exact, dtype == bfloat16 ? 0.97 : 0.75) << c.name << " " << name(dtype) << " m=" << s.m;
      }
}

/// Few rows, other dtypes and steps run without, and keep the function's bits.
TEST_F(FuseFastCudaTest, DeclinedChainsKeepTheirBits) {
  const auto expect_same = [](const Case& c, const Shape& s, DType dtype) {
    std::vector<Tensor> there;
    for (const Tensor& x : fast_testing::inputs_of(s, dtype, random)) there.push_back(testing::on_gpu(x));
    const FusedFunction fused([&](const std::vector<Tensor>& x) { return std::vector<Tensor>{c.fn(x)}; },
                              {.fast = true});
    EXPECT_EQ(fused.why_not(there), "") << c.name;
    EXPECT_TRUE(testing::same_bits(testing::on_cpu(fused(there)[0]), testing::on_cpu(c.fn(there))))
        << c.name << " " << name(dtype) << " m=" << s.m;
  };
  for (const Case& c : fast_testing::cases()) {
    if (!c.on_cuda) expect_same(c, {{}, 257, 77, 64}, bfloat16);
    expect_same(c, {{}, 64, 300, 64}, float16);
    expect_same(c, {{}, 1, 300, 200}, bfloat16);
    expect_same(c, {{2}, 70, 90, 64}, float32);
  }
}

TEST_F(FuseFastCudaTest, BatchInvariant) {
  const auto fused = fuse([](Tensor x, Tensor w) { return silu(linear(x, w)); }, {.fast = true});
  const Tensor x = testing::on_gpu(random({300, 256}, bfloat16, 1)),
               w = testing::on_gpu(random({512, 256}, bfloat16, 2));
  EXPECT_EQ(fused.function().kernels({x, w}), 1);
  fused(x, w);
  const BatchInvariantGuard guard;
  EXPECT_EQ(fused.function().kernels({x, w}), 0);
  const Tensor all = fused(x, w);
  for (int64_t rows : {1, 20, 64, 65, 200})
    EXPECT_TRUE(
        testing::same_bits(testing::on_cpu(fused(narrow(x, 0, 7, rows), w)), testing::on_cpu(narrow(all, 0, 7, rows))))
        << rows;
}

/// Arrays of the result's size, which come through the ring where TMA can read them: sizes on and off its boxes, tiles
/// of both layouts, long and short k, shared ones and parts of others.
TEST_F(FuseFastCudaTest, ArraysBesideTheResult) {
  const auto fn = [](Tensor x, Tensor w, Tensor r) { return add(relu(matmul(x, w)), r); };
  const auto fused = fuse(fn, {.fast = true});
  const auto check = [&](const Tensor& x, const Tensor& w, const Tensor& r) {
    const Tensor a = testing::on_gpu(x), b = testing::on_gpu(w), c = testing::on_gpu(r);
    ASSERT_EQ(fused.function().kernels({a, b, c}), 1);
    const Tensor got = testing::on_cpu(fused(a, b, c));
    EXPECT_LE(fast_testing::errors_of(got, fn(x.to(float64), w.to(float64), r.to(float64)), x.shape(-1)).worst, 1)
        << describe(x) << describe(w) << describe(r);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(testing::same_bits(got, testing::on_cpu(fused(a, b, c))));
  };
  for (const auto& [m, n, k] : {std::tuple{300, 520, 64}, {129, 136, 200}, {2200, 1096, 72}, {700, 2048, 1032}})
    for (const bool outer : {false, true}) {
      const Tensor x = random({m, k}, bfloat16, 1), w = mul(random({n, k}, bfloat16, 2), 2 / std::sqrt(double(k)));
      const Tensor columns = transpose(w.to(bfloat16), 0, 1);
      check(x, outer ? columns.contiguous() : columns, random({m, n}, bfloat16, 3));
    }
  const Tensor x = random({3, 140, 96}, float16, 4), w = random({3, 200, 96}, float16, 5);
  check(x, transpose(w, 1, 2), random({3, 140, 200}, float16, 6));
  check(x, transpose(w, 1, 2), expand(random({1, 140, 200}, float16, 7), {3, 140, 200}));
  check(x, transpose(w, 1, 2), narrow(random({3, 140, 264}, float16, 8), 2, 8, 200));
  check(x, transpose(w, 1, 2), narrow(random({3, 140, 264}, float16, 9), 2, 3, 200));
}

TEST_F(FuseFastCudaTest, OuterAndUnalignedOperands) {
  const auto fn = [](Tensor x, Tensor w, Tensor r) { return add(relu(matmul(x, w)), r); };
  const auto fused = fuse(fn, {.fast = true});
  const auto check = [&](const Tensor& x, const Tensor& w, const Tensor& r) {
    ASSERT_EQ(fused.function().kernels({testing::on_gpu(x), testing::on_gpu(w), testing::on_gpu(r)}), 1);
    const Tensor got = testing::on_cpu(fused(testing::on_gpu(x), testing::on_gpu(w), testing::on_gpu(r)));
    EXPECT_LE(fast_testing::errors_of(got, fn(x.to(float64), w.to(float64), r.to(float64)), x.shape(-1)).worst, 1)
        << describe(x) << describe(w) << describe(r);
  };
  check(random({200, 128}, bfloat16, 1), random({128, 320}, bfloat16, 2), random({200, 320}, bfloat16, 3));
  check(random({200, 131}, bfloat16, 1), random({131, 325}, bfloat16, 2), random({200, 325}, float32, 3).to(bfloat16));
  check(random({2, 96, 128}, float16, 1), random({2, 128, 96}, float16, 2),
        transpose(random({96, 96}, float16, 3), 0, 1));
}

/// What was measured to be slower with an epilogue has none, and says so. Needs no GPU.
TEST(FuseFastPlans, ShapesAndFunctionsThatGainNothing) {
  const auto why = [](auto fn, int64_t m) {
    const auto shaped = [](Dims shape) { return Tensor::empty(std::move(shape), bfloat16, {DeviceType::kMeta}); };
    const Explanation e =
        explain([&](const std::vector<Tensor>& in) { return std::vector{fn(in[0], in[1], in[2])}; },
                {shaped({m, 64}), shaped({512, 64}), shaped({512})}, {.device = "h200", .fast = true});
    return e.cuts.empty() ? std::string() : e.cuts[0].reason;
  };
  const auto gelu_of_sum = [](Tensor x, Tensor w, Tensor b) { return gelu(add(linear(x, w), b)); };
  const auto gelu_of_linear = [](Tensor x, Tensor w, Tensor b) { return gelu(linear(x, w, b)); };
  const auto silu_of_sum = [](Tensor x, Tensor w, Tensor b) { return silu(add(linear(x, w), b)); };
  constexpr int64_t kEnough = 128 * 32;  // 32 x 2 tiles
  EXPECT_NE(why(gelu_of_linear, kEnough - 128).find("fewer than 64 tiles"), std::string::npos);
  EXPECT_EQ(why(gelu_of_linear, kEnough), "");
  EXPECT_EQ(why(silu_of_sum, kEnough), "");
  EXPECT_NE(why(gelu_of_sum, kEnough).find("gelu is faster in a kernel of its own"), std::string::npos);
}

}  // namespace
}  // namespace tenor
