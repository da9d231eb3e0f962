// Checks that hold on every device, against the reference: included by the CPU's and the CUDA tests.
#pragma once

#include <functional>
#include <numeric>

#include "src/ops/conv/conv_testing.h"

namespace tenor::testing {

/// What a draw is computed with, and what must come out.
struct ConvData {
  std::vector<double> input, weight, grad, bias, y, dx, dw;

  /// `odd`: elements of each operand that are infinite or NaN.
  ConvData(const ConvCase& c, ConvDraw& draw, int odd = 0) {
    namespace reference = conv::reference;
    const conv::ConvProblem p = c.problem();
    input = draw.small(product(c.image)), weight = draw.small(product(c.filter));
    grad = draw.small(product(c.output())), bias = draw.small(c.filter[0]);
    for (std::vector<double>* x : {&input, &weight, &grad}) draw.spoil(*x, odd);
    y = reference::forward(p, input, weight);
    for (size_t i = 0; i < y.size(); ++i) y[i] += bias[i / static_cast<size_t>(p.output_pixels()) % bias.size()];
    dx = reference::data_backward(p, grad, weight), dw = reference::weight_backward(p, input, grad);
  }
};

/// One direction of one case in NCHW, or in NHWC, with out= full of NaN.
inline void check_direction(conv::Direction direction, const ConvCase& c, const ConvData& data, ConvDraw& draw,
                            DType dtype, bool last) {
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
  ConvOptions o = c.options;
  if (direction == conv::Direction::kForward) {
    const Tensor input = place(data.input, c.image), weight = place(data.weight, c.filter),
                 bias = draw.placed({c.filter[0]}, dtype, data.bias);
    o.out = draw.poison(shaped(output), dtype);
    (last ? conv_forward_nhwc : conv_forward)(input, weight, bias, o);
    return expect_exact(o.out, ordered(data.y, output), "forward " + what);
  }
  const Tensor grad = place(data.grad, output);
  if (direction == conv::Direction::kDataBackward) {
    const Tensor weight = place(data.weight, c.filter);
    o.out = draw.poison(shaped(c.image), dtype);
    (last ? conv_data_backward_nhwc : conv_data_backward)(grad, weight, shaped(c.image), o);
    return expect_exact(o.out, ordered(data.dx, c.image), "data_backward " + what);
  }
  const Tensor input = place(data.input, c.image);
  o.out = draw.poison(shaped(c.filter), dtype);
  (last ? conv_weight_backward_nhwc : conv_weight_backward)(input, grad, shaped(c.filter), o);
  expect_exact(o.out, ordered(data.dw, c.filter), "weight_backward " + what);
}

/// conv_transpose and its gradients are the directions of a convolution, roles exchanged: output_padding is what the
/// convolution's last window leaves unread, and more where dilation allows it.
inline void check_transposed(Device device, uint32_t seed, int draws, std::initializer_list<const char*> strategies) {
  ConvDraw draw(seed, device);
  for (int i = 0; i < draws; ++i) {
    const ConvCase c = draw.any_case();
    conv::ConvProblem p = c.problem();
    Dims small = {c.image[0], c.filter[0]}, wide = {c.image[0], c.image[1]}, more;
    bool fits = true;
    for (int d = conv::kSpatial - p.dims; d < conv::kSpatial; ++d) {
      core::WindowDim& w = p.window[d];
      const int64_t extra = draw.upto(std::max(w.stride, w.dilation) - 1);
      w.input = (w.output - 1) * w.stride - w.before - w.after + w.span() + extra;
      fits = fits && w.input > 0;
      small.push_back(w.output), wide.push_back(w.input), more.push_back(extra);
    }
    if (!fits) continue;
    const DType dtype = kFloats[i % 4];
    const auto input = draw.small(product(small)), weight = draw.small(product(c.filter)),
               grad = draw.small(product(wide));
    const auto bias = draw.small(wide[1]);
    auto y = conv::reference::data_backward(p, input, weight);
    for (size_t k = 0; k < y.size(); ++k) y[k] += bias[k / static_cast<size_t>(p.input_pixels()) % bias.size()];
    const auto dx = conv::reference::forward(p, grad, weight), dw = conv::reference::weight_backward(p, grad, input);
    const Tensor tx = draw.placed(small, dtype, input), tw = draw.placed(c.filter, dtype, weight),
                 tg = draw.placed(wide, dtype, grad);
    for (const char* strategy : strategies) {
      ConvTransposeOptions o{.stride = c.options.stride,
                             .padding = c.options.padding,
                             .dilation = c.options.dilation,
                             .groups = c.options.groups,
                             .output_padding = more,
                             .strategy = strategy};
      const std::string what = core::text("{} output_padding {} {}", c.text(), more, strategy);
      o.out = draw.poison(wide, dtype);
      expect_exact(conv_transpose(tx, tw, draw.placed({wide[1]}, dtype, bias), o), y, what);
      o.out = draw.poison(small, dtype);
      if (draw.coin()) o.output_padding = {};
      expect_exact(conv_transpose_data_backward(tg, tw, small, o), dx, what + " data");
      o.out = draw.poison(c.filter, dtype);
      expect_exact(conv_transpose_weight_backward(tx, tg, c.filter, o), dw, what + " weight");
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

/// All directions of one case by one strategy; one that declines a direction has to say so. Returns how many it takes.
inline int check_strategy(ConvCase c, const ConvData& data, ConvDraw& draw, DType dtype, bool last,
                          const char* strategy) {
  c.options.strategy = strategy;
  int taken = 0;
  for (const conv::Direction direction :
       {conv::Direction::kForward, conv::Direction::kDataBackward, conv::Direction::kWeightBackward}) {
    try {
      check_direction(direction, c, data, draw, dtype, last);
      ++taken;
    } catch (const UnsupportedError& e) {
      const std::string declined = core::text("strategy '{}' cannot do this: ", strategy);
      EXPECT_NE(std::string(e.what()).find(declined), std::string::npos) << e.what();
    }
  }
  return taken;
}

/// One case by several strategies, in NCHW and in NHWC.
inline void check_strategies(const ConvCase& c, DType dtype, std::initializer_list<const char*> strategies,
                             Device device = kCpu) {
  ConvDraw draw(1, device);
  const ConvData data(c, draw);
  for (const char* strategy : strategies)
    for (const bool last : {false, true}) check_strategy(c, data, draw, dtype, last, strategy);
}

/// `draws` random cases by each strategy. Returns how many directions they take.
inline int check_draws(ConvDraw draw, int draws, std::initializer_list<const char*> strategies) {
  int taken = 0;
  for (int i = 0; i < draws; ++i) {
    const ConvCase c = draw.any_case(i % 10 == 0 ? 40 : 9);
    const ConvData data(c, draw);
    for (const char* strategy : strategies)
      taken += check_strategy(c, data, draw, kFloats[i / 2 % 4], i % 2 == 1, strategy);
    if (::testing::Test::HasFailure()) break;
  }
  return taken;
}
inline int check_draws(Device device, uint32_t seed, int draws, std::initializer_list<const char*> strategies) {
  return check_draws(ConvDraw(seed, device), draws, strategies);
}

/// What is not a number reaches the results that read it, and no others: a tap on padding, between strides or in
/// another group multiplies nothing.
inline void check_not_numbers(Device device, uint32_t seed, int draws, std::initializer_list<const char*> strategies) {
  ConvDraw draw(seed, device);
  for (int i = 0; i < draws; ++i) {
    ConvCase c = draw.any_case(i % 4 == 0 ? 40 : 9);
    if (i % 3 == 0)  // whole vectors, which most kernels ask for
      for (Dims* sizes : {&c.image, &c.filter})
        if (c.options.groups == 1) (*sizes)[sizes == &c.image ? 1 : 0] = 16, c.filter[1] = 16;
    const ConvData data(c, draw, 1 + i % 3);
    for (const char* strategy : strategies) check_strategy(c, data, draw, kFloats[i / 2 % 4], i % 2 == 1, strategy);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

/// Operands of a sum that is linear in each, and what it is weighed with.
struct LinearSum {
  std::vector<Tensor> operands;
  std::vector<double> weights;
  std::function<Tensor(const std::vector<Tensor>&)> of;

  double value(const std::vector<Tensor>& from) const {
    const std::vector<double> y = values(of(from).to(kCpu));
    return std::inner_product(y.begin(), y.end(), weights.begin(), 0.0);
  }
};

/// Some elements of the gradient to each operand against central differences, which of a linear function are off by
/// roundings alone.
inline void expect_differences(const LinearSum& sum, const std::vector<Tensor>& gradients, Draw& draw,
                               const std::string& what) {
  constexpr double kStep = 0.5;
  for (size_t k = 0; k < sum.operands.size(); ++k) {
    const std::vector<double> at = values(sum.operands[k].to(kCpu)), have = values(gradients[k].to(kCpu));
    ASSERT_EQ(have.size(), at.size()) << what << " operand " << k;
    for (int i = 0; i < 3; ++i) {
      const auto e = static_cast<size_t>(draw.upto(static_cast<int64_t>(at.size()) - 1));
      const auto moved = [&](double step) {
        std::vector<double> elements = at;
        elements[e] += step;
        std::vector<Tensor> operands = sum.operands;
        operands[k] = tensor_of(operands[k].shape(), float64, elements).to(operands[k].device());
        return sum.value(operands);
      };
      const double up = moved(kStep), down = moved(-kStep);
      ASSERT_NEAR(have[e], (up - down) / (2 * kStep), 1e-11 * (1 + std::abs(up))) << what << " operand " << k;
    }
  }
}

/// Every gradient of a convolution with a bias, and of a transposed one, against differences of sums in float64.
inline void check_differences(Device device, uint32_t seed, int draws, std::initializer_list<const char*> strategies) {
  ConvDraw draw(seed, device);
  for (int i = 0; i < draws; ++i) {
    const ConvCase c = draw.any_case();
    const Dims output = c.output();
    const auto normal = [&](const Dims& shape) { return draw.placed(shape, float64, draw.normals(product(shape))); };
    const Tensor x = normal(c.image), w = normal(c.filter), y = normal(output);
    const std::vector<double> to_y = values(y.to(kCpu)), to_x = values(x.to(kCpu));
    Dims more;
    for (size_t d = 2; d < output.size(); ++d) {
      const core::WindowDim& window = c.problem().window[conv::kSpatial + d - output.size()];
      more.push_back(c.image[d] - ((output[d] - 1) * window.stride - window.before - window.after + window.span()));
    }
    for (const char* strategy : strategies) {
      ConvOptions o = c.options;
      o.strategy = strategy;
      ConvTransposeOptions t{.stride = o.stride,
                             .padding = o.padding,
                             .dilation = o.dilation,
                             .groups = o.groups,
                             .output_padding = more,
                             .strategy = strategy};
      const LinearSum forward{{x, w, normal({c.filter[0]})}, to_y, [&](const std::vector<Tensor>& from) {
                                return conv_forward(from[0], from[1], from[2], o);
                              }};
      expect_differences(
          forward,
          {conv_data_backward(y, w, c.image, o), conv_weight_backward(x, y, c.filter, o), conv_bias_backward(y)}, draw,
          c.text() + " " + strategy);
      const LinearSum transposed{{y, w, normal({c.image[1]})}, to_x, [&](const std::vector<Tensor>& from) {
                                   return conv_transpose(from[0], from[1], from[2], t);
                                 }};
      expect_differences(transposed,
                         {conv_transpose_data_backward(x, w, output, t),
                          conv_transpose_weight_backward(y, x, c.filter, t), conv_bias_backward(x)},
                         draw, "transposed " + c.text() + " " + strategy);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

/// A stride whose remainders are more than are computed one at a time.
inline void check_wide_stride(Device device, std::initializer_list<const char*> strategies) {
  const ConvCase cases[] = {{{1, 2, 100, 130}, {3, 2, 3, 2}, {.stride = {80, 90}, .padding = 1, .dilation = {3, 60}}},
                            {{1, 1, 300, 5, 300}, {2, 1, 2, 3, 2}, {.stride = {290, 2, 280}, .padding = 1}}};
  for (const ConvCase& c : cases) check_strategies(c, float32, strategies, device);
}

/// A named strategy says of a problem without elements what it says of others.
inline void check_empty(Device device, std::initializer_list<const char*> strategies) {
  for (const char* strategy : strategies) {
    const auto takes = [&](int64_t batch) {
      try {
        conv_forward(full({batch, 8, 4}, float32, 1).to(device), full({8, 8, 3}, float32, 1).to(device), {},
                     {.strategy = strategy});
        return true;
      } catch (const UnsupportedError&) {
        return false;
      }
    };
    EXPECT_EQ(takes(0), takes(1)) << strategy;
  }
}

}  // namespace tenor::testing
