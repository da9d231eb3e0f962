#include "src/fusion/planner.h"

#include <gtest/gtest.h>

#include "src/fusion/recorder.h"
#include "tenor/tenor.h"

namespace tenor::fusion {
namespace {

Tensor shaped(Dims shape, DType dtype = float32) { return Tensor::empty(std::move(shape), dtype, {DeviceType::kMeta}); }

template <class Fn>
Plan plan_of(Fn fn) {
  Recorder recorder;
  std::vector<Tensor> outputs;
  {
    core::TracerGuard guard(&recorder);
    outputs = {fn()};
  }
  return make_plan(Graph(recorder.steps, outputs));
}

std::vector<std::vector<int>> kernels_of(const Plan& plan) {
  std::vector<std::vector<int>> out;
  for (const auto& kernel : plan.kernels) out.push_back(kernel.steps);
  return out;
}

using Kernels = std::vector<std::vector<int>>;

TEST(Planner, RowsStayTogether) {
  const Tensor x = shaped({64, 512});
  const Plan plan = plan_of([&] {
    const Tensor e = exp(sub(x, amax(x, {.dim = Dims{-1}, .keepdim = true})));
    return div(e, sum(e, {.dim = Dims{-1}, .keepdim = true}));
  });
  EXPECT_EQ(kernels_of(plan), (Kernels{{0, 1, 2, 3, 4}}));
  EXPECT_EQ(plan.bytes_moved, 2 * 64 * 512 * 4);
  EXPECT_EQ(plan.bytes_needed, plan.bytes_moved);
  EXPECT_TRUE(plan.intermediates.empty());
}

TEST(Planner, RowsThatMeetColumnsAreCut) {
  const Tensor x = shaped({8, 8});
  const Plan plan = plan_of([&] { return div(x, sum(transpose(x, 0, 1), {.dim = Dims{-1}, .keepdim = true})); });
  EXPECT_EQ(kernels_of(plan), (Kernels{{0, 1}, {2}}));
  ASSERT_EQ(plan.cuts.size(), 1u);
  EXPECT_NE(plan.cuts[0].reason.find("other rows"), std::string::npos) << plan.cuts[0].reason;
}

TEST(Planner, OtherDimsAreCut) {
  const Tensor x = shaped({8, 4});
  const Plan plan = plan_of([&] { return sum(mul(x, sum(x, {.dim = Dims{1}, .keepdim = true})), {.dim = Dims{0}}); });
  EXPECT_EQ(kernels_of(plan), (Kernels{{0, 1}, {2}}));
}

TEST(Planner, ALongRowIsReadAgain) {
  const Tensor x = shaped({2, 1 << 20});
  const Plan plan = plan_of([&] { return div(x, sum(x, {.dim = Dims{-1}, .keepdim = true})); });
  EXPECT_EQ(kernels_of(plan), (Kernels{{0}, {1}}));
  EXPECT_NE(plan.cuts[0].reason.find("4 MiB"), std::string::npos) << plan.cuts[0].reason;
}

TEST(Planner, WhatIsReducedIsReadOnce) {
  const Tensor x = shaped({8, 64}), y = shaped({8, 32}), w = shaped({64}), whole = shaped({8, 64});
  const auto over_rows = [](const Tensor& t) { return sum(t, {.dim = Dims{-1}, .keepdim = true}); };
  // One sum a row, for each of the row's places in another array.
  for (const Tensor& other : {y, whole}) {
    const Plan plan = plan_of([&] { return add(other, over_rows(x)); });
    EXPECT_EQ(kernels_of(plan), (Kernels{{0}, {1}}));
    EXPECT_NE(plan.cuts[0].reason.find("again for each place"), std::string::npos) << plan.cuts[0].reason;
  }
  EXPECT_EQ(kernels_of(plan_of([&] { return sub(whole, mean(x)); })), (Kernels{{0}, {1}}));
  const Tensor v = shaped({1, 32});
  EXPECT_EQ(kernels_of(plan_of([&] { return mul(over_rows(x), v); })), (Kernels{{0}, {1}}));
  // Read beside rows that are read anyway.
  const Plan both = plan_of([&] {
    const Tensor weighted = over_rows(mul(x, w)), plain = over_rows(mul(x, x));
    return div(weighted, plain);
  });
  EXPECT_EQ(kernels_of(both), (Kernels{{0, 1, 2, 3, 4}}));
  EXPECT_EQ(kernels_of(plan_of([&] { return sub(x, mean(x)); })), (Kernels{{0, 1}}));
}

TEST(Planner, NoKernelWaitsForItself) {
  // exp feeds a product and, past it, the sum: merging exp with the sum would put the product inside.
  const Tensor x = shaped({8, 8});
  const Plan plan = plan_of([&] {
    const Tensor e = exp(x);
    return add(matmul(e, x), e);
  });
  EXPECT_EQ(kernels_of(plan), (Kernels{{0}, {1}, {2}}));
  EXPECT_EQ(plan.intermediates, (std::vector<int>{0, 1}));
  bool between = false;
  for (const auto& cut : plan.cuts)
    between = between || (cut.before == 0 && cut.after == 2 && cut.reason.find("between") != std::string::npos);
  EXPECT_TRUE(between);
}

TEST(Planner, ArraysOfOneKernelAreLimited) {
  std::vector<Tensor> xs;
  for (int i = 0; i < 60; ++i) xs.push_back(shaped({4}));
  const Plan plan = plan_of([&] {
    Tensor y = xs[0];
    for (int i = 1; i < 60; ++i) y = add(y, xs[static_cast<size_t>(i)]);
    return y;
  });
  EXPECT_EQ(plan.kernels.size(), 3u);
  for (const auto& kernel : plan.kernels) EXPECT_LE(kernel.bytes_read + kernel.bytes_written, kMaxArrays * 16);
}

TEST(Planner, PartsMergeOnceAllAreInside) {
  const Tensor x = shaped({8, 16});
  const Plan plan = plan_of([&] {
    const Tensor y = exp(x);
    return mul(silu(slice(y, 1, 0, 8)), slice(y, 1, 8, 16));
  });
  EXPECT_EQ(plan.kernels.size(), 1u);
  EXPECT_EQ(plan.bytes_moved, 8 * 16 * 4 + 8 * 8 * 4);
}

TEST(Planner, AGatherIsReadByTheKernelBehindIt) {
  const Tensor x = shaped({100, 8}), i = shaped({3}, int64);
  const Plan plan = plan_of([&] { return sum(exp(index_select(x, 0, i)), {.dim = Dims{-1}}); });
  EXPECT_EQ(kernels_of(plan), (Kernels{{0, 1, 2}}));
  EXPECT_EQ(plan.bytes_moved, 3 * 8 * 4 + 3 * 8 + 3 * 4);
}

TEST(Planner, WhatAGatherReadsIsInMemory) {
  const Tensor x = shaped({100, 8}), i = shaped({3}, int64);
  EXPECT_EQ(kernels_of(plan_of([&] { return exp(index_select(mul(x, 2), 0, i)); })), (Kernels{{0}, {1, 2}}));
  EXPECT_EQ(kernels_of(plan_of([&] { return exp(index_select(x, 0, add(i, 1))); })), (Kernels{{0}, {1, 2}}));
}

TEST(Planner, WritesInPlaceComeAfterReads) {
  const Tensor x = shaped({8, 8});
  const Plan plan = plan_of([&] {
    const Tensor y = mul(x, 2.0);
    const Tensor total = sum(y);
    fill_(y, 0.0);
    return total;
  });
  std::vector<int> order;
  for (const auto& kernel : plan.kernels) order.insert(order.end(), kernel.steps.begin(), kernel.steps.end());
  EXPECT_LT(std::find(order.begin(), order.end(), 1), std::find(order.begin(), order.end(), 2));
}

}  // namespace
}  // namespace tenor::fusion
