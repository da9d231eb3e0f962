// The index map of grid sampling: from a coordinate in [-1, 1] to the pixels of a dim that are read, their weights, and
// how these change with the coordinate. On the host and in kernels, in float or double.
#pragma once

#include "src/core/resample.h"

namespace tenor::core {

enum class GridMode : uint8_t { kBilinear, kNearest, kBicubic };
enum class GridPadding : uint8_t { kZeros, kBorder, kReflection };

/// One dim of the image.
struct GridAxis {
  int64_t size = 1;
  GridPadding padding = GridPadding::kZeros;
  bool align_corners = false;
};

/// Taps of one coordinate; index -1 lies outside of the image and gives 0.
template <class R, int K, class Index = int64_t>
struct GridTaps {
  Index index[K];
  R weight[K];
  R slope[K];  ///< d weight / d coordinate
};

/// A position in pixels, and its slope by the coordinate.
template <class R>
struct GridPosition {
  R u, slope;
};

/// Whether a coordinate reaches no place at all: NaN, and infinity where it would be reflected.
template <class R>
TENOR_HOST_DEVICE inline bool is_lost(R g, GridPadding padding) {
  return std::isnan(g) || (padding == GridPadding::kReflection && std::isinf(g));
}

/// u mirrored into the image at the edges of its pixels, or with aligned corners at their centres.
template <class R>
TENOR_HOST_DEVICE inline GridPosition<R> reflect_position(GridPosition<R> at, const GridAxis& a) {
  const R low = a.align_corners ? R(0) : R(-0.5), span = static_cast<R>(a.align_corners ? a.size - 1 : a.size);
  if (span == 0) return {0, 0};
  if (at.u >= low && at.u < low + span) return at;
  const R beyond = at.u < low ? low - at.u : at.u - low, rest = std::fmod(beyond, span);
  const R turns = std::rint((beyond - rest) / span);
  const R sign = at.u < low ? R(-1) : R(1);
  if (std::fmod(turns, R(2)) == 0) return {rest + low, at.slope * sign};
  return {span - rest + low, -at.slope * sign};
}
/// u within the first and the last pixel's centre; on them and beyond the slope is 0.
template <class R>
TENOR_HOST_DEVICE inline GridPosition<R> clip_position(GridPosition<R> at, int64_t size) {
  const R last = static_cast<R>(size - 1);
  if (!(at.u > 0)) return {0, 0};
  return at.u >= last ? GridPosition<R>{last, 0} : at;
}

/// The coordinate, which is not lost, in pixels. What is far outside stays so within a range that integers hold.
template <class R>
TENOR_HOST_DEVICE inline GridPosition<R> grid_position(R g, const GridAxis& a) {
  const R half = static_cast<R>(a.align_corners ? a.size - 1 : a.size) / 2,
          shift = a.align_corners ? half : half - R(0.5);
  R u = std::fma(g, half, shift);  // rounded once: a pixel's edge is met alike on every device
  constexpr R kFar = R(1e18);      // whose reflection is found exactly, and an integer of 64 bits
  const bool mirrored = a.padding == GridPadding::kReflection;
  const R least = mirrored ? -kFar : R(-8), most = mirrored ? kFar : static_cast<R>(a.size) + 8;
  if (std::isnan(u)) u = g > 0 ? most : least;  // an infinite coordinate of a single aligned pixel
  return {u < least ? least : u > most ? most : u, half};
}

/// The pixel that stands for pixel i.
template <class R>
TENOR_HOST_DEVICE inline int64_t padded_index(R i, const GridAxis& a) {
  if (a.padding == GridPadding::kReflection) i = reflect_position<R>({i, 0}, a).u;
  if (a.padding != GridPadding::kZeros) return static_cast<int64_t>(clip_position<R>({i, 0}, a.size).u);
  return i >= 0 && i < static_cast<R>(a.size) ? static_cast<int64_t>(i) : -1;
}

/// K = 1: the nearest pixel, of two the even one. K = 2: linear. K = 4: cubic, every tap padded by itself.
template <int K, class R>
TENOR_HOST_DEVICE inline GridTaps<R, K> grid_taps(R g, const GridAxis& a) {
  GridTaps<R, K> taps;
  GridPosition<R> at = grid_position(g, a);
  if constexpr (K == 4) {
    const R j = std::floor(at.u), t = at.u - j;
    for (int k = 0; k < 4; ++k) {
      const R distance = t - static_cast<R>(k - 1);
      taps.index[k] = padded_index(j + static_cast<R>(k - 1), a);
      taps.weight[k] = cubic_kernel(distance, static_cast<R>(kCubicA));
      taps.slope[k] = cubic_slope(distance, static_cast<R>(kCubicA)) * at.slope;
    }
  } else {
    if (a.padding == GridPadding::kReflection) at = reflect_position(at, a);
    if (a.padding != GridPadding::kZeros) at = clip_position(at, a.size);
    if constexpr (K == 1) {
      const int64_t j = static_cast<int64_t>(std::rint(at.u));
      taps.index[0] = j >= 0 && j < a.size ? j : -1;
      taps.weight[0] = 1;
      taps.slope[0] = 0;
    } else {
      const R floor = std::floor(at.u), t = at.u - floor;
      const int64_t j = static_cast<int64_t>(floor);
      taps.index[0] = j >= 0 && j < a.size ? j : -1;
      taps.index[1] = j + 1 >= 0 && j + 1 < a.size ? j + 1 : -1;
      taps.weight[0] = 1 - t, taps.weight[1] = t;
      taps.slope[0] = -at.slope, taps.slope[1] = at.slope;
    }
  }
  return taps;
}

/// Taps a dim of a mode.
TENOR_HOST_DEVICE inline int taps_of(GridMode mode) {
  return mode == GridMode::kNearest ? 1 : mode == GridMode::kBilinear ? 2 : 4;
}

}  // namespace tenor::core
