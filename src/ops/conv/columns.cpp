// The contracts of im2col, col2im and the bias gradient; the latter two are made of views and sums that every device
// has.
#include <algorithm>

#include "src/core/backend.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/ops/conv/columns_kernels.h"
#include "src/ops/conv/conv_options.h"
#include "tenor/create.h"
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
    {"im2col", "conv", OpClass::kIndex, "x[N,C,*S], kernel_size K -> every window as a column [N,C prod(K),prod(P)]"},
    {"col2im", "conv", OpClass::kIndex, "x[N,C prod(K),prod(P)] -> windows added up in an image [N,C,*output_size]"},
    {"conv_bias_backward", "conv", OpClass::kReduction, "grad_output[N,O,*P] -> sum over all but O [O]"},
    {"conv_bias_backward_nhwc", "conv", OpClass::kReduction, "grad_output[N,*P,O] -> sum over all but O [O]"},
});

void check_rank(const char* op, core::Named x) {
  core::check_given(op, x);
  if (x.tensor.ndim() < 3 || x.tensor.ndim() > 2 + kSpatial)
    fail<ShapeError>("{}: {} must have 3 to 5 dims (batch, channels and 1 to 3 spatial ones), got {} with shape {}", op,
                     x.name, x.tensor.ndim(), x.tensor.shape());
}

/// Columns [N, C taps, windows] seen as [N, C, KD, KH, KW, PD, PH, PW].
Tensor unfolded(const Tensor& columns, const Windows& w, int64_t channels) {
  Dims shape = {columns.shape(0), channels}, strides = {columns.stride(0), 0};
  const auto append = [&](int64_t stride, auto size_of) {
    for (int d = 0; d < kSpatial; ++d) {
      int64_t step = stride;
      for (int e = d + 1; e < kSpatial; ++e) step *= size_of(w.window[e]);
      shape.push_back(size_of(w.window[d])), strides.push_back(step);
    }
  };
  append(columns.stride(1), [](const core::WindowDim& dim) { return dim.kernel; });
  append(columns.stride(2), [](const core::WindowDim& dim) { return dim.output; });
  strides[1] = columns.stride(1) * shape[2] * shape[3] * shape[4];
  return columns.with_layout(shape, strides, columns.offset());
}

Step step_of(const char* op, const Tensor& x, const Tensor& out, int64_t flops) {
  return {op, OpClass::kIndex, {x}, {out}, flops};
}

/// im2col's problem: `to` is unfolded().
Columns columns_of(const Tensor& x, const Tensor& to, const Windows& w) {
  Columns c{x.dtype(),
            x.device(),
            x.shape(0),
            x.shape(1),
            {},
            image_of(x, Layout::kChannelsSecond),
            static_cast<char*>(to.raw()),
            to.stride(0),
            to.stride(1),
            {},
            {}};
  for (int d = 0; d < kSpatial; ++d)
    c.window[d] = w.window[d], c.to_tap[d] = to.stride(2 + d), c.to_output[d] = to.stride(5 + d);
  return c;
}

/// Adds one tap of every window to the image where it lies. `columns` is unfolded().
void add_tap(const Tensor& image, const Tensor& columns, const Windows& w, const int64_t* tap) {
  Dims shape = {image.shape(0), image.shape(1)}, to = {image.stride(0), image.stride(1)};
  Dims from = {columns.stride(0), columns.stride(1)};
  int64_t to_offset = image.offset(), from_offset = columns.offset();
  for (int d = 0; d < kSpatial; ++d) {
    const core::WindowDim& dim = w.window[d];
    const core::WindowRange outputs = dim.outputs(tap[d]);
    if (outputs.empty()) return;
    const int at = d - kSpatial + w.dims;
    const int64_t stride = at < 0 ? 0 : image.stride(2 + at);
    shape.push_back(outputs.count());
    to.push_back(dim.stride * stride), to_offset += dim.position(outputs.first, tap[d]) * stride;
    from.push_back(columns.stride(5 + d));
    from_offset += tap[d] * columns.stride(2 + d) + outputs.first * columns.stride(5 + d);
  }
  add_(image.with_layout(shape, to, to_offset), columns.with_layout(shape, from, from_offset));
}

void check_product(const char* op, const char* what, std::initializer_list<int64_t> sizes) {
  int64_t bytes = 8;
  for (const int64_t size : sizes) bytes = core::count_product(bytes, size);
  if (bytes == INT64_MAX) fail<ShapeError>("{}: {} would have more than 2^63 bytes", op, what);
}

Tensor bias_backward(const char* op, const Tensor& grad_output, const ConvBiasBackwardOptions& o, Layout layout) {
  check_image(op, {"grad_output", grad_output});
  const int channel = layout == Layout::kChannelsLast ? grad_output.ndim() - 1 : 1;
  Output out(op, o.out, {grad_output.shape(channel)}, grad_output.dtype(), grad_output, {&grad_output},
             {.cuda = core::kHasCuda});
  core::StepScope step([&] {
    Step s{op, OpClass::kReduction, {grad_output}, {out.target()}, grad_output.numel()};
    for (int d = 0; d < grad_output.ndim(); ++d)
      if (d != channel) s.reduced.push_back(d);
    s.recipe = core::recipe(
        [op, layout](const auto& in, const auto& outs) { bias_backward(op, in[0], {.out = outs[0]}, layout); });
    return s;
  });
  if (step.shape_only(out.target())) return out.target();
  Dims dims;
  for (int d = 0; d < grad_output.ndim(); ++d)
    if (d != channel) dims.push_back(d);
  sum(grad_output, {.dim = dims, .out = out.target()});
  return out.finish();
}

}  // namespace

