// resample_halved for images whose channels lie side by side: a thread owns 16 bytes of channels of one or two
// neighbouring results and goes down a strip. Each pair of input rows, weighted along W, is added to the K / 2 results
// whose windows hold it; as soon as a row has been added the one two further is asked for.
#pragma once

#include "src/ops/interpolate/resample_halved_cuda.cuh"

namespace tenor::cuda {

/// Neighbouring results of a thread, and blocks a multiprocessor.
template <class T, int K>
inline constexpr int kHalvedPixels = K == 8 || (K == 4 && sizeof(T) == 4) ? 2 : 1;
template <class T, int K>
inline constexpr int kHalvedBlocks = K == 8                     ? 2
                                     : K == 2                   ? 6
                                     : kHalvedPixels<T, K> == 2 ? 4
                                                                : 5;

/// The inputs of a row that a thread's results read: those from column `first` on, 0 outside of the image.
template <class T, int V, int Inputs>
struct PixelRow {
  Pack<T, V> at[Inputs];

  __device__ __forceinline__ void load(const T* row, int64_t stride, int64_t first, int64_t columns, bool inside) {
#pragma unroll
    for (int i = 0; i < Inputs; ++i) {
      uint4 words{0, 0, 0, 0};  // chosen as words: element by element the choice waits for the load
      if (inside && first + i >= 0 && first + i < columns)
        words = *reinterpret_cast<const uint4*>(row + (first + i) * stride);
      memcpy(&at[i], &words, sizeof(words));
    }
  }
  /// sums[m] += height[m] * the row's value for the window that begins at input `begin`.
  template <int K>
  __device__ __forceinline__ void add(const float (&across)[K], const float* const (&height)[K / 2], int tap, int begin,
                                      float (&sums)[K / 2][V]) const {
    float value[V] = {};
#pragma unroll
    for (int k = 0; k < K; ++k) {
      float x[V];
      widen_pack(at[begin + k], x);
#pragma unroll
      for (int v = 0; v < V; ++v) value[v] = k == 0 ? across[0] * x[v] : fma(across[k], x[v], value[v]);
    }
#pragma unroll
    for (int m = 0; m < K / 2; ++m)
#pragma unroll
      for (int v = 0; v < V; ++v) sums[m][v] = fma(height[m][2 * m + tap], value[v], sums[m][v]);
  }
};

/// Channels fastest among threads, then columns, then images: `planes` counts images by groups of columns.
template <class T, int K>
__global__ void __launch_bounds__(kResampleThreads, kHalvedBlocks<T, K>)
    resample_halved_channels(const __grid_constant__ HalvedResample p) {
  constexpr int V = kVector<T>, Pixels = kHalvedPixels<T, K>;
  constexpr int kHalo = K / 2 - 1, kInputs = 2 * Pixels + K - 2, kBefore = K / 2 - 1;
  // Windows above the strip's first and below its last have rows too, which nothing is stored of.
  __shared__ float rows_weights[kHalvedStrip + 2 * kBefore][K];
  const int64_t row = int64_t{blockIdx.y} * p.strip, height = p.height.size;
  const int rows = static_cast<int>(min(int64_t{p.strip}, height - row));
  for (int r = threadIdx.x; r < kHalvedStrip + 2 * kBefore; r += kResampleThreads) {
    const int64_t at = row + r - kBefore;
    regular_weights<K>(p.height, max(min(at, height - 1), int64_t{0}), rows_weights[r]);
  }
  __syncthreads();
  const int64_t unit = int64_t{blockIdx.x} * kResampleThreads + threadIdx.x, pixel = quotient(unit, p.groups),
                c = (unit - pixel * p.groups) * V;
  if (pixel >= p.planes) return;
  const int64_t columns = p.width.size, many = (columns + Pixels - 1) / Pixels, n = quotient(pixel, many),
                column = (pixel - n * many) * Pixels;
  const T* x = static_cast<const T*>(p.from.data) + n * p.from.n + c;
  T* y = static_cast<T*>(const_cast<void*>(p.to.data)) + n * p.to.n + c + row * p.to.h + column * p.to.w;
  float across[Pixels][K];
#pragma unroll
  for (int i = 0; i < Pixels; ++i) regular_weights<K>(p.width, min(column + i, columns - 1), across[i]);
  float sums[Pixels][K / 2][V] = {};
  const int64_t first = 2 * column - kHalo;
  const int pairs = rows + kBefore;  // of input rows, from 2 row - kHalo on
  PixelRow<T, V, kInputs> raw[2];
  const auto load = [&](int pair, int b) {
    const int64_t from = 2 * (row + pair) - kHalo + b;
    raw[b].load(x + from * p.from.h, p.from.w, first, 2 * columns, pair < pairs && from >= 0 && from < 2 * height);
  };
  load(0, 0);
  load(0, 1);
  for (int pair = 0; pair < pairs; ++pair) {
    const float* weights[K / 2];  // of windows pair - m
#pragma unroll
    for (int m = 0; m < K / 2; ++m) weights[m] = rows_weights[pair - m + kBefore];
#pragma unroll
    for (int i = 0; i < Pixels; ++i)
#pragma unroll
      for (int m = K / 2 - 1; m >= 0; --m)
#pragma unroll
        for (int v = 0; v < V; ++v) sums[i][m][v] = m > 0 ? sums[i][m > 0 ? m - 1 : 0][v] : 0;
#pragma unroll
    for (int b = 0; b < 2; ++b) {
#pragma unroll
      for (int i = 0; i < Pixels; ++i) raw[b].template add<K>(across[i], weights, b, 2 * i, sums[i]);
      load(pair + 1, b);
    }
    const int done = pair - kBefore;
#pragma unroll
    for (int i = 0; i < Pixels; ++i)
      if (done >= 0 && (Pixels == 1 || column + i < columns))
        store_once(y + done * p.to.h + i * p.to.w, convert_pack<T>(sums[i][K / 2 - 1]));
  }
}

}  // namespace tenor::cuda
