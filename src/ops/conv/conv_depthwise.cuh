// Depthwise convolutions over channels-last images, stride and dilation 1: a thread has two or four neighbouring
// channels and a strip of columns, and walks down the rows. Each row of the source is read once a strip and meets the
// kSize rows of results, or of grad, that it belongs to, which registers hold; the next one is on its way meanwhile.
#pragma once

#include "src/cuda/convert.cuh"
#include "src/ops/conv/conv_mend.cuh"

namespace tenor::conv {

inline constexpr int kDepthwiseLanes = 32, kDepthwiseWarps = 4;

/// A thread's channels and columns: what registers hold of a window of that size.
template <int kSize>
inline constexpr int kOwnChannels = kSize == 3 ? 4 : 2;
template <int kSize>
inline constexpr int kStrip = kSize == 5 ? 7 : 4;
template <int kSize>
inline constexpr int kDepthwiseChannels = kOwnChannels<kSize>* kDepthwiseLanes;  ///< of a block

struct DepthwiseShape {
  int batch, channels;           ///< a whole number of a thread's
  int height, width;             ///< of the source
  int out_height, out_width;     ///< of what is written, or of grad
  int top, left;                 ///< row r of the source meets rows r + top - i, i < kSize; columns likewise
  int strips, bands, band_rows;  ///< bands of rows a thread each
  int64_t source_batch, source_row, other_batch, other_row;
  int source_pixel, other_pixel;
  const void* source;
  void* result;        ///< forward and data backward
  const void* grad;    ///< weight backward
  const void* weight;  ///< [kSize, kSize, channels] in the order in which the source's rows meet it
  const void* bias;
  int64_t bias_stride;
  float* sums;  ///< weight backward: [blocks, kSize * kSize, channels]
};

/// Which element of the gradient a sum of [taps, channels] is.
struct DepthwiseTaps {
  int64_t channels, columns;
  explicit DepthwiseTaps(const ConvProblem& p) : channels(p.channels), columns(p.window[2].kernel) {}
  __device__ __forceinline__ WeightPlace operator()(int64_t i) const {
    const int64_t channel = i % channels, tap = i / channels;
    return {channel, 0, {0, tap / columns, tap % columns}};
  }
};

/// Work item i of a channel tile: an image's band and strip.
struct DepthwiseItem {
  int n, band, strip;
};
__device__ __forceinline__ DepthwiseItem depthwise_item(const DepthwiseShape& s, int i) {
  return {i / s.strips / s.bands, i / s.strips % s.bands, i % s.strips};
}
__device__ __forceinline__ int depthwise_items(const DepthwiseShape& s) { return s.batch * s.bands * s.strips; }

/// Blocks of a multiprocessor: what registers hold of that many.
template <class T, int kSize>
inline constexpr int kDepthwiseBlocks = kSize == 3       ? 4
                                        : sizeof(T) == 4 ? 2
                                                         : 3;

/// kCount columns of the image's rows, kChannels each.
template <class T, int kCount, int kChannels>
struct Columns {
  const T* first;  ///< column x of row 0
  int64_t row;
  int pixel, height;
  unsigned inside;  ///< a bit for each column of the image
  cuda::Pack<T, kChannels> next[kCount];

  __device__ __forceinline__ Columns(const T* image, int64_t row_stride, int pixel_stride, int x, int width, int rows)
      : first(image + int64_t{x} * pixel_stride), row(row_stride), pixel(pixel_stride), height(rows), inside(0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (static_cast<unsigned>(x + i) < static_cast<unsigned>(width)) inside |= 1u << i;
  }
  /// Starts the loads of row r, zeros where there is none.
  __device__ __forceinline__ void load(int r) {
    const T* const from = first + r * row;
    const unsigned here = static_cast<unsigned>(r) < static_cast<unsigned>(height) ? inside : 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      next[i] = {};
      if (here >> i & 1) next[i] = cuda::load_pack<kChannels>(from + int64_t{i} * pixel);
    }
  }
  __device__ __forceinline__ void take(float (&to)[kCount][kChannels]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) cuda::widen_pack(next[i], to[i]);
  }
};

