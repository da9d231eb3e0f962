// What the family's tests share: random convolutions whose sums are exact in every dtype, and their reference.
#pragma once

#include "src/core/testing.h"
#include "src/core/text.h"
#include "src/ops/conv/conv_options.h"
#include "src/ops/conv/conv_reference.h"
#include "tenor/conv.h"

namespace tenor::testing {

/// A convolution by its sizes [N,C,*S], [O,C/groups,*K] and options.
struct ConvCase {
  Dims image, filter;
  ConvOptions options;

  conv::ConvProblem problem() const {
    const conv::Sliding s = conv::read_sliding("test", static_cast<int>(image.size()) - 2, options.stride,
                                               options.padding, options.dilation);
    const conv::Windows w = conv::read_windows("test", s, conv::spatial_sizes(image), conv::spatial_sizes(filter));
    conv::ConvProblem p;
    p.batch = image[0], p.channels = image[1], p.out_channels = filter[0], p.groups = options.groups;
    std::copy(w.window, w.window + conv::kSpatial, p.window);
    p.dims = w.dims;
    return p;
  }
  Dims output() const {
    const conv::ConvProblem p = problem();
    Dims sizes = {image[0], filter[0]};
    for (int d = conv::kSpatial - p.dims; d < conv::kSpatial; ++d) sizes.push_back(p.window[d].output);
    return sizes;
  }
  std::string text() const {
    return core::text("input {} weight {} stride {} padding {}:{} dilation {} groups {} {}", image, filter,
                      options.stride, options.padding.before, options.padding.after, options.dilation, options.groups,
                      options.strategy);
  }
};

class ConvDraw : public Draw {
 public:
  /// `plain`: operands without gaps and the same padding on both sides, which is what cuDNN takes.
  explicit ConvDraw(uint32_t seed, Device device = kCpu, bool plain = false)
      : Draw(seed), device_(device), plain_(plain) {}
  int64_t between(int64_t low, int64_t high) { return low + upto(high - low); }

  /// Kernel 1 to 7, stride 1 to 3, dilation 1 to 2, groups 1 to depthwise, odd channels, padding of its own on each
  /// side.
  ConvCase any_case(int64_t most_channels = 9) {
    const int64_t dims = between(1, most_channels > 9 ? 1 : 3), most = dims == 1 ? 40 : dims == 2 ? 12 : 5;
    ConvCase c;
    const int64_t kind = upto(3);  // one group, a few, depthwise, depthwise with a multiplier
    const int64_t groups = kind == 0 ? 1 : between(1, kind == 1 ? 3 : most_channels);
    const int64_t in = kind >= 2 ? 1 : between(1, most_channels),
                  out = kind == 2 ? 1 : between(1, kind == 3 ? 3 : most_channels);
    c.options.groups = groups;
    c.image = {between(1, 3), groups * in}, c.filter = {groups * out, in};
    Dims stride, dilation, before, after;
    for (int64_t d = 0; d < dims; ++d) {
      const int64_t k = between(1, dims == 3 ? 3 : 7), dil = between(1, 2), lo = upto(3), hi = plain_ ? lo : upto(3);
      const int64_t least = std::max<int64_t>((k - 1) * dil + 1 - lo - hi, 1);
      c.filter.push_back(k), c.image.push_back(between(least, std::max(least, most)));
      stride.push_back(between(1, 3)), dilation.push_back(dil), before.push_back(lo), after.push_back(hi);
    }
    c.options.stride = stride, c.options.dilation = dilation, c.options.padding = ConvPadding(before, after);
    return c;
  }

  /// Whole numbers so small that every sum is exact in bfloat16's accumulator, and rounds as the reference does.
  std::vector<double> small(int64_t count) {
    std::vector<double> out(static_cast<size_t>(count));
    for (double& v : out) v = static_cast<double>(upto(4) - 2);
    return out;
  }
  /// With that many elements in place that are no numbers.
  void spoil(std::vector<double>& x, int count) {
    for (int i = 0; i < count && !x.empty(); ++i) {
      const int64_t kind = upto(2);
      x[static_cast<size_t>(upto(static_cast<int64_t>(x.size()) - 1))] = kind == 0 ? kNan : kind == 1 ? kInf : -kInf;
    }
  }
  /// Those numbers under any layout, on the device.
  Tensor placed(const Dims& shape, DType dtype, const std::vector<double>& elements) {
    const Tensor host = plain_ ? Tensor::empty(shape, dtype) : any_layout(shape, dtype);
    assign(host, elements);
    if (device_ == kCpu || host.numel() == 0) return host.to(device_);
    int64_t reach = 1;  // gaps included
    for (int d = 0; d < host.ndim(); ++d) reach += (host.shape(d) - 1) * host.stride(d);
    return host.with_layout({host.offset() + reach}, {1}, 0)
        .to(device_)
        .with_layout(shape, host.strides(), host.offset());
  }
  /// A place for a result, full of NaN, on the device.
  Tensor poison(const Dims& shape, DType dtype) {
    return placed(shape, dtype, std::vector<double>(static_cast<size_t>(product(shape)), kNan));
  }
  Device device() const { return device_; }

 private:
  Device device_;
  bool plain_;
};

/// Values of [N,C,*S] in the order of [N,*S,C].
inline std::vector<double> channels_last(const std::vector<double>& x, const Dims& sizes) {
  const int64_t N = sizes[0], C = sizes[1], P = x.empty() ? 0 : static_cast<int64_t>(x.size()) / (N * C);
  std::vector<double> out(x.size());
  for (int64_t n = 0; n < N; ++n)
    for (int64_t c = 0; c < C; ++c)
      for (int64_t i = 0; i < P; ++i)
        out[static_cast<size_t>((n * P + i) * C + c)] = x[static_cast<size_t>((n * C + c) * P + i)];
  return out;
}

/// Every element as the reference's, rounded once; NaN where it is NaN.
inline void expect_exact(const Tensor& got, const std::vector<double>& want, const std::string& what) {
  const std::vector<double> have = values(got.to(kCpu));
  ASSERT_EQ(have.size(), want.size()) << what;
  for (size_t i = 0; i < have.size(); ++i) {
    if (std::isnan(have[i]) && std::isnan(want[i])) continue;
    ASSERT_EQ(have[i], rounded(want[i], got.dtype())) << what << " at " << i;
  }
}

}  // namespace tenor::testing
