// The gradients of grid_sample where places lie side by side: a thread has a place and adds up its channels for the
// grid's; for the image's a pixel and goes through its list of taps, so that no addition depends on which thread was
// first.
#pragma once

#include "src/ops/grid_sample/grid_lists_cuda.cuh"
#include "src/ops/grid_sample/grid_sample_cuda.cuh"

namespace tenor::cuda {

inline constexpr int kGradientThreads = 256;

struct GridGradientProblem {
  GridSampleProblem sample;
  StridedImage grad;  ///< of the grid; c: from coordinate to coordinate
  bool float_grad;
};

/// d loss / d coordinate d (slowest first) from the taps' sums over channels.
template <class R, int Dims, int K, class I>
__device__ __forceinline__ R coordinate_gradient(const PlaceAxes<R, Dims, K, I>& axes, const R* dots, int d) {
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

/// Writes a place's gradient, slowest coordinate first. `at`: where its first coordinate lies.
template <class T, int Dims>
__device__ __forceinline__ void store_gradient(const GridGradientProblem& p, int64_t at,
                                               const core::Compute<T> (&value)[Dims]) {
  void* to = const_cast<void*>(p.grad.data);
#pragma unroll
  for (int d = 0; d < Dims; ++d) {
    const int64_t place = at + (Dims - 1 - d) * p.grad.c;
    if (p.float_grad)
      static_cast<float*>(to)[place] = static_cast<float>(value[d]);
    else
      static_cast<T*>(to)[place] = convert<T>(value[d]);
  }
}

/// The grid's gradient, a thread a place: the places of a block are a tile, so that it reads few lines twice. Blocks
/// (tile, images).
template <class T, int Dims, int K, class I>
__global__ void __launch_bounds__(kSampleThreads)
    grid_gradient(const __grid_constant__ GridGradientProblem p, const int* choice) {
  begin_link();
  using R = core::Compute<T>;
  if (!is_chosen(choice, SampleWay::kCoherent)) return;
  const GridSampleProblem& q = p.sample;
  const TilePlace at = tile_place(q, blockIdx.x);
  if (!at.inside) return;
  for (int64_t n = blockIdx.y; n < q.batch; n += gridDim.y) {
    const auto axes = axes_of<T, Dims, K, I>(q, n * q.grid.n + at.d * q.grid.d + at.h * q.grid.h + at.w * q.grid.w);
    const auto taps = taps_at(q.x, axes);
    constexpr int kTaps = taps.kCount, kEach = kTaps <= 4 ? 4 : 1;  // channels whose loads are under way at once
    R dots[kTaps] = {};
    const T* x = static_cast<const T*>(q.x.data) + n * q.x.n;
    const T* g = static_cast<const T*>(q.y.data) + n * q.y.n + at.d * q.y.d + at.h * q.y.h + at.w * q.y.w;
    for (int64_t c = 0; K > 1 && c < q.channels; c += kEach, x += kEach * q.x.c, g += kEach * q.y.c) {
      T up[kEach], values[kEach][kTaps];
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        const bool exists = c + k < q.channels;
        up[k] = exists ? g[k * q.y.c] : T{};
#pragma unroll
        for (int t = 0; t < kTaps; ++t) values[k][t] = exists && taps.at[t] >= 0 ? x[taps.at[t] + k * q.x.c] : T{};
      }
#pragma unroll
      for (int k = 0; k < kEach; ++k)
#pragma unroll
        for (int t = 0; t < kTaps; ++t)
          if (c + k < q.channels && taps.at[t] >= 0) dots[t] = fma(widen(up[k]), widen(values[k][t]), dots[t]);
    }
    R value[Dims];
#pragma unroll
    for (int d = 0; d < Dims; ++d) value[d] = coordinate_gradient(axes, dots, d);
    store_gradient<T, Dims>(p, n * p.grad.n + at.d * p.grad.d + at.h * p.grad.h + at.w * p.grad.w, value);
  }
}

/// The size of an image's rows, by which its places are numbered.
struct ImagePlaces {
  int64_t height, width;
  bool even;  ///< from place to place it is always as far
};
__device__ __forceinline__ int64_t image_place(const StridedImage& image, const ImagePlaces& size, int64_t s) {
  if (size.even) return s * image.w;
  const int64_t row = quotient(s, size.width), d = quotient(row, size.height);
  return d * image.d + (row - d * size.height) * image.h + (s - row * size.width) * image.w;
}

inline constexpr int kSummedChannels = 16;

template <class R, class I>
struct PixelSums {
  TapLists<R, I> lists;
  StridedImage y;  ///< the result's gradient
  ImagePlaces places;
  StridedImage to;  ///< the image's gradient
  ImagePlaces pixels;
  int64_t channels;
  const int* choice;
};

/// The image's gradient, but for pixels of long lists: a thread has a pixel and kSummedChannels channels. Blocks
/// (pixels, groups of channels, image).
template <class T, class I>
__global__ void __launch_bounds__(kGradientThreads)
    sum_pixels(const __grid_constant__ PixelSums<core::Compute<T>, I> p) {
  begin_link();
  using R = core::Compute<T>;
  if (!is_chosen(p.choice, SampleWay::kCoherent)) return;
  const int64_t pixel = int64_t{blockIdx.x} * kGradientThreads + threadIdx.x,
                c0 = int64_t{blockIdx.y} * kSummedChannels, n = blockIdx.z;
  if (pixel >= p.lists.pixels) return;
  const int channels = static_cast<int>(min(int64_t{kSummedChannels}, p.channels - c0));
  const I* starts = p.lists.starts + n * (p.lists.pixels + 1) + pixel;
  const I begin = starts[0], end = starts[1];
  if (end - begin > kMostSummed) return;
  const TapEntry<R, I>* entries = p.lists.entries + n * p.lists.most;
  const T* g = static_cast<const T*>(p.y.data) + (p.lists.n0 + n) * p.y.n + c0 * p.y.c;
  R sums[kSummedChannels] = {};
  TapEntry<R, I> next{};
  if (begin < end) next = entries[begin];
  for (I e = begin; e < end; ++e) {
    const TapEntry<R, I> entry = next;
    if (e + 1 < end) next = entries[e + 1];  // under way beside this one's loads
    const T* up = g + image_place(p.y, p.places, entry.place);
    T some[kSummedChannels];
#pragma unroll
    for (int c = 0; c < kSummedChannels; ++c) some[c] = c < channels ? up[c * p.y.c] : T{};
#pragma unroll
    for (int c = 0; c < kSummedChannels; ++c) sums[c] = fma(entry.weight, widen(some[c]), sums[c]);
  }
  T* out = static_cast<T*>(const_cast<void*>(p.to.data)) + (p.lists.n0 + n) * p.to.n + c0 * p.to.c +
           image_place(p.to, p.pixels, pixel);
#pragma unroll
  for (int c = 0; c < kSummedChannels; ++c)
    if (c < channels) out[c * p.to.c] = convert<T>(sums[c]);
}

/// Pixels of long lists, by a warp a channel: each lane every 32nd entry, then a tree. Blocks (any, channels).
template <class T, class I>
__global__ void __launch_bounds__(kGradientThreads)
    sum_long_lists(const __grid_constant__ PixelSums<core::Compute<T>, I> p) {
  begin_link();
  using R = core::Compute<T>;
  const auto lists = static_cast<int64_t>(p.lists.long_counts[1]);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t warps = int64_t{gridDim.y} * (kGradientThreads / 32),
                warp = int64_t{blockIdx.y} * (kGradientThreads / 32) + threadIdx.x / 32;
  for (int64_t k = blockIdx.x; k < lists; k += gridDim.x) {
    const int64_t key = p.lists.unsummed[k], n = quotient(key, p.lists.pixels), pixel = key - n * p.lists.pixels;
    const I* starts = p.lists.starts + n * (p.lists.pixels + 1) + pixel;
    const I begin = starts[0], end = starts[1];
    const TapEntry<R, I>* entries = p.lists.entries + n * p.lists.most;
    for (int64_t c = warp; c < p.channels; c += warps) {
      const T* g = static_cast<const T*>(p.y.data) + (p.lists.n0 + n) * p.y.n + c * p.y.c;
      R sum = 0;
#pragma unroll 4
      for (I e = begin + lane; e < end; e += 32)
        sum = fma(entries[e].weight, widen(g[image_place(p.y, p.places, entries[e].place)]), sum);
#pragma unroll
      for (int half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(~0u, sum, half);
      if (lane == 0)
        static_cast<T*>(const_cast<void*>(
            p.to.data))[(p.lists.n0 + n) * p.to.n + c * p.to.c + image_place(p.to, p.pixels, pixel)] = convert<T>(sum);
    }
  }
}

}  // namespace tenor::cuda
