// The gradients of grid_sample. The grid's: a warp a place adds up its channels, or a thread a place where places lie
// side by side. The image's: every tap of every place is an entry (pixel, weight); sorted by pixel, in the order of
// places among equals, they are added up pixel by pixel, so that no addition depends on which thread was first.
#pragma once

#include "src/ops/grid_sample/grid_taps_cuda.cuh"

namespace tenor::cuda {

inline constexpr int kGradientThreads = 256;

struct GridGradientProblem {
  GridSampleProblem sample;
  StridedImage grad;  ///< of the grid; c: from coordinate to coordinate
  bool float_grad;
};

/// d loss / d coordinate d (slowest first) from the taps' sums over channels.
template <class R, int Dims, int K>
__device__ __forceinline__ R coordinate_gradient(const PlaceAxes<R, Dims, K, int64_t>& axes, const R* dots, int d) {
  R sum = 0;
#pragma unroll
  for (int t = 0; t < (Dims == 3 ? K * K * K : K * K); ++t) {
    R slope = 1;
    int left = t;
#pragma unroll
    for (int a = Dims - 1; a >= 0; --a, left /= K)
      slope *= a == d ? axes.axis[a].slope[left % K] : axes.axis[a].weight[left % K];
    sum = fma(dots[t], slope, sum);
  }
  return axes.lost ? static_cast<R>(NAN) : sum;
}

template <class T, int Dims, int K>
__device__ __forceinline__ void write_gradient(const GridGradientProblem& p, int64_t n, int64_t s,
                                               const PlaceAxes<core::Compute<T>, Dims, K, int64_t>& axes,
                                               const core::Compute<T>* dots) {
  const int64_t at = n * p.grad.n + place_of(p.sample, p.grad, s);
  void* to = const_cast<void*>(p.grad.data);
#pragma unroll
  for (int d = 0; d < Dims; ++d) {
    const auto value = coordinate_gradient(axes, dots, d);
    const int64_t place = at + (Dims - 1 - d) * p.grad.c;
    if (p.float_grad)
      static_cast<float*>(to)[place] = static_cast<float>(value);
    else
      static_cast<T*>(to)[place] = convert<T>(value);
  }
}

/// ByChannel: a warp a place, its lanes over the channels, summed up in a tree of halves; else a thread a place.
template <class T, int Dims, int K, bool ByChannel>
__global__ void __launch_bounds__(kGradientThreads) grid_gradient(const __grid_constant__ GridGradientProblem p) {
  using R = core::Compute<T>;
  const GridSampleProblem& q = p.sample;
  const int64_t thread = int64_t{blockIdx.x} * kGradientThreads + threadIdx.x, place = ByChannel ? thread / 32 : thread;
  if (place >= q.batch * q.samples) return;
  const int64_t n = quotient(place, q.samples), s = place - n * q.samples;
  const auto axes = axes_of<T, Dims, K, int64_t>(q, n * q.grid.n + place_of(q, q.grid, s));
  const auto taps = taps_at(q.x, axes);
  R dots[taps.kCount] = {};
  const T* x = static_cast<const T*>(q.x.data) + n * q.x.n;
  const T* g = static_cast<const T*>(q.y.data) + n * q.y.n + place_of(q, q.y, s);
  for (int64_t c = ByChannel ? threadIdx.x % 32 : 0; K > 1 && c < q.channels; c += ByChannel ? 32 : 1) {
    const R up = widen(g[c * q.y.c]);
#pragma unroll
    for (int t = 0; t < taps.kCount; ++t)
      if (taps.at[t] >= 0) dots[t] = fma(up, widen(x[taps.at[t] + c * q.x.c]), dots[t]);
  }
  if constexpr (ByChannel) {
#pragma unroll
    for (int t = 0; t < taps.kCount; ++t)
#pragma unroll
      for (int half = 16; half > 0; half /= 2) dots[t] += __shfl_down_sync(0xffffffffu, dots[t], half);
    if (threadIdx.x % 32 != 0) return;
  }
  write_gradient<T, Dims, K>(p, n, s, axes, dots);
}

/// Entries of images n0 .. n0 + images - 1: keys (image * pixels + pixel, or images * pixels outside) and weights, by
/// place, taps side by side.
template <class T, int Dims, int K, class Key>
__global__ void __launch_bounds__(kGradientThreads)
    list_taps(const __grid_constant__ GridSampleProblem p, int64_t n0, int64_t images, int64_t pixels, Key* keys,
              core::Compute<T>* weights) {
  const int64_t place = int64_t{blockIdx.x} * kGradientThreads + threadIdx.x;
  if (place >= images * p.samples) return;
  const int64_t n = quotient(place, p.samples), s = place - n * p.samples;
  const auto axes = axes_of<T, Dims, K, int64_t>(p, (n0 + n) * p.grid.n + place_of(p, p.grid, s));
  const StridedImage dense{nullptr, 0, 0, p.axes[1].axis.size * p.axes[2].axis.size, p.axes[2].axis.size, 1};
  const auto taps = taps_at(dense, axes);
#pragma unroll
  for (int t = 0; t < taps.kCount; ++t) {
    const bool counts = taps.at[t] >= 0 && !taps.lost;
    keys[place * taps.kCount + t] = static_cast<Key>(counts ? n * pixels + taps.at[t] : images * pixels);
    weights[place * taps.kCount + t] = taps.weight[t];
  }
}

/// starts[k] is the first place of a key >= k among the sorted, for k = 0 .. count of keys.
template <class Key>
__global__ void __launch_bounds__(kGradientThreads)
    find_starts(const Key* sorted, int64_t entries, int64_t keys, int64_t* starts) {
  const int64_t step = int64_t{gridDim.x} * kGradientThreads;
  for (int64_t e = int64_t{blockIdx.x} * kGradientThreads + threadIdx.x; e <= entries; e += step) {
    const int64_t before = e == 0 ? -1 : static_cast<int64_t>(sorted[e - 1]),
                  here = e == entries ? keys : static_cast<int64_t>(sorted[e]);
    for (int64_t k = before + 1; k <= here; ++k) starts[k] = e;
  }
}

inline constexpr int kGradientChannels = 4;

/// A thread takes a pixel and kGradientChannels channels; neighbouring threads neighbouring pixels, or with ByChannel
/// channels.
template <class T, bool ByChannel>
__global__ void __launch_bounds__(kGradientThreads)
    add_entries(const __grid_constant__ GridSampleProblem p, StridedImage to, int64_t n0, int64_t images,
                int64_t pixels, int taps, const int64_t* starts, const int64_t* order,
                const core::Compute<T>* weights) {
  using R = core::Compute<T>;
  const int64_t unit = int64_t{blockIdx.x} * kGradientThreads + threadIdx.x,
                groups = (p.channels + kGradientChannels - 1) / kGradientChannels;
  if (unit >= images * pixels * groups) return;
  int64_t key, group;
  if constexpr (ByChannel) {
    key = quotient(unit, groups);
    group = unit - key * groups;
  } else {
    const int64_t n = quotient(unit, pixels * groups), rest = unit - n * pixels * groups;
    group = quotient(rest, pixels);
    key = n * pixels + rest - group * pixels;
  }
  const int64_t n = quotient(key, pixels), pixel = key - n * pixels, c0 = group * kGradientChannels;
  const int channels = static_cast<int>(min(int64_t{kGradientChannels}, p.channels - c0));
  const T* g = static_cast<const T*>(p.y.data) + (n0 + n) * p.y.n + c0 * p.y.c;
  R sums[kGradientChannels] = {};
  for (int64_t e = starts[key]; e < starts[key + 1]; ++e) {
    const int64_t entry = order[e], place = quotient(entry, taps) - n * p.samples;
    const R weight = weights[entry];
    const T* up = g + place_of(p, p.y, place);
#pragma unroll
    for (int c = 0; c < kGradientChannels; ++c)
      if (c < channels) sums[c] = fma(weight, widen(up[c * p.y.c]), sums[c]);
  }
  const int64_t width = p.axes[2].axis.size, height = p.axes[1].axis.size, row = quotient(pixel, width),
                d = quotient(row, height);
  T* out = static_cast<T*>(const_cast<void*>(to.data)) + (n0 + n) * to.n + c0 * to.c + d * to.d +
           (row - d * height) * to.h + (pixel - row * width) * to.w;
#pragma unroll
  for (int c = 0; c < kGradientChannels; ++c)
    if (c < channels) out[c * to.c] = convert<T>(sums[c]);
}

}  // namespace tenor::cuda