Tensor conv_bias_backward(const Tensor& grad_output, const ConvBiasBackwardOptions& options) {
  return bias_backward("conv_bias_backward", grad_output, options, Layout::kChannelsSecond);
}
Tensor conv_bias_backward_nhwc(const Tensor& grad_output, const ConvBiasBackwardOptions& options) {
  return bias_backward("conv_bias_backward_nhwc", grad_output, options, Layout::kChannelsLast);
}

Tensor im2col(const Tensor& x, const Dims& kernel_size, const Im2colOptions& o) {
  constexpr const char* kOp = "im2col";
  check_rank(kOp, {"x", x});
  const int dims = x.ndim() - 2;
  const Dims kernel = core::values_per_dim(kOp, "kernel_size", kernel_size, dims, 1);
  const Sliding sliding = read_sliding(kOp, dims, o.stride, o.padding, o.dilation);
  const Windows w = read_windows(kOp, sliding, spatial_sizes(x.shape()), kernel, "kernel_size", "x");
  check_product(kOp, "the result", {x.shape(0), x.shape(1), product(kernel), product(w.outputs())});
  const Dims shape = {x.shape(0), x.shape(1) * product(kernel), product(w.outputs())};
  Output out(kOp, o.out, shape, x.dtype(), x, {&x}, {.cuda = core::kHasCuda});
  core::StepScope step([&] {
    return step_of(kOp, x, out.target(), 0).with(core::recipe([kernel_size, o](const auto& in, const auto& outs) {
      Im2colOptions again = o;
      again.out = outs[0];
      im2col(in[0], kernel_size, again);
    }));
  });
  if (step.shape_only(out.target())) return out.target();
  if (out.target().numel() == 0) return out.finish();
  const Columns columns = columns_of(x, unfolded(out.target(), w, x.shape(1)), w);
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) return im2col_cuda(columns), out.finish();
  }
  im2col_cpu(columns);
  return out.finish();
}

Tensor col2im(const Tensor& x, const Dims& output_size, const Dims& kernel_size, const Im2colOptions& o) {
  constexpr const char* kOp = "col2im";
  core::check_ndim(kOp, {"x", x}, 3);
  if (x.dtype() == boolean || is_float8(x.dtype()))
    fail<DTypeError>("{}: x must be an integer or a float of 16 bits or more, got {}", kOp, x.dtype());
  const int dims = static_cast<int>(output_size.size());
  if (dims < 1 || dims > kSpatial) fail<ValueError>("{}: output_size must have 1 to 3 sizes, got {}", kOp, output_size);
  const Dims size = core::values_per_dim(kOp, "output_size", output_size, dims, 0);
  const Dims kernel = core::values_per_dim(kOp, "kernel_size", kernel_size, dims, 1);
  const Sliding sliding = read_sliding(kOp, dims, o.stride, o.padding, o.dilation);
  const Windows w = read_windows(kOp, sliding, size, kernel, "kernel_size", "output_size");
  const int64_t taps = product(kernel), windows = product(w.outputs());
  if (x.shape(1) % taps != 0)
    fail<ShapeError>("{}: x has {} rows, which kernel_size's {} elements do not divide", kOp, x.shape(1), taps);
  if (x.shape(2) != windows)
    fail<ShapeError>("{}: x must have {} columns, one a window of output_size {}, got {}", kOp, windows, size,
                     x.shape(2));
  Dims shape = {x.shape(0), x.shape(1) / taps};
  for (const int64_t s : size) shape.push_back(s);
  check_product(kOp, "the result", {shape[0], shape[1], product(size)});
  Output out(kOp, o.out, shape, x.dtype(), x, {&x}, {.cuda = core::kHasCuda});
  core::StepScope step([&] {
    return step_of(kOp, x, out.target(), x.numel())
        .with(core::recipe([output_size, kernel_size, o](const auto& in, const auto& outs) {
          Im2colOptions again = o;
          again.out = outs[0];
          col2im(in[0], output_size, kernel_size, again);
        }));
  });
  if (step.shape_only(out.target())) return out.target();
  const Tensor& to = out.target();
  const DType wide = is_float(x.dtype()) ? compute_dtype(x.dtype()) : x.dtype();
  const Tensor sums = wide == x.dtype() ? to : Tensor::empty(shape, wide, x.device());
  fill_(sums, 0);
  const Tensor columns = unfolded(x, w, shape[1]);
  int64_t tap[kSpatial];
  for (tap[0] = 0; tap[0] < w.window[0].kernel; ++tap[0])
    for (tap[1] = 0; tap[1] < w.window[1].kernel; ++tap[1])
      for (tap[2] = 0; tap[2] < w.window[2].kernel; ++tap[2]) add_tap(sums, columns, w, tap);
  if (wide != x.dtype()) core::copy_into(sums, to);
  return out.finish();
}

}  // namespace tenor
