// Tests that hold on every device: moe_test.cpp runs them on the CPU, moe_cuda_test.cpp on a GPU.
#pragma once

#include "src/ops/moe/moe_testing.h"

namespace tenor::testing {

inline void test_route(Device device) {
  MoeDraw draw(1, device);
  for (DType dtype : kFloats)
    for (int64_t E : {1, 2, 7, 31, 32, 33, 64, 100, 128, 200, 256, 384, 512, 1000, 1025, 4096}) {
      const int64_t T = draw.between(1, 40), K = draw.between(1, std::min<int64_t>(E, draw.coin() ? 8 : 40));
      const Tensor logits = draw.normal({T, E}, dtype, 3);
      const std::vector<double> x = on_host(logits);
      for (bool renormalize : {true, false})
        expect_routes(
            moe::route(logits, K, {.renormalize = renormalize}), dtype, false,
            [&](int64_t t) { return moe::reference::route(row_of(x, t, E), K, renormalize); },
            core::text("route {} {}", E, std::string(name(dtype))));
    }
  const std::string empty = "no tokens";
  const RoutingPlan plan = moe::route(Tensor::empty({0, 5}, float32, device), 2);
  EXPECT_EQ(plan.tokens(), 0) << empty;
  EXPECT_EQ(on_host(plan.dispatch(Tensor::empty({0, 3}, float32, device)).offsets()), std::vector<double>(6)) << empty;
}

/// Few distinct logits, NaN and infinities: the order is known exactly.
inline void test_route_ties(Device device) {
  MoeDraw draw(2, device);
  for (DType dtype : kFloats)
    for (int64_t E : {3, 8, 40, 130, 300, 700, 1500}) {
      const int64_t T = 24, K = draw.between(1, std::min<int64_t>(E, 20));
      std::vector<double> x(static_cast<size_t>(T * E));
      for (int64_t i = 0; i < T * E; ++i) {
        const double special[] = {kNan, kInf, -kInf, 0.0, -0.0};
        x[i] = i / E % 2 == 0      ? static_cast<double>(draw.upto(3))
               : draw.upto(2) == 0 ? special[draw.upto(4)]
                                   : static_cast<double>(draw.upto(2));
      }
      for (int64_t e = 0; e < E; ++e) x[e] = -kInf, x[E + e] = kNan, x[2 * E + e] = 0;
      const Tensor logits = draw.placed({T, E}, dtype, x);
      expect_routes(
          moe::route(logits, K), dtype, true,
          [&](int64_t t) { return moe::reference::route(row_of(x, t, E), K, true); }, core::text("ties {}", E));
    }
}

inline void test_route_sigmoid_grouped(Device device) {
  MoeDraw draw(3, device);
  struct Shape {
    int64_t E, groups, selected, K;
  };
  for (DType dtype : kFloats)
    for (const Shape& s : {Shape{256, 8, 4, 8},
                           {384, 1, 1, 8},
                           {64, 64, 5, 5},
                           {12, 3, 2, 6},
                           {1024, 128, 128, 64},
                           {160, 8, 3, 6},
                           {1, 1, 1, 1},
                           {34, 17, 2, 3}})
      for (int variant = 0; variant < 3; ++variant) {
        const bool two = s.E / s.groups > 1 && variant != 1, renormalize = variant != 2;
        const int64_t T = 19;
        const bool ties = variant == 0;  // a few values and a bias of whole halves: exact scores, many ties
        std::vector<double> x = draw.normals(T * s.E), b = draw.normals(s.E);
        if (ties)
          for (double& v : x) v = static_cast<double>(draw.upto(1)) * 1600 - 800;  // scores 0 and 1, exactly
        if (ties)
          for (double& v : b) v = static_cast<double>(draw.upto(3)) / 2 - 2;
        const Tensor logits = draw.placed({T, s.E}, dtype, x),
                     bias = variant == 2 ? Tensor() : draw.placed({s.E}, float32, b);
        const std::vector<double> stored = on_host(logits), added = bias.defined()
                                                                        ? on_host(bias)
                                                                        : std::vector<double>(static_cast<size_t>(s.E));
        const RoutingPlan plan = moe::route_sigmoid_grouped(logits, bias,
                                                            {.top_k = s.K,
                                                             .groups = s.groups,
                                                             .selected_groups = s.selected,
                                                             .group_top_two = two,
                                                             .renormalize = renormalize,
                                                             .scale = 2.5});
        expect_routes(
            plan, dtype, ties,
            [&](int64_t t) {
              return moe::reference::route_sigmoid_grouped(row_of(stored, t, s.E), added, s.K, s.groups, s.selected,
                                                           two, renormalize, 2.5);
            },
            core::text("sigmoid {} {} variant {}", s.E, std::string(name(dtype)), variant));
      }
  // NaN scores rank last within the chosen groups, and never let a dropped group in.
  const Tensor nan = draw.placed({1, 6}, float32, {kNan, kNan, kNan, 5, 4, kNan}, false);
  const RoutingPlan plan = moe::route_sigmoid_grouped(nan, {}, {.top_k = 3, .groups = 2, .selected_groups = 1});
  EXPECT_EQ(on_host(plan.expert_indices(int64)), (std::vector<double>{3, 4, 5}));
}

inline void test_dispatch_and_combine(Device device) {
  MoeDraw draw(4, device);
  for (DType dtype : kFloats)
    for (int64_t T : {0, 1, 3, 64, 130, 700})
      for (int64_t E : {1, 5, 129}) {
        const int64_t K = draw.between(1, 9), H = draw.between(0, 3) * 8 + draw.upto(9);
        const RoutingPlan plan = draw.plan(T, K, E, draw.coin() ? dtype : float32);
        const Order order = order_of(plan);
        const Tensor x = draw.normal({T, H}, dtype), out = poisoned({T * K, H}, dtype, device);
        const moe::DispatchedTokens d = plan.dispatch(x, {.out = out});
        std::vector<double> from = on_host(x), want(static_cast<size_t>(T * K * H));
        for (size_t row = 0; row < order.slots.size(); ++row)
          std::copy_n(from.begin() + order.slots[row] / K * H, H, want.begin() + static_cast<int64_t>(row) * H);
        const std::string what = core::text("T{} E{} K{} H{}", T, E, K, H);
        ASSERT_EQ(on_host(out), want) << what;
        ASSERT_EQ(on_host(d.offsets()), std::vector<double>(order.offsets.begin(), order.offsets.end())) << what;
        // Rows that no slot names hold NaN.
        std::vector<double> rows = draw.normals(T * K * H);
        for (size_t i = order.slots.size() * static_cast<size_t>(H); i < rows.size(); ++i) rows[i] = kNan;
        const Tensor y = draw.placed({T * K, H}, dtype, rows), sum = poisoned({T, H}, dtype, device);
        const Tensor shared = draw.coin() ? draw.normal({T, H}, draw.coin() ? dtype : float32) : Tensor();
        d.combine(y, {.shared = shared, .out = sum});
        const double close = dtype == bfloat16 ? 0.01 : dtype == float16 ? 2e-3 : dtype == float32 ? 1e-5 : 1e-13;
        const std::vector<double> have = on_host(sum), expected = combine_reference(plan, on_host(y), H, shared);
        for (size_t i = 0; i < expected.size(); ++i)
          ASSERT_NEAR(have[i], expected[i], close * (1 + std::abs(expected[i])))
              << what << " " << name(dtype) << " element " << i;
      }
}

struct ExpertShape {
  int64_t T, K, E, I, H;
};
inline SwiGluExperts random_experts(MoeDraw& draw, const ExpertShape& s, DType dtype, bool any = true) {
  const double in = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(s.H, 1))),
               mid = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(s.I, 1)));
  return SwiGluExperts(draw.normal({s.E, s.I, s.H}, dtype, in, any), draw.normal({s.E, s.I, s.H}, dtype, in, any),
                       draw.normal({s.E, s.H, s.I}, dtype, mid, any));
}

