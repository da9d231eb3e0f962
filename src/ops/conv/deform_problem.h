// The problem of deformable convolution that is no contraction: sampled columns, and what flows back through them. The
// products with the weight are the contraction family's.
#pragma once

#include <cmath>
#include <limits>

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

/// What is sampled of a plane whose values at the corners are v, 0 for those outside.
template <class T>
TENOR_HOST_DEVICE T sampled(const Corners<T>& c, const T (&v)[4]) {
  if (c.nan) return std::numeric_limits<T>::quiet_NaN();
  return c.weight[0] * v[0] + c.weight[1] * v[1] + c.weight[2] * v[2] + c.weight[3] * v[3];
}

/// The gradients to a point's coordinates and mask: sums over the channels that it samples.
template <class T>
struct PointSums {
  T y = 0, x = 0, mask = 0;

  /// A channel's: the gradient to what it sampled, and its values at the corners.
  TENOR_HOST_DEVICE void add(T grad, const Corners<T>& c, const T (&v)[4]) {
    y += grad * ((1 - c.x) * (v[2] - v[0]) + c.x * (v[3] - v[1]));
    x += grad * ((1 - c.y) * (v[1] - v[0]) + c.y * (v[3] - v[2]));
    mask += grad * sampled(c, v);
  }
};

template <class S>
TENOR_HOST_DEVICE const S* plane_of(const DeformProblem& p, int64_t image, int64_t channel) {
  return reinterpret_cast<const S*>(p.input.data) + image * p.input.batch + channel * p.input.channel;
}

/// Row (image, channel, tap) of the columns.
template <class T>
TENOR_HOST_DEVICE T* column_row(const DeformProblem& p, int64_t image, int64_t channel, int64_t tap) {
  return reinterpret_cast<T*>(p.columns) + ((image * p.channels + channel) * p.taps() + tap) * p.pixels();
}

}  // namespace tenor::conv
