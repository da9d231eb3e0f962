#include "src/ops/conv/conv_options.h"

namespace tenor::conv {

using core::fail;

Dims canonical(const Dims& shape, Layout layout) {
  Dims sizes = shape;
  if (layout == Layout::kChannelsLast) std::rotate(sizes.begin() + 1, sizes.end() - 1, sizes.end());
  return sizes;
}

Dims in_layout(const Dims& sizes, Layout layout) {
  Dims shape = sizes;
  if (layout == Layout::kChannelsLast) std::rotate(shape.begin() + 1, shape.begin() + 2, shape.end());
  return shape;
}

Dims spatial_sizes(const Dims& sizes) { return Dims(sizes.begin() + 2, sizes.end()); }

Sliding read_sliding(const char* op, int dims, const Dims& stride, const ConvPadding& padding, const Dims& dilation) {
  Sliding s{.dims = dims};
  s.stride = core::values_per_dim(op, "stride", stride, dims, 1);
  s.dilation = core::values_per_dim(op, "dilation", dilation, dims, 1);
  if (padding.kind == ConvPadding::Kind::kUnknown)
    fail<ValueError>("{}: padding must be numbers, 'valid' or 'same', got '{}'", op, padding.unknown);
  s.same = padding.kind == ConvPadding::Kind::kSame;
  if (s.same && std::any_of(s.stride.begin(), s.stride.end(), [](int64_t step) { return step != 1; }))
    fail<ValueError>("{}: padding 'same' takes stride 1, got {}", op, s.stride);
  s.before = core::values_per_dim(op, "padding", padding.before, dims, 0);
  s.after = core::values_per_dim(op, "padding", padding.after, dims, 0);
  return s;
}

namespace {

/// Everything of a dim but the sizes of input and output. @throws as read_windows
core::WindowDim window_of(const char* op, const Sliding& s, size_t d, const Dims& kernel, const char* argument) {
  if (kernel[d] < 1)
    fail<ShapeError>("{}: {} must have a kernel of at least 1 in every dim, got {}", op, argument, kernel);
  core::check_span(op, argument, kernel[d], s.dilation[d]);
  core::WindowDim w{.kernel = kernel[d], .stride = s.stride[d], .dilation = s.dilation[d]};
  w.before = s.same ? (w.span() - 1) / 2 : s.before[d];
  w.after = s.same ? w.span() - 1 - w.before : s.after[d];
  return w;
}

size_t place_of(const Sliding& s, size_t d) { return d + kSpatial - static_cast<size_t>(s.dims); }

}  // namespace

Dims Windows::outputs() const {
  Dims sizes;
  for (int d = kSpatial - dims; d < kSpatial; ++d) sizes.push_back(window[d].output);
  return sizes;
}

Windows read_windows(const char* op, const Sliding& s, const Dims& input, const Dims& kernel,
                     const char* kernel_argument, const char* input_argument) {
  Windows windows{.window = {}, .dims = s.dims};
  for (size_t d = 0; d < input.size(); ++d) {
    core::WindowDim w = window_of(op, s, d, kernel, kernel_argument);
    w.input = input[d];
    if (w.input > INT64_MAX / 8)
      fail<ShapeError>("{}: {} must be smaller than 2^60 in every dim, got {} in dim {}", op, input_argument, w.input,
                       d);
    if (w.span() > w.input + w.before + w.after)
      fail<ShapeError>(
          "{}: {}'s kernel spans {} in dim {} (size {}, dilation {}), but {} has {} there, with padding {}", op,
          kernel_argument, w.span(), d, w.kernel, w.dilation, input_argument, w.input, w.input + w.before + w.after);
    w.output = core::window_outputs(w);
    windows.window[place_of(s, d)] = w;
  }
  return windows;
}

Windows read_transposed(const char* op, const Sliding& s, const Dims& given, const Dims& kernel,
                        const std::optional<Dims>& output_padding, const Dims* result) {
  const Dims more = core::values_per_dim(op, "output_padding", output_padding.value_or(Dims{0}), s.dims, 0);
  Windows windows{.window = {}, .dims = s.dims};
  for (size_t d = 0; d < given.size(); ++d) {
    core::WindowDim w = window_of(op, s, d, kernel, "weight");
    const int64_t most = std::max(w.stride, w.dilation);
    w.output = given[d];
    const int64_t whole = core::count_sum(core::count_product(given[d], w.stride), w.span()) - w.stride;
    int64_t extra = more[d];
    if (extra >= most)
      fail<ValueError>("{}: output_padding must be below max(stride, dilation) = {} in dim {}, got {}", op, most, d,
                       extra);
    if (result && !output_padding) {
      extra = (*result)[d] - (whole - w.before - w.after);
      if (extra < 0 || extra >= most)
        fail<ShapeError>("{}: grad_output has {} in dim {}, but conv_transpose makes {} of {}, and less than {} more",
                         op, (*result)[d], d, whole - w.before - w.after, given[d], most);
    }
    w.input = whole - w.before - w.after + extra;
    if (w.input < 1)
      fail<ShapeError>("{}: padding takes {} from {} outputs in dim {} (input has {})", op, w.before + w.after,
                       whole + extra, d, given[d]);
    windows.window[place_of(s, d)] = w;
  }
  return windows;
}

void check_image(const char* op, core::Named x) {
  core::check_float(op, x);
  if (x.tensor.ndim() < 3 || x.tensor.ndim() > 2 + kSpatial)
    fail<ShapeError>("{}: {} must have 3 to 5 dims (batch, channels and 1 to 3 spatial ones), got {} with shape {}", op,
                     x.name, x.tensor.ndim(), x.tensor.shape());
}

Image image_of(const Tensor& x, Layout layout) {
  if (!x.defined()) return {};
  const Dims strides = canonical(x.strides(), layout);
  Image image{static_cast<char*>(x.raw()), strides[0], strides[1], {}};
  for (size_t d = 2; d < strides.size(); ++d) image.spatial[kSpatial - strides.size() + d] = strides[d];
  return image;
}

Filter filter_of(const Tensor& weight, Layout layout) {
  const Image same = image_of(weight, layout);
  return {same.data, same.batch, same.channel, {same.spatial[0], same.spatial[1], same.spatial[2]}};
}

}  // namespace tenor::conv