inline void test_experts(Device device, std::string_view strategy, const std::vector<DType>& dtypes,
                         const std::vector<ExpertShape>& shapes, bool any = true) {
  MoeDraw draw(5, device);
  for (DType dtype : dtypes)
    for (const ExpertShape& s : shapes)
      for (bool skewed : {false, true}) {
        const SwiGluExperts experts = random_experts(draw, s, dtype, any);
        const RoutingPlan plan = draw.plan(s.T, s.K, s.E, dtype, skewed);
        const Tensor x = draw.normal({s.T, s.H}, dtype), out = poisoned({s.T * s.K, s.H}, dtype, device);
        const moe::DispatchedTokens d = plan.dispatch(x);
        experts.forward_dispatched(d, {.strategy = strategy, .out = out});
        const std::string what = core::text("{} T{} K{} E{} I{} H{}{}", std::string(name(dtype)), s.T, s.K, s.E, s.I,
                                            s.H, skewed ? " skewed" : "");
        const std::vector<double> have = on_host(out),
                                  want = experts_reference(experts, d.tokens(), order_of(plan).offsets);
        ASSERT_LE(relative_error(have, want), allowed_error(dtype)) << what;
        // The whole equals its parts bit for bit, and is deterministic.
        const Tensor y = poisoned({s.T, s.H}, dtype, device), shared = draw.normal({s.T, s.H}, dtype);
        experts.forward_routed(x, plan, {.shared = shared, .strategy = strategy, .out = y});
        ASSERT_TRUE(same_bits(y.to(kCpu), d.combine(out, {.shared = shared}).to(kCpu))) << what;
      }
}

