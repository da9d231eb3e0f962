// Sampling an image [N, C, D, H, W] at the places of a grid [N, samples, dims].
#pragma once

#include "src/core/grid_map.h"
#include "src/cuda/convert.cuh"
#include "src/cuda/vector.cuh"

namespace tenor::cuda {

/// Strides count elements. Images of two dims have depth 1.
struct SampledImage {
  const void* data;
  int64_t n, c, d, h, w;
};
/// Places are numbered in the grid's order: samples = depth * height * width of them an image.
struct GridSampleProblem {
  SampledImage x;          ///< the image that is read; backward, of the grid's gradient
  SampledImage y;          ///< results, or their gradient
  SampledImage grid;       ///< c: from coordinate to coordinate
  core::GridAxis axes[3];  ///< depth, height, width
  int64_t batch, channels, depth, height, width, samples;
  bool float_grid;  ///< the grid is float32, else of x's dtype
  int64_t groups;   ///< of V channels, or of channels that one thread takes
};

template <class T>
__device__ __forceinline__ core::Compute<T> grid_value(const GridSampleProblem& p, int64_t at) {
  using R = core::Compute<T>;
  if (p.float_grid) return static_cast<R>(static_cast<const float*>(p.grid.data)[at]);
  return widen(static_cast<const T*>(p.grid.data)[at]);
}

/// Where sample s lies in its image's grid or results.
__device__ __forceinline__ int64_t place_of(const GridSampleProblem& p, const SampledImage& image, int64_t s) {
  if (p.samples < (int64_t{1} << 31)) {
    const auto i = static_cast<uint32_t>(s), width = static_cast<uint32_t>(p.width),
               height = static_cast<uint32_t>(p.height);
    const uint32_t row = i / width, d = row / height;
    return d * image.d + (row - d * height) * image.h + (i - row * width) * image.w;
  }
  const int64_t row = s / p.width, d = row / p.height;
  return d * image.d + (row - d * p.height) * image.h + (s - row * p.width) * image.w;
}

template <class R, int Dims, int K>
struct PlaceAxes {
  core::GridTaps<R, K> axis[Dims];  ///< slowest first
  bool lost;
};
/// All taps of one place: offsets within a channel's plane, -1 outside of the image.
template <class R, int Dims, int K, class Offset>
struct PlaceTaps {
  static constexpr int kCount = Dims == 3 ? K * K * K : K * K;
  bool lost;
  Offset at[kCount];
  R weight[kCount];
};

/// `at`: where the place's first coordinate lies.
template <class T, int Dims, int K>
__device__ __forceinline__ PlaceAxes<core::Compute<T>, Dims, K> axes_of(const GridSampleProblem& p, int64_t at) {
  using R = core::Compute<T>;
  PlaceAxes<R, Dims, K> out;
  out.lost = false;
#pragma unroll
  for (int d = 0; d < Dims; ++d) {
    const core::GridAxis& axis = p.axes[3 - Dims + d];
    const R g = grid_value<T>(p, at + (Dims - 1 - d) * p.grid.c);  // x comes first
    const bool lost = core::is_lost(g, axis.padding);
    out.lost = out.lost || lost;
    out.axis[d] = core::grid_taps<K>(lost ? R(0) : g, axis);
  }
  return out;
}
template <class Offset, class R, int Dims, int K>
__device__ __forceinline__ PlaceTaps<R, Dims, K, Offset> taps_at(const SampledImage& x,
                                                                 const PlaceAxes<R, Dims, K>& axes) {
  PlaceTaps<R, Dims, K, Offset> out;
  out.lost = axes.lost;
#pragma unroll
  for (int i = 0; i < out.kCount; ++i) {
    const int kx = i % K, ky = i / K % K, kz = i / (K * K);
    const auto &ax = axes.axis[Dims - 1], &ay = axes.axis[Dims - 2], &az = axes.axis[0];
    bool inside = ax.index[kx] >= 0 && ay.index[ky] >= 0;
    Offset at = static_cast<Offset>(ax.index[kx]) * static_cast<Offset>(x.w) +
                static_cast<Offset>(ay.index[ky]) * static_cast<Offset>(x.h);
    R weight = ax.weight[kx] * ay.weight[ky];
    if constexpr (Dims == 3) {
      inside = inside && az.index[kz] >= 0;
      at += static_cast<Offset>(az.index[kz]) * static_cast<Offset>(x.d);
      weight *= az.weight[kz];
    }
    out.at[i] = inside ? at : Offset(-1);
    out.weight[i] = weight;
  }
  return out;
}

/// One value of the image through the taps.
template <class T, class R, int Dims, int K, class Offset>
__device__ __forceinline__ R sampled(const T* plane, const PlaceTaps<R, Dims, K, Offset>& taps) {
  T raw[taps.kCount] = {};
#pragma unroll
  for (int i = 0; i < taps.kCount; ++i)
    if (taps.at[i] >= 0) raw[i] = plane[taps.at[i]];
  R sum = 0;
#pragma unroll
  for (int i = 0; i < taps.kCount; ++i)
    if (taps.at[i] >= 0) sum = fma(taps.weight[i], widen(raw[i]), sum);
  return taps.lost ? static_cast<R>(NAN) : sum;
}

inline constexpr int kSampleThreads = 256;

/// Whether a kernel of the pair that `choice` decides between has to work: 0 scattered, 1 coherent.
__device__ __forceinline__ bool is_chosen(const int* choice, int mine) { return choice == nullptr || *choice == mine; }

/// A thread takes a place and `Each` channels, one plane after the other. A warp's places are 8 by 4 of a grid's, so
/// that an image turned by any angle is read in few lines; of grids less than 4 high 32 in a row.
template <class T, int Dims, int K, int Each, class Offset>
__global__ void __launch_bounds__(kSampleThreads)
    sample_places(const __grid_constant__ GridSampleProblem p, const int* choice) {
  using R = core::Compute<T>;
  if (!is_chosen(choice, 1)) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const bool square = p.height >= 4;
  const int wide = square ? 32 : 256, high = square ? 8 : 1;
  const int64_t across = (p.width + wide - 1) / wide, down = (p.height + high - 1) / high;
  const int64_t tile = blockIdx.x, tiles_above = tile / across;
  const int64_t w =
      (tile - tiles_above * across) * wide + (square ? warp % 4 * 8 + lane % 8 : static_cast<int>(threadIdx.x));
  const int64_t d = tiles_above / down, h = (tiles_above - d * down) * high + (square ? warp / 4 * 4 + lane / 8 : 0);
  if (w >= p.width || h >= p.height) return;
  const int64_t grid_at = d * p.grid.d + h * p.grid.h + w * p.grid.w, y_at = d * p.y.d + h * p.y.h + w * p.y.w;
  for (int64_t unit = blockIdx.y; unit < p.batch * p.groups; unit += gridDim.y) {
    const int64_t n = unit / p.groups, c0 = (unit - n * p.groups) * Each;
    const auto taps = taps_at<Offset>(p.x, axes_of<T, Dims, K>(p, n * p.grid.n + grid_at));
    const T* x = static_cast<const T*>(p.x.data) + n * p.x.n + c0 * p.x.c;
    T* y = static_cast<T*>(const_cast<void*>(p.y.data)) + n * p.y.n + c0 * p.y.c + y_at;
    const int channels = static_cast<int>(min(int64_t{Each}, p.channels - c0));
#pragma unroll 4
    for (int c = 0; c < channels; ++c) y[c * p.y.c] = convert<T>(sampled(x + c * p.x.c, taps));
  }
}

inline constexpr int kBandThreads = 1024;
inline constexpr size_t kBandBytes = size_t{224} << 10;

/// A block takes one plane at a time, a band of its rows (all of them where they fit) after the other in shared memory,
/// which is read at places that may lie anywhere faster than a cache. Planes are dense and of two dims; a band is
/// `band` rows and the next one. The results of a plane are dense too.
template <class T, int K>
__global__ void __launch_bounds__(kBandThreads, 1)
    sample_bands(const __grid_constant__ GridSampleProblem p, int band, const int* choice) {
  using R = core::Compute<T>;
  if (!is_chosen(choice, 0)) return;
  extern __shared__ __align__(16) unsigned char memory[];
  T* held = reinterpret_cast<T*>(memory);
  const int height = static_cast<int>(p.axes[1].size), width = static_cast<int>(p.axes[2].size),
            samples = static_cast<int>(p.samples);
  for (int64_t plane = blockIdx.x; plane < p.batch * p.channels; plane += gridDim.x) {
    const int64_t n = plane / p.channels, c = plane - n * p.channels;
    const T* x = static_cast<const T*>(p.x.data) + n * p.x.n + c * p.x.c;
    T* y = static_cast<T*>(const_cast<void*>(p.y.data)) + n * p.y.n + c * p.y.c;
    for (int top = 0; top < height; top += band) {
      const int rows = min(band + 1, height - top);
      __syncthreads();
      constexpr int kPart = kVector<T>;
      const T* from = x + int64_t{top} * width;
      for (int i = threadIdx.x * kPart; i < rows * width; i += kBandThreads * kPart)
        store_pack(held + i, load_past_l1<kPart>(from + i));
      __syncthreads();
      const bool first = top == 0, last = top + band >= height;
#pragma unroll 4
      for (int s = threadIdx.x; s < samples; s += kBandThreads) {
        const auto axes = axes_of<T, 2, K>(p, n * p.grid.n + int64_t{s} * p.grid.w);
        // The band of the first row that is read, or of the first or last where there is none.
        const auto& ay = axes.axis[0];
        const int64_t row = ay.index[0] >= 0 ? ay.index[0] : K == 2 && ay.index[K - 1] >= 0 ? 0 : axes.lost ? -1 : -1;
        const bool mine = row < 0 ? first : row >= top && (row < top + band || last);
        if (!mine) continue;
        R sum = 0;
#pragma unroll
        for (int i = 0; i < K * K; ++i) {
          const int64_t ix = axes.axis[1].index[i % K], iy = ay.index[i / K];
          if (ix >= 0 && iy >= 0)
            sum = fma(axes.axis[1].weight[i % K] * ay.weight[i / K],
                      widen(held[static_cast<int>(iy - top) * width + static_cast<int>(ix)]), sum);
        }
        y[s] = convert<T>(axes.lost ? static_cast<R>(NAN) : sum);
      }
    }
  }
}

/// Whether neighbouring places lie near each other in the image: *choice = 1, else 0. One block looks at places all
/// over the grid.
template <class T>
__global__ void __launch_bounds__(1024) look_at_grid(const __grid_constant__ GridSampleProblem p, int* choice) {
  constexpr int kEach = 4;
  int near = 0;
  const int64_t total = p.batch * p.samples;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int64_t at = total / (1024 * kEach) * (threadIdx.x * kEach + i), n = at / p.samples,
                  s = min(at - n * p.samples, p.samples - 2);
    float apart = 0;
    for (int d = 0; d < 2; ++d) {
      const int64_t place = n * p.grid.n + d * p.grid.c;
      const float a = static_cast<float>(grid_value<T>(p, place + place_of(p, p.grid, s))),
                  b = static_cast<float>(grid_value<T>(p, place + place_of(p, p.grid, s + 1)));
      apart = fmaxf(apart, fabsf(a - b) * static_cast<float>(p.axes[2 - d].size));
    }
    near += apart < 16 ? 1 : 0;  // half-pixels; a row's end, NaN and what is far outside count as apart
  }
  const int all = __syncthreads_count(near >= kEach / 2);
  if (threadIdx.x == 0) *choice = all >= 512 ? 1 : 0;
}

