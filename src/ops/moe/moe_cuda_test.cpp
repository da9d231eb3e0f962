// The family on a GPU: every strategy against the reference, and routing against the CPU bit for bit.
#include "src/core/device_traits.h"
#include "src/cuda/testing.h"
#include "src/ops/moe/moe_shared_tests.h"

namespace tenor {
namespace {

using testing::kGpu;

using MoeCuda = testing::CudaTest;

bool has_hopper() { return core::device_traits(kGpu).capability == 90; }

TEST_F(MoeCuda, Route) { testing::test_route(kGpu); }
TEST_F(MoeCuda, RouteTies) { testing::test_route_ties(kGpu); }
TEST_F(MoeCuda, RouteSigmoidGrouped) { testing::test_route_sigmoid_grouped(kGpu); }
TEST_F(MoeCuda, DispatchAndCombine) { testing::test_dispatch_and_combine(kGpu); }
TEST_F(MoeCuda, GroupedMatmul) { testing::test_grouped_matmul(kGpu, {float32, float16, bfloat16, float64}); }

TEST_F(MoeCuda, RoutingIsTheCpuBitForBit) {
  testing::MoeDraw draw(11, kCpu);
  for (DType dtype : {float32, bfloat16, float16})
    for (int64_t T : {1, 16, 17, 300, 5000})
      for (int64_t E : {8, 130, 256, 600}) {
        const int64_t K = 4;
        const Tensor logits = draw.normal({T, E}, dtype, 2), bias = draw.normal({E}, float32, 1, false);
        const moe::SigmoidGroupedOptions o{
            .top_k = K, .groups = E == 600 ? 4 : 2, .selected_groups = 1 + E % 2, .group_top_two = true};
        const auto compare = [&](const moe::RoutingPlan& here, const moe::RoutingPlan& there) {
          const std::string what = std::to_string(T) + " " + std::to_string(E) + " " + std::string(name(dtype));
          ASSERT_TRUE(testing::same_bits(here.expert_indices(int32), there.expert_indices(int32).to(kCpu))) << what;
          ASSERT_TRUE(testing::same_bits(here.weights(), there.weights().to(kCpu))) << what;
          const Tensor x = Tensor::empty({T, 0}, float32);
          ASSERT_TRUE(testing::same_bits(here.dispatch(x).offsets(), there.dispatch(x.to(kGpu)).offsets().to(kCpu)))
              << what;
        };
        compare(moe::route(logits, K), moe::route(logits.to(kGpu), K));
        compare(moe::route_sigmoid_grouped(logits, bias, o),
                moe::route_sigmoid_grouped(logits.to(kGpu), bias.to(kGpu), o));
      }
}

const std::vector<testing::ExpertShape> kShapes = {{1, 1, 1, 1, 1},    {5, 2, 3, 7, 9},     {40, 3, 8, 24, 33},
                                                   {70, 2, 2, 33, 64}, {9, 4, 100, 16, 16}, {0, 2, 3, 8, 8},
                                                   {3, 2, 4, 0, 5},    {300, 1, 2, 5, 6}};
/// Few rows an expert, many, one expert, hundreds; sizes off every tile.
const std::vector<testing::ExpertShape> kAligned = {
    {1, 2, 8, 64, 128},    {5, 2, 3, 8, 16},      {64, 4, 40, 72, 200}, {200, 2, 2, 136, 264}, {300, 1, 1, 96, 64},
    {150, 3, 300, 24, 72}, {700, 2, 5, 200, 136}, {1, 8, 8, 256, 192},  {260, 1, 2, 72, 136},  {420, 1, 3, 40, 88}};

TEST_F(MoeCuda, ExpertsScalar) {
  testing::test_experts(kGpu, "scalar", {float32, float16, bfloat16, float64}, kShapes);
}
TEST_F(MoeCuda, ExpertsAuto) { testing::test_experts(kGpu, "auto", {float32, float16, bfloat16, float64}, kShapes); }
TEST_F(MoeCuda, ExpertsTensorCore) {
  if (!has_hopper()) GTEST_SKIP() << "no Hopper GPU";
  testing::test_experts(kGpu, "tensorcore", {float16, bfloat16}, kAligned);
}

/// One token takes fewer launches: the bits of dispatch, experts and combine, call after call.
TEST_F(MoeCuda, OneTokenIsItsParts) {
  testing::MoeDraw draw(13, kGpu);
  for (DType dtype : {bfloat16, float16, float32})
    for (const testing::ExpertShape& s : {testing::ExpertShape{1, 1, 1, 8, 8},
                                          {1, 3, 12, 40, 64},
                                          {1, 8, 40, 32, 192},
                                          {1, 5, 9, 16, 1000},
                                          {1, 40, 64, 24, 200},
                                          {1, 70, 100, 16, 136},
                                          {1, 2, 3, 5, 7}})
      for (DType weights : {float32, dtype})
        for (int variant = 0; variant < 3; ++variant) {
          const moe::SwiGluExperts experts = testing::random_experts(draw, s, dtype, variant == 2);
          const Tensor x = draw.normal({1, s.H}, dtype, 1, variant == 2), logits = draw.normal({1, s.E}, weights),
                       shared = variant == 0 ? Tensor() : draw.normal({1, s.H}, variant == 1 ? float32 : dtype);
          const moe::RoutingPlan plan = moe::route(logits, s.K);
          const moe::DispatchedTokens d = plan.dispatch(x);
          const Tensor want = d.combine(experts.forward_dispatched(d), {.shared = shared}).to(kCpu);
          for (int call = 0; call < 3; ++call) {
            const Tensor out = testing::poisoned({1, s.H}, dtype, kGpu);
            experts.forward_routed(x, plan, {.shared = shared, .out = out});
            ASSERT_TRUE(testing::same_bits(out.to(kCpu), want))
                << name(dtype) << " K" << s.K << " E" << s.E << " H" << s.H << " variant " << variant << " " << call;
          }
        }
}

TEST_F(MoeCuda, BatchInvariance) {
  for (DType dtype : {bfloat16, float16, float32})
    testing::test_batch_invariance(kGpu, "auto", dtype, {700, 2, 3, 64, 96});
  testing::test_batch_invariance(kGpu, "scalar", bfloat16, {150, 2, 3, 64, 96});
}

/// One chain of multiply-adds over k: the same bits on both devices.
TEST_F(MoeCuda, ScalarIsTheCpuBitForBit) {
  testing::MoeDraw draw(12, kCpu);
  for (DType dtype : {float32, bfloat16}) {
    const testing::ExpertShape s{50, 2, 5, 33, 40};
    const moe::SwiGluExperts here = testing::random_experts(draw, s, dtype, false);
    const moe::SwiGluExperts there(here.gate().to(kGpu), here.up().to(kGpu), here.down().to(kGpu));
    const Tensor x = draw.normal({s.T, s.H}, dtype, 1, false), logits = draw.normal({s.T, s.E}, float32, 1, false);
    const Tensor cpu = here.forward_routed(x, moe::route(logits, 2), {.strategy = "scalar"}),
                 gpu = there.forward_routed(x.to(kGpu), moe::route(logits.to(kGpu), 2), {.strategy = "scalar"});
    EXPECT_TRUE(testing::same_bits(cpu, gpu.to(kCpu))) << name(dtype);
  }
}

TEST_F(MoeCuda, BadContentsAreDroppedAndFlagged) {
  const Tensor ids = testing::tensor_of({2, 2}, int64, {0, 3, -2, 1}).to(kGpu),
               weights = testing::full({2, 2}, float32, 1).to(kGpu);
  const moe::RoutingPlan plan(ids, weights, 3);
  EXPECT_THROW(synchronize(kGpu), IndexError);
  EXPECT_EQ(testing::on_host(plan.expert_indices(int32)), (std::vector<double>{0, -1, -1, 1}));
  const Tensor x = testing::full({4, 8}, bfloat16, 1).to(kGpu), w = testing::full({2, 8, 8}, bfloat16, 1).to(kGpu);
  const Tensor y = moe::grouped_matmul(x, w, testing::list({0, 9, 2}, int64).to(kGpu));
  EXPECT_THROW(synchronize(kGpu), ValueError);
  EXPECT_EQ(testing::on_host(y)[0], 8);
}

}  // namespace
}  // namespace tenor
