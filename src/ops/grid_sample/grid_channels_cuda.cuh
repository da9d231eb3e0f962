// The gradients of grid_sample over channels that lie side by side, in pieces of V: `Lanes` neighbouring lanes share a
// place, or a pixel, and each has a piece of its channels. Images that lie otherwise are brought into that order first:
// at scattered places a pixel of all channels is then a few whole lines of the cache in place of a sector a channel.
#pragma once

#include "src/ops/grid_sample/grid_gradient_cuda.cuh"

namespace tenor::cuda {

inline constexpr int kSumThreads = 256, kSumPixels = 4;
inline constexpr int kTurnPlaces = 64, kTurnChannels = 64, kTurnThreads = 256;

/// Channels side by side: place (or pixel) s of image n begins at data + n * image + s * step.
struct ChannelRows {
  const void* data;
  int64_t image, step;
};

/// Copies images n0 .. of any strides into rows of `padded` channels, 0 from `channels` on. Blocks (places, channels,
/// image).
template <class T>
__global__ void __launch_bounds__(kTurnThreads)
    turn_channels(StridedImage from, ImagePlaces size, int64_t n0, int64_t places, int64_t channels, int64_t padded,
                  T* to, const int* choice) {
  begin_link();
  if (!is_chosen(choice, SampleWay::kScattered)) return;
  constexpr int kV = kVector<T>, kItems = kTurnPlaces * kTurnChannels / kTurnThreads;
  __shared__ T tile[kTurnChannels][kTurnPlaces + 4 / sizeof(T) + (sizeof(T) > 4)];
  const int64_t s0 = int64_t{blockIdx.x} * kTurnPlaces, c0 = int64_t{blockIdx.y} * kTurnChannels, n = blockIdx.z;
  const int column = static_cast<int>(threadIdx.x) % kTurnPlaces, first = static_cast<int>(threadIdx.x) / kTurnPlaces;
  const int64_t s = s0 + column;
  T value[kItems];
  const T* source = static_cast<const T*>(from.data) + (n0 + n) * from.n;
  if (s < places) source += image_place(from, size, s);
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const int64_t c = c0 + first + k * (kTurnThreads / kTurnPlaces);
    value[k] = s < places && c < channels ? source[c * from.c] : T{};
  }
#pragma unroll
  for (int k = 0; k < kItems; ++k) tile[first + k * (kTurnThreads / kTurnPlaces)][column] = value[k];
  __syncthreads();
  constexpr int kPieces = kTurnChannels / kV;
  // Eight places by four pieces a warp: two lanes a bank.
  for (int i = static_cast<int>(threadIdx.x); i < kTurnPlaces * kPieces; i += kTurnThreads) {
    const int low = i % 4, place = i / 4 % kTurnPlaces, piece = i / (4 * kTurnPlaces) * 4 + low;
    const int64_t c = c0 + piece * kV;
    if (s0 + place >= places || c >= padded) continue;
    Pack<T, kV> out;
#pragma unroll
    for (int e = 0; e < kV; ++e) out.at[e] = tile[piece * kV + e][place];
    store_pack(to + (n * places + s0 + place) * padded + c, out);
  }
}

/// Every word of a value from another lane.
template <class V>
__device__ __forceinline__ V from_lane(const V& value, int lane) {
  static_assert(sizeof(V) % 4 == 0);
  uint32_t words[sizeof(V) / 4];
  memcpy(words, &value, sizeof(V));
#pragma unroll
  for (auto& word : words) word = __shfl_sync(~0u, word, lane);
  V out;
  memcpy(&out, words, sizeof(V));
  return out;
}

struct ChannelGridGradient {
  GridGradientProblem q;
  ChannelRows x, y;  ///< y: the result's gradient
  int64_t n0, images;
  int lanes;   ///< a place, a power of two up to 32
  int pieces;  ///< of V channels
  const int* choice;
};

