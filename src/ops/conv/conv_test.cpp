// Convolutions on the CPU: every strategy and direction, transposed ones, what has nothing to sum, threads and batches.
#include "src/ops/conv/conv_cuda.h"
#include "src/ops/conv/conv_shared_tests.h"
#include "tenor/device.h"
#include "tenor/modes.h"

namespace tenor::testing {
namespace {

TEST(Conv, DirectIsExactOnDraws) { check_draws(kCpu, 1, 2000, {"direct"}); }
TEST(Conv, ImplicitGemmIsExactOnDraws) { check_draws(kCpu, 2, 2000, {"implicit_gemm"}); }
TEST(Conv, VendorIsExactOnDraws) { check_draws(kCpu, 3, 2000, {"vendor"}); }  // it compiles a kernel for each
TEST(Conv, AutoIsExactOnDraws) { check_draws(kCpu, 4, 400, {"auto"}); }

TEST(Conv, NotNumbersReachWhatReadsThem) {
  check_not_numbers(kCpu, 6, 300, {"direct", "implicit_gemm"});
  check_not_numbers(kCpu, 7, 60, {"vendor", "auto"});
}
TEST(Conv, WideStrides) { check_wide_stride(kCpu, {"direct", "implicit_gemm", "auto"}); }
TEST(Conv, EmptyProblemsAsOthers) { check_empty(kCpu, {"direct", "implicit_gemm", "vendor"}); }

TEST(Conv, TransposedIsExactOnDraws) { check_transposed(kCpu, 5, 400, {"direct", "implicit_gemm"}); }

/// The bias that cuDNN is told of is dense: one a channel of what is written, which the data direction's is the input.
TEST(Conv, CudnnDeclinesABiasWithGaps) {
  const auto why_not = [](const Dims& filter, conv::Direction direction, int64_t stride) {
    static constexpr char kBias[8] = {};
    conv::ConvProblem p = ConvCase{{1, filter[1], 5}, filter, {}}.problem();
    p.direction = direction, p.bias = kBias, p.bias_stride = stride;
    return conv::cuda_vendor_why_not(p);
  };
  const std::string gaps = "the bias has gaps";
  for (const int64_t stride : {0, 2}) {
    EXPECT_EQ(why_not({1, 6, 3}, conv::Direction::kDataBackward, stride), gaps);
    EXPECT_NE(why_not({1, 6, 3}, conv::Direction::kForward, stride), gaps);
    EXPECT_EQ(why_not({6, 1, 3}, conv::Direction::kForward, stride), gaps);
    EXPECT_NE(why_not({6, 1, 3}, conv::Direction::kDataBackward, stride), gaps);
  }
  EXPECT_NE(why_not({1, 6, 3}, conv::Direction::kDataBackward, 1), gaps);
}

/// Blocks of 32 columns are counted by a launch's second dim, which ends at 65535.
TEST(Conv, TheDevicesGemmTakesAsManyChannelsAsALaunchHasBlocks) {
  for (const conv::Direction direction :
       {conv::Direction::kForward, conv::Direction::kDataBackward, conv::Direction::kWeightBackward}) {
    const auto why_not = [&](int64_t channels, int64_t out_channels) {
      conv::ConvProblem p = ConvCase{{1, channels, 5}, {out_channels, channels, 3}, {}}.problem();
      p.direction = direction;
      return conv::cuda_implicit_gemm_why_not(p);
    };
    constexpr int64_t kMost = 32 * 65535;
    EXPECT_EQ(why_not(1, kMost), "");
    EXPECT_EQ(why_not(kMost, 1), "");
    EXPECT_EQ(why_not(1, kMost + 1), "more than 2097120 channels or 65535 groups");
    EXPECT_EQ(why_not(kMost + 1, 1), "more than 2097120 channels or 65535 groups");
  }
}

TEST(Conv, LargerProblemsThanATile) {
  const std::pair<ConvCase, DType> cases[] = {
      {{{2, 40, 9, 50}, {70, 40, 3, 3}, {.padding = 1}}, float32},
      {{{2, 34, 11, 600}, {34, 1, 1, 5}, {.stride = {1, 2}, .padding = {0, 2}, .groups = 34}}, bfloat16},
      {{{1, 6, 2000}, {4, 3, 7}, {.stride = {3}, .padding = 9, .dilation = {40}, .groups = 2}}, float64}};
  for (const auto& [c, dtype] : cases) check_strategies(c, dtype, {"direct", "implicit_gemm", "vendor"});
}

/// Taps so far apart that no scratch holds a band's rows.
TEST(Conv, TapsFarApart) {
  const ConvCase c{{1, 3, 5}, {3, 1, 3}, {.padding = 3000000, .dilation = {3000000}, .groups = 3}};
  check_strategies(c, float32, {"direct"});
}

/// Images that lie 2^31 elements apart; of the memory between them nothing is touched.
TEST(Conv, StridesBeyond31Bits) {
  const int64_t far = int64_t{1} << 31;
  const auto apart = [&](const std::vector<double>& x) {
    const Tensor t = Tensor::empty({far + 64}, float16).with_layout({2, 1, 3}, {far, 3, 1}, 8);
    assign(t, x);
    return t;
  };
  const Tensor x = apart({1, 2, 3, 4, 5, 6}), w = tensor_of({1, 1, 2}, float16, {1, 10});
  for (const char* strategy : {"direct", "implicit_gemm"}) {
    const ConvOptions o{.padding = ConvPadding(Dims{1}, Dims{0}), .strategy = strategy};
    const Tensor y = apart(std::vector<double>(6, kNan));
    ConvOptions to = o;
    to.out = y;
    EXPECT_EQ(values(conv_forward(x, w, {}, to)), (std::vector<double>{10, 21, 32, 40, 54, 65})) << strategy;
    EXPECT_EQ(values(conv_data_backward(x, w, {2, 1, 3}, o)), (std::vector<double>{12, 23, 30, 45, 56, 60}))
        << strategy;
    EXPECT_EQ(values(conv_weight_backward(x, x, {1, 1, 2}, o)), (std::vector<double>{58, 91})) << strategy;
  }
}

TEST(Conv, NothingToSumGivesTheBias) {
  const Tensor bias = list({3, 5});
  const auto of = [&](const Dims& image, const Dims& filter, int64_t padding) {
    return values(conv_forward(full(image, float32, 1), full(filter, float32, 1), bias, {.padding = padding}));
  };
  using V = std::vector<double>;
  EXPECT_EQ(of({1, 0, 2}, {2, 0, 1}, 0), (V{3, 3, 5, 5}));
  EXPECT_EQ(of({1, 1, 0}, {2, 1, 2}, 1), (V{3, 5}));
  EXPECT_EQ(of({0, 1, 4}, {2, 1, 2}, 0), V{});
  EXPECT_EQ(values(conv_data_backward(full({1, 0, 3}, float32, 1), full({0, 2, 2}, float32, 1), {1, 2, 4})), V(8, 0.0));
  EXPECT_EQ(values(conv_weight_backward(full({0, 1, 4}, float32, 1), full({0, 2, 3}, float32, 1), {2, 1, 2})),
            V(4, 0.0));
  EXPECT_EQ(values(conv_bias_backward(full({0, 2, 3}, float32, 1))), V(2, 0.0));
}

/// With random values every bit must agree.
TEST(Conv, BitsDoNotDependOnThreadsNorOnTheBatch) {
  Draw draw(8);
  for (const char* strategy : {"direct", "implicit_gemm"})
    for (const int64_t groups : {1, 24}) {
      const Tensor x = draw.dense({5, 24, 13, 17}, float32), w = draw.dense({24, 24 / groups, 3, 3}, float32);
      const Tensor g = draw.dense({5, 24, 13, 17}, float32);
      const ConvOptions o{.padding = 1, .groups = groups, .strategy = strategy};
      const auto all = [&] {
        std::vector<double> bits = values(conv_forward(x, w, {}, o));
        for (const Tensor& t : {conv_data_backward(g, w, x.shape(), o), conv_weight_backward(x, g, w.shape(), o)}) {
          const std::vector<double> more = values(t);
          bits.insert(bits.end(), more.begin(), more.end());
        }
        return bits;
      };
      const auto with_threads = [&](int count) {
        const Threads guard(count);
        return all();
      };
      const std::vector<double> alone = with_threads(1);
      EXPECT_EQ(alone, with_threads(7)) << strategy;
      const Tensor image = x.with_layout({1, 24, 13, 17}, x.strides(), 3 * x.stride(0));
      const std::vector<double> one = values(conv_forward(image, w, {}, o));
      EXPECT_TRUE(std::equal(one.begin(), one.end(), alone.begin() + 3 * x.stride(0))) << strategy;
    }
}

TEST(Conv, BatchInvariantTakesNoVendor) {
  const BatchInvariantGuard guard;
  EXPECT_THROW(conv_forward(full({1, 1, 3}, float32, 1), full({1, 1, 2}, float32, 1), {}, {.strategy = "vendor"}),
               UnsupportedError);
  EXPECT_EQ(values(conv_forward(full({1, 1, 3}, float32, 1), full({1, 1, 2}, float32, 1))),
            (std::vector<double>{2, 2}));
}

TEST(Conv, SumsIn16BitsAreFloat32) {
  for (const char* strategy : {"direct", "implicit_gemm"}) {
    const Tensor y =
        conv_forward(full({1, 4000, 3, 3}, float16, 1), full({1, 4000, 1, 1}, float16, 1), {}, {.strategy = strategy});
    EXPECT_EQ(values(y)[0], 4000) << strategy;
  }
}

TEST(Conv, WhatNoWindowReadsStaysOut) {
  const Tensor x = list({1, 2, 3, kNan, kNan, 4, 5, 6, kNan, kInf}).with_layout({1, 1, 10}, {10, 10, 1}, 0);
  const Tensor w = list({1, 10, 100}).with_layout({1, 1, 3}, {3, 3, 1}, 0),
               g = list({1, 2}).with_layout({1, 1, 2}, {2, 2, 1}, 0);
  for (const char* strategy : {"direct", "implicit_gemm", "auto"}) {
    const ConvOptions o{.stride = {5}, .strategy = strategy};
    EXPECT_EQ(values(conv_forward(x, w, {}, o)), (std::vector<double>{321, 654})) << strategy;
    EXPECT_EQ(values(conv_weight_backward(x, g, {1, 1, 3}, o)), (std::vector<double>{9, 12, 15})) << strategy;
    EXPECT_EQ(values(conv_data_backward(g, w, {1, 1, 10}, o)),
              (std::vector<double>{1, 10, 100, 0, 0, 2, 20, 200, 0, 0}))
        << strategy;
  }
}

TEST(Conv, OutMayBeAnInput) {
  const Tensor x = list({1, 2, 3}).with_layout({1, 1, 3}, {3, 3, 1}, 0),
               w = list({1, 10, 100}).with_layout({1, 1, 3}, {3, 3, 1}, 0);
  conv_forward(x, w, {}, {.padding = 1, .out = x});
  EXPECT_EQ(values(x), (std::vector<double>{210, 321, 32}));
}

TEST(Conv, ResultsKeepTheOrderOfDims) {
  const Tensor x = full({2, 5, 5, 3}, float32, 1).with_layout({2, 3, 5, 5}, {75, 1, 15, 3}, 0);
  EXPECT_EQ(conv_forward(x, full({4, 3, 3, 3}, float32, 1)).strides(), (Dims{36, 1, 12, 4}));
}

}  // namespace
}  // namespace tenor::testing
