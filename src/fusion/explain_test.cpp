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

/// The only kernel of a product on that device.
Explanation::Kernel product_on(const std::string& device, int64_t rows, DType dtype = bfloat16, int64_t inner = 4096) {
  const auto fn = [](const std::vector<Tensor>& x) { return std::vector<Tensor>{matmul(x[0], x[1])}; };
  return explain(fn, {shaped({rows, inner}, dtype), shaped({inner, 4096}, dtype)}, {.device = device}).kernels.at(0);
}

TEST(Explain, CandidatesOfADeviceThatIsNotHereAreAsked) {
  using Lines = std::vector<std::string>;
  const Explanation::Kernel few = product_on("h200", 4);
  EXPECT_EQ(few.strategy, "rows");
  EXPECT_EQ(few.declined, Lines{});
  const Explanation::Kernel many = product_on("h100", 512);
  EXPECT_EQ(many.strategy, "vendor");
  EXPECT_EQ(many.declined, Lines{"rows: takes at most 16 rows or columns, of float32 4 or 8, of float64 1"});
  EXPECT_EQ(product_on("a100", 512).declined.at(1),
            "tiles: the device is no Hopper GPU, or this build has no code of sm_90a");
  EXPECT_EQ(product_on("h200", 64, int32).strategy, "simple");
}

TEST(Explain, ABiasDecidesToo) {
  const auto fn = [](const std::vector<Tensor>& x) { return std::vector<Tensor>{linear(x[0], x[1], x[2])}; };
  const std::vector<Tensor> in{shaped({512, 4096}, bfloat16), shaped({4096, 4096}, bfloat16), shaped({4096}, bfloat16)};
  EXPECT_EQ(explain(fn, in, {.device = "h200"}).kernels.at(0).strategy, "tiles");
  EXPECT_EQ(explain(fn, in, {.device = "a100"}).kernels.at(0).strategy, "simple");
}

TEST(Explain, CopiesAreThoseOfTheDevice) {
  const auto fn = [](const std::vector<Tensor>& x) { return std::vector<Tensor>{linear(x[0], x[1], x[2])}; };
  const std::vector<Tensor> odd{shaped({512, 100}, bfloat16), shaped({64, 100}, bfloat16), shaped({64}, bfloat16)};
  const Explanation e = explain(fn, odd, {.device = "h200"});
  ASSERT_EQ(e.copies.size(), 2u);  // rows of 200 bytes
  EXPECT_EQ(e.copies[0].reason.rfind("x: ", 0), 0u) << e.copies[0].reason;
  EXPECT_EQ(e.copies[1].reason.rfind("weight: ", 0), 0u) << e.copies[1].reason;
  EXPECT_TRUE(explain(fn, odd).copies.empty());
}

TEST(Explain, AReadThatDataNamesSaysWhatItCounts) {
  const auto fn = [](const Tensor& index, const Tensor& table) { return embedding(index, table); };
  const Explanation e = explain(fn, shaped({3}, int64), shaped({1000, 8}));
  EXPECT_NE(e.steps.at(0).note.find("counts the 24 elements that come out, not all 8000"), std::string::npos)
      << e.steps[0].note;
  EXPECT_EQ(e.steps[0].bytes_read, 3 * 8 + 24 * 4);
}

TEST(Explain, EveryLimitSaysHowItIsKnown) {
  const auto source_of = [](const Explanation& e, const std::string& name) {
    for (const Explanation::Limit& l : e.limits)
      if (l.name == name) return l.source;
    return std::string("nothing");
  };
  const auto fn = [](const std::vector<Tensor>& x) { return std::vector<Tensor>{exp(x[0])}; };
  const Explanation h200 = explain(fn, {shaped({4})}, {.device = "h200"}),
                    h100 = explain(fn, {shaped({4})}, {.device = "h100"});
  EXPECT_EQ(source_of(h200, "memory copy"), "measured");
  EXPECT_EQ(source_of(h200, "float32"), "data sheet");
  EXPECT_EQ(source_of(h100, "memory copy"), "data sheet");
  EXPECT_EQ(h100.device_source.find("measured"), std::string::npos) << h100.device_source;
  const Explanation here = explain(fn, {shaped({4})});
  EXPECT_EQ(source_of(here, "float32"), "measured");
  EXPECT_EQ(source_of(here, "float64"), "measured");
  EXPECT_EQ(source_of(here, "exponentials"), "measured");
}

TEST(Explain, MemoryThatTheDeviceLacksIsRemarked) {
  const auto fn = [](const std::vector<Tensor>& x) { return std::vector<Tensor>{exp(x[0])}; };
  const std::vector<Tensor> large{shaped({int64_t{1} << 34}, float32)};
  ASSERT_EQ(explain(fn, large, {.device = "a100"}).remarks.size(), 1u);
  EXPECT_NE(explain(fn, large, {.device = "a100"}).remarks[0].find("137 GB, a100 has 80 GB"), std::string::npos);
  EXPECT_TRUE(explain(fn, {shaped({4})}, {.device = "a100"}).remarks.empty());
}

TEST(Explain, MeasuringIsRefusedForADeviceThatIsNotHere) {
  const auto fn = [](const std::vector<Tensor>& x) { return std::vector<Tensor>{add(x[0], 1)}; };
  EXPECT_THROW(explain(fn, {shaped({4})}, {.device = "a100", .measure = true}), ValueError);
  if (cuda_device_count() > 0) return;
  EXPECT_THROW(explain(fn, {shaped({4})}, {.device = "cuda"}), DeviceError);
}

}  // namespace
}  // namespace tenor
