// Which taps of which places reach a pixel: for every pixel of an image the list of (place, weight), in the order of
// places. Taps are counted by integer atomics, whose sums do not depend on who was first; what they number taps by
// does, so a tap then looks where it belongs among those of its pixel. No sort, and the same lists every time.
#pragma once

#include "src/cuda/block_scan.cuh"
#include "src/cuda/ptx/dependent_launch.cuh"
#include "src/ops/grid_sample/grid_taps_cuda.cuh"

namespace tenor::cuda {

inline constexpr int kListThreads = 256, kScanThreads = 1024, kScanItems = 4;
inline constexpr int kScanTile = kScanThreads * kScanItems;
inline constexpr int kFewTiles = 8;  ///< an image, that are added up again in place of a kernel of sums
/// Taps of a pixel up to which each looks for its place among the others; longer lists are written by a block that goes
/// through all places.
inline constexpr int kMostRanked = 1024;
/// Entries of a pixel up to which one thread, or a few lanes, add them up; longer lists are a warp's work a channel.
inline constexpr int kMostSummed = 128;

/// How every kernel of the gradients begins: what those before it wrote can be read, and the next one may come in as
/// its last blocks run. Of small grids a dozen launches are most of the time.
__device__ __forceinline__ void begin_link() {
  ptx::wait_for_previous();
  ptx::launch_dependents();
}

/// Entries of one pixel stand in the order of their number, place * taps + tap.
template <class R, class I>
struct TapEntry {
  I place;
  R weight;
};

/// Lists of `images` images from n0 on. I counts the taps of an image, and its pixels.
template <class R, class I>
struct TapLists {
  int64_t n0, images, pixels, most;  ///< most: places * taps, the entries that an image has room for
  int64_t tiles;                     ///< of the sums, an image
  I* counts;                         ///< [images, pixels]; 0 at first
  I* sums;                           ///< [images, tiles], of kScanTile counts each, where there are many
  I* starts;                         ///< [images, pixels + 1]
  I* ranks;                          ///< [images, most]: a tap's number among those of its pixel, as they came
  I* arrivals;                       ///< [images, most]: numbers of taps by pixel, as they came
  TapEntry<R, I>* entries;           ///< [images, most]
  unsigned long long* long_counts;   ///< [2], of the next two; 0 at first
  int64_t* unranked;                 ///< [images * most / kMostRanked]: image * pixels + pixel of lists that long
  int64_t* unsummed;                 ///< likewise by kMostSummed
};

/// An integer atomic whose result is the value before.
__device__ __forceinline__ int count_up(int* at) { return atomicAdd(at, 1); }
__device__ __forceinline__ int64_t count_up(int64_t* at) {
  return static_cast<int64_t>(atomicAdd(reinterpret_cast<unsigned long long*>(at), 1ull));
}

/// The taps of place s of image n in a dense plane.
template <class T, int Dims, int K, class I>
__device__ __forceinline__ PlaceTaps<core::Compute<T>, Dims, K, I> dense_taps(const GridSampleProblem& p, int64_t n,
                                                                              int64_t s) {
  const auto axes = axes_of<T, Dims, K, I>(p, n * p.grid.n + place_of(p, p.grid, s));
  const StridedImage dense{nullptr, 0, 0, p.axes[1].axis.size * p.axes[2].axis.size, p.axes[2].axis.size, 1};
  auto taps = taps_at(dense, axes);
#pragma unroll
  for (int t = 0; t < taps.kCount; ++t)
    if (taps.lost) taps.at[t] = -1;
  return taps;
}

template <class T, int Dims, int K, class I>
__global__ void __launch_bounds__(kListThreads)
    count_taps(const __grid_constant__ GridSampleProblem p, TapLists<core::Compute<T>, I> l) {
  begin_link();
  const int64_t i = int64_t{blockIdx.x} * kListThreads + threadIdx.x;
  if (i >= l.images * p.samples) return;
  const int64_t n = quotient(i, p.samples), s = i - n * p.samples;
  const auto taps = dense_taps<T, Dims, K, I>(p, l.n0 + n, s);
  I rank[taps.kCount];
#pragma unroll
  for (int t = 0; t < taps.kCount; ++t)
    rank[t] = taps.at[t] < 0 ? I(0) : count_up(l.counts + n * l.pixels + taps.at[t]);
#pragma unroll
  for (int t = 0; t < taps.kCount; ++t) l.ranks[i * taps.kCount + t] = rank[t];
}

/// A block's kScanItems neighbouring counts a thread.
template <class R, class I>
__device__ __forceinline__ void tile_counts(const TapLists<R, I>& l, int64_t n, int64_t tile, I (&count)[kScanItems]) {
  const int64_t first = tile * kScanTile + threadIdx.x * kScanItems;
#pragma unroll
  for (int k = 0; k < kScanItems; ++k) count[k] = first + k < l.pixels ? l.counts[n * l.pixels + first + k] : I(0);
}

/// Blocks (tile, image).
template <class R, class I>
__global__ void __launch_bounds__(kScanThreads) sum_counts(TapLists<R, I> l) {
  begin_link();
  __shared__ I warps[kScanThreads / 32];
  I count[kScanItems], sum = 0;
  for (int64_t n = blockIdx.y; n < l.images; n += gridDim.y) {
    tile_counts(l, n, blockIdx.x, count);
    sum = 0;
#pragma unroll
    for (int k = 0; k < kScanItems; ++k) sum += count[k];
    sum = block_scan(sum, warps);
    if (threadIdx.x == kScanThreads - 1) l.sums[n * l.tiles + blockIdx.x] = sum;
  }
}

/// The counts of an image's first tiles, by a block: their sum, in its last thread.
template <class R, class I>
__device__ __forceinline__ I counts_before(const TapLists<R, I>& l, int64_t n, int64_t tile, I* warps) {
  I sum = 0;
  if (l.tiles <= kFewTiles) {
    for (int64_t i = threadIdx.x; i < tile * kScanTile; i += kScanThreads) sum += l.counts[n * l.pixels + i];
  } else {
    for (int64_t t = threadIdx.x; t < tile; t += kScanThreads) sum += l.sums[n * l.tiles + t];
  }
  return block_scan(sum, warps);
}

/// Where each pixel's list begins among its image's; and which lists are long. Blocks (tile, image).
template <class R, class I>
__global__ void __launch_bounds__(kScanThreads) scan_counts(TapLists<R, I> l) {
  begin_link();
  __shared__ I warps[kScanThreads / 32];
  __shared__ I before;
  const int64_t tile = blockIdx.x;
  for (int64_t n = blockIdx.y; n < l.images; n += gridDim.y) {
    const I sum = counts_before(l, n, tile, warps);
    if (threadIdx.x == kScanThreads - 1) before = sum;
    I count[kScanItems], own = 0;
    tile_counts(l, n, tile, count);
#pragma unroll
    for (int k = 0; k < kScanItems; ++k) own += count[k];
    const I through = block_scan(own, warps);  // its barriers show `before` to all
    I start = before + through - own;
    const int64_t first = tile * kScanTile + threadIdx.x * kScanItems;
    I* starts = l.starts + n * (l.pixels + 1);
#pragma unroll
    for (int k = 0; k < kScanItems; ++k) {
      if (first + k < l.pixels) starts[first + k] = start;
      start += count[k];
      if (first + k == l.pixels - 1) starts[l.pixels] = start;
      if (count[k] > kMostRanked) l.unranked[atomicAdd(l.long_counts, 1ull)] = n * l.pixels + first + k;
      if (count[k] > kMostSummed) l.unsummed[atomicAdd(l.long_counts + 1, 1ull)] = n * l.pixels + first + k;
    }
    __syncthreads();
  }
}

/// Puts the numbers of taps into their pixels' lists, as they came.
template <class T, int Dims, int K, class I>
__global__ void __launch_bounds__(kListThreads)
    place_taps(const __grid_constant__ GridSampleProblem p, TapLists<core::Compute<T>, I> l) {
  begin_link();
  const int64_t i = int64_t{blockIdx.x} * kListThreads + threadIdx.x;
  if (i >= l.images * p.samples) return;
  const int64_t n = quotient(i, p.samples), s = i - n * p.samples;
  const auto taps = dense_taps<T, Dims, K, I>(p, l.n0 + n, s);
  const I* starts = l.starts + n * (l.pixels + 1);
#pragma unroll
  for (int t = 0; t < taps.kCount; ++t)
    if (taps.at[t] >= 0)
      l.arrivals[n * l.most + starts[taps.at[t]] + l.ranks[i * taps.kCount + t]] = static_cast<I>(s * taps.kCount + t);
}

/// Writes the long lists, a block each: all places in order, and of each the taps that reach the pixel.
template <class T, int Dims, int K, class I>
__global__ void __launch_bounds__(kListThreads)
    order_long_lists(const __grid_constant__ GridSampleProblem p, TapLists<core::Compute<T>, I> l) {
  begin_link();
  __shared__ int warps[kListThreads / 32];
  __shared__ int found;
  const auto lists = static_cast<int64_t>(*l.long_counts);
  for (int64_t k = blockIdx.x; k < lists; k += gridDim.x) {
    const int64_t key = l.unranked[k], n = quotient(key, l.pixels);
    const I pixel = static_cast<I>(key - n * l.pixels);
    int64_t to = n * l.most + l.starts[n * (l.pixels + 1) + pixel];
    for (int64_t s0 = 0; s0 < p.samples; s0 += kListThreads) {
      const int64_t s = s0 + threadIdx.x;
      PlaceTaps<core::Compute<T>, Dims, K, I> taps;
      int hits = 0;
      if (s < p.samples) {
        taps = dense_taps<T, Dims, K, I>(p, l.n0 + n, s);
#pragma unroll
        for (int t = 0; t < taps.kCount; ++t) hits += taps.at[t] == pixel;
      }
      const int through = block_scan(hits, warps);
      if (threadIdx.x == kListThreads - 1) found = through;
      int64_t at = to + through - hits;
      if (hits > 0) {
#pragma unroll
        for (int t = 0; t < taps.kCount; ++t)
          if (taps.at[t] == pixel) l.entries[at++] = {static_cast<I>(s), taps.weight[t]};
      }
      __syncthreads();
      to += found;
      __syncthreads();
    }
  }
}

/// Puts every tap where it belongs among those of its pixel, but for long lists.
template <class T, int Dims, int K, class I>
__global__ void __launch_bounds__(kListThreads)
    order_taps(const __grid_constant__ GridSampleProblem p, TapLists<core::Compute<T>, I> l) {
  begin_link();
  const int64_t i = int64_t{blockIdx.x} * kListThreads + threadIdx.x;
  if (i >= l.images * p.samples) return;
  const int64_t n = quotient(i, p.samples), s = i - n * p.samples;
  const auto taps = dense_taps<T, Dims, K, I>(p, l.n0 + n, s);
  const I* starts = l.starts + n * (l.pixels + 1);
  const I* arrivals = l.arrivals + n * l.most;
#pragma unroll
  for (int t = 0; t < taps.kCount; ++t) {
    if (taps.at[t] < 0) continue;
    const I begin = starts[taps.at[t]], end = starts[taps.at[t] + 1], own = static_cast<I>(s * taps.kCount + t);
    if (end - begin > kMostRanked) continue;
    I before = 0;
#pragma unroll 4
    for (I e = begin; e < end; ++e) before += arrivals[e] < own;
    l.entries[n * l.most + begin + before] = {static_cast<I>(s), taps.weight[t]};
  }
}
}  // namespace tenor::cuda
