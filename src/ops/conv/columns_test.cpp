// im2col, col2im, bias gradients and deformable convolution on the CPU.
#include "src/ops/conv/conv_testing.h"

namespace tenor::testing {
namespace {

/// fn(element of the columns, element of the image) of every tap on the image.
template <class F>
void for_each_element(const conv::ConvProblem& p, F&& fn) {
  conv::ConvProblem planes = p;  // one filter with one channel: its products name every tap of every window
  planes.batch = planes.channels = planes.out_channels = planes.groups = 1;
  for (int64_t plane = 0; plane < p.batch * p.channels; ++plane)
    conv::reference::for_each_product(planes, [&](int64_t tap, int64_t in, int64_t out) {
      fn((plane * p.taps() + tap) * p.output_pixels() + out, plane * p.input_pixels() + in);
    });
}

TEST(Columns, AgreeWithTheDefinition) {
  ConvDraw draw(11);
  constexpr DType kTypes[] = {float32, float16, bfloat16, float64, int64, uint8, int16};
  for (int i = 0; i < 300; ++i) {
    const ConvCase c = draw.any_case(4);
    const conv::ConvProblem p = c.problem();
    const DType dtype = kTypes[i % 7];
    const Dims kernel(c.filter.begin() + 2, c.filter.end()), size(c.image.begin() + 2, c.image.end());
    const Dims columns = {c.image[0], c.image[1] * p.taps(), p.output_pixels()};
    std::vector<double> image = draw.small(product(c.image)), grads = draw.small(product(columns));
    if (is_unsigned(dtype)) {
      for (double& v : image) v += 2;
      for (double& v : grads) v += 2;
    }
    std::vector<double> want(grads.size()), back(image.size());
    for_each_element(p, [&](int64_t column, int64_t pixel) {
      want[static_cast<size_t>(column)] = image[static_cast<size_t>(pixel)];
      back[static_cast<size_t>(pixel)] += grads[static_cast<size_t>(column)];
    });
    Im2colOptions o{.stride = c.options.stride, .padding = c.options.padding, .dilation = c.options.dilation};
    o.out = draw.any_layout(columns, dtype);
    expect_exact(im2col(draw.placed(c.image, dtype, image), kernel, o), want, "im2col " + c.text());
    o.out = draw.any_layout(c.image, dtype);
    expect_exact(col2im(draw.placed(columns, dtype, grads), size, kernel, o), back, "col2im " + c.text());
    if (HasFatalFailure()) return;
  }
}

TEST(Columns, Errors) {
  const Tensor x = full({1, 2, 5}, float32, 1);
  EXPECT_THROW(im2col(x, {6}), ShapeError);
  EXPECT_THROW(im2col(x, {0}), ValueError);
  EXPECT_THROW(im2col(full({2, 5}, float32, 1), {2}), ShapeError);
  EXPECT_THROW(col2im(x, {6}, {2}, {.stride = {2}}), ShapeError);
  EXPECT_THROW(col2im(x, {5}, {3}), ShapeError);
  EXPECT_THROW(col2im(full({1, 2, 4}, boolean, 1), {5}, {2}), DTypeError);
}

TEST(Columns, BiasGradient) {
  ConvDraw draw(12);
  for (const DType dtype : kFloats) {
    const std::vector<double> grads = draw.small(3 * 4 * 5 * 6);
    std::vector<double> want(4);
    for (size_t i = 0; i < grads.size(); ++i) want[i / 30 % 4] += grads[i];
    expect_exact(conv_bias_backward(draw.placed({3, 4, 5, 6}, dtype, grads)), want, "bias");
    expect_exact(conv_bias_backward_nhwc(draw.placed({3, 5, 6, 4}, dtype, channels_last(grads, {3, 4, 5, 6}))), want,
                 "bias nhwc");
  }
}

/// A deformable convolution's operands in float64.
struct DeformCase {
  Tensor input, offset, weight, mask, bias;
  DeformConvOptions options;
};

DeformCase deform_case(Draw& draw, DType dtype, bool with_mask, bool whole_offsets) {
  const int64_t groups = 1 + draw.upto(1), og = 1 + draw.upto(1), C = 2 * groups * og, O = 3 * groups,
                kh = 1 + draw.upto(2), kw = 1 + draw.upto(2);
  DeformCase c;
  c.options = {.stride = {1 + draw.upto(1), 1},
               .padding = ConvPadding(Dims{draw.upto(2), 1}, Dims{1, draw.upto(1)}),
               .dilation = {1, 1 + draw.upto(1)}};
  const Dims image = {2, C, 6, 7};
  const conv::Sliding s = conv::read_sliding("test", 2, c.options.stride, c.options.padding, c.options.dilation);
  const Dims out = conv::read_windows("test", s, {6, 7}, {kh, kw}).outputs();
  c.input = draw.view(image, dtype), c.weight = draw.view({O, C / groups, kh, kw}, dtype);
  c.offset = draw.view({2, 2 * og * kh * kw, out[0], out[1]}, dtype);
  std::vector<double> offsets = values(c.offset);
  for (double& v : offsets) v = whole_offsets ? std::round(2 * v) : std::floor(2 * v) + 0.3;  // never near a grid line
  assign(c.offset, offsets);
  if (with_mask) c.mask = draw.view({2, og * kh * kw, out[0], out[1]}, dtype);
  c.bias = draw.view({O}, dtype);
  return c;
}

Tensor deform(const DeformCase& c) { return deform_conv2d(c.input, c.offset, c.weight, c.mask, c.bias, c.options); }

/// The definition, an output at a time.
std::vector<double> deform_reference(const DeformCase& c) {
  const int64_t C = c.input.shape(1), H = c.input.shape(2), W = c.input.shape(3), O = c.weight.shape(0),
                kw = c.weight.shape(3), taps = c.weight.shape(2) * kw;
  const int64_t P = c.offset.shape(2), Q = c.offset.shape(3), in = c.weight.shape(1), groups = C / in,
                og = c.offset.shape(1) / (2 * taps);
  const auto x = values(c.input), at = values(c.offset), w = values(c.weight), b = values(c.bias);
  const auto m = c.mask.defined() ? values(c.mask) : std::vector<double>();
  const auto pixel = [&](int64_t n, int64_t ch, double y, double z) {
    double sum = 0;
    for (int64_t i = 0; i < H; ++i)
      for (int64_t j = 0; j < W; ++j)
        sum += std::max(0.0, 1 - std::abs(y - static_cast<double>(i))) *
               std::max(0.0, 1 - std::abs(z - static_cast<double>(j))) *
               x[static_cast<size_t>(((n * C + ch) * H + i) * W + j)];
    return sum;
  };
  std::vector<double> out;
  const Dims &stride = c.options.stride, &dilation = c.options.dilation, &lo = c.options.padding.before;
  for (int64_t n = 0; n < c.input.shape(0); ++n)
    for (int64_t o = 0; o < O; ++o)
      for (int64_t p = 0; p < P; ++p)
        for (int64_t q = 0; q < Q; ++q) {
          double sum = b[static_cast<size_t>(o)];
          for (int64_t i = 0; i < in; ++i)
            for (int64_t t = 0; t < taps; ++t) {
              const int64_t ch = o / (O / groups) * in + i, tap = ch / (C / og) * taps + t;
              const auto offset = [&](int64_t k) {
                return at[static_cast<size_t>(((n * 2 * og * taps + 2 * tap + k) * P + p) * Q + q)];
              };
              const double y = static_cast<double>(p * stride[0] + t / kw * dilation[0] - lo[0]) + offset(0);
              const double z = static_cast<double>(q * stride[1] + t % kw * dilation[1] - lo[1]) + offset(1);
              const double mask = m.empty() ? 1 : m[static_cast<size_t>(((n * og * taps + tap) * P + p) * Q + q)];
              sum += w[static_cast<size_t>((o * in + i) * taps + t)] * mask * pixel(n, ch, y, z);
            }
          out.push_back(sum);
        }
  return out;
}

TEST(DeformConv, AgreesWithTheDefinition) {
  Draw draw(13);
  for (int i = 0; i < 40; ++i) {
    const DType dtype = kFloats[i % 4];
    const DeformCase c = deform_case(draw, dtype, i % 3 > 0, i % 2 == 0);
    expect_close(deform(c), deform_reference(c), "deform", 4, unit(dtype) * 8);
  }
}

/// The sum of g * deform(c), in float64.
double weighed(const DeformCase& c, const std::vector<double>& g) {
  const std::vector<double> y = values(deform(c));
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += g[i] * y[i];
  return sum;
}

TEST(DeformConv, GradientsAreThoseOfFiniteDifferences) {
  Draw draw(14);
  for (int i = 0; i < 6; ++i) {
    const DeformCase c = deform_case(draw, float64, i % 2 == 0, false);
    const Dims shape = deform(c).shape();
    const std::vector<double> g = draw.normals(product(shape));
    DeformConvBackwardOptions o{
        .stride = c.options.stride, .padding = c.options.padding, .dilation = c.options.dilation};
    const auto grads =
        deform_conv2d_backward(tensor_of(shape, float64, g), c.input, c.offset, c.weight, c.mask, c.bias, o);
    for (const auto& [x, grad] : {std::pair<const Tensor&, const Tensor&>{c.input, grads.grad_input},
                                  {c.offset, grads.grad_offset},
                                  {c.weight, grads.grad_weight},
                                  {c.mask, grads.grad_mask},
                                  {c.bias, grads.grad_bias}}) {
      if (!x.defined()) continue;
      const std::vector<double> at = values(x), have = values(grad);
      for (int k = 0; k < 12; ++k) {
        const auto e = static_cast<size_t>(draw.upto(static_cast<int64_t>(at.size()) - 1));
        std::vector<double> moved = at;
        const double step = 1e-5;
        moved[e] = at[e] + step, assign(x, moved);
        const double up = weighed(c, g);
        moved[e] = at[e] - step, assign(x, moved);
        const double down = weighed(c, g);
        assign(x, at);
        EXPECT_NEAR(have[e], (up - down) / (2 * step), 1e-6) << i;
      }
    }
  }
}

TEST(DeformConv, NanAndFarOffsets) {
  const Tensor x = full({1, 1, 3, 3}, float32, 1), w = full({1, 1, 1, 1}, float32, 1);
  const Tensor offset = full({1, 2, 3, 3}, float32, 0);
  put(offset, 0, kNan), put(offset, 1, kInf), put(offset, 2, 1e30), put(offset, 3, -1e30);
  const std::vector<double> y = values(deform_conv2d(x, offset, w));
  EXPECT_TRUE(std::isnan(y[0]));
  for (const size_t i : {1, 2, 3}) EXPECT_EQ(y[i], 0);
  EXPECT_EQ(y[4], 1);
  const auto grads = deform_conv2d_backward(full({1, 1, 3, 3}, float32, 1), x, offset, w);
  EXPECT_EQ(values(grads.grad_input), (std::vector<double>{0, 0, 0, 0, 1, 1, 1, 1, 1}));
  EXPECT_TRUE(std::isnan(values(grads.grad_offset)[0]));
}

}  // namespace
}  // namespace tenor::testing
