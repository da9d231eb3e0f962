// Random resamplings, for the tests on both devices.
#pragma once

#include <string>

#include "src/core/testing.h"
#include "src/ops/interpolate/interpolate_reference.h"
#include "tenor/interpolate.h"

namespace tenor::testing {

/// One call and what the reference needs for it.
struct InterpolateCall {
  InterpolateOptions options;
  ReferenceResize reference;
  std::string text() const {
    return options.mode + (options.align_corners ? " aligned" : "") + (options.antialias ? " antialiased" : "") +
           (options.size ? " size " : " factor ") + to_string(reference.from) + " to " + to_string(reference.to);
  }
};

inline const std::vector<std::string>& modes_of(int dims) {
  static const std::vector<std::string> kModes[] = {
      {"nearest", "nearest-exact", "linear", "area"},
      {"nearest", "nearest-exact", "bilinear", "bicubic", "area", "lanczos3"},
      {"nearest", "nearest-exact", "trilinear", "area"}};
  return kModes[dims - 1];
}

/// `most` bounds a spatial size of either side.
inline InterpolateCall random_call(Draw& draw, int64_t most = 40) {
  const int dims = static_cast<int>(1 + draw.upto(2));
  const auto& modes = modes_of(dims);
  InterpolateCall call;
  call.options.mode = modes[static_cast<size_t>(draw.upto(static_cast<int64_t>(modes.size()) - 1))];
  const std::string& mode = call.options.mode;
  call.options.align_corners =
      draw.coin() && (mode.find("linear") != std::string::npos || mode == "bicubic" || mode == "lanczos3");
  call.options.antialias = draw.coin() && (mode == "bilinear" || mode == "bicubic" || mode == "lanczos3");
  Dims from{1 + draw.upto(2), draw.coin() ? 1 + draw.upto(4) : 4 * (1 + draw.upto(5))}, to = from, size;
  std::vector<double> scales;
  const int64_t limit = dims == 3 ? std::min<int64_t>(most, 12) : most;
  const bool sized = draw.coin();
  for (int d = 0; d < dims; ++d) {
    from.push_back(1 + draw.upto(limit - 1));
    const double factor =
        std::max(0.3 + 2.5 * static_cast<double>(draw.upto(1000)) / 1000, 1.0 / static_cast<double>(from.back()));
    scales.push_back(factor);
    size.push_back(1 + draw.upto(limit - 1));
    to.push_back(sized ? size.back() : static_cast<int64_t>(std::floor(static_cast<double>(from.back()) * factor)));
    if (to.back() < 1) to.back() = 1, scales.back() = 1.0;
    if (!sized) to.back() = static_cast<int64_t>(std::floor(static_cast<double>(from.back()) * scales.back()));
  }
  if (sized)
    call.options.size = size;
  else
    call.options.scale_factor = scales;
  call.reference = {mode,
                    from,
                    to,
                    sized || mode == "area" ? std::vector<double>{} : scales,
                    call.options.align_corners,
                    call.options.antialias};
  return call;
}

/// The image with its channels side by side.
inline Tensor channels_last(const Tensor& x) {
  Dims strides(x.shape().size(), 0);
  int64_t step = 1;
  const auto next = [&](size_t d) { strides[d] = step, step *= x.shape()[d]; };
  next(1);
  for (size_t d = strides.size(); d-- > 2;) next(d);
  next(0);
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), kCpu, strides);
  assign(y, values(x));
  return y;
}
/// Row-major, channels side by side, or anything.
inline Tensor image(Draw& draw, const Dims& shape, DType dtype) {
  const int64_t how = draw.upto(2);
  return how == 0   ? draw.dense(shape, dtype)
         : how == 1 ? channels_last(draw.dense(shape, dtype))
                    : draw.view(shape, dtype);
}

/// Bounds: weights of either sign add up to about 1.3 a dim, and a gradient adds up many outputs.
inline void expect_resampled(const Tensor& got, const std::vector<double>& want, const std::string& what) {
  expect_close(got, want, what, 4, 1e-5);
}

}  // namespace tenor::testing
