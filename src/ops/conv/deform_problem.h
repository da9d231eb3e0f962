// The problem of deformable convolution that is no contraction: sampled columns, and what flows back through them. The
// products with the weight are the contraction family's.
#pragma once

#include <cmath>

#include "src/ops/conv/conv_problem.h"

namespace tenor::conv {

/// Some images of a call. Offsets are an image of 2 OG KH KW channels, (y, x) of each tap; the mask one of OG KH KW;
/// both have the output's pixels, as columns do: dense [images, channels, KH KW, pixels] of the compute type (float32,
/// float64 for float64). window[0] is one everywhere.
struct DeformProblem {
  Device device;
  DType dtype;
  int64_t images, channels, offset_groups;
  core::WindowDim window[kSpatial];
  Image input, offset, mask;  ///< mask.data may be null
  /// Sampling writes it: tap (kh, kw) of channel c at pixel p, times the mask. The gradient reads the gradient to that.
  char* columns;
  /// Written by the gradient, of dtype; mask's may be null.
  Image grad_input, grad_offset, grad_mask;

  TENOR_HOST_DEVICE int64_t taps() const { return window[1].kernel * window[2].kernel; }
  TENOR_HOST_DEVICE int64_t pixels() const { return window[1].output * window[2].output; }
  TENOR_HOST_DEVICE int64_t group_channels() const { return channels / offset_groups; }
};

/// The four pixels around a sampling point, and their weights. A pixel outside of the image has index -1, weight 0.
template <class T>
struct Corners {
  int64_t at[4];      ///< of (low, low), (low, high), (high, low), (high, high), in elements
  T weight[4], y, x;  ///< y, x: fractions of the way from low to high
  bool nan;           ///< the point is not a number: so is what is sampled
};

/// Of the point (y, x) in an image of height x width with those strides. Points a pixel or more outside see nothing.
template <class T>
TENOR_HOST_DEVICE Corners<T> corners_of(T y, T x, int64_t height, int64_t width, int64_t row, int64_t col) {
  Corners<T> c{{-1, -1, -1, -1}, {0, 0, 0, 0}, 0, 0, y != y || x != x};
  if (!(y >= -1 && y < static_cast<T>(height) && x >= -1 && x < static_cast<T>(width))) return c;
  const auto low_y = static_cast<int64_t>(std::floor(y)), low_x = static_cast<int64_t>(std::floor(x));
  c.y = y - static_cast<T>(low_y), c.x = x - static_cast<T>(low_x);
  for (int i = 0; i < 4; ++i) {
    const int64_t at_y = low_y + i / 2, at_x = low_x + i % 2;
    if (at_y < 0 || at_y >= height || at_x < 0 || at_x >= width) continue;
    c.at[i] = at_y * row + at_x * col;
    c.weight[i] = (i / 2 ? c.y : 1 - c.y) * (i % 2 ? c.x : 1 - c.x);
  }
  return c;
}

}  // namespace tenor::conv