/// A thread takes a place and V neighbouring channels.
template <class T, int Dims, int K, int V>
__global__ void __launch_bounds__(kSampleThreads) sample_channels(const __grid_constant__ GridSampleProblem p) {
  using R = core::Compute<T>;
  const int64_t unit = int64_t{blockIdx.x} * kSampleThreads + threadIdx.x;
  if (unit >= p.batch * p.samples * p.groups) return;
  const int64_t place = unit / p.groups, c = (unit - place * p.groups) * V, n = place / p.samples,
                s = place - n * p.samples;
  const auto taps = taps_at<int64_t>(p.x, axes_of<T, Dims, K>(p, n * p.grid.n + place_of(p, p.grid, s)));
  const T* x = static_cast<const T*>(p.x.data) + n * p.x.n + c * p.x.c;
  R sum[V] = {};
  constexpr int kAtOnce = taps.kCount > 8 ? 4 : taps.kCount;
#pragma unroll
  for (int first = 0; first < taps.kCount; first += kAtOnce) {
    Pack<T, V> raw[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (taps.at[first + i] >= 0) raw[i] = load_pack<V>(x + taps.at[first + i]);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (taps.at[first + i] < 0) continue;
      R wide[V];
      widen_pack(raw[i], wide);
#pragma unroll
      for (int v = 0; v < V; ++v) sum[v] = fma(taps.weight[first + i], wide[v], sum[v]);
    }
  }
  if (taps.lost) {
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] = static_cast<R>(NAN);
  }
  T* y = static_cast<T*>(const_cast<void*>(p.y.data)) + n * p.y.n + c * p.y.c + place_of(p, p.y, s);
  if constexpr (std::is_same_v<T, R>) {
    Pack<T, V> out;
#pragma unroll
    for (int v = 0; v < V; ++v) out.at[v] = sum[v];
    store_pack(y, out);
  } else {
    store_pack(y, convert_pack<T>(sum));
  }
}

}  // namespace tenor::cuda
