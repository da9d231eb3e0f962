// Sampling an image [N, C, D, H, W] at the places of a grid [N, samples, dims].
#pragma once

#include "src/core/grid_map.h"
#include "src/cuda/convert.cuh"
#include "src/cuda/quotient.cuh"
#include "src/cuda/vector.cuh"

namespace tenor::cuda {

/// Strides count elements. Images of two dims have depth 1.
struct SampledImage {
  const void* data;
  int64_t n, c, d, h, w;
};
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
  SampledImage x;       ///< the image that is read; backward, of the grid's gradient
  SampledImage y;       ///< results, or their gradient
  SampledImage grid;    ///< c: from coordinate to coordinate
  SampledAxis axes[3];  ///< depth, height, width
  int64_t batch, channels, depth, height, width, samples;
  bool float_grid;  ///< the grid is float32, else of x's dtype
  bool pairs;       ///< two coordinates are one access of 8 bytes
  int64_t groups;   ///< of channels that one thread takes
  int chunks;       ///< of V channels that a thread takes, `groups` chunks apart
};

template <class T>
__device__ __forceinline__ core::Compute<T> grid_value(const GridSampleProblem& p, int64_t at) {
  using R = core::Compute<T>;
  if (p.float_grid) return static_cast<R>(static_cast<const float*>(p.grid.data)[at]);
  return widen(static_cast<const T*>(p.grid.data)[at]);
}

