#include "src/ops/moe/moe_score.h"
#include "src/ops/moe/moe_shared_tests.h"

namespace tenor {
namespace {

using moe::RoutingPlan;
using moe::SwiGluExperts;
using testing::expect_error;
using testing::kNan;
using testing::list;

TEST(Moe, Route) { testing::test_route(kCpu); }
TEST(Moe, RouteTies) { testing::test_route_ties(kCpu); }
TEST(Moe, RouteSigmoidGrouped) { testing::test_route_sigmoid_grouped(kCpu); }
TEST(Moe, DispatchAndCombine) { testing::test_dispatch_and_combine(kCpu); }
TEST(Moe, GroupedMatmul) { testing::test_grouped_matmul(kCpu, {float32, float16, bfloat16, float64}); }

const std::vector<testing::ExpertShape> kShapes = {{1, 1, 1, 1, 1},    {5, 2, 3, 7, 9},     {40, 3, 8, 24, 33},
                                                   {70, 2, 2, 33, 64}, {9, 4, 100, 16, 16}, {0, 2, 3, 8, 8},
                                                   {3, 2, 4, 0, 5},    {1300, 1, 2, 5, 6}};

TEST(Moe, Experts) {
  for (const char* strategy : {"gemm", "scalar"})
    testing::test_experts(kCpu, strategy, {float32, float16, bfloat16, float64}, kShapes);
}

TEST(Moe, BatchInvariance) {
  for (DType dtype : {float32, bfloat16})
    for (const char* strategy : {"auto", "scalar"})
      testing::test_batch_invariance(kCpu, strategy, dtype, {150, 2, 3, 64, 96});
}

TEST(Moe, ThreadsDoNotShow) {
  testing::MoeDraw draw(8, kCpu);
  for (DType dtype : {float32, bfloat16}) {
    const testing::ExpertShape s{90, 2, 40, 24, 32};
    const SwiGluExperts experts = testing::random_experts(draw, s, dtype);
    const Tensor x = draw.normal({s.T, s.H}, dtype), logits = draw.normal({s.T, s.E}, dtype);
    const auto run = [&](int threads) {
      const testing::Threads count(threads);
      return experts.forward(x, logits, s.K);
    };
    const Tensor one = run(1);
    EXPECT_TRUE(testing::same_bits(one, run(3)));
    EXPECT_TRUE(testing::same_bits(one, run(16)));
  }
}

TEST(Moe, ForwardsAreTheirParts) {
  testing::MoeDraw draw(9, kCpu);
  const testing::ExpertShape s{33, 3, 12, 20, 18};
  const SwiGluExperts experts = testing::random_experts(draw, s, bfloat16);
  const Tensor x = draw.normal({s.T, s.H}, bfloat16), logits = draw.normal({s.T, s.E}, float32),
               bias = draw.normal({s.E}, float32);
  for (bool renormalize : {true, false})
    EXPECT_TRUE(testing::same_bits(experts.forward(x, logits, 3, {.renormalize = renormalize}),
                                   experts.forward_routed(x, moe::route(logits, 3, {.renormalize = renormalize}))));
  const moe::SigmoidGroupedOptions options{.top_k = 3, .groups = 4, .selected_groups = 2, .scale = 1.5};
  EXPECT_TRUE(testing::same_bits(experts.forward_sigmoid_grouped(x, logits, bias, {.routing = options}),
                                 experts.forward_routed(x, moe::route_sigmoid_grouped(logits, bias, options))));
}

/// Its own exp, within two units of the exact one, and monotonic: greater logits never rank lower.
TEST(Moe, Exponential) {
  float before = 0;
  for (double x = -105; x < 89.5; x += 0.000731) {
    const auto at = static_cast<float>(x);
    const float have = moe::exponential(at);
    const double want = std::exp(static_cast<double>(at));
    if (want < 3.4e38) {
      EXPECT_NEAR(have, want, want * 2.4e-7 + 1.5e-45) << at;
    }
    EXPECT_GE(have, before) << at;
    before = have;
  }
  EXPECT_EQ(moe::exponential(0.0f), 1.0f);
  EXPECT_EQ(moe::exponential(-testing::kInf), 0.0);
  EXPECT_EQ(moe::exponential(static_cast<float>(-testing::kInf)), 0.0f);
  EXPECT_EQ(moe::exponential(200.0f), static_cast<float>(testing::kInf));
  EXPECT_TRUE(std::isnan(moe::exponential(static_cast<float>(kNan))));
}

/// out= that is an input, of other strides, and weights changed after the plan was made.
TEST(Moe, Results) {
  testing::MoeDraw draw(10, kCpu);
  const testing::ExpertShape s{12, 2, 4, 8, 6};
  const SwiGluExperts experts = testing::random_experts(draw, s, float32);
  const Tensor x = draw.normal({s.T, s.H}, float32, 1, false), logits = draw.normal({s.T, s.E}, float32, 1, false);
  const Tensor want = experts.forward(x, logits, 2);
  const Tensor across = Tensor::empty({s.T, s.H}, float32, kCpu, {1, s.T});
  EXPECT_EQ(experts.forward(x, logits, 2, {.out = across}).raw(), across.raw());
  EXPECT_EQ(testing::values(across), testing::values(want));
  const Tensor onto = x.clone();
  experts.forward(onto, logits, 2, {.out = onto});
  EXPECT_TRUE(testing::same_bits(onto, want));
  const Tensor turned = Tensor::empty({s.T, s.H}, float32, kCpu, {1, s.T});
  core::copy_into(x, turned);
  EXPECT_EQ(experts.forward(turned, logits, 2).stride(0), 1) << "a result keeps its first argument's order of dims";
  const Tensor ids = testing::tensor_of({1, 2}, int64, {1, -1}), weights = testing::tensor_of({1, 2}, float32, {2, 3});
  const RoutingPlan plan(ids, weights, 2);
  weights.data<float>()[0] = 100;
  ids.data<int64_t>()[0] = 0;
  EXPECT_EQ(testing::values(plan.dispatch(testing::tensor_of({1, 1}, float32, {5}))
                                .combine(testing::tensor_of({2, 1}, float32, {5, kNan}))),
            std::vector<double>{10});
  EXPECT_EQ(testing::values(plan.expert_indices(int32)), (std::vector<double>{1, -1}));
  EXPECT_EQ(testing::values(plan.expert_indices()), (std::vector<double>{1, 4294967295.0}));
}

Tensor of(const Dims& shape, DType dtype = float32) { return testing::full(shape, dtype, 0); }

TEST(Moe, RoutingErrors) {
  const Tensor logits = of({2, 6});
  expect_error<ValueError>([&] { moe::route(logits, 7); }, "moe.route: top_k must be 1 to 6, got 7");
  expect_error<ValueError>([&] { moe::route(logits, 0); }, "moe.route: top_k must be 1 to 6, got 0");
  expect_error<ShapeError>([&] { moe::route(of({6}), 1); },
                           "moe.route: logits must have 2 dims, got 1 with shape (6,)");
  expect_error<DTypeError>(
      [&] {
        moe::route(of({2, 6}, int32), 1);
      },
      "moe.route: logits must be float16, bfloat16, float32 or float64, got int32");
  const auto grouped = [&](moe::SigmoidGroupedOptions o, const Tensor& bias = {}, const Tensor& x = of({2, 6})) {
    moe::route_sigmoid_grouped(x, bias, o);
  };
  const std::string op = "moe.route_sigmoid_grouped: ";
  expect_error<ValueError>([&] { grouped({.top_k = 2, .groups = 4, .selected_groups = 1}); },
                           op + "groups 4 does not divide logits' 6 experts");
  expect_error<ValueError>([&] { grouped({.top_k = 2, .groups = 3, .selected_groups = 4}); },
                           op + "selected_groups must be 1 to 3, got 4");
  expect_error<ValueError>([&] { grouped({.top_k = 3, .groups = 3, .selected_groups = 1}); },
                           op + "top_k must be 1 to 2, got 3");
  expect_error<ValueError>([&] { grouped({.top_k = 1, .groups = 6, .selected_groups = 1}); },
                           op + "group_top_two needs two experts a group, got groups of 1");
  expect_error<ValueError>([&] { grouped({.top_k = 1, .groups = 129, .selected_groups = 1}); },
                           op + "groups must be 1 to 128, got 129");
  expect_error<ValueError>([&] { grouped({.top_k = 2, .groups = 3, .selected_groups = 1, .scale = kNan}); },
                           op + "scale must be finite and > 0, got nan");
  expect_error<ValueError>(
      [&] {
        grouped({.top_k = 1, .groups = 1, .selected_groups = 1}, {}, of({1, 1025}));
      },
      op + "logits must have 1 to 1024 experts, got 1025");
  expect_error<DTypeError>([&] { grouped({.top_k = 2, .groups = 3, .selected_groups = 1}, of({6}, float16)); },
                           op + "bias must be float32, got float16");
  expect_error<ShapeError>([&] { grouped({.top_k = 2, .groups = 3, .selected_groups = 1}, of({5})); },
                           op + "bias must have shape (6,), got (5,)");
}

TEST(Moe, PlanErrors) {
  const std::string op = "moe.RoutingPlan: ";
  const Tensor weights = of({1, 2});
  const auto plan = [&](std::vector<double> ids, int64_t experts = 3) {
    return RoutingPlan(testing::tensor_of({1, 2}, int64, ids), weights, experts);
  };
  expect_error<IndexError>([&] { plan({0, 3}); }, op + "expert_indices[0, 1] is 3, expected -1 to 2");
  expect_error<IndexError>([&] { plan({-2, 0}); }, op + "expert_indices[0, 0] is -2, expected -1 to 2");
  expect_error<IndexError>(  // no -1, though its bits are those of one
      [&] {
        moe::RoutingPlan(testing::full({1, 2}, int64, -1).to(uint64), testing::full({1, 2}, float32, 1), 3);
      },
      op + "expert_indices[0, 0] is 18446744073709551615, expected -1 to 2");
  expect_error<ValueError>([&] { plan({0, 0}, 0); }, op + "experts must be 1 to 2147483646, got 0");
  expect_error<ShapeError>(
      [&] {
        RoutingPlan(of({2, 2}, int32), weights, 3);
      },
      op + "weights must have shape (2, 2), got (1, 2)");
  expect_error<DTypeError>(
      [&] {
        RoutingPlan(of({1, 2}), weights, 3);
      },
      op + "expert_indices must be an integer array, got float32");
  expect_error<ShapeError>([&] { plan({0, 1}).dispatch(of({3, 4})); }, "moe.dispatch: x has 3 tokens, but the plan 1");
  expect_error<ShapeError>(
      [&] {
        plan({0, 1}).dispatch(of({1, 4})).combine(of({1, 4}));
      },
      "moe.combine: y has 1 rows, but the plan 2");
  expect_error<DTypeError>(
      [&] {
        plan({0, 1}).dispatch(of({1, 4})).combine(of({2, 4}), {.shared = of({1, 4}, float16)});
      },
      "moe.combine: shared must be float32 or y's float32, got float16");
  expect_error<DTypeError>(
      [&] {
        plan({0, 1}).expert_indices(float32);
      },
      "moe.expert_indices: dtype must be an integer one, got float32");
}

TEST(Moe, ExpertErrors) {
  const std::string op = "moe.SwiGluExperts: ";
  expect_error<ShapeError>(
      [] {
        SwiGluExperts(of({6, 5, 4}), of({6, 5, 4}), of({6, 5, 4}));
      },
      op + "down must have shape (6, 4, 5), got (6, 5, 4)");
  expect_error<DTypeError>(
      [] {
        SwiGluExperts(of({6, 5, 4}), of({6, 5, 4}, float16), of({6, 4, 5}));
      },
      op + "up must have gate's dtype float32, got float16");
  const SwiGluExperts experts(of({6, 5, 4}), of({6, 5, 4}), of({6, 4, 5}));
  const Tensor x = of({2, 4}), logits = of({2, 6});
  expect_error<ShapeError>(
      [&] {
        experts.forward(of({2, 5}), logits, 1);
      },
      "moe.forward: x must have the experts' 4 columns, got shape (2, 5)");
  expect_error<DTypeError>(
      [&] {
        experts.forward(of({2, 4}, float16), logits, 1);
      },
      "moe.forward: x must have gate's dtype float32, got float16");
  expect_error<ShapeError>(
      [&] {
        experts.forward(x, of({2, 7}), 1);
      },
      "moe.forward: logits must have shape (2, 6), got (2, 7)");
  expect_error<ValueError>([&] { experts.forward(x, logits, 9); }, "moe.route: top_k must be 1 to 6, got 9");
  const RoutingPlan plan = moe::route(logits, 2), other = moe::route(of({2, 7}), 2);
  expect_error<ShapeError>([&] { experts.forward_routed(x, other); },
                           "moe.forward_routed: the plan has 7 experts, but gate 6");
  expect_error<ValueError>(
      [&] { experts.forward_routed(x, plan, {.strategy = "fast"}); },
      "moe.forward_routed: strategy must be one of 'auto', 'tensorcore', 'gemm', 'scalar', got 'fast'");
  expect_error<UnsupportedError>(
      [&] { experts.forward_routed(x, plan, {.strategy = "tensorcore"}); },
      "moe.forward_routed: strategy 'tensorcore' cannot do this: it takes matrix units of a CUDA device");
  expect_error<ShapeError>(
      [&] {
        experts.forward_routed(x, plan, {.out = of({2, 5})});
      },
      "moe.forward_routed: out must have shape (2, 4), got (2, 5)");
  const std::string grouped = "moe.grouped_matmul: ";
  const auto offsets = [](std::vector<double> at) { return list(at, int64); };
  expect_error<ShapeError>(
      [&] {
        moe::grouped_matmul(x, of({2, 3, 5}), offsets({0, 1, 2}));
      },
      grouped + "weight must have x's K = 4, got shape (2, 3, 5)");
  expect_error<ShapeError>(
      [&] {
        moe::grouped_matmul(x, of({2, 3, 4}), offsets({0, 1}));
      },
      grouped + "offsets must have shape (3,), got (2,)");
  for (const auto& [at, where] :
       {std::pair<std::vector<double>, std::string>{{1, 1, 2}, "start at 0 and never decrease, got 1 at 0"},
        {{0, 3, 2}, "start at 0 and never decrease, got 2 at 2"},
        {{0, 2, 1}, "start at 0 and never decrease, got 1 at 2"},
        {{0, 1, 3}, "end at 2 at most, got 3"},
        {{0, 1, -1}, "start at 0 and never decrease, got -1 at 2"}})
    expect_error<ValueError>(
        [&] {
          moe::grouped_matmul(x, of({2, 3, 4}), offsets(at));
        },
        grouped + "offsets must " + where);
  expect_error<DTypeError>(
      [&] {
        moe::grouped_matmul(x, of({2, 3, 4}), of({3}, int16));
      },
      grouped + "offsets must be int32 or int64, got int16");
}

}  // namespace
}  // namespace tenor
