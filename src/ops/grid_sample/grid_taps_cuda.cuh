// Sampling an image [N, C, D, H, W] at the places of a grid [N, samples, dims].
#pragma once

#include "src/core/grid_map.h"
#include "src/cuda/convert.cuh"
#include "src/cuda/image.h"
#include "src/cuda/quotient.cuh"
#include "src/cuda/vector.cuh"

namespace tenor::cuda {

/// A dim of the image with what kernels would else work out for every place.
template <class R>
struct AxisConstants {
  R half, shift;  ///< u = g half + shift
  R least, most;  ///< u is clamped to
};
struct SampledAxis {
  core::GridAxis axis;
  AxisConstants<float> narrow;
  AxisConstants<double> wide;
};
template <class R>
AxisConstants<R> constants_of(const core::GridAxis& a) {
  const R half = static_cast<R>(a.align_corners ? a.size - 1 : a.size) / 2, last = static_cast<R>(a.size - 1);
  const bool zeros = a.padding == core::GridPadding::kZeros;
  return {half, a.align_corners ? half : half - R(0.5), zeros ? R(-8) : R(0), zeros ? last + 9 : last};
}
inline SampledAxis sampled_axis(const core::GridAxis& a) {
  return {a, constants_of<float>(a), constants_of<double>(a)};
}

/// Places are numbered in the grid's order: samples = depth * height * width of them an image.
struct GridSampleProblem {
  StridedImage x;       ///< the image that is read; backward, of the grid's gradient
  StridedImage y;       ///< results, or their gradient
  StridedImage grid;    ///< c: from coordinate to coordinate
  SampledAxis axes[3];  ///< depth, height, width
  int64_t batch, channels, depth, height, width, samples;
  bool float_grid;  ///< the grid is float32, else of x's dtype
  bool pairs;       ///< two coordinates are one access of 8 bytes
  int64_t groups;   ///< of channels that one thread takes
  int chunks;       ///< channels that a thread takes, or pieces of V channels, `groups` pieces apart
};

template <class T>
__device__ __forceinline__ core::Compute<T> grid_value(const GridSampleProblem& p, int64_t at) {
  using R = core::Compute<T>;
  if (p.float_grid) return static_cast<R>(static_cast<const float*>(p.grid.data)[at]);
  return widen(static_cast<const T*>(p.grid.data)[at]);
}

/// Where sample s lies in its image's grid or results.
__device__ __forceinline__ int64_t place_of(const GridSampleProblem& p, const StridedImage& image, int64_t s) {
  const int64_t row = quotient(s, p.width), d = p.depth == 1 ? 0 : quotient(row, p.height);
  return d * image.d + (row - d * p.height) * image.h + (s - row * p.width) * image.w;
}

/// core::grid_taps of one or two taps in 32 bits.
template <int K, class R>
__device__ __forceinline__ core::GridTaps<R, K, int> short_taps(R g, const SampledAxis& a) {
  const auto& c = [&]() -> const AxisConstants<R>& {
    if constexpr (sizeof(R) == 4)
      return a.narrow;
    else
      return a.wide;
  }();
  const int size = static_cast<int>(a.axis.size);
  R u = fma(g, c.half, c.shift), slope = c.half;
  if (a.axis.padding == core::GridPadding::kReflection) {
    const auto at = core::reflect_position<R>(core::grid_position(g, a.axis), a.axis);
    u = at.u, slope = at.slope;
  }
  if (a.axis.padding != core::GridPadding::kZeros && (!(u > 0) || u >= c.most)) slope = 0;
  u = min(max(u, c.least), c.most);  // NaN, of an infinite coordinate of a single aligned pixel, becomes the least
  core::GridTaps<R, K, int> taps;
  if constexpr (K == 1) {
    const int j = static_cast<int>(rint(u));
    taps.index[0] = j >= 0 && j < size ? j : -1;
    taps.weight[0] = 1;
    taps.slope[0] = 0;
  } else {
    const R whole = floor(u), t = u - whole;
    const int j = static_cast<int>(whole);
    taps.index[0] = j >= 0 && j < size ? j : -1;
    taps.index[1] = j >= -1 && j < size - 1 ? j + 1 : -1;
    taps.weight[0] = 1 - t, taps.weight[1] = t;
    taps.slope[0] = -slope, taps.slope[1] = slope;
  }
  return taps;
}

/// Axes of one place; Index is 32 bits where planes are short.
template <class R, int Dims, int K, class Index>
struct PlaceAxes {
  core::GridTaps<R, K, Index> axis[Dims];  ///< slowest first
  bool lost;
};
/// All taps of one place: offsets within a channel's plane, -1 outside of the image.
template <class R, int Dims, int K, class Index>
struct PlaceTaps {
  static constexpr int kCount = Dims == 3 ? K * K * K : K * K;
  bool lost;
  Index at[kCount];
  R weight[kCount];
};

/// `at`: where the place's first coordinate lies.
template <class T, int Dims, int K, class Index>
__device__ __forceinline__ PlaceAxes<core::Compute<T>, Dims, K, Index> axes_of(const GridSampleProblem& p, int64_t at) {
  using R = core::Compute<T>;
  PlaceAxes<R, Dims, K, Index> out;
  R place[Dims];
  if (sizeof(R) == 4 && Dims == 2 && p.pairs) {
    const float2 both = *reinterpret_cast<const float2*>(static_cast<const float*>(p.grid.data) + at);
    place[1] = both.x, place[0] = both.y;
  } else {
#pragma unroll
    for (int d = 0; d < Dims; ++d) place[d] = grid_value<T>(p, at + (Dims - 1 - d) * p.grid.c);  // x comes first
  }
  out.lost = false;
#pragma unroll
  for (int d = 0; d < Dims; ++d) {
    const SampledAxis& axis = p.axes[3 - Dims + d];
    const bool lost = core::is_lost(place[d], axis.axis.padding);
    const R g = lost ? R(0) : place[d];
    out.lost = out.lost || lost;
    if constexpr (sizeof(Index) == 4 && K <= 2) {
      out.axis[d] = short_taps<K>(g, axis);
    } else {
      const core::GridTaps<R, K> taps = core::grid_taps<K>(g, axis.axis);
#pragma unroll
      for (int k = 0; k < K; ++k) {
        out.axis[d].index[k] = static_cast<Index>(taps.index[k]);
        out.axis[d].weight[k] = taps.weight[k];
        out.axis[d].slope[k] = taps.slope[k];
      }
    }
  }
  return out;
}
template <class R, int Dims, int K, class Index>
__device__ __forceinline__ PlaceTaps<R, Dims, K, Index> taps_at(const StridedImage& x,
                                                                const PlaceAxes<R, Dims, K, Index>& axes) {
  PlaceTaps<R, Dims, K, Index> out;
  out.lost = axes.lost;
#pragma unroll
  for (int i = 0; i < out.kCount; ++i) {
    const int kx = i % K, ky = i / K % K, kz = i / (K * K);
    const auto &ax = axes.axis[Dims - 1], &ay = axes.axis[Dims - 2], &az = axes.axis[0];
    bool inside = ax.index[kx] >= 0 && ay.index[ky] >= 0;
    Index at = ax.index[kx] * static_cast<Index>(x.w) + ay.index[ky] * static_cast<Index>(x.h);
    R weight = ax.weight[kx] * ay.weight[ky];
    if constexpr (Dims == 3) {
      inside = inside && az.index[kz] >= 0;
      at += az.index[kz] * static_cast<Index>(x.d);
      weight *= az.weight[kz];
    }
    out.at[i] = inside ? at : Index(-1);
    out.weight[i] = weight;
  }
  return out;
}

/// One value of the image through the taps.
template <class T, class R, int Dims, int K, class Index>
__device__ __forceinline__ R sampled(const T* plane, const PlaceTaps<R, Dims, K, Index>& taps) {
  T raw[taps.kCount] = {};
#pragma unroll
  for (int i = 0; i < taps.kCount; ++i)
    if (taps.at[i] >= 0) raw[i] = plane[taps.at[i]];
  R sum = 0;
#pragma unroll
  for (int i = 0; i < taps.kCount; ++i) sum = taps.at[i] >= 0 ? fma(taps.weight[i], widen(raw[i]), sum) : sum;
  return taps.lost ? static_cast<R>(NAN) : sum;
}

}  // namespace tenor::cuda
