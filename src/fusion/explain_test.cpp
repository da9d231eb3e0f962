#include "tenor/explain.h"

#include <gtest/gtest.h>

#include "src/core/testing.h"
#include "tenor/tenor.h"

namespace tenor {
namespace {

Tensor shaped(Dims shape, DType dtype = float32) { return Tensor::empty(std::move(shape), dtype, {DeviceType::kMeta}); }

TEST(Explain, ALambdaOnShapes) {
  const auto softmax_like = [](const Tensor& x) { return div(x, sum(x, {.dim = Dims{-1}, .keepdim = true})); };
  const Explanation e = explain(softmax_like, shaped({4096, 8192}, bfloat16));
  ASSERT_EQ(e.steps.size(), 2u);
  EXPECT_EQ(e.steps[0].op, "sum");
  EXPECT_EQ(e.steps[0].op_class, 3);
  EXPECT_EQ(e.steps[0].shape, (Dims{4096, 1}));
  EXPECT_EQ(e.flops, 2 * 4096 * 8192);
  EXPECT_EQ(e.bytes_needed, 2 * 2 * 4096 * 8192);
  EXPECT_EQ(e.device, "cpu");
  EXPECT_GT(e.steps[1].floor_us, 0);
}

TEST(Explain, SeveralInputsInTheirOrder) {
  const Explanation e =
      explain([](const Tensor& x, const Tensor& w) { return matmul(x, w); }, shaped({4, 8}), shaped({8, 3}));
  EXPECT_EQ(e.steps[0].shape, (Dims{4, 3}));
  EXPECT_EQ(e.flops, 2 * 4 * 8 * 3);
}

TEST(Explain, CountsBeyondSixtyFourBitsAreTheLargest) {
  const Explanation e = explain([](const Tensor& x) { return matmul(matmul(x, x), x); }, shaped({2097152, 2097152}));
  EXPECT_EQ(e.steps[0].flops, INT64_MAX);
  EXPECT_EQ(e.flops, INT64_MAX);
}

TEST(Explain, OptionsAndMeasuring) {
  const auto fn = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{mul_(in[0], 3.0), sum(in[0])}; };
  const Tensor x = full({256, 1024}, 2.0);
  const Explanation on_h200 = explain(fn, {x}, {.device = "h200"});
  EXPECT_EQ(on_h200.device, "h200");
  EXPECT_EQ(on_h200.steps[0].time_us, 0);
  const Explanation e = explain(fn, {x}, {.measure = true});
  EXPECT_GT(e.steps[0].time_us, 0);
  EXPECT_GT(e.steps[1].share, 0);
  EXPECT_EQ(x.data<float>()[0], 2) << "measured on a copy";
  EXPECT_THROW(explain(fn, {x}, {.device = "abacus"}), ValueError);
}

TEST(Explain, ErrorsAreTheOperators) {
  EXPECT_THROW(explain([](const Tensor& x) { return matmul(x, x); }, shaped({4, 8})), ShapeError);
}

TEST(Explain, TheTableSaysWhatIsInIt) {
  const Explanation e = explain([](const Tensor& x, const Tensor& w) { return exp(matmul(add(x, x), w)); },
                                shaped({64, 64}), shaped({64, 64}));
  const std::string table = to_string(e);
  for (const char* part : {"add", "matmul", "exp", "f32[64,64]", "contract", "sums k (64)", "3 kernels",
                           "cut between 1 and 2", "through memory"})
    EXPECT_NE(table.find(part), std::string::npos) << part << "\n" << table;
  for (size_t at = 0; at < table.size();) {
    const size_t end = std::min(table.find('\n', at), table.size());
    EXPECT_LE(end - at, 100u) << table.substr(at, end - at);
    at = end + 1;
  }
}

TEST(Explain, NothingRuns) {
  EXPECT_NE(to_string(explain([](const Tensor& x) { return x; }, shaped({4}))).find("nothing runs"), std::string::npos);
}

TEST(Explain, MeasuringTakesArraysOnTheCpuAlone) {
  float data[2] = {};
  const Tensor far = Tensor::wrap(data, {DeviceType::kCuda, 0}, float32, {2});
  const auto fn = [](const std::vector<Tensor>& x) { return std::vector<Tensor>{add(x[0], 1)}; };
  EXPECT_EQ(explain(fn, {far}).flops, 2);
  testing::expect_error<UnsupportedError>([&] { explain(fn, {far}, {.measure = true}); }, "explain: measure takes arrays on the CPU, got one on cuda:0");
}

}  // namespace
}  // namespace tenor