/// Keeps the compiler from widening what is used in each turn of a loop once in front of it, for which registers lack.
template <class T, int kChannels>
__device__ __forceinline__ void keep_narrow(cuda::Pack<T, kChannels>& x) {
  if constexpr (sizeof(x) == 4) asm volatile("" : "+r"(reinterpret_cast<uint32_t&>(x)));
}

template <class T, int kSize>
__global__ void __launch_bounds__(kDepthwiseLanes* kDepthwiseWarps, kDepthwiseBlocks<T, kSize>)
    depthwise_image(const __grid_constant__ DepthwiseShape s, const __grid_constant__ ConvProblem p) {
  constexpr int kWide = kStrip<kSize>, kOwn = kOwnChannels<kSize>;
  const int channel = blockIdx.y * kDepthwiseChannels<kSize> + threadIdx.x * kOwn;
  const int item = blockIdx.x * kDepthwiseWarps + threadIdx.y;
  if (channel >= s.channels || item >= depthwise_items(s)) return;
  const auto [n, band, strip] = depthwise_item(s, item);
  cuda::Pack<T, kOwn> weight[kSize][kSize];
  bool finite = true;
#pragma unroll
  for (int i = 0; i < kSize * kSize; ++i) {
    auto& own = weight[i / kSize][i % kSize];
    own = cuda::load_pack<kOwn>(static_cast<const T*>(s.weight) + int64_t{i} * s.channels + channel);
#pragma unroll
    for (int c = 0; c < kOwn; ++c) finite &= is_finite(own.at[c]);
  }
  const T* const source = static_cast<const T*>(s.source) + n * s.source_batch + channel;
  T* const result = static_cast<T*>(s.result) + n * s.other_batch + channel;
  float bias[kOwn] = {};
  if (s.bias)
#pragma unroll
    for (int c = 0; c < kOwn; ++c) bias[c] = cuda::widen(static_cast<const T*>(s.bias)[(channel + c) * s.bias_stride]);
  const int first = band * s.band_rows, last = min(first + s.band_rows, s.out_height), x = strip * kWide;
  Columns<T, kWide + kSize - 1, kOwn> columns(source, s.source_row, s.source_pixel, x - s.left, s.width, s.height);
  columns.load(first - s.top);
  float sum[kSize][kWide][kOwn] = {};                     // sum[i]: of row r + top - kSize + 1 + i when row r is met
  for (int row = first; row < last + kSize - 1; ++row) {  // row - kSize + 1 is complete with source row `row - top`
    float in[kWide + kSize - 1][kOwn];
    columns.take(in);
    columns.load(row + 1 - s.top);
#pragma unroll
    for (int i = 0; i < kSize; ++i)
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        if constexpr (kSize > 3) keep_narrow(weight[kSize - 1 - i][j]);
        float w[kOwn];
        cuda::widen_pack(weight[kSize - 1 - i][j], w);
#pragma unroll
        for (int k = 0; k < kWide; ++k) {
#pragma unroll
          for (int c = 0; c < kOwn; ++c) sum[i][k][c] = fmaf(in[k + j][c], w[c], sum[i][k][c]);
        }
      }
    const int out = row - kSize + 1;
    if (out >= first)
#pragma unroll
      for (int k = 0; k < kWide; ++k)
        if (x + k < s.out_width) {
          float whole[kOwn];
#pragma unroll
          for (int c = 0; c < kOwn; ++c) whole[c] = sum[0][k][c] + bias[c];
          cuda::store_pack(result + out * s.other_row + int64_t{x + k} * s.other_pixel, cuda::convert_pack<T>(whole));
        }
#pragma unroll
    for (int i = 0; i < kSize; ++i)
#pragma unroll
      for (int k = 0; k < kWide; ++k)
#pragma unroll
        for (int c = 0; c < kOwn; ++c) sum[i][k][c] = i + 1 < kSize ? sum[i + 1 < kSize ? i + 1 : i][k][c] : 0.f;
  }
  if (!finite) mend_box<T>(p, {n, first, last - first, x, kWide, channel, kOwn}, 0, 1);  // the thread's own
}

