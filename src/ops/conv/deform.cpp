// The contract of deformable convolution: columns sampled at the offsets, some images at a time, and the contraction
// family's products with the weight. Kernels: deform_cpu.cpp, and on CUDA those that conv_cuda.h names.
#include <memory>

#include "src/core/backend.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/ops/conv/conv_cuda.h"
#include "src/ops/conv/conv_options.h"
#include "src/ops/conv/deform_kernels.h"
#include "tenor/contract.h"
#include "tenor/elementwise.h"
#include "tenor/reduce.h"

namespace tenor {
namespace {

using namespace conv;
using core::fail;
using core::OpClass;
using core::Output;
using core::Step;

const core::OpRegistration kOps({
    {"deform_conv2d", "conv", OpClass::kContraction,
     "input[N,C,H,W], offset[N,2 OG KH KW,PH,PW], weight[O,C/groups,KH,KW], mask, bias -> [N,O,PH,PW]"},
    {"deform_conv2d_backward", "conv", OpClass::kContraction,
     "grad_output[N,O,PH,PW], input, offset, weight, mask, bias -> gradients of the five"},
});

constexpr int64_t kColumnBytes = int64_t{64} << 20;  // that are sampled at once, unless one image has more

struct Operands {
  const char* op;
  const Tensor &input, &offset, &weight, &mask, &bias;
};

/// The checked call.
struct Deform {
  Windows windows;
  int64_t groups, offset_groups;
  DType compute;
  int64_t taps() const { return windows.window[1].kernel * windows.window[2].kernel; }
  int64_t height() const { return windows.window[1].output; }
  int64_t width() const { return windows.window[2].output; }
  int64_t pixels() const { return height() * width(); }
};

/// The count given, which must divide `channels`, or the one that follows.
int64_t count_of(const char* op, const char* argument, std::optional<int64_t> given, int64_t implied, int64_t channels,
                 const char* image) {
  const int64_t count = given.value_or(implied);
  if (count < 1) fail<ValueError>("{}: {} must be at least 1, got {}", op, argument, count);
  if (channels % count != 0)
    fail<ShapeError>("{}: {} has {} channels, which {} {} does not divide", op, image, channels, argument, count);
  return count;
}

void check_operands(const Operands& x) {
  core::check_float(x.op, {"input", x.input});
  core::check_ndim(x.op, {"input", x.input}, 4);
  core::check_ndim(x.op, {"offset", x.offset}, 4);
  core::check_ndim(x.op, {"weight", x.weight}, 4);
  for (const auto& [name, t] : {std::pair<const char*, const Tensor&>{"offset", x.offset}, {"weight", x.weight}})
    core::check_same_dtype(x.op, {"input", x.input}, {name, t});
  core::check_same_device(
      x.op, {{"input", x.input}, {"offset", x.offset}, {"weight", x.weight}, {"mask", x.mask}, {"bias", x.bias}});
}

template <class Options>
Deform checked(const Operands& x, const Options& o) {
  check_operands(x);
  const Sliding sliding = read_sliding(x.op, 2, o.stride, o.padding, o.dilation);
  const int64_t C = x.input.shape(1), O = x.weight.shape(0), taps = x.weight.shape(2) * x.weight.shape(3);
  Deform d{read_windows(x.op, sliding, spatial_sizes(x.input.shape()), spatial_sizes(x.weight.shape())), 1, 1,
           compute_dtype(x.input.dtype())};
  d.groups = count_of(x.op, "groups", o.groups, x.weight.shape(1) > 0 ? std::max<int64_t>(C / x.weight.shape(1), 1) : 1,
                      C, "input");
  if (O % d.groups != 0)
    fail<ShapeError>("{}: weight has {} output channels, which groups {} does not divide", x.op, O, d.groups);
  if (x.weight.shape(1) != C / d.groups)
    fail<ShapeError>("{}: weight must have {} channels (input's {} over groups {}), got {}", x.op, C / d.groups, C,
                     d.groups, x.weight.shape(1));
  d.offset_groups = count_of(x.op, "offset_groups", o.offset_groups,
                             std::max<int64_t>(x.offset.shape(1) / (2 * taps), 1), C, "input");
  core::check_shape(x.op, {"offset", x.offset}, {x.input.shape(0), 2 * d.offset_groups * taps, d.height(), d.width()});
  if (x.mask.defined()) {
    core::check_same_dtype(x.op, {"input", x.input}, {"mask", x.mask});
    core::check_shape(x.op, {"mask", x.mask}, {x.input.shape(0), d.offset_groups * taps, d.height(), d.width()});
  }
  if (x.bias.defined()) {
    core::check_same_dtype(x.op, {"input", x.input}, {"bias", x.bias});
    core::check_shape(x.op, {"bias", x.bias}, {O});
  }
  return d;
}

/// Images [first, first + count) of an image tensor.
Image images_from(const Tensor& x, int64_t first) {
  Image image = image_of(x);
  if (x.defined()) image.data += first * image.batch * static_cast<int64_t>(item_size(x.dtype()));
  return image;
}
Tensor narrowed(const Tensor& x, int64_t first, int64_t count) {
  Dims shape = x.shape();
  shape[0] = count;
  return x.with_layout(shape, x.strides(), x.offset() + first * x.stride(0));
}

DeformProblem problem_of(const Operands& x, const Deform& d, int64_t first, int64_t count, const Tensor& columns) {
  DeformProblem p{};
  p.device = x.input.device(), p.dtype = x.input.dtype();
  p.images = count, p.channels = x.input.shape(1), p.offset_groups = d.offset_groups;
  std::copy(d.windows.window, d.windows.window + kSpatial, p.window);
  p.input = images_from(x.input, first), p.offset = images_from(x.offset, first), p.mask = images_from(x.mask, first);
  p.columns = static_cast<char*>(columns.raw());
  return p;
}

void sample(const DeformProblem& p) {
  if constexpr (core::kHasCuda) {
    if (p.device.type == DeviceType::kCuda) return cuda_deform_sample(p);
  }
  deform_sample_cpu(p);
}
void flow_back(const DeformProblem& p) {
  if constexpr (core::kHasCuda) {
    if (p.device.type == DeviceType::kCuda) return cuda_deform_gradient(p);
  }
  deform_gradient_cpu(p);
}

/// Calls fn(first, count) for the images in pieces whose columns bound the memory.
template <class F>
void for_each_piece(const Operands& x, const Deform& d, F&& fn) {
  const int64_t image = core::count_product(core::count_product(x.input.shape(1), d.taps()), d.pixels());
  const int64_t bytes = core::count_product(std::max<int64_t>(image, 1), static_cast<int64_t>(item_size(d.compute)));
  const int64_t piece = std::clamp<int64_t>(kColumnBytes / bytes, 1, std::max<int64_t>(x.input.shape(0), 1));
  for (int64_t n = 0; n < x.input.shape(0); n += piece) fn(n, std::min(piece, x.input.shape(0) - n));
}

/// Columns of a piece, and as the products see them: [images, groups, C/groups KH KW, pixels].
Tensor columns_for(const Operands& x, const Deform& d, int64_t count) {
  return Tensor::empty({count, d.groups, x.weight.shape(1) * d.taps(), d.pixels()}, d.compute, x.input.device());
}
/// Dense memory under another shape.
Tensor reshaped(const Tensor& x, const Dims& shape) {
  return x.with_layout(shape, contiguous_strides(shape), x.offset());
}
/// weight as [groups, O/groups, C/groups KH KW] of the compute type.
Tensor matrices_of(const Operands& x, const Deform& d) {
  return reshaped(x.weight.to(d.compute).contiguous(),
                  {d.groups, x.weight.shape(0) / d.groups, x.weight.shape(1) * d.taps()});
}
/// The last two dims exchanged.
Tensor turned(const Tensor& x) {
  Dims shape = x.shape(), strides = x.strides();
  std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
  std::swap(strides[strides.size() - 1], strides[strides.size() - 2]);
  return x.with_layout(shape, strides, x.offset());
}
Step step_of(const Operands& x, const Deform& d, std::vector<Tensor> inputs, std::vector<Tensor> outputs,
             int64_t products) {
  const int64_t sums = core::count_product(core::count_product(x.input.shape(0), x.weight.shape(0)), d.pixels());
  const int64_t product =
      core::count_product(core::count_product(2, sums), core::count_product(x.weight.shape(1), d.taps()));
  Step step{x.op, OpClass::kContraction, std::move(inputs), std::move(outputs), core::count_product(products, product)};
  if (x.weight.dtype() != d.compute || !x.weight.is_contiguous())
    step.copies.push_back({"weight", core::count_product(x.weight.numel(), static_cast<int64_t>(item_size(d.compute))),
                           "products take rows of the compute dtype"});
  step.note = core::text("samples {} taps of {} channels, then {} products", d.taps(), x.input.shape(1), products);
  return step;
}

}  // namespace

Tensor deform_conv2d(const Tensor& input, const Tensor& offset, const Tensor& weight, const Tensor& mask,
                     const Tensor& bias, const DeformConvOptions& o) {
  const Operands x{"deform_conv2d", input, offset, weight, mask, bias};
  const Deform d = checked(x, o);
  const Dims shape = {input.shape(0), weight.shape(0), d.height(), d.width()};
  Output out(x.op, o.out, shape, input.dtype(), input, {&input, &offset, &weight, &mask, &bias},
             {.cuda = core::kHasCuda});
  core::StepScope step([&] {
    std::vector<Tensor> inputs{input, offset, weight};
    for (const Tensor* t : {&mask, &bias})
      if (t->defined()) inputs.push_back(*t);
    return step_of(x, d, std::move(inputs), {out.target()}, 1)
        .with(core::recipe([masked = mask.defined(), biased = bias.defined(), o](const auto& in, const auto& outs) {
          DeformConvOptions again = o;
          again.out = outs[0];
          deform_conv2d(in[0], in[1], in[2], masked ? in[3] : Tensor(), biased ? in[3 + masked] : Tensor(), again);
        }));
  });
  if (step.shape_only(out.target())) return out.target();
  if (out.target().numel() == 0) return out.finish();
  const Tensor matrices = matrices_of(x, d);
  for_each_piece(x, d, [&](int64_t first, int64_t count) {
    const Tensor columns = columns_for(x, d, count);
    if (columns.numel() > 0) sample(problem_of(x, d, first, count, columns));
    const Tensor sums = matmul(matrices, columns);  // [images, groups, O/groups, pixels]
    Tensor y = reshaped(sums, {count, shape[1], shape[2], shape[3]});
    if (bias.defined()) add_(y, bias.with_layout({shape[1], 1, 1}, {bias.stride(0), 0, 0}, bias.offset()));
    core::copy_into(y, narrowed(out.target(), first, count));
  });
  return out.finish();
}

DeformConvGrads deform_conv2d_backward(const Tensor& grad_output, const Tensor& input, const Tensor& offset,
                                       const Tensor& weight, const Tensor& mask, const Tensor& bias,
                                       const DeformConvBackwardOptions& o) {
  const Operands x{"deform_conv2d_backward", input, offset, weight, mask, bias};
  const Deform d = checked(x, o);
  core::check_same_dtype(x.op, {"input", input}, {"grad_output", grad_output});
  core::check_shape(x.op, {"grad_output", grad_output}, {input.shape(0), weight.shape(0), d.height(), d.width()});
  core::check_same_device(x.op, {{"input", input}, {"grad_output", grad_output}});
  core::check_distinct_outputs(
      x.op, {&o.out.grad_input, &o.out.grad_offset, &o.out.grad_weight, &o.out.grad_mask, &o.out.grad_bias});
  const std::initializer_list<const Tensor*> all = {&grad_output, &input, &offset, &weight, &mask, &bias};
  const auto made = [&](const Tensor& given, const Tensor& like) {
    return std::make_unique<Output>(x.op, given, like.shape(), input.dtype(), like, all,
                                    core::OutputRules{.cuda = core::kHasCuda});
  };
  const auto gx = made(o.out.grad_input, input), go = made(o.out.grad_offset, offset),
             gw = made(o.out.grad_weight, weight);
  const auto gm = mask.defined() ? made(o.out.grad_mask, mask) : nullptr;
  const auto gb = bias.defined() ? made(o.out.grad_bias, bias) : nullptr;
  const auto target = [](const std::unique_ptr<Output>& out) { return out ? out->target() : Tensor(); };
  core::StepScope step([&] {
    std::vector<Tensor> inputs{grad_output, input, offset, weight}, outputs{gx->target(), go->target(), gw->target()};
    if (gm) inputs.push_back(mask), outputs.push_back(gm->target());
    if (gb) inputs.push_back(bias), outputs.push_back(gb->target());
    return step_of(x, d, std::move(inputs), std::move(outputs), 2)
        .with(core::recipe([masked = mask.defined(), biased = bias.defined(), o](const auto& in, const auto& outs) {
          DeformConvBackwardOptions again = o;
          again.out = {outs[0], outs[1], outs[2], masked ? outs[3] : Tensor(), biased ? outs[3 + masked] : Tensor()};
          deform_conv2d_backward(in[0], in[1], in[2], in[3], masked ? in[4] : Tensor(),
                                 biased ? in[4 + masked] : Tensor(), again);
        }));
  });
  if (step.shape_only(gx->target())) return {gx->target(), go->target(), gw->target(), target(gm), target(gb)};
  if (gb) sum(grad_output, {.dim = Dims{0, 2, 3}, .out = gb->target()});
  for (const Tensor& t : {gx->target(), go->target(), target(gm)})
    if (t.defined() && (weight.numel() == 0 || input.numel() == 0)) fill_(t, 0);
  const Tensor matrices = matrices_of(x, d);
  const Tensor sums = Tensor::empty(matrices.shape(), d.compute, input.device());
  fill_(sums, 0);
  for_each_piece(x, d, [&](int64_t first, int64_t count) {
    if (weight.numel() == 0 || input.numel() == 0 || d.pixels() == 0) return;
    const Tensor columns = columns_for(x, d, count);
    DeformProblem p = problem_of(x, d, first, count, columns);
    sample(p);
    const Tensor grads = reshaped(narrowed(grad_output, first, count).to(d.compute).contiguous(),
                                  {count, d.groups, weight.shape(0) / d.groups, d.pixels()});
    for (int64_t n = 0; n < count; ++n) {  // image by image, so that the order does not depend on the pieces
      const Tensor product = matmul(narrowed(grads, n, 1), turned(narrowed(columns, n, 1)));
      add_(sums, reshaped(product, sums.shape()));
    }
    matmul(turned(matrices), grads, {.out = columns});
    p.grad_input = images_from(gx->target(), first), p.grad_offset = images_from(go->target(), first);
    p.grad_mask = images_from(target(gm), first);
    flow_back(p);
  });
  core::copy_into(reshaped(sums, weight.shape()), gw->target());
  return {gx->finish(), go->finish(), gw->finish(), gm ? gm->finish() : Tensor(), gb ? gb->finish() : Tensor()};
}

}  // namespace tenor
