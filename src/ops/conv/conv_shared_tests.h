// Checks that hold on every device, against the reference: included by the CPU's and the CUDA tests.
#pragma once

#include "src/ops/conv/conv_testing.h"

namespace tenor::testing {

/// What a draw is computed with, and what must come out.
struct ConvData {
  std::vector<double> input, weight, grad, bias, y, dx, dw;

  ConvData(const ConvCase& c, ConvDraw& draw) {
    namespace reference = conv::reference;
    const conv::ConvProblem p = c.problem();
    input = draw.small(product(c.image)), weight = draw.small(product(c.filter));
    grad = draw.small(product(c.output())), bias = draw.small(c.filter[0]);
    y = reference::forward(p, input, weight);
    for (size_t i = 0; i < y.size(); ++i) y[i] += bias[i / static_cast<size_t>(p.output_pixels()) % bias.size()];
    dx = reference::data_backward(p, grad, weight), dw = reference::weight_backward(p, input, grad);
  }
};

/// All directions of one case in NCHW, or in NHWC, with out= full of NaN.
inline void check_directions(const ConvCase& c, const ConvData& data, ConvDraw& draw, DType dtype, bool last) {
  const Dims output = c.output();
  const auto layout = last ? conv::Layout::kChannelsLast : conv::Layout::kChannelsSecond;
  const auto shaped = [&](const Dims& sizes) { return conv::in_layout(sizes, layout); };
  const auto ordered = [&](const std::vector<double>& x, const Dims& sizes) {
    return last ? channels_last(x, sizes) : x;
  };
  const auto place = [&](const std::vector<double>& x, const Dims& sizes) {
    return draw.placed(shaped(sizes), dtype, ordered(x, sizes));
  };
  const std::string what = c.text() + (last ? " nhwc " : " ") + std::string(name(dtype));
  const Tensor input = place(data.input, c.image), weight = place(data.weight, c.filter),
               grad = place(data.grad, output);
  const Tensor bias = draw.placed({c.filter[0]}, dtype, data.bias);
  ConvOptions o = c.options;
  o.out = draw.poison(shaped(output), dtype);
  (last ? conv_forward_nhwc : conv_forward)(input, weight, bias, o);
  expect_exact(o.out, ordered(data.y, output), "forward " + what);
  o.out = draw.poison(shaped(c.image), dtype);
  (last ? conv_data_backward_nhwc : conv_data_backward)(grad, weight, shaped(c.image), o);
  expect_exact(o.out, ordered(data.dx, c.image), "data_backward " + what);
  o.out = draw.poison(shaped(c.filter), dtype);
  (last ? conv_weight_backward_nhwc : conv_weight_backward)(input, grad, shaped(c.filter), o);
  expect_exact(o.out, ordered(data.dw, c.filter), "weight_backward " + what);
}

/// `draws` random cases, each by every strategy in turn; of a strategy that declines the next is taken.
inline void check_draws(Device device, uint32_t seed, int draws, std::initializer_list<const char*> strategies) {
  ConvDraw draw(seed, device);
  for (int i = 0; i < draws; ++i) {
    ConvCase c = draw.any_case(i % 10 == 0 ? 40 : 9);
    const DType dtype = kFloats[i / 2 % 4];
    const ConvData data(c, draw);
    for (const char* strategy : strategies) {
      c.options.strategy = strategy;
      try {
        check_directions(c, data, draw, dtype, i % 2 == 1);
      } catch (const UnsupportedError& e) {
        ASSERT_NE(std::string(e.what()).find("strategy '" + std::string(strategy) + "' cannot do this: "),
                  std::string::npos)
            << e.what();
      }
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace tenor::testing