/// A block's items, then its warps in ascending order: sums[block, tap, channel].
template <class T, int kSize>
__global__ void __launch_bounds__(kDepthwiseLanes* kDepthwiseWarps, kSize == 3 ? (sizeof(T) == 4 ? 3 : 4) : 2)
    depthwise_weight(const __grid_constant__ DepthwiseShape s) {
  constexpr int kWide = kStrip<kSize>, kOwn = kOwnChannels<kSize>;
  const int channel = blockIdx.y * kDepthwiseChannels<kSize> + threadIdx.x * kOwn;
  float sum[kSize][kSize][kOwn] = {};
  if (channel < s.channels)
    for (int item = blockIdx.x * kDepthwiseWarps + threadIdx.y; item < depthwise_items(s);
         item += gridDim.x * kDepthwiseWarps) {
      const auto [n, band, strip] = depthwise_item(s, item);
      const T* const source = static_cast<const T*>(s.source) + n * s.source_batch + channel;
      const T* const grad = static_cast<const T*>(s.grad) + n * s.other_batch + channel;
      const int first = band * s.band_rows, last = min(first + s.band_rows, s.out_height), x = strip * kWide;
      Columns<T, kWide + kSize - 1, kOwn> sources(source, s.source_row, s.source_pixel, x - s.left, s.width, s.height);
      Columns<T, kWide, kOwn> grads(grad, s.other_row, s.other_pixel, x, s.out_width, last);
      sources.load(first - s.top);
      grads.load(first);
      cuda::Pack<T, kOwn> g[kSize][kWide] = {};  // g[i]: grad's row `row` - i
      for (int row = first; row < last + kSize - 1; ++row) {
#pragma unroll
        for (int k = 0; k < kWide; ++k) {
#pragma unroll
          for (int i = kSize - 1; i > 0; --i) g[i][k] = g[i - 1][k];
          g[0][k] = grads.next[k];
        }
        float in[kWide + kSize - 1][kOwn];
        sources.take(in);
        sources.load(row + 1 - s.top);
        grads.load(row + 1);
#pragma unroll
        for (int i = 0; i < kSize; ++i)
#pragma unroll
          for (int k = 0; k < kWide; ++k) {
            if constexpr (kSize > 3) keep_narrow(g[i][k]);
            float along[kOwn];
            cuda::widen_pack(g[i][k], along);
#pragma unroll
            for (int j = 0; j < kSize; ++j) {
#pragma unroll
              for (int c = 0; c < kOwn; ++c) sum[i][j][c] = fmaf(in[k + j][c], along[c], sum[i][j][c]);
            }
          }
      }
    }
  __shared__ cuda::Pack<float, kOwn> others[kDepthwiseWarps][kDepthwiseLanes];
#pragma unroll
  for (int tap = 0; tap < kSize * kSize; ++tap) {
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kOwn; ++c) others[threadIdx.y][threadIdx.x].at[c] = sum[tap / kSize][tap % kSize][c];
    __syncthreads();
    if (threadIdx.y != tap % kDepthwiseWarps || channel >= s.channels) continue;
    cuda::Pack<float, kOwn> whole = others[0][threadIdx.x];
    for (int i = 1; i < kDepthwiseWarps; ++i)
#pragma unroll
      for (int c = 0; c < kOwn; ++c) whole.at[c] += others[i][threadIdx.x].at[c];
    cuda::store_pack(s.sums + (int64_t{blockIdx.x} * kSize * kSize + tap) * s.channels + channel, whole);
  }
}

}  // namespace tenor::conv
