// grid_sample's kernels of places: a thread a place and some of its channels.
#pragma once

#include "src/ops/grid_sample/grid_taps_cuda.cuh"

namespace tenor::cuda {

inline constexpr int kSampleThreads = 256;

/// Of two ways that both are launched, which has to work.
enum class SampleWay : int { kScattered, kCoherent };
__device__ __forceinline__ bool is_chosen(const int* choice, SampleWay way) {
  return choice == nullptr || *choice == static_cast<int>(way);
}

/// A thread's place in a tile of places. A warp's are 16 by 2, so that an image turned by any angle is read in few
/// lines, and warps lie side by side as far as the grid is wide, so that what a block reads and writes of a plane is
/// long pieces of rows. Of grids of one row they are in a row.
struct TileShape {
  int warps, wide, high;  ///< warps side by side
};
TENOR_HOST_DEVICE inline TileShape tile_shape(int64_t height, int64_t width) {
  if (height == 1) return {8, kSampleThreads, 1};
  const int warps = width > 64 ? 8 : width > 32 ? 4 : width > 16 ? 2 : 1;
  return {warps, 16 * warps, kSampleThreads / (16 * warps)};
}
/// Tiles of an image's places.
inline unsigned tiles_of(const GridSampleProblem& p) {
  const TileShape shape = tile_shape(p.height, p.width);
  return static_cast<unsigned>(p.depth * ((p.height + shape.high - 1) / shape.high) *
                               ((p.width + shape.wide - 1) / shape.wide));
}
struct TilePlace {
  int64_t w, h, d;
  bool inside;
};
__device__ __forceinline__ TilePlace tile_place(const GridSampleProblem& p, int64_t tile) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const TileShape shape = tile_shape(p.height, p.width);
  const int64_t across = (p.width + shape.wide - 1) / shape.wide, down = (p.height + shape.high - 1) / shape.high,
                above = quotient(tile, across), d = p.depth == 1 ? 0 : quotient(above, down);
  int64_t w = (tile - above * across) * shape.wide, h = (above - d * down) * shape.high;
  if (p.height > 1) {
    w += warp % shape.warps * 16 + lane % 16;
    h += warp / shape.warps * 2 + lane / 16;
  } else {
    w += threadIdx.x;
  }
  return {w, h, d, w < p.width && h < p.height};
}

/// `channels` planes at one place, one after the other.
template <class T, int Dims, int K, class Index>
__device__ __forceinline__ void sample_place(const GridSampleProblem& p, const TilePlace& at, int64_t n, int64_t c0,
                                             int channels) {
  const auto taps =
      taps_at(p.x, axes_of<T, Dims, K, Index>(p, n * p.grid.n + at.d * p.grid.d + at.h * p.grid.h + at.w * p.grid.w));
  const T* x = static_cast<const T*>(p.x.data) + n * p.x.n + c0 * p.x.c;
  T* y = static_cast<T*>(const_cast<void*>(p.y.data)) + n * p.y.n + c0 * p.y.c + at.d * p.y.d + at.h * p.y.h +
         at.w * p.y.w;
#pragma unroll 4
  for (int c = 0; c < channels; ++c, x += p.x.c, y += p.y.c) *y = convert<T>(sampled(x, taps));
}

/// A thread takes a place and p.chunks channels.
template <class T, int Dims, int K, class Index>
__global__ void __launch_bounds__(kSampleThreads)
    sample_places(const __grid_constant__ GridSampleProblem p, const int* choice) {
  if (!is_chosen(choice, SampleWay::kCoherent)) return;
  const TilePlace at = tile_place(p, blockIdx.x);
  if (!at.inside) return;
  for (int64_t unit = blockIdx.y; unit < p.batch * p.groups; unit += gridDim.y) {
    const int64_t n = quotient(unit, p.groups), c0 = (unit - n * p.groups) * p.chunks;
    sample_place<T, Dims, K, Index>(p, at, n, c0, static_cast<int>(min(int64_t{p.chunks}, p.channels - c0)));
  }
}

/// A thread takes a place and p.chunks pieces of V neighbouring channels.
template <class T, int Dims, int K, int V, class Index>
__global__ void __launch_bounds__(kSampleThreads) sample_channels(const __grid_constant__ GridSampleProblem p) {
  using R = core::Compute<T>;
  const int64_t unit = int64_t{blockIdx.x} * kSampleThreads + threadIdx.x;
  if (unit >= p.batch * p.samples * p.groups) return;
  const int64_t place = quotient(unit, p.groups), c0 = (unit - place * p.groups) * V, n = quotient(place, p.samples),
                s = place - n * p.samples;
  const auto taps = taps_at(p.x, axes_of<T, Dims, K, Index>(p, n * p.grid.n + place_of(p, p.grid, s)));
  const T* x = static_cast<const T*>(p.x.data) + n * p.x.n + c0 * p.x.c;
  T* y = static_cast<T*>(const_cast<void*>(p.y.data)) + n * p.y.n + c0 * p.y.c + place_of(p, p.y, s);
#pragma unroll 2
  for (int chunk = 0; chunk < p.chunks; ++chunk, x += p.groups * V * p.x.c, y += p.groups * V * p.y.c) {
    R sum[V] = {};
    constexpr int kAtOnce = taps.kCount > 8 ? 4 : taps.kCount;
#pragma unroll
    for (int first = 0; first < taps.kCount; first += kAtOnce) {
      Pack<T, V> raw[kAtOnce] = {};
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (taps.at[first + i] >= 0) raw[i] = load_pack<V>(x + taps.at[first + i]);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        R wide[V];
        widen_pack(raw[i], wide);
#pragma unroll
        for (int v = 0; v < V; ++v)
          sum[v] = taps.at[first + i] >= 0 ? fma(taps.weight[first + i], wide[v], sum[v]) : sum[v];
      }
    }
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] = taps.lost ? static_cast<R>(NAN) : sum[v];
    if constexpr (std::is_same_v<T, R>) {
      Pack<T, V> out;
#pragma unroll
      for (int v = 0; v < V; ++v) out.at[v] = sum[v];
      store_pack(y, out);
    } else {
      store_pack(y, convert_pack<T>(sum));
    }
  }
}

}  // namespace tenor::cuda