/// Where sample s lies in its image's grid or results.
__device__ __forceinline__ int64_t place_of(const GridSampleProblem& p, const SampledImage& image, int64_t s) {
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
__device__ __forceinline__ PlaceTaps<R, Dims, K, Index> taps_at(const SampledImage& x,
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

inline constexpr int kSampleThreads = 256;

/// A thread's place in a tile of places. A warp's are 8 by 4, so that an image turned by any angle is read in few
/// lines; of grids less than 4 high they are 32 in a row.
struct TilePlace {
  int64_t w, h, d;
  bool inside;
};
__device__ __forceinline__ int64_t tiles_of(const GridSampleProblem& p, int threads) {
  const bool square = p.height >= 4;
  const int wide = square ? 32 : threads, high = square ? threads / 32 : 1;
  return p.depth * ((p.height + high - 1) / high) * ((p.width + wide - 1) / wide);
}
__device__ __forceinline__ TilePlace tile_place(const GridSampleProblem& p, int64_t tile, int threads) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const bool square = p.height >= 4;
  const int wide = square ? 32 : threads, high = square ? threads / 32 : 1;
  const int64_t across = (p.width + wide - 1) / wide, down = (p.height + high - 1) / high,
                above = quotient(tile, across), d = p.depth == 1 ? 0 : quotient(above, down);
  const int64_t w = (tile - above * across) * wide + (square ? warp % 4 * 8 + lane % 8 : static_cast<int>(threadIdx.x));
  const int64_t h = (above - d * down) * high + (square ? warp / 4 * 4 + lane / 8 : 0);
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

/// A thread takes a place and `Each` channels.
template <class T, int Dims, int K, int Each, class Index>
__global__ void __launch_bounds__(kSampleThreads) sample_places(const __grid_constant__ GridSampleProblem p) {
  const TilePlace at = tile_place(p, blockIdx.x, kSampleThreads);
  if (!at.inside) return;
  for (int64_t unit = blockIdx.y; unit < p.batch * p.groups; unit += gridDim.y) {
    const int64_t n = quotient(unit, p.groups), c0 = (unit - n * p.groups) * Each;
    sample_place<T, Dims, K, Index>(p, at, n, c0, static_cast<int>(min(int64_t{Each}, p.channels - c0)));
  }
}

/// Of two ways that both are launched, which has to work.
enum class SampleWay : int { kScattered, kCoherent };
__device__ __forceinline__ bool is_chosen(const int* choice, SampleWay way) {
  return choice == nullptr || *choice == static_cast<int>(way);
}

/// Whether neighbouring places lie near each other in the image, for most of 4096 pairs all over the grid. One block.
template <class T>
__global__ void __launch_bounds__(1024) look_at_grid(const __grid_constant__ GridSampleProblem p, int* choice) {
  constexpr int kEach = 4;
  int near = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int64_t at = quotient(p.batch * p.samples, 1024 * kEach) * (threadIdx.x * kEach + i),
                  n = quotient(at, p.samples), s = min(at - n * p.samples, p.samples - 2);
    const int64_t a = n * p.grid.n + place_of(p, p.grid, s), b = n * p.grid.n + place_of(p, p.grid, s + 1);
    float apart = 0;
#pragma unroll
    for (int d = 0; d < 2; ++d)
      apart = fmaxf(apart, fabsf(static_cast<float>(grid_value<T>(p, a + d * p.grid.c)) -
                                 static_cast<float>(grid_value<T>(p, b + d * p.grid.c))) *
                               p.axes[2 - d].narrow.half);
    near += apart < 8 ? 1 : 0;  // pixels; a row's end, NaN and infinity count as apart
  }
  const int coherent = __syncthreads_count(near >= kEach / 2);
  if (threadIdx.x == 0) *choice = static_cast<int>(coherent >= 512 ? SampleWay::kCoherent : SampleWay::kScattered);
}

/// Bilinear in two dims. Two lanes take a place, one the left taps and one the right ones, in two channels at a time,
/// of which each gets one: a load of a warp then reads half as many pieces of rows. A warp's 16 places are 8 by 2.
template <class T, int Each>
__global__ void __launch_bounds__(kSampleThreads)
    sample_pairs(const __grid_constant__ GridSampleProblem p, const int* choice) {
  using R = core::Compute<T>;
  if (!is_chosen(choice, SampleWay::kCoherent)) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, side = lane % 2;
  const int64_t across = (p.width + 15) / 16, down = (p.height + 7) / 8, above = quotient(blockIdx.x, across),
                d = p.depth == 1 ? 0 : quotient(above, down);
  const int64_t w = (blockIdx.x - above * across) * 16 + warp % 2 * 8 + lane / 2 % 8,
                h = (above - d * down) * 8 + warp / 2 * 2 + lane / 16;
  const bool inside = w < p.width && h < p.height;  // lanes of a place go together
  for (int64_t unit = blockIdx.y; unit < p.batch * p.groups; unit += gridDim.y) {
    const int64_t n = quotient(unit, p.groups), c0 = (unit - n * p.groups) * Each;
    const auto axes =
        axes_of<T, 2, 2, int>(p, n * p.grid.n + (inside ? d * p.grid.d + h * p.grid.h + w * p.grid.w : 0));
    const int column = side == 0 ? axes.axis[1].index[0] : axes.axis[1].index[1];
    const R across_weight = side == 0 ? axes.axis[1].weight[0] : axes.axis[1].weight[1];
    int at[2];
    R weight[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int row = axes.axis[0].index[k];
      at[k] = inside && column >= 0 && row >= 0 ? column * static_cast<int>(p.x.w) + row * static_cast<int>(p.x.h) : -1;
      weight[k] = across_weight * axes.axis[0].weight[k];
    }
    const T* x = static_cast<const T*>(p.x.data) + n * p.x.n + c0 * p.x.c;
    T* y = static_cast<T*>(const_cast<void*>(p.y.data)) + n * p.y.n + (c0 + side) * p.y.c + d * p.y.d + h * p.y.h +
           w * p.y.w;
    const int channels = static_cast<int>(min(int64_t{Each}, p.channels - c0));
#pragma unroll 4
    for (int c = 0; c < channels; c += 2) {
      R part[2] = {};
#pragma unroll
      for (int o = 0; o < 2; ++o) {
        T raw[2] = {};
#pragma unroll
        for (int k = 0; k < 2; ++k)
          if (at[k] >= 0 && c + o < channels) raw[k] = x[(c + o) * p.x.c + at[k]];
#pragma unroll
        for (int k = 0; k < 2; ++k) part[o] = at[k] >= 0 ? fma(weight[k], widen(raw[k]), part[o]) : part[o];
      }
      const R mine = side == 0 ? part[0] : part[1],
              sum = mine + __shfl_xor_sync(0xffffffffu, side == 0 ? part[1] : part[0], 1);
      if (inside && c + side < channels) y[c * p.y.c] = convert<T>(axes.lost ? static_cast<R>(NAN) : sum);
    }
  }
}

inline constexpr int kBandThreads = 1024;
inline constexpr int kListed = 1024;  // places of a list
inline constexpr size_t kBandBytes = size_t{224} << 10;

/// The places of all images, each list sorted by the band of rows that a place reads: what a place reads of any plane,
/// worked out once. A plane's band is `band` rows and the next one, in at most two bands.
struct PlaceLists {
  uint32_t* where;  ///< taps inside the image, 4 bits; place within its list, 10; offset in the band, less a row and an
                    ///< element, 18
  float *x, *y;     ///< fractions
  int* firsts;      ///< of each list: how many places the first band has
  int64_t lists;    ///< an image
  int band;
};
inline constexpr uint32_t kMostBandOffset = 1u << 18;

/// A block makes a list.
template <class T, int K>
__global__ void __launch_bounds__(kListed)
    list_places(const __grid_constant__ GridSampleProblem p, PlaceLists out, const int* choice) {
  if (!is_chosen(choice, SampleWay::kScattered)) return;
  __shared__ int counts[kListed / 32];
  const int64_t list = blockIdx.x, n = quotient(list, out.lists), s = (list - n * out.lists) * kListed + threadIdx.x;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, height = static_cast<int>(p.axes[1].axis.size),
            width = static_cast<int>(p.axes[2].axis.size);
  const bool exists = s < p.samples;
  PlaceAxes<float, 2, K, int> axes{};
  if (exists) axes = axes_of<T, 2, K, int>(p, n * p.grid.n + place_of(p, p.grid, s));
  const auto &ax = axes.axis[1], &ay = axes.axis[0];
  // A place belongs to the band of the first row that it reads.
  const int row = axes.lost || ay.index[0] < 0 ? 0 : ay.index[0];
  const bool second = exists && row >= out.band && out.band < height;
  uint32_t inside = 0;
#pragma unroll
  for (int i = 0; i < K * K; ++i)
    if (ax.index[i % K] >= 0 && ay.index[i / K] >= 0) inside |= 1u << i;
  // The first tap's place, which may lie one row and one element before the image.
  const int left = ax.index[0] >= 0 ? ax.index[0] : -1, top = ay.index[0] >= 0 ? ay.index[0] : -1;
  int offset = inside ? (top - (second ? out.band : 0)) * width + left + width + 1 : width + 1;
  if (axes.lost) inside = 1, offset = width + 1;
  const unsigned ahead = __ballot_sync(0xffffffffu, second), present = __ballot_sync(0xffffffffu, exists),
                 below = (1u << lane) - 1;
  if (lane == 0) counts[warp] = __popc(ahead);
  const int total = __syncthreads_count(exists);
  int before = 0, all = 0;
  for (int w = 0; w < kListed / 32; ++w) {
    if (w < warp) before += counts[w];
    all += counts[w];
  }
  if (threadIdx.x == 0) out.firsts[list] = total - all;
  if (!exists) return;
  const int seconds = before + __popc(ahead & below),
            place = second ? total - all + seconds : static_cast<int>(threadIdx.x) - seconds;
  const int64_t at = list * kListed + place;
  out.where[at] = inside << 28 | threadIdx.x << 18 | static_cast<uint32_t>(offset);
  out.x[at] = axes.lost ? NAN : K == 2 ? ax.weight[1] : 0.0f;
  out.y[at] = K == 2 ? ay.weight[K - 1] : 0.0f;
}

/// Places of one list, first .. end - 1, from the band held.
template <class T, int K>
__device__ __forceinline__ void sample_list(const PlaceLists& lists, int64_t list, int first, int end, const T* held,
                                            int width, T* y) {
#pragma unroll 4
  for (int i = first + static_cast<int>(threadIdx.x % 32); i < end; i += 32) {
    const int64_t at = list * kListed + i;
    const uint32_t where = lists.where[at];
    const T* from = held + static_cast<int>(where & (kMostBandOffset - 1)) - width - 1;
    const float tx = lists.x[at], ty = lists.y[at];
    T raw[K * K] = {};
#pragma unroll
    for (int t = 0; t < K * K; ++t)
      if (where >> (28 + t) & 1) raw[t] = from[t / K * width + t % K];
    const float wx[2] = {1 - tx, tx}, wy[2] = {1 - ty, ty};
    float sum = 0;
#pragma unroll
    for (int t = 0; t < K * K; ++t) sum = where >> (28 + t) & 1 ? fma(wx[t % K] * wy[t / K], widen(raw[t]), sum) : sum;
    y[where >> 18 & (kListed - 1)] = convert<T>(sum);
  }
}

/// Dense planes of two dims, and dense results. A block takes one plane at a time, a band of its rows (all of them
/// where they fit) after the other in shared memory, which is read at places that lie anywhere faster than a cache, and
/// a warp a list of places.
template <class T, int K>
__global__ void __launch_bounds__(kBandThreads, 1)
    sample_bands(const __grid_constant__ GridSampleProblem p, const __grid_constant__ PlaceLists lists,
                 const int* choice) {
  if (!is_chosen(choice, SampleWay::kScattered)) return;
  extern __shared__ __align__(16) unsigned char memory[];
  T* held = reinterpret_cast<T*>(memory);
  const int height = static_cast<int>(p.axes[1].axis.size), width = static_cast<int>(p.axes[2].axis.size),
            warp = threadIdx.x / 32;
  for (int64_t plane = blockIdx.x; plane < p.batch * p.channels; plane += gridDim.x) {
    const int64_t n = quotient(plane, p.channels), c = plane - n * p.channels;
    const T* x = static_cast<const T*>(p.x.data) + n * p.x.n + c * p.x.c;
    T* y = static_cast<T*>(const_cast<void*>(p.y.data)) + n * p.y.n + c * p.y.c;
    for (int top = 0; top < height; top += lists.band) {
      constexpr int kPart = kVector<T>;
      const int count = min(lists.band + 1, height - top) * width;
      __syncthreads();
#pragma unroll 4
      for (int i = threadIdx.x * kPart; i < count; i += kBandThreads * kPart)
        store_pack(held + i, load_past_l1<kPart>(x + int64_t{top} * width + i));
      __syncthreads();
      for (int64_t l = warp; l < lists.lists; l += kBandThreads / 32) {
        const int64_t list = n * lists.lists + l;
        const int split = lists.firsts[list], all = static_cast<int>(min(int64_t{kListed}, p.samples - l * kListed));
        sample_list<T, K>(lists, list, top == 0 ? 0 : split, top == 0 ? split : all, held, width, y + l * kListed);
      }
    }
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
