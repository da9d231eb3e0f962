// The family's definitions as plain loops in float64: what kernels are tested against.
#pragma once

#include <vector>

#include "src/ops/conv/conv_problem.h"

namespace tenor::conv::reference {

using Values = std::vector<double>;

/// Calls fn(place of the weight, of the input, of the output) for every product of the definition; places are
/// row-major in dense [O, C/G, KD, KH, KW], [N, C, D, H, W], [N, O, PD, PH, PW], c within the group.
template <class F>
void for_each_product(const ConvProblem& p, F&& fn) {
  const core::WindowDim &D = p.window[0], &H = p.window[1], &W = p.window[2];
  for (int64_t out = 0; out < p.output_pixels(); ++out)
    for (int64_t tap = 0; tap < p.taps(); ++tap) {
      const int64_t at[] = {D.position(out / (H.output * W.output), tap / (H.kernel * W.kernel)),
                            H.position(out / W.output % H.output, tap / W.kernel % H.kernel),
                            W.position(out % W.output, tap % W.kernel)};
      bool inside = true;
      for (int i = 0; i < kSpatial; ++i) inside = inside && at[i] >= 0 && at[i] < p.window[i].input;
      if (!inside) continue;
      const int64_t in = (at[0] * H.input + at[1]) * W.input + at[2];
      for (int64_t n = 0; n < p.batch; ++n)
        for (int64_t o = 0; o < p.out_channels; ++o)
          for (int64_t c = 0; c < p.group_channels(); ++c) {
            const int64_t channel = n * p.channels + o / p.group_outputs() * p.group_channels() + c;
            fn((o * p.group_channels() + c) * p.taps() + tap, channel * p.input_pixels() + in,
               (n * p.out_channels + o) * p.output_pixels() + out);
          }
    }
}

/// Without a bias. Each takes and gives dense values.
inline Values forward(const ConvProblem& p, const Values& input, const Values& weight) {
  Values y(static_cast<size_t>(p.batch * p.out_channels * p.output_pixels()));
  for_each_product(p, [&](int64_t w, int64_t x, int64_t to) {
    y[static_cast<size_t>(to)] += weight[static_cast<size_t>(w)] * input[static_cast<size_t>(x)];
  });
  return y;
}
inline Values data_backward(const ConvProblem& p, const Values& grad_output, const Values& weight) {
  Values dx(static_cast<size_t>(p.batch * p.channels * p.input_pixels()));
  for_each_product(p, [&](int64_t w, int64_t x, int64_t from) {
    dx[static_cast<size_t>(x)] += weight[static_cast<size_t>(w)] * grad_output[static_cast<size_t>(from)];
  });
  return dx;
}
inline Values weight_backward(const ConvProblem& p, const Values& input, const Values& grad_output) {
  Values dw(static_cast<size_t>(p.out_channels * p.group_channels() * p.taps()));
  for_each_product(p, [&](int64_t w, int64_t x, int64_t from) {
    dw[static_cast<size_t>(w)] += input[static_cast<size_t>(x)] * grad_output[static_cast<size_t>(from)];
  });
  return dw;
}

}  // namespace tenor::conv::reference
