// Convolutions over dense channels-last images, which the CUDA kernels that load by TMA take: small integers exact
// against the reference, results full of NaN before, the same bits each time and whatever else is in the batch.
#include "src/cuda/testing.h"
#include "src/ops/conv/conv_shared_tests.h"

namespace tenor {
namespace {

using namespace testing;
using ConvDenseCuda = CudaTest;

Tensor dense(const Dims& shape, DType dtype, const std::vector<double>& elements) {
  const Tensor host = Tensor::empty(shape, dtype, kCpu);
  assign(host, elements);
  return host.to(kGpu);
}
Tensor poisoned(const Dims& shape, DType dtype) {
  return dense(shape, dtype, std::vector<double>(static_cast<size_t>(product(shape)), kNan));
}
Dims last(const Dims& sizes) { return conv::in_layout(sizes, conv::Layout::kChannelsLast); }

/// All directions of one case in NHWC without gaps, with `odd` elements of each operand that are no numbers.
void check_dense(const ConvCase& c, DType dtype, const char* strategy, int odd = 0, uint32_t seed = 1) {
  ConvDraw draw(seed, kGpu);
  const ConvData data(c, draw, odd);
  const Dims output = c.output();
  const auto placed = [&](const std::vector<double>& x, const Dims& sizes) {
    return dense(last(sizes), dtype, channels_last(x, sizes));
  };
  const std::string what = c.text() + " " + std::string(name(dtype));
  const Tensor x = placed(data.input, c.image), w = placed(data.weight, c.filter), g = placed(data.grad, output);
  ConvOptions o = c.options;
  o.strategy = strategy;
  o.out = poisoned(last(output), dtype);
  conv_forward_nhwc(x, w, dense({c.filter[0]}, dtype, data.bias), o);
  expect_exact(o.out, channels_last(data.y, output), "forward " + what);
  o.out = poisoned(last(c.image), dtype);
  conv_data_backward_nhwc(g, w, last(c.image), o);
  expect_exact(o.out, channels_last(data.dx, c.image), "data_backward " + what);
  o.out = poisoned(last(c.filter), dtype);
  conv_weight_backward_nhwc(x, g, last(c.filter), o);
  expect_exact(o.out, channels_last(data.dw, c.filter), "weight_backward " + what);
}

ConvCase depthwise(int64_t n, int64_t channels, int64_t height, int64_t width, int64_t kernel, ConvPadding padding) {
  return {
      {n, channels, height, width}, {channels, 1, kernel, kernel}, {.padding = std::move(padding), .groups = channels}};
}

TEST_F(ConvDenseCuda, Depthwise) {
  const ConvCase cases[] = {
      depthwise(3, 72, 13, 17, 3, 1), depthwise(2, 136, 28, 28, 3, 1),
      depthwise(1, 8, 5, 4, 3, 0),    depthwise(2, 200, 9, 33, 3, ConvPadding({0, 2}, {3, 1})),
      depthwise(1, 16, 1, 70, 3, 1),  depthwise(2, 64, 9, 9, 3, 4),
      depthwise(2, 64, 14, 30, 5, 2), depthwise(1, 72, 6, 8, 5, ConvPadding({3, 0}, {1, 2})),
      depthwise(2, 72, 13, 31, 7, 3), depthwise(1, 200, 28, 28, 7, 3),
      depthwise(3, 8, 7, 9, 7, 0),    depthwise(1, 64, 8, 61, 7, ConvPadding({5, 1}, {0, 6})),
  };
  for (const ConvCase& c : cases)
    for (const DType dtype : {bfloat16, float16, float32}) {
      check_dense(c, dtype, "direct");
      if (HasFatalFailure()) return;
    }
}

TEST_F(ConvDenseCuda, DepthwiseOfStrideTwo) {
  const struct {
    int64_t n, channels, height, width, kernel;
    ConvPadding padding;
  } cases[] = {
      {3, 72, 13, 17, 3, 1}, {2, 136, 28, 56, 3, 1},
      {1, 8, 5, 4, 3, 0},    {2, 200, 9, 65, 3, ConvPadding({0, 2}, {3, 1})},
      {1, 16, 1, 70, 3, 1},  {2, 64, 9, 9, 3, 4},
      {2, 64, 14, 30, 5, 2}, {1, 72, 7, 8, 5, ConvPadding({3, 0}, {1, 2})},
      {2, 40, 20, 31, 5, 1},
  };
  for (const auto& [n, channels, height, width, kernel, padding] : cases)
    for (const DType dtype : {bfloat16, float16, float32}) {
      ConvCase c = depthwise(n, channels, height, width, kernel, padding);
      c.options.stride = {2};
      check_dense(c, dtype, "direct");
      if (HasFatalFailure()) return;
    }
}

/// float32 by chains of multiply-adds, whose weight gradient sums ranges of pixels.
TEST_F(ConvDenseCuda, Float) {
  const ConvCase cases[] = {
      {{2, 24, 13, 17}, {72, 24, 3, 3}, {.padding = 1}},
      {{3, 64, 28, 28}, {64, 64, 3, 3}, {.padding = 1}},
      {{1, 8, 9, 70}, {8, 8, 5, 5}, {.stride = {2}, .padding = 2}},
      {{2, 48, 14, 14}, {96, 16, 3, 3}, {.padding = 1, .groups = 3}},
      {{3, 200, 12, 9}, {136, 200, 1, 1}, {}},
      {{2, 16, 100, 101}, {72, 16, 2, 2}, {.padding = ConvPadding({1, 0}, {0, 1})}},  // tiles that fill the device
      {{4, 16, 100, 101}, {24, 16, 2, 2}, {.padding = ConvPadding({1, 0}, {0, 1})}},
      {{1, 5, 7, 9}, {11, 5, 3, 2}, {.stride = {1, 3}, .padding = ConvPadding({0, 2}, {1, 1}), .dilation = {2, 1}}},
  };
  for (const ConvCase& c : cases) {
    check_dense(c, float32, "implicit_gemm");
    if (HasFatalFailure()) return;
  }
}

/// Weight gradients in one and several columns of tiles and ranges.
TEST_F(ConvDenseCuda, WeightTiles) {
  const ConvCase cases[] = {
      {{1, 256, 9, 8}, {136, 256, 1, 1}, {}},
      {{1, 256, 7, 7}, {320, 256, 3, 3}, {.padding = 1}},
      {{3, 128, 13, 14}, {128, 128, 2, 2}, {.stride = {2, 1}}},
      {{2, 256, 20, 11}, {512, 128, 1, 3}, {.padding = ConvPadding({0, 2}, {0, 1}), .groups = 2}},
      {{6, 128, 12, 11}, {256, 128, 2, 2}, {.padding = 1}},
  };
  for (const ConvCase& c : cases)
    for (const DType dtype : {bfloat16, float16}) {
      check_dense(c, dtype, "implicit_gemm");
      if (HasFatalFailure()) return;
    }
}

/// Data directions whose residues' products share a launch, some of which meet no tap.
TEST_F(ConvDenseCuda, ResiduesInOneLaunch) {
  const ConvCase cases[] = {
      {{2, 64, 17, 20}, {128, 64, 3, 3}, {.stride = {2}, .padding = 1}},
      {{1, 128, 11, 14}, {64, 128, 4, 5}, {.stride = {3, 2}, .padding = ConvPadding({2, 0}, {1, 1})}},
      {{2, 96, 9, 8}, {128, 96, 1, 1}, {.stride = {2}}},
      {{1, 64, 5, 6, 7}, {64, 64, 3, 3, 3}, {.stride = {2}, .padding = 1}},
      {{2, 128, 31}, {128, 64, 3}, {.stride = {2}, .padding = 1, .groups = 2}},
  };
  for (const ConvCase& c : cases)
    for (const DType dtype : {bfloat16, float16}) {
      check_dense(c, dtype, "implicit_gemm");
      if (HasFatalFailure()) return;
    }
}

/// Windows of one element: products of the GEMM.
TEST_F(ConvDenseCuda, Pointwise) {
  const ConvCase cases[] = {
      {{2, 72, 9, 11}, {136, 72, 1, 1}, {}},     {{1, 320, 7, 7}, {256, 320, 1, 1}, {}},
      {{3, 128, 1, 1}, {64, 128, 1, 1}, {}},     {{2, 80, 37}, {96, 80, 1}, {}},
      {{2, 88, 3, 5, 4}, {72, 88, 1, 1, 1}, {}}, {{1, 96, 8, 8}, {96, 96, 1, 1}, {.padding = 1}},
  };
  for (const ConvCase& c : cases)
    for (const DType dtype : {bfloat16, float16}) {
      check_dense(c, dtype, "implicit_gemm");
      if (HasFatalFailure()) return;
    }
}

TEST_F(ConvDenseCuda, GroupsOfEight) {
  for (const int64_t kernel : {3, 5})
    for (const ConvCase& c : {
             ConvCase{{2, 64, 17, 19}, {64, 8, kernel, kernel}, {.padding = 1, .groups = 8}},
             ConvCase{{3, 136, 28, 28}, {136, 8, kernel, kernel}, {.padding = kernel / 2, .groups = 17}},
             ConvCase{{1, 16, 5, 70}, {16, 8, kernel, kernel}, {.padding = ConvPadding({2, 0}, {1, 3}), .groups = 2}},
             ConvCase{{2, 72, 12, 5}, {72, 8, kernel, kernel}, {.padding = 0, .groups = 9}},
         })
      for (const DType dtype : {bfloat16, float16}) {
        check_dense(c, dtype, "direct");
        if (HasFatalFailure()) return;
      }
}

ConvCase stem(int64_t n, int64_t channels, int64_t height, int64_t width, int64_t out, Dims kernel,
              ConvPadding padding) {
  return {{n, channels, height, width},
          {out, channels, kernel[0], kernel[1]},
          {.stride = {2}, .padding = std::move(padding)}};
}

TEST_F(ConvDenseCuda, Stem) {
  const ConvCase cases[] = {
      stem(2, 3, 37, 41, 64, {7, 7}, 3),  stem(3, 3, 20, 24, 32, {3, 3}, 1),
      stem(1, 4, 33, 70, 72, {4, 4}, 1),  stem(2, 1, 18, 19, 128, {5, 5}, 2),
      stem(2, 2, 17, 301, 40, {6, 6}, 0), stem(1, 3, 30, 30, 8, {7, 7}, 2),
      stem(2, 3, 14, 14, 64, {2, 2}, 0),  stem(1, 3, 11, 2, 64, {3, 1}, {{1, 0}, {2, 0}}),
      stem(1, 4, 9, 12, 16, {1, 2}, 0),   stem(1, 3, 15, 270, 24, {6, 5}, {{3, 4}, {0, 1}}),
  };
  for (const ConvCase& c : cases)
    for (const DType dtype : {bfloat16, float16}) {
      check_dense(c, dtype, "implicit_gemm");
      if (HasFatalFailure()) return;
    }
}

/// Images whose channels are planes, of even and odd widths, into results whose channels are innermost.
TEST_F(ConvDenseCuda, StemOfPlanes) {
  for (const int64_t channels : {1, 3, 4})
    for (const int64_t width : {21, 22}) {
      ConvDraw draw(4, kGpu);
      const ConvCase c = stem(2, channels, 17, width, 24, {5, 7}, 2);
      const ConvData data(c, draw);
      const Dims output = c.output();
      const Tensor rows = poisoned(last(output), bfloat16);
      ConvOptions o = c.options;
      o.strategy = "implicit_gemm";
      o.out = rows.with_layout(output, {rows.stride(0), rows.stride(3), rows.stride(1), rows.stride(2)}, rows.offset());
      conv_forward(dense(c.image, bfloat16, data.input), dense(c.filter, bfloat16, data.weight),
                   dense({c.filter[0]}, bfloat16, data.bias), o);
      expect_exact(o.out, data.y, c.text());
    }
}

/// The data direction with a bias, and a result larger than its windows reach.
TEST_F(ConvDenseCuda, StemTransposed) {
  ConvDraw draw(3, kGpu);
  const ConvCase c = stem(2, 3, 36, 40, 48, {5, 5}, 2);
  const conv::ConvProblem p = c.problem();
  const auto y = draw.small(product(c.output())), weight = draw.small(product(c.filter)), bias = draw.small(3);
  std::vector<double> want = conv::reference::data_backward(p, y, weight);
  for (size_t i = 0; i < want.size(); ++i) want[i] += bias[i / static_cast<size_t>(p.input_pixels()) % 3];
  const Tensor rows = dense(last(c.output()), bfloat16, channels_last(y, c.output()));
  const Tensor grad =
      rows.with_layout(c.output(), {rows.stride(0), rows.stride(3), rows.stride(1), rows.stride(2)}, rows.offset());
  ConvTransposeOptions o{.stride = {2}, .padding = 2, .output_padding = Dims{1, 1}, .strategy = "implicit_gemm"};
  o.out = poisoned({2, 3, 36, 40}, bfloat16);
  conv_transpose(grad, dense(c.filter, bfloat16, weight), dense({3}, bfloat16, bias), o);
  expect_exact(o.out, want, "conv_transpose " + c.text());
}

/// What is no number reaches the results that read it, through kernels that multiply the zeros on padding, past a row's
/// last column and past a range's last row.
TEST_F(ConvDenseCuda, NotNumbersReachWhatReadsThem) {
  const auto strided = [](ConvCase c) {
    c.options.stride = {2};
    return c;
  };
  const auto grouped = [](Dims image, int64_t kernel, ConvPadding padding) {
    const int64_t channels = image[1];
    return ConvCase{std::move(image), {channels, 8, kernel, kernel}, {.padding = padding, .groups = channels / 8}};
  };
  const struct {
    ConvCase c;
    const char* strategy;
  } cases[] = {
      {depthwise(2, 72, 13, 17, 3, 1), "direct"},
      {depthwise(3, 64, 28, 30, 3, 0), "direct"},
      {depthwise(2, 64, 14, 30, 5, ConvPadding({3, 0}, {1, 2})), "direct"},
      {depthwise(2, 72, 13, 31, 7, 3), "direct"},
      {depthwise(2, 66, 11, 9, 3, 1), "direct"},
      {strided(depthwise(3, 72, 13, 17, 3, 1)), "direct"},
      {strided(depthwise(2, 64, 14, 30, 5, ConvPadding({0, 2}, {3, 1}))), "direct"},
      {grouped({2, 64, 17, 19}, 3, 1), "direct"},
      {grouped({3, 136, 12, 28}, 5, ConvPadding({2, 0}, {1, 3})), "direct"},
      {stem(2, 3, 37, 41, 64, {7, 7}, 3), "implicit_gemm"},
      {stem(1, 3, 15, 270, 24, {6, 5}, ConvPadding({3, 4}, {0, 1})), "implicit_gemm"},
      {{{2, 64, 9, 8}, {136, 64, 3, 3}, {.padding = 1}}, "implicit_gemm"},
      {{{2, 128, 13, 14}, {256, 64, 2, 3}, {.stride = {2, 1}, .padding = 1, .groups = 2}}, "implicit_gemm"},
  };
  for (const auto& [c, strategy] : cases)
    for (const DType dtype : {bfloat16, float16, float32})
      for (int odd = 1; odd <= 3; ++odd) {
        if (dtype == float32 && c.options.groups != c.image[1]) continue;  // have no such kernels
        check_dense(c, dtype, strategy, odd, static_cast<uint32_t>(odd));
        if (HasFatalFailure()) return;
      }
}

/// Likewise behind kernels that know nothing of it: of one weight, whose block sums all of the border again, and of
/// many. Returns how often the strategy took a case.
int check_odd_weights(DType dtype, const char* strategy) {
  const ConvCase cases[] = {
      {{2, 64, 9, 8}, {136, 64, 3, 3}, {.padding = 1}},
      {{2, 64, 13, 12}, {64, 64, 3, 3}, {.stride = {2}, .padding = 1}},
      {{2, 128, 7, 6}, {64, 128, 2, 2}, {.stride = {3}}},
      {{1, 64, 4, 5, 6}, {72, 64, 3, 3, 3}, {.padding = 1}},
      {{3, 32, 40}, {16, 32, 5}, {.padding = 2}},
  };
  int taken = 0;
  for (const ConvCase& c : cases)
    for (const int odd : {1, 3, 300}) try {
        check_dense(c, dtype, strategy, odd, static_cast<uint32_t>(odd));
        if (::testing::Test::HasFatalFailure()) return taken;
        ++taken;
      } catch (const UnsupportedError& e) {  // cuDNN is not here, or has no engine
        EXPECT_EQ(strategy, std::string("vendor")) << e.what();
      }
  return taken;
}
TEST_F(ConvDenseCuda, OddWeightsBehindFloatKernels) { EXPECT_EQ(check_odd_weights(float32, "implicit_gemm"), 15); }
TEST_F(ConvDenseCuda, OddWeightsBehindTheVendor) {
  for (const DType dtype : {bfloat16, float16, float32}) check_odd_weights(dtype, "vendor");
}

/// What is not a number in the gradient reaches the stem's inputs whose window holds it, and no other.
TEST_F(ConvDenseCuda, NanStaysInTheStemsWindow) {
  std::vector<double> elements(10 * 12 * 16, 1.0);
  constexpr int kRow = 4, kColumn = 5;
  elements[(kRow * 12 + kColumn) * 16 + 7] = kNan;
  const Tensor g = dense({1, 10, 12, 16}, bfloat16, elements),
               w = dense({16, 5, 5, 3}, bfloat16, std::vector<double>(16 * 75, 1.0));
  const std::vector<double> have =
      values(conv_data_backward_nhwc(g, w, {1, 20, 24, 3}, {.stride = {2}, .padding = 2, .strategy = "implicit_gemm"})
                 .to(kCpu));
  for (int h = 0; h < 20; ++h)
    for (int v = 0; v < 24; ++v)
      for (int channel = 0; channel < 3; ++channel) {
        const int row = h + 2 - 2 * kRow, column = v + 2 - 2 * kColumn;
        const bool meets = row >= 0 && row < 5 && column >= 0 && column < 5;
        EXPECT_EQ(std::isnan(have[static_cast<size_t>((h * 24 + v) * 3 + channel)]), meets) << h << " " << v;
      }
}

TEST_F(ConvDenseCuda, Repeats) {
  Draw draw(6);
  const struct {
    ConvCase c;
    const char* strategy;
  } cases[] = {{depthwise(5, 72, 17, 19, 3, 1), "direct"},
               {depthwise(5, 72, 17, 19, 7, 3), "direct"},
               {{{5, 64, 17, 19}, {64, 8, 3, 3}, {.padding = 1, .groups = 8}}, "direct"},
               {{{5, 72, 17, 19}, {72, 1, 3, 3}, {.stride = {2}, .padding = 1, .groups = 72}}, "direct"},
               {{{5, 72, 17, 19}, {136, 72, 1, 1}, {}}, "implicit_gemm"},
               {{{5, 128, 17, 19}, {256, 128, 1, 2}, {}}, "implicit_gemm"},
               {stem(5, 3, 37, 41, 64, {7, 7}, 3), "implicit_gemm"}};
  for (const auto& [c, strategy] : cases) {
    const auto normal = [&](const Dims& sizes) { return on_gpu(draw.dense(last(sizes), bfloat16)); };
    const Tensor x = normal(c.image), w = normal(c.filter), grad = normal(c.output());
    ConvOptions o = c.options;
    o.strategy = strategy;
    const auto first_image = [](const Tensor& t) {
      Dims shape = t.shape();
      shape[0] = 1;
      return t.with_layout(shape, t.strides(), t.offset());
    };
    Dims one = last(c.image);
    one[0] = 1;
    EXPECT_EQ(values(conv_weight_backward_nhwc(x, grad, w.shape(), o).to(kCpu)),
              values(conv_weight_backward_nhwc(x, grad, w.shape(), o).to(kCpu)));
    EXPECT_EQ(values(first_image(conv_forward_nhwc(x, w, {}, o)).to(kCpu)),
              values(conv_forward_nhwc(first_image(x), w, {}, o).to(kCpu)));
    EXPECT_EQ(values(first_image(conv_data_backward_nhwc(grad, w, x.shape(), o)).to(kCpu)),
              values(conv_data_backward_nhwc(first_image(grad), w, one, o).to(kCpu)));
  }
}

}  // namespace
}  // namespace tenor
