#include "src/ops/pool/pool_checks.h"

#include "src/core/step.h"

namespace tenor::pool {

using core::fail;

namespace {

/// The place of spatial dim i of f among D, H, W.
int place(Function f, int i) { return 3 - f.dims + i; }

PoolDim window_of(Function f, int64_t input, const WindowOptions& o, const Dims& kernel, const Dims& stride,
                  const Dims& padding, const Dims& dilation, size_t i) {
  core::check_span(f.op, "kernel_size", kernel[i], dilation[i]);
  PoolDim dim;
  static_cast<WindowDim&>(dim) = {input, kernel[i], stride[i], dilation[i], padding[i], padding[i], 1};
  if (padding[i] > dim.span() / 2)
    fail<ValueError>(
        "{}: padding must be at most half of the window's span dilation * (kernel_size - 1) + 1 = {}, got {}", f.op,
        dim.span(), o.padding);
  dim.output = core::window_outputs(dim, o.ceil_mode);
  return dim;
}

}  // namespace

void check_image(Function f, const char* argument, const Dims& shape) {
  const int rank = static_cast<int>(shape.size());
  if (rank != f.dims + 1 && rank != f.dims + 2)
    fail<ShapeError>("{}: {} must have {} dims, or {} without a batch, got shape {}", f.op, argument, f.dims + 2,
                     f.dims + 1, shape);
  for (int d = 0; d < rank; ++d) {
    const bool spatial = d >= rank - f.dims;
    if (shape[d] < 0 || (spatial && shape[d] == 0))
      fail<ShapeError>("{}: {} must have spatial dims of at least one element, got shape {}", f.op, argument, shape);
  }
}

void check_numbers(Function f, core::Named x) {
  core::check_given(f.op, x);
  const DType t = x.tensor.dtype();
  if (is_float8(t) || !(is_float(t) || is_integer(t)))
    fail<DTypeError>("{}: {} must be of integers, float16, bfloat16, float32 or float64, got {}", f.op, x.name, t);
}

void check_input_shape(Function f, const Dims& shape, const Tensor& grad) {
  check_image(f, "input_shape", shape);
  check_image(f, "grad_output", grad.shape());
  bool fits = shape.size() == grad.shape().size();
  for (size_t d = 0; fits && d + f.dims < shape.size(); ++d) fits = shape[d] == grad.shape()[d];
  if (!fits)
    fail<ShapeError>("{}: grad_output must have input_shape's {} but for the last {} dims, got shape {}", f.op, shape,
                     f.dims, grad.shape());
}

PoolSpace windows_of(Function f, const char* argument, const Dims& shape, const WindowOptions& o) {
  check_image(f, argument, shape);
  const Dims kernel = core::values_per_dim(f.op, "kernel_size", o.kernel_size, f.dims, 1);
  const Dims stride = o.stride.empty() ? kernel : core::values_per_dim(f.op, "stride", o.stride, f.dims, 1);
  const Dims padding = core::values_per_dim(f.op, "padding", o.padding, f.dims, 0);
  const Dims dilation = core::values_per_dim(f.op, "dilation", o.dilation, f.dims, 1);
  PoolSpace space;
  for (int i = 0; i < f.dims; ++i)
    space.dim[place(f, i)] =
        window_of(f, shape[shape.size() - f.dims + i], o, kernel, stride, padding, dilation, static_cast<size_t>(i));
  for (int i = 0; i < f.dims; ++i) {
    const PoolDim& dim = space.dim[place(f, i)];
    if (dim.output < 1)
      fail<ShapeError>("{}: {} has shape {}, whose spatial dim {} with padding {} is shorter than a window of {}", f.op,
                       argument, shape, i, dim.before, dim.span());
  }
  return space;
}

PoolSpace bins_of(Function f, const Dims& shape, const Dims& output_size) {
  const Dims sizes = core::values_per_dim(f.op, "output_size", output_size, f.dims, 1);
  PoolSpace space;
  for (int i = 0; i < f.dims; ++i) {
    PoolDim& dim = space.dim[place(f, i)];
    dim.input = shape[shape.size() - f.dims + i];
    dim.output = sizes[i];
    dim.bins = true;
    if (core::count_product(dim.input, dim.output) >= int64_t{1} << 62)
      fail<ValueError>("{}: output_size must give fewer than 2^62 / {} bins, got {}", f.op, dim.input, output_size);
    if (dim.input % dim.output == 0) {  // a plain window, which kernels take in longer strides
      dim.kernel = dim.stride = dim.input / dim.output;
      dim.bins = false;
    }
  }
  return space;
}

PoolDivisor divisor_of(Function f, const AvgPoolOptions& o) {
  if (o.divisor_override && *o.divisor_override == 0)
    fail<ValueError>("{}: divisor_override must not be 0, got 0", f.op);
  if (o.divisor_override && (*o.divisor_override == INT64_MAX || *o.divisor_override == INT64_MIN))
    fail<ValueError>("{}: divisor_override must be within 64 bits, got {} or beyond", f.op, *o.divisor_override);
  return {o.count_include_pad, o.divisor_override.value_or(0)};
}

Dims pooled_shape(Function f, const Dims& shape, const PoolSpace& space) {
  Dims out = shape;
  for (int i = 0; i < f.dims; ++i) out[out.size() - f.dims + i] = space.dim[place(f, i)].output;
  return out;
}

PoolGrid grid_of(Function f, const Tensor& x) {
  PoolGrid grid;
  for (int d = 0; d < x.ndim(); ++d) {
    const int from_end = x.ndim() - d;  // 1 for W
    const int at = from_end > f.dims ? 2 - (from_end - f.dims) : 5 - from_end;
    grid.size[at] = x.shape(d);
    grid.stride[at] = x.shape(d) == 1 ? 0 : x.stride(d);
  }
  return grid;
}

bool is_global(const PoolSpace& space) {
  for (const PoolDim& dim : space.dim) {
    const WindowRange read = dim.inputs(0);
    if (dim.output != 1 || read.first != 0 || read.last != dim.input || read.step != 1) return false;
  }
  return true;
}

bool is_mean(const PoolSpace& space, const PoolDivisor& divisor) {
  bool plain = is_global(space) && !divisor.is_fixed();
  for (const PoolDim& dim : space.dim) plain = plain && dim.count(0, divisor.padding_too) == dim.input;
  return plain;
}

int64_t flops_of(const PoolSpace& space, const Tensor& image, const Tensor& windows) {
  int64_t taps = 1;
  for (const PoolDim& dim : space.dim) {
    if (dim.bins) return image.numel();
    taps = core::count_product(taps, dim.kernel);
  }
  return core::count_product(taps, windows.numel());
}

Dims spatial_dims(Function f) {
  Dims dims;
  for (int d = -f.dims; d < 0; ++d) dims.push_back(d);
  return dims;
}

}  // namespace tenor::pool