/// The grid's gradient: a warp has 32 places, of which each lane finds the taps of one; `lanes` lanes then share one.
template <class T, int Dims, int K, int V, class I>
__global__ void __launch_bounds__(kGradientThreads)
    grid_gradient_channels(const __grid_constant__ ChannelGridGradient p) {
  begin_link();
  using R = core::Compute<T>;
  if (!is_chosen(p.choice, SampleWay::kScattered)) return;
  const GridSampleProblem& q = p.q.sample;
  const int lane = static_cast<int>(threadIdx.x) % 32, piece = lane % p.lanes, group = lane / p.lanes,
            groups = 32 / p.lanes;
  const int64_t first = (int64_t{blockIdx.x} * kGradientThreads + threadIdx.x) / 32 * 32, count = p.images * q.samples;
  if (first >= count) return;
  const int64_t own = min(first + lane, count - 1), own_n = quotient(own, q.samples), own_s = own - own_n * q.samples;
  const int64_t n_first = quotient(first, q.samples), s_first = first - n_first * q.samples;
  const auto axes = axes_of<T, Dims, K, I>(q, (p.n0 + own_n) * q.grid.n + place_of(q, q.grid, own_s));
  StridedImage rows{};
  rows.w = p.x.step, rows.h = rows.w * q.axes[2].axis.size, rows.d = rows.h * q.axes[1].axis.size;
  R result[Dims] = {};
#pragma unroll 2
  for (int step = 0; step < p.lanes; ++step) {
    const int holder = step * groups + group;  // the lane whose place this is
    const auto shared = from_lane(axes, holder);
    int64_t n = n_first, s = s_first + holder;
    if (s >= q.samples) n += quotient(s, q.samples), s -= quotient(s, q.samples) * q.samples;
    const bool exists = first + holder < count;
    const auto taps = taps_at(rows, shared);
    const T* x = static_cast<const T*>(p.x.data) + (p.n0 + n) * p.x.image;
    const T* g = static_cast<const T*>(p.y.data) + (p.n0 + n) * p.y.image + s * p.y.step;
    R dots[taps.kCount] = {};
    for (int c = piece; exists && c < p.pieces; c += p.lanes) {
      const Pack<T, V> up = load_pack<V>(g + c * V);
      Pack<T, V> at[taps.kCount];
#pragma unroll
      for (int t = 0; t < taps.kCount; ++t) {
        at[t] = {};
        if (taps.at[t] >= 0) at[t] = load_pack<V>(x + taps.at[t] + c * V);
      }
      R wide[V];
      widen_pack(up, wide);
#pragma unroll
      for (int t = 0; t < taps.kCount; ++t) {
        if (taps.at[t] < 0) continue;
        R value[V];
        widen_pack(at[t], value);
#pragma unroll
        for (int e = 0; e < V; ++e) dots[t] = fma(wide[e], value[e], dots[t]);
      }
    }
#pragma unroll
    for (int d = 0; d < Dims; ++d) {
      R sum = coordinate_gradient(shared, dots, d);
      for (int half = p.lanes / 2; half > 0; half /= 2) sum += __shfl_xor_sync(~0u, sum, half);
      // Lane l's place is group l % groups of step l / groups.
      const R mine = __shfl_sync(~0u, sum, lane % groups * p.lanes);
      if (lane / groups == step) result[d] = mine;
    }
  }
  if (first + lane >= count) return;
  store_gradient<T, Dims>(p.q, (p.n0 + own_n) * p.q.grad.n + place_of(q, p.q.grad, own_s), result);
}

template <class R, class I>
struct ChannelSums {
  TapLists<R, I> lists;
  ChannelRows y;     ///< the result's gradient
  StridedImage to;   ///< the image's gradient
  ImagePlaces size;  ///< of the image
  ChannelRows rows;  ///< the same, where its channels lie side by side
  bool direct;       ///< they do, in aligned pieces
  int lanes, pieces;
  int64_t channels;
  const int* choice;
};

/// Adds up entries [begin, end) of pixels q0 .. q1 - 1, whose lists follow one another; `starts` are theirs and
/// flush(q, sum) takes each. kAhead loads are under way at once, whatever the lists' lengths.
template <class T, int V, class R, class I, class Flush>
__device__ __forceinline__ void sum_lists(const TapEntry<R, I>* entries, const I* starts, int q0, int q1, const T* g,
                                          int64_t step, bool works, Flush&& flush) {
  constexpr int kAhead = 4;
  R sum[V] = {};
  int q = q0;
  I next = starts[q + 1];
  const I end = starts[q1];
  for (I e = starts[q0]; e < end; e += kAhead) {
    R weight[kAhead];
    Pack<T, V> some[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const TapEntry<R, I> entry = entries[min(e + k, end - 1)];
      weight[k] = entry.weight;
      if (works) some[k] = load_pack<V>(g + entry.place * step);
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (e + k >= end) break;
      while (e + k >= next) {
        flush(q, sum);
        ++q;
        next = starts[q + 1];
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] = 0;
      }
      R wide[V];
      widen_pack(some[k], wide);
#pragma unroll
      for (int i = 0; i < V; ++i) sum[i] = fma(weight[k], wide[i], sum[i]);
    }
  }
  for (; q < q1; ++q) {
    flush(q, sum);
#pragma unroll
    for (int i = 0; i < V; ++i) sum[i] = 0;
  }
}

