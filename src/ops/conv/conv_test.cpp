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
TEST(Conv, GradientsAreThoseOfDifferences) { check_differences(kCpu, 10, 30, {"direct", "implicit_gemm", "auto"}); }
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

/// Rows that hold whole panels of pixels, which are read in place, and enough of them for several at once.
TEST(Conv, LongRows) {
  ConvDraw draw(8);
  for (int i = 0; i < 160; ++i) {
    const int64_t k = draw.between(1, 7), h = draw.between(1, 3) == 1 ? 1 : k, dilation = draw.between(1, 2);
    const bool depthwise = i % 2 == 0;
    const int64_t groups = depthwise ? draw.between(2, 4) : draw.between(1, 2), in = depthwise ? 1 : draw.between(1, 7),
                  out = depthwise ? 1 : draw.between(1, 15);
    const ConvCase c{{draw.between(1, 2), groups * in, draw.between(h * dilation, 24), draw.between(33, 100)},
                     {groups * out, in, h, k},
                     {.stride = {draw.between(1, 2), i % 5 == 0 ? 2 : 1},
                      .padding = {draw.upto(h / 2), draw.upto(k / 2)},
                      .dilation = {dilation, draw.between(1, 2)},
                      .groups = groups}};
    check_strategies(c, kFloats[i % 4], {"direct", "implicit_gemm"});
  }
}

/// Windows side by side: one product whose columns are a window's places.
TEST(Conv, TransposedWindowsSideBySide) {
  ConvDraw draw(9);
  for (int i = 0; i < 80; ++i) {
    const DType dtype = kFloats[i % 4];
    const int64_t kh = draw.between(1, 3), kw = draw.between(1, 4), in = draw.between(1, 5), out = draw.between(1, 9);
    const Dims small{draw.between(1, 2), in, draw.between(1, 4), draw.between(1, 80)}, filter{in, out, kh, kw},
        wide{small[0], out, small[2] * kh, small[3] * kw};
    const ConvCase c{wide, {in, out, kh, kw}, {.stride = {kh, kw}}};
    const auto input = draw.small(product(small)), weight = draw.small(product(filter)), bias = draw.small(out);
    auto want = conv::reference::data_backward(c.problem(), input, weight);
    for (size_t e = 0; e < want.size(); ++e) want[e] += bias[e / static_cast<size_t>(wide[2] * wide[3]) % bias.size()];
    for (const bool dense : {true, false}) {
      const Tensor to = dense ? full(wide, dtype, kNan) : draw.poison(wide, dtype);
      for (const char* strategy : {"implicit_gemm", "direct", "auto"}) {
        conv_transpose(draw.placed(small, dtype, input), draw.placed(filter, dtype, weight),
                       draw.placed({out}, dtype, bias), {.stride = {kh, kw}, .strategy = strategy, .out = to});
        expect_exact(to, want, c.text() + " " + strategy + " " + std::string(name(dtype)));
      }
    }
  }
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
