#include "src/ops/conv/conv_products.h"

#include <cstdint>
#include <numeric>

#include "src/ops/conv/conv_sizes.h"

namespace tenor::conv {
namespace {

bool aligned(const void* x) { return reinterpret_cast<uintptr_t>(x) % 16 == 0; }

/// Taps of the weight from one to the next along each dim.
void weight_steps(const ConvProblem& p, int64_t (&step)[kSpatial]) {
  step[2] = 1, step[1] = p.window[2].kernel, step[0] = step[1] * p.window[1].kernel;
}

/// What all products of a direction share.
GatherProduct shared_of(const ConvProblem& p, const GatherOperands& operands) {
  const bool backward = p.direction == Direction::kDataBackward;
  const Image& result = written_image(p);
  GatherProduct g;
  g.bfloat16 = p.dtype == DType::kBFloat16;
  g.batch = narrow(p.batch), g.groups = narrow(p.groups);
  g.channels = narrow(operands.source_channels);
  g.columns = narrow(backward ? p.group_channels() : p.group_outputs());
  g.source = operands.source.data, g.source_batch = operands.source.batch;
  g.weight = operands.weight, g.weight_taps = narrow(p.taps());
  g.result = result.data, g.result_batch = result.batch, g.result_channel = result.channel;
  g.bias = p.bias, g.bias_stride = p.bias_stride;
  return g;
}

/// The forward window's dims: taps of the input's positions, for outputs.
void gather_forward(const ConvProblem& p, const GatherOperands& operands, GatherProduct& g) {
  int64_t step[kSpatial];
  weight_steps(p, step);
  for (int d = 0; d < kSpatial; ++d) {
    const core::WindowDim& w = p.window[d];
    g.dim[d] = {.outputs = narrow(w.output),
                .size = narrow(w.input),
                .stride = narrow(w.stride),
                .first = narrow(-w.before),
                .taps = narrow(w.kernel),
                .step = narrow(w.dilation),
                .source_stride = operands.source.spatial[d],
                .result_stride = p.output.spatial[d],
                .weight_step = narrow(step[d])};
  }
}

/// Inputs remainder + u * stride of one dim: input i is read through tap t by output (i + before - t * dilation) /
/// stride where that is whole, so for one remainder the taps lie at equal distances.
GatherDim backward_dim(const core::WindowDim& w, int64_t remainder, int64_t weight_step, int64_t& weight_first) {
  const int64_t apart = w.stride / std::gcd(w.stride, w.dilation);
  int64_t first = 0;
  while (first < std::min(apart, w.kernel) && (remainder + w.before - first * w.dilation) % w.stride != 0) ++first;
  const bool any = first < std::min(apart, w.kernel);
  GatherDim d{.outputs = narrow((w.input - remainder + w.stride - 1) / w.stride),
              .size = narrow(w.output),
              .stride = 1,
              .taps = any ? narrow((w.kernel - first + apart - 1) / apart) : 0};
  if (!any) return d;
  weight_first += first * weight_step;
  d.first = narrow((remainder + w.before - first * w.dilation) / w.stride);
  d.step = narrow(-(apart * w.dilation / w.stride));
  d.weight_step = narrow(apart * weight_step);
  return d;
}

}  // namespace

ImageSizes input_sizes(const ConvProblem& p) {
  return {p.group_channels(), {p.window[0].input, p.window[1].input, p.window[2].input}};
}
ImageSizes output_sizes(const ConvProblem& p) {
  return {p.group_outputs(), {p.window[0].output, p.window[1].output, p.window[2].output}};
}

bool gathers(const Image& x, const ImageSizes& sizes) {
  bool pieces = x.channel == 1 && sizes.channels % kPiece == 0 && aligned(x.data) && x.batch % kPiece == 0;
  for (int d = 0; d < kSpatial; ++d) pieces = pieces && (sizes.size[d] == 1 || x.spatial[d] % kPiece == 0);
  return pieces;
}

bool is_dense(const Image& x, const ConvProblem& p, const ImageSizes& sizes) {
  int64_t stride = sizes.channels * p.groups;
  bool dense = gathers(x, sizes);
  for (int d = kSpatial - 1; d >= 0; --d) {
    dense = dense && (sizes.size[d] == 1 || x.spatial[d] == stride);
    stride *= sizes.size[d];
  }
  return dense && (p.batch == 1 || x.batch == stride);
}

bool weight_lies(const ConvProblem& p) {
  const bool backward = p.direction == Direction::kDataBackward;
  const int64_t written = backward ? p.group_channels() : p.group_outputs();
  int64_t stride = backward ? p.group_outputs() : p.group_channels();
  bool lies = (backward ? p.weight.out : p.weight.in) == 1 && stride % kPiece == 0 && aligned(p.weight.data);
  for (int d = kSpatial - 1; d >= 0; --d) {
    lies = lies && (p.window[d].kernel == 1 || p.weight.spatial[d] == stride);
    stride *= p.window[d].kernel;
  }
  lies = lies && (written == 1 || (backward ? p.weight.in : p.weight.out) == stride);
  return lies && (p.groups == 1 || p.group_outputs() * p.weight.out == stride * written);
}

std::vector<GatherProduct> products_of(const ConvProblem& p, const GatherOperands& operands) {
  GatherProduct shared = shared_of(p, operands);
  if (p.direction == Direction::kForward) {
    gather_forward(p, operands, shared);
    return {shared};
  }
  std::vector<GatherProduct> products;
  int64_t step[kSpatial], r[kSpatial];
  weight_steps(p, step);
  const auto remainders = [&](int d) { return std::min(p.window[d].stride, p.window[d].input); };
  for (r[0] = 0; r[0] < remainders(0); ++r[0])
    for (r[1] = 0; r[1] < remainders(1); ++r[1])
      for (r[2] = 0; r[2] < remainders(2); ++r[2]) {
        GatherProduct g = shared;
        int64_t weight_first = 0, at = 0;
        for (int d = 0; d < kSpatial; ++d) {
          g.dim[d] = backward_dim(p.window[d], r[d], step[d], weight_first);
          g.dim[d].source_stride = operands.source.spatial[d];
          g.dim[d].result_stride = p.input.spatial[d] * p.window[d].stride;
          at += r[d] * p.input.spatial[d];
        }
        g.weight_first = narrow(weight_first);
        g.result = p.input.data + at * static_cast<int64_t>(item_size(p.dtype));
        products.push_back(g);
      }
  return products;
}

GatherSums sums_of(const ConvProblem& p, const GatherOperands& operands, const void* grad, int64_t grad_channels) {
  GatherSums s;
  s.gather = shared_of(p, operands);
  gather_forward(p, operands, s.gather);
  s.gather.columns = narrow(grad_channels);
  s.grad = grad, s.gradient = p.weight.data;
  s.gradient_group = p.group_outputs() * p.weight.out, s.gradient_column = p.weight.out;
  s.gradient_channel = p.weight.in;
  for (int d = 0; d < kSpatial; ++d) s.gradient_tap[d] = p.weight.spatial[d];
  s.written_channels = narrow(p.group_channels()), s.written_columns = narrow(p.group_outputs());
  return s;
}

}  // namespace tenor::conv