/// The image's gradient, but for pixels of long lists, which get 0. Blocks (pixels, groups of `lanes` pieces, image);
/// `lanes` lanes have kSumPixels neighbouring pixels.
template <class T, int V, class I>
__global__ void __launch_bounds__(kSumThreads)
    sum_channels(const __grid_constant__ ChannelSums<core::Compute<T>, I> p) {
  begin_link();
  using R = core::Compute<T>;
  if (!is_chosen(p.choice, SampleWay::kScattered)) return;
  constexpr int kMost = kSumThreads * kSumPixels;
  __shared__ I starts[kMost + 1];
  __shared__ T tile[(kMost + 32) * V];  // [channel][pixel]
  const int lane = static_cast<int>(threadIdx.x) % p.lanes, group = static_cast<int>(threadIdx.x) / p.lanes,
            groups = kSumThreads / p.lanes, most = groups * kSumPixels;
  const int64_t n = blockIdx.z, first = int64_t{blockIdx.x} * most;
  const int count = static_cast<int>(min(int64_t{most}, p.lists.pixels - first));
  const int piece = static_cast<int>(blockIdx.y) * p.lanes + lane;
  const bool works = piece < p.pieces;
  bool is_long = false;
  for (int i = static_cast<int>(threadIdx.x); i <= count; i += kSumThreads) {
    const I* from = p.lists.starts + n * (p.lists.pixels + 1) + first + i;
    starts[i] = *from;
    is_long = is_long || (i < count && from[1] - from[0] > kMostSummed);
  }
  is_long = __syncthreads_or(is_long);
  const TapEntry<R, I>* entries = p.lists.entries + n * p.lists.most;
  const T* g = static_cast<const T*>(p.y.data) + (p.lists.n0 + n) * p.y.image + int64_t{piece} * V;
  const int pitch = most + 1;
  const auto flush = [&](int q, const R(&sum)[V]) {
    if (!works) return;
    const Pack<T, V> out = convert_pack<T>(sum);
    if (p.direct) {
      store_pack(static_cast<T*>(const_cast<void*>(p.rows.data)) + (p.lists.n0 + n) * p.rows.image +
                     (first + q) * p.rows.step + int64_t{piece} * V,
                 out);
    } else {
#pragma unroll
      for (int i = 0; i < V; ++i) tile[(lane * V + i) * pitch + q] = out.at[i];
    }
  };
  const int q0 = min(group * kSumPixels, count), q1 = min(q0 + kSumPixels, count);
  if (!is_long) {
    if (q0 < q1) sum_lists<T, V>(entries, starts, q0, q1, g, p.y.step, works, flush);
  } else {
    const R none[V] = {};
    for (int q = q0; q < q1; ++q)
      if (starts[q + 1] - starts[q] <= kMostSummed)
        sum_lists<T, V>(entries, starts, q, q + 1, g, p.y.step, works, flush);
      else
        flush(q, none);
  }
  if (p.direct) return;
  __syncthreads();
  const int64_t c0 = int64_t{blockIdx.y} * p.lanes * V;
  const int channels = static_cast<int>(min(int64_t{p.lanes} * V, p.channels - c0));
  T* out = static_cast<T*>(const_cast<void*>(p.to.data)) + (p.lists.n0 + n) * p.to.n + c0 * p.to.c;
  const int wide = min(most, kSumThreads), rows = kSumThreads / wide;
  for (int q = static_cast<int>(threadIdx.x) % wide; q < count; q += wide) {
    T* at = out + image_place(p.to, p.size, first + q);
    for (int c = static_cast<int>(threadIdx.x) / wide; c < channels; c += rows) at[c * p.to.c] = tile[c * pitch + q];
  }
}

}  // namespace tenor::cuda
