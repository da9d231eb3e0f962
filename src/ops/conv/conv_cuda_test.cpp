// Convolution on CUDA: small-integer draws exact against the reference by every strategy in every direction, deformable
// convolution beside the CPU's.
#include "src/ops/conv/conv_cuda.h"

#include "src/core/device_traits.h"
#include "src/core/output.h"
#include "src/core/tuning.h"
#include "src/cuda/testing.h"
#include "src/ops/conv/conv_candidates.h"
#include "src/ops/conv/conv_shared_tests.h"
#include "tenor/autotune.h"
#include "tenor/create.h"
#include "tenor/explain.h"
#include "tenor/modes.h"

namespace tenor {
namespace {

using namespace testing;
using ConvCuda = CudaTest;

TEST_F(ConvCuda, Draws) { check_draws(kGpu, 21, 2000, {"auto", "direct", "implicit_gemm"}); }
TEST_F(ConvCuda, VendorDraws) { check_draws(kGpu, 25, 400, {"vendor"}); }  // of any layout: it declines nearly all

/// 1600 draws of what cuDNN takes, in parts: it looks for an engine for each direction of each.
class ConvCudaVendor : public CudaTest, public ::testing::WithParamInterface<uint32_t> {};
TEST_P(ConvCudaVendor, PlainDraws) {
  const int taken = check_draws(ConvDraw(GetParam(), kGpu, true), 200, {"vendor"});
  EXPECT_TRUE(taken == 0 || taken > 400) << "of 600 directions cuDNN took " << taken;  // 0: it is not here
}
INSTANTIATE_TEST_SUITE_P(Seeds, ConvCudaVendor, ::testing::Range(100u, 110u));

TEST_F(ConvCuda, NotNumbersReachWhatReadsThem) {
  check_not_numbers(kGpu, 23, 200, {"auto", "direct", "implicit_gemm", "vendor"});
}
TEST_F(ConvCuda, GradientsAreThoseOfDifferences) { check_differences(kGpu, 27, 20, {"auto", "direct"}); }
TEST_F(ConvCuda, WideStrides) { check_wide_stride(kGpu, {"auto", "direct"}); }
TEST_F(ConvCuda, EmptyProblemsAsOthers) { check_empty(kGpu, {"direct", "implicit_gemm", "vendor"}); }
TEST_F(ConvCuda, Transposed) { check_transposed(kGpu, 22, 100, {"auto", "direct"}); }

/// Every second element of a bias, and one for all channels, of a transposed convolution of one channel.
TEST_F(ConvCuda, TransposedBiasWithGaps) {
  ConvDraw draw(24, kGpu);
  const ConvCase c{{2, 6, 9, 11}, {1, 6, 3, 3}, {.padding = 1}};
  const conv::ConvProblem p = c.problem();
  const auto grad = draw.small(product(c.output())), weight = draw.small(product(c.filter)), bias = draw.small(12);
  const auto sums = conv::reference::data_backward(p, grad, weight);
  const Tensor x = on_gpu(tensor_of(c.output(), float32, grad)), w = on_gpu(tensor_of(c.filter, float32, weight)),
               b = on_gpu(tensor_of({12}, float32, bias));
  for (const int64_t step : {0, 1, 2})
    for (const char* strategy : {"auto", "vendor", "implicit_gemm", "direct"}) {
      std::vector<double> want = sums;
      for (size_t i = 0; i < want.size(); ++i)
        want[i] += bias[i / static_cast<size_t>(p.input_pixels()) % 6 * static_cast<size_t>(step)];
      const auto transposed = [&] {
        return conv_transpose(x, w, b.with_layout({6}, {step}, 0), {.padding = 1, .strategy = strategy});
      };
      const std::string what = core::text("bias of stride {} {}", step, strategy);
      if (strategy != std::string("vendor")) {
        expect_exact(transposed(), want, what);
      } else if (step != 1) {
        EXPECT_THROW(transposed(), UnsupportedError) << what;
      } else {  // cuDNN may have no engine for it that does not round to TF32
        try {
          expect_exact(transposed(), want, what);
        } catch (const UnsupportedError& e) {
          EXPECT_NE(std::string(e.what()).find("cuDNN has no engine for it"), std::string::npos) << e.what();
        }
      }
    }
}

/// A choice measured with TF32 is not in force without it.
TEST_F(ConvCuda, TunedForEachPrecision) {
  const ConvCase c{{1, 64, 8, 8}, {64, 64, 3, 3}, {.padding = 1}};
  const auto placed = [](const Dims& shape) { return zeros(shape, {.dtype = float32, .device = kGpu}); };
  const Tensor x = placed(c.image), w = placed(c.filter), y = placed(c.output());
  constexpr auto kLayout = conv::Layout::kChannelsSecond;
  conv::ConvProblem p = c.problem();
  p.device = kGpu, p.input = conv::image_of(x, kLayout), p.output = conv::image_of(y, kLayout);
  p.weight = conv::filter_of(w, kLayout);
  const bool tuned = autotune(true);
  const core::TuningLog log;
  for (const bool on : {false, true}) {
    const bool before = allow_tf32(on);
    conv::chosen("conv_forward", p, "auto", false);
    allow_tf32(before);
  }
  autotune(tuned);
  if (log.problems.size() < 2) GTEST_SKIP() << "one candidate takes it";
  EXPECT_NE(log.problems[0].second, log.problems[1].second);
}

/// Shapes that fill tiles, whose pixels come by TMA, in several columns and steps.
TEST_F(ConvCuda, WholeTiles) {
  const ConvCase cases[] = {
      {{1, 64, 13, 14}, {64, 64, 3, 3}, {.padding = 1}},
      {{2, 128, 11, 9}, {136, 128, 3, 3}, {.stride = {2}, .padding = 1}},
      {{1, 64, 4, 5, 6}, {64, 64, 3, 3, 3}, {.padding = 1}},
      {{2, 64, 70}, {320, 64, 5}, {.padding = 2, .dilation = {2}}},
      {{1, 192, 9, 8}, {96, 64, 3, 3}, {.padding = 1, .groups = 3}},
      {{2, 3, 37, 41}, {64, 3, 7, 7}, {.stride = {2}, .padding = 3}},
      {{2, 4, 9, 10, 7}, {24, 4, 3, 5, 2}, {.stride = {2, 3, 1}, .padding = 1}},
      {{1, 1, 23}, {40, 1, 3}, {.stride = {5}, .padding = 2}},
      {{1, 256, 9, 9}, {64, 256, 1, 1}, {}},
      {{2, 24, 11, 13}, {40, 24, 2, 4}, {.stride = {3, 1}, .padding = ConvPadding({0, 2}, {1, 3})}},
  };
  for (const ConvCase& c : cases)
    for (const DType dtype : {bfloat16, float16, float32})
      check_strategies(c, dtype, {"auto", "direct", "implicit_gemm"}, kGpu);
}

/// What other devices than Hopper take, on this one: each direction of a draw by the portable kernels.
TEST_F(ConvCuda, PortableDraws) {
  ConvDraw draw(26, kGpu);
  for (int i = 0; i < 2000; ++i) {
    const ConvCase c = draw.any_case(i % 10 == 0 ? 40 : 9);
    const ConvData data(c, draw, i % 3 == 0 ? 2 : 0);
    const DType dtype = i % 2 ? bfloat16 : float16;
    conv::ConvProblem p = c.problem();
    p.dtype = dtype, p.device = kGpu;
    const bool last = draw.coin();
    const auto layout = last ? conv::Layout::kChannelsLast : conv::Layout::kChannelsSecond;
    const auto place = [&](const std::vector<double>& x, const Dims& sizes) {
      return draw.placed(conv::in_layout(sizes, layout), dtype, last ? channels_last(x, sizes) : x);
    };
    const Dims sizes[] = {c.image, c.filter, c.output()};
    const std::vector<double>* const given[] = {&data.input, &data.weight, &data.grad};
    const std::vector<double>* const want[] = {&data.dx, &data.dw, &data.y};
    for (const conv::Direction direction :
         {conv::Direction::kForward, conv::Direction::kDataBackward, conv::Direction::kWeightBackward}) {
      p.direction = direction;
      const int written = direction == conv::Direction::kForward        ? 2
                          : direction == conv::Direction::kDataBackward ? 0
                                                                        : 1;
      Tensor operands[3];
      for (int k = 0; k < 3; ++k)
        operands[k] = k == written ? draw.poison(conv::in_layout(sizes[k], layout), dtype) : place(*given[k], sizes[k]);
      p.input = conv::image_of(operands[0], layout), p.output = conv::image_of(operands[2], layout);
      p.weight = conv::filter_of(operands[1], layout);
      const Tensor bias = on_gpu(tensor_of({c.filter[0]}, dtype, data.bias));
      p.bias = written == 2 ? static_cast<const char*>(bias.raw()) : nullptr, p.bias_stride = 1;
      if (!conv::cuda_implicit_gemm_why_not(p).empty()) continue;
      conv::cuda_portable_gemm_run(p);
      expect_exact(operands[written], last ? channels_last(*want[written], sizes[written]) : *want[written],
                   core::text("portable direction {} {}", written, c.text()));
      if (HasFatalFailure()) return;
    }
  }
}

/// Images of more than 2^31 elements: the last one's rows are those of a crop, and its gradient is the whole one's
/// where the others hold zeros.
TEST_F(ConvCuda, MoreElementsThan31Bits) {
  constexpr int64_t kImages = 8, kSize = 2100, kCrop = 12, kChannels = 64;
  const Dims shape = {kImages, kSize, kSize, kChannels};
  if (core::device_traits(kGpu).memory < 5 * 2 * product(shape)) GTEST_SKIP() << "not enough memory";
  ConvDraw draw(9, kGpu);
  const int64_t row = kSize * kChannels, image = kSize * row;
  const Tensor pattern = on_gpu(tensor_of({row}, bfloat16, draw.small(row)));
  const auto last_image = [&](const Tensor& t) {
    return t.with_layout({1, kSize, kSize, kChannels}, t.strides(), t.offset() + (kImages - 1) * image);
  };
  const auto rows = [&](const Tensor& t, int64_t count, int64_t skip) {
    return t.with_layout({1, count, t.shape(2), kChannels}, t.strides(),
                         t.offset() + (t.shape(0) - 1) * t.stride(0) + (t.shape(1) - count - skip) * t.stride(1));
  };
  const auto filled = [&] {
    const Tensor t = zeros(shape, {.dtype = bfloat16, .device = kGpu});
    core::copy_into(pattern.with_layout({1, kSize, kSize, kChannels}, {0, 0, kChannels, 1}, 0), last_image(t));
    return t;
  };
  const Tensor x = filled();
  for (const auto& [strategy, groups] : {std::pair{"implicit_gemm", 1}, {"direct", 64}}) {
    const Dims filter = {kChannels, 3, 3, kChannels / groups};
    const Tensor w = on_gpu(tensor_of(filter, bfloat16, draw.small(product(filter))));
    const ConvOptions o{.padding = 1, .groups = groups, .strategy = strategy};
    const Dims crop = {1, kCrop, kSize, kChannels};
    const Tensor y = conv_forward_nhwc(x, w, {}, o);
    EXPECT_EQ(values(rows(y, kCrop - 2, 0).to(kCpu)),
              values(rows(conv_forward_nhwc(rows(x, kCrop, 0), w, {}, o), kCrop - 2, 0).to(kCpu)))
        << strategy;
    EXPECT_EQ(values(rows(conv_data_backward_nhwc(x, w, shape, o), kCrop - 2, 0).to(kCpu)),
              values(rows(conv_data_backward_nhwc(rows(x, kCrop, 0), w, crop, o), kCrop - 2, 0).to(kCpu)))
        << strategy;
    EXPECT_EQ(values(conv_weight_backward_nhwc(x, x, filter, o).to(kCpu)),
              values(conv_weight_backward_nhwc(last_image(x), last_image(x), filter, o).to(kCpu)))
        << strategy;
  }
}

/// Depthwise and narrow groups, for which "direct" has kernels of its own.
TEST_F(ConvCuda, NarrowGroups) {
  const ConvCase cases[] = {
      {{2, 64, 20, 24}, {64, 1, 3, 3}, {.padding = 1, .groups = 64}},
      {{2, 72, 13, 9}, {72, 1, 7, 7}, {.padding = 3, .groups = 72}},
      {{2, 40, 14, 15}, {40, 1, 5, 5}, {.stride = {2}, .padding = 2, .groups = 40}},
      {{2, 64, 12, 17}, {64, 8, 3, 3}, {.padding = 1, .groups = 8}},
      {{1, 32, 9, 9}, {64, 4, 3, 3}, {.stride = {2}, .padding = 1, .groups = 8}},
  };
  for (const ConvCase& c : cases)
    for (const DType dtype : {bfloat16, float16, float32}) check_strategies(c, dtype, {"auto", "direct"}, kGpu);
}

/// Ranges of pixels share a bounded workspace, whatever the gradient's size, and what they take is stated.
TEST_F(ConvCuda, WorkspaceIsBoundedAndStated) {
  for (const DType dtype : {bfloat16, float32})
    for (const int64_t channels : {8, 64, 512, 2048})
      for (const int64_t size : {8, 64, 512}) {
        const ConvCase c{{64, channels, size, size}, {channels, channels, 3, 3}, {.padding = 1}};
        conv::ConvProblem p = c.problem();
        p.dtype = dtype, p.device = kGpu, p.direction = conv::Direction::kWeightBackward;
        const int64_t bytes = conv::cuda_implicit_gemm_workspace(p);
        EXPECT_GT(bytes, 0);
        EXPECT_LE(bytes, std::max(int64_t{256} << 20, 4 * 9 * channels * channels)) << c.text();
      }
  const Tensor x = zeros({2, 64, 9, 9}, {.dtype = bfloat16, .device = kGpu});
  for (const char* strategy : {"implicit_gemm", "vendor"}) {
    const auto gradient = [&](const std::vector<Tensor>& in) {
      const ConvOptions o{.padding = 1, .strategy = strategy};
      return std::vector<Tensor>{conv_weight_backward(in[0], in[0], {64, 64, 3, 3}, o)};
    };
    try {
      const Explanation e = explain(gradient, {x}, {.measure = true});
      EXPECT_NE(e.steps.at(0).note.find("bytes of workspace"), std::string::npos) << e.steps[0].note;
    } catch (const UnsupportedError& e) {  // cuDNN is not here
      EXPECT_EQ(strategy, std::string("vendor")) << e.what();
    }
  }
}

TEST_F(ConvCuda, ImplicitGemmSaysWhatItTakes) {
  const Tensor x = Tensor::empty({1, 8, 4, 4}, float64, kGpu), w = Tensor::empty({8, 8, 3, 3}, float64, kGpu);
  try {
    conv_forward(x, w, {}, {.strategy = "implicit_gemm"});
    FAIL();
  } catch (const UnsupportedError& e) {
    EXPECT_NE(std::string(e.what()).find("takes bfloat16, float16 and float32"), std::string::npos) << e.what();
  }
  EXPECT_THROW(conv_forward(x, w, {}, {.strategy = "wino"}), ValueError);
}

/// What is not a number outside of a window, or in another group, reaches no result.
TEST_F(ConvCuda, NanStaysInItsWindow) {
  for (const char* strategy : {"direct", "implicit_gemm"}) {
    const Tensor x = full({1, 48, 8, 8}, bfloat16, 1), w = full({48, 24, 3, 3}, bfloat16, 1);
    std::vector<double> elements(48 * 64, 1.0);
    elements[0] = kNan;  // pixel 0 of the first group's first channel
    assign(x, elements);
    const Tensor y = conv_forward(on_gpu(x), on_gpu(w), {}, {.padding = 1, .groups = 2, .strategy = strategy}).to(kCpu);
    const std::vector<double> have = values(y);
    for (size_t i = 0; i < have.size(); ++i) {
      const size_t channel = i / 64, h = i % 64 / 8, v = i % 8;
      EXPECT_EQ(std::isnan(have[i]), channel < 24 && h < 2 && v < 2) << strategy << " at " << i;
    }
  }
}

/// The same bits each time, and the forward and data directions whatever else is in the batch.
TEST_F(ConvCuda, Repeats) {
  Draw draw(6);
  const auto normal = [&](const Dims& shape) { return on_gpu(draw.dense(shape, bfloat16)); };
  const Tensor x = normal({5, 64, 17, 19}), w = normal({96, 64, 3, 3}), grad = normal({5, 96, 17, 19});
  const ConvOptions o{.padding = 1, .strategy = "implicit_gemm"};
  const auto first_image = [](const Tensor& t) {
    Dims shape = t.shape();
    shape[0] = 1;
    return t.with_layout(shape, t.strides(), t.offset());
  };
  EXPECT_EQ(values(conv_weight_backward(x, grad, w.shape(), o).to(kCpu)),
            values(conv_weight_backward(x, grad, w.shape(), o).to(kCpu)));
  EXPECT_EQ(values(first_image(conv_forward(x, w, {}, o)).to(kCpu)),
            values(conv_forward(first_image(x), w, {}, o).to(kCpu)));
  EXPECT_EQ(values(first_image(conv_data_backward(grad, w, x.shape(), o)).to(kCpu)),
            values(conv_data_backward(first_image(grad), w, {1, 64, 17, 19}, o).to(kCpu)));
}

/// Copies alone: of any type, in any layout.
TEST_F(ConvCuda, ColumnsAsOnTheCpu) {
  Draw draw(10);
  for (const DType dtype : {float32, bfloat16, float64, int8})
    for (const Dims& shape : {Dims{2, 3, 19}, Dims{2, 3, 9, 11}, Dims{1, 2, 5, 4, 6}}) {
      const Tensor x = draw.any_layout(shape, dtype);
      std::vector<double> elements(static_cast<size_t>(product(shape)));
      for (double& v : elements) v = static_cast<double>(draw.upto(100) - 50);
      assign(x, elements);
      const Im2colOptions o{.stride = {2}, .padding = ConvPadding(Dims{2}, Dims{3}), .dilation = {2}};
      EXPECT_EQ(values(im2col(on_gpu(x), {3}, o).to(kCpu)), values(im2col(x, {3}, o))) << shape.size();
    }
}

TEST_F(ConvCuda, DeformableAsOnTheCpu) {
  Draw draw(7);
  for (const DType dtype : {float32, float64}) {
    const auto normal = [&](const Dims& shape) { return draw.dense(shape, dtype); };
    const Tensor x = normal({2, 6, 9, 11}), w = normal({4, 3, 3, 3}), offset = normal({2, 2 * 2 * 9, 5, 6}),
                 mask = normal({2, 2 * 9, 5, 6}), bias = normal({4}), grad = normal({2, 4, 5, 6});
    const DeformConvOptions o{.stride = {2}, .padding = 1};
    const double bound = dtype == float32 ? 1e-4 : 1e-12;
    const auto near = [&](const Tensor& got, const Tensor& want, const char* what) {
      const std::vector<double> a = values(got.to(kCpu)), b = values(want);
      ASSERT_EQ(a.size(), b.size()) << what;
      for (size_t i = 0; i < a.size(); ++i)
        ASSERT_NEAR(a[i], b[i], bound * (1 + std::abs(b[i]))) << what << " at " << i;
    };
    near(deform_conv2d(on_gpu(x), on_gpu(offset), on_gpu(w), on_gpu(mask), on_gpu(bias), o),
         deform_conv2d(x, offset, w, mask, bias, o), "deform_conv2d");
    const DeformConvBackwardOptions b{.stride = {2}, .padding = 1};
    const DeformConvGrads got = deform_conv2d_backward(on_gpu(grad), on_gpu(x), on_gpu(offset), on_gpu(w), on_gpu(mask),
                                                       on_gpu(bias), b),
                          want = deform_conv2d_backward(grad, x, offset, w, mask, bias, b);
    near(got.grad_input, want.grad_input, "grad_input");
    near(got.grad_offset, want.grad_offset, "grad_offset");
    near(got.grad_weight, want.grad_weight, "grad_weight");
    near(got.grad_mask, want.grad_mask, "grad_mask");
    near(got.grad_bias, want.grad_bias, "grad_bias");
  }
}

}  // namespace
}  // namespace tenor
