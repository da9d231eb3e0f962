// "implicit_gemm" on CUDA: brings operands into the layout that the kernel gathers from, where they do not lie so, and
// runs the direction's products.
#include <cstdint>
#include <vector>

#include "src/core/device_traits.h"
#include "src/core/output.h"
#include "src/cuda/runtime.h"
#include "src/ops/conv/conv_cuda.h"
#include "src/ops/conv/conv_float_cuda.h"
#include "src/ops/conv/conv_mma.h"
#include "src/ops/conv/conv_pointwise.h"
#include "src/ops/conv/conv_products.h"
#include "src/ops/conv/conv_stem.h"
#include "src/ops/conv/sm90_conv.h"
#include "tenor/elementwise.h"
#include "tenor/tensor.h"

namespace tenor::conv {
namespace {

/// The memory of an operand, which somebody else keeps.
Tensor seen(const char* data, const ConvProblem& p, const Dims& shape, const Dims& strides) {
  return Tensor::wrap(const_cast<char*>(data), p.device, p.dtype, shape, strides);
}

/// x, as a dense tensor whose last dim is filled up to whole pieces with zeros.
Tensor packed(const Tensor& x) {
  Dims shape = x.shape();
  const int64_t channels = shape.back();
  shape.back() = whole_pieces(channels);
  const Tensor to = Tensor::empty(shape, x.dtype(), x.device());
  core::copy_into(x, to.with_layout(x.shape(), to.strides(), to.offset()));
  if (shape.back() == channels) return to;
  shape.back() -= channels;
  fill_(to.with_layout(shape, to.strides(), to.offset() + channels), 0);
  return to;
}

Tensor image_tensor(const Image& x, const ConvProblem& p, const ImageSizes& sizes) {
  return seen(x.data, p, {p.batch, sizes.size[0], sizes.size[1], sizes.size[2], p.groups, sizes.channels},
              {x.batch, x.spatial[0], x.spatial[1], x.spatial[2], sizes.channels * x.channel, x.channel});
}

Image image_at(const Tensor& x) {
  return {static_cast<char*>(x.raw()), x.stride(0), 1, {x.stride(1), x.stride(2), x.stride(3)}};
}

/// Dims of one element get strides of whole pieces: nothing is ever added up of them.
Image gathered(Image x, const ImageSizes& sizes) {
  for (int d = 0; d < kSpatial; ++d)
    if (sizes.size[d] == 1) x.spatial[d] = kPiece;
  return x;
}

/// The weight as [groups, channels written, taps, channels read].
Tensor weight_tensor(const ConvProblem& p) {
  const bool backward = p.direction == Direction::kDataBackward;
  const int64_t group = p.group_outputs() * p.weight.out;
  const int64_t out = p.group_outputs(), in = p.group_channels();
  return seen(
      p.weight.data, p,
      {p.groups, backward ? in : out, p.window[0].kernel, p.window[1].kernel, p.window[2].kernel, backward ? out : in},
      {group, backward ? p.weight.in : p.weight.out, p.weight.spatial[0], p.weight.spatial[1], p.weight.spatial[2],
       backward ? p.weight.out : p.weight.in});
}

/// Operands, and the memory of those that were copied.
struct Prepared {
  GatherOperands operands;
  Tensor source, weight;
};

void prepare_source(const ConvProblem& p, const ImageSizes& sizes, Prepared& x) {
  const Image& image = p.direction == Direction::kWeightBackward ? p.input : read_image(p);
  x.operands.source = image;
  x.operands.source_channels = whole_pieces(sizes.channels);
  if (!gathers(image, sizes)) {
    x.source = packed(image_tensor(image, p, sizes));
    x.operands.source = image_at(x.source);
  }
  x.operands.source = gathered(x.operands.source, sizes);
}

void prepare_weight(const ConvProblem& p, Prepared& x) {
  const Tensor weight = weight_tensor(p);
  x.weight = weight_lies(p) ? weight : packed(weight);
  x.operands.weight = x.weight.raw();
}

void run_products(const ConvProblem& p, bool hopper, const char* op) {
  const LaunchPlace place{op, p.device};
  Prepared x;
  prepare_source(p, p.direction == Direction::kForward ? input_sizes(p) : output_sizes(p), x);
  prepare_weight(p, x);
  const std::vector<GatherProduct> products = products_of(p, x.operands);
  const bool wide = p.dtype == DType::kFloat32;
  if (hopper && !wide) return sm90_conv_all(products, place);
  for (const GatherProduct& product : products) wide ? float_conv(product, place) : mma_conv(product, place);
  if (wide) cuda_mend(p);  // the others do it themselves
}

Tensor workspace_of(const ConvProblem& p, size_t bytes) {
  return Tensor::empty({static_cast<int64_t>(bytes)}, uint8, p.device);
}

void run_sums(const ConvProblem& p, bool hopper) {
  const LaunchPlace place{"conv_weight_backward", p.device};
  Prepared x;
  prepare_source(p, input_sizes(p), x);
  const ImageSizes outputs = output_sizes(p);
  Tensor grad;
  const void* lines = p.output.data;
  if (!is_dense(p.output, p, outputs)) {
    grad = packed(image_tensor(p.output, p, outputs));
    lines = grad.raw();
  }
  const GatherSums sums = sums_of(p, x.operands, lines, whole_pieces(outputs.channels));
  if (p.dtype == DType::kFloat32) {
    const Tensor space = workspace_of(p, float_weight_workspace(sums));
    float_conv_weight(sums, space.raw(), place);
  } else if (hopper) {
    const ConvWeightPlan plan = sm90_conv_weight_choice(sums, p.device);
    const Tensor space = workspace_of(p, sm90_conv_weight_workspace(sums, plan));
    sm90_conv_weight(sums, plan, space.raw(), place);
  } else {
    const int splits = mma_conv_weight_splits(sums, p.device);
    const Tensor space = workspace_of(p, mma_conv_weight_workspace(sums, splits));
    mma_conv_weight(sums, splits, space.raw(), place);
  }
}

void run(const ConvProblem& p, bool hopper) {
  const cuda::DeviceGuard guard(p.device);
  if (hopper && stem_takes(p)) return stem_run(p);
  if (hopper)
    if (const auto product = pointwise_product(p)) return pointwise_run(p, *product);
  switch (p.direction) {
    case Direction::kForward:
      return run_products(p, hopper, "conv_forward");
    case Direction::kDataBackward:
      return run_products(p, hopper, "conv_data_backward");
    case Direction::kWeightBackward:
      return run_sums(p, hopper);
  }
}

}  // namespace

int64_t cuda_implicit_gemm_workspace(const ConvProblem& p) {
  const bool hopper = core::device_traits(p.device).capability == kHopper;
  if (p.direction != Direction::kWeightBackward || (hopper && stem_takes(p))) return 0;
  Prepared x;
  x.operands.source = p.input;
  x.operands.source_channels = whole_pieces(input_sizes(p).channels);
  const GatherSums sums = sums_of(p, x.operands, nullptr, whole_pieces(output_sizes(p).channels));
  if (p.dtype == DType::kFloat32) return static_cast<int64_t>(float_weight_workspace(sums));
  return static_cast<int64_t>(hopper ? sm90_conv_weight_workspace(sums, sm90_conv_weight_choice(sums, p.device))
                                     : mma_conv_weight_workspace(sums, mma_conv_weight_splits(sums, p.device)));
}

void cuda_implicit_gemm_run(const ConvProblem& p) { run(p, core::device_traits(p.device).capability == kHopper); }
void cuda_portable_gemm_run(const ConvProblem& p) { run(p, false); }

}  // namespace tenor::conv