/// A token's bits alone and in a batch.
inline void test_batch_invariance(Device device, std::string_view strategy, DType dtype, const ExpertShape& s) {
  MoeDraw draw(6, device);
  const BatchInvariantGuard guard;
  const SwiGluExperts experts = random_experts(draw, s, dtype, false);
  const Tensor x = draw.normal({s.T, s.H}, dtype, 1, false), logits = draw.normal({s.T, s.E}, float32, 1, false);
  const Tensor all = experts.forward_routed(x, moe::route(logits, s.K), {.strategy = strategy}).to(kCpu);
  for (int64_t t : {int64_t{0}, s.T / 2, s.T - 1}) {
    const auto row = [&](const Tensor& m) {
      return m.with_layout({1, m.shape(1)}, {m.stride(0), 1}, m.offset() + t * m.stride(0));
    };
    const Tensor alone =
        experts.forward_routed(row(x).clone(), moe::route(row(logits), s.K), {.strategy = strategy}).to(kCpu);
    ASSERT_TRUE(same_bits(alone, row(all))) << "token " << t << " of " << s.T;
  }
}

inline void test_grouped_matmul(Device device, const std::vector<DType>& dtypes) {
  MoeDraw draw(7, device);
  for (DType dtype : dtypes)
    for (int64_t G : {1, 3, 40})
      for (DType offset_type : {int32, int64}) {
        const int64_t M = draw.upto(150), N = draw.between(1, 70),
                      K = draw.coin() ? draw.between(0, 90) : 8 * draw.between(1, 20);
        std::vector<double> offsets(static_cast<size_t>(G) + 1);
        for (double& at : offsets) at = static_cast<double>(draw.upto(M));
        offsets[0] = 0;
        std::sort(offsets.begin(), offsets.end());
        std::vector<double> rows = draw.normals(M * K);
        for (size_t i = static_cast<size_t>(offsets.back()) * static_cast<size_t>(K); i < rows.size(); ++i)
          rows[i] = kNan;
        const Tensor x = draw.placed({M, K}, dtype, rows), w = draw.normal({G, N, K}, dtype),
                     at = draw.placed({G + 1}, offset_type, offsets), out = poisoned({M, N}, dtype, device);
        moe::grouped_matmul(x, w, at, {.out = out});
        const std::vector<double> a = on_host(x), b = on_host(w);
        std::vector<double> want(static_cast<size_t>(M * N));
        for (int64_t g = 0; g < G; ++g)
          for (auto i = static_cast<int64_t>(offsets[g]); i < static_cast<int64_t>(offsets[g + 1]); ++i) {
            const auto y = moe::reference::product(&b[g * N * K], &a[i * K], N, K);
            std::copy(y.begin(), y.end(), want.begin() + i * N);
          }
        const std::vector<double> have = on_host(out);
        const std::string what = core::text("{} M{} N{} K{} G{}", std::string(name(dtype)), M, N, K, G);
        ASSERT_LE(relative_error(have, want), allowed_error(dtype)) << what;
        for (int64_t i = static_cast<int64_t>(offsets.back()) * N; i < M * N; ++i)
          ASSERT_EQ(have[i], 0) << what << " behind the last row";
      }
}

}  // namespace tenor::testing
