// An image of two dims halved along both, rows dense, by windows of K elements at 2 i - (K / 2 - 1) .. 2 i + K / 2:
// antialiasing and area to half the size, and the gradients of doubling. A thread owns neighbouring outputs, has the
// inputs that they read in registers, and goes down a strip with K rows, resampled along W.
#pragma once

#include "src/ops/interpolate/resample_fixed_cuda.cuh"

namespace tenor::cuda {

inline constexpr int kHalvedStrip = 16;  // output rows of a block, at most

/// Results at either end of a dim whose windows reach beyond the image, or where its edge is repeated.
template <int K>
inline constexpr int kHalvedEdge = K == 2   ? 0
                                   : K == 4 ? 1
                                            : 2;
/// The weights of a dim's windows: those of the first and the last results (counted from that end), and all others'.
struct HalvedAxis {
  int64_t size;  ///< results
  float first[2][8], inner[8], last[2][8];
};
struct HalvedResample {
  StridedImage from, to;
  HalvedAxis height, width;
  int64_t channels, planes;
  int64_t groups;  ///< threads a row
  int strip;
};

/// Outputs of a thread, which read twice as many inputs and kHalo more on either side.
template <class T, int K>
inline constexpr int kHalvedOutputs = K == 8 ? 4 : kVector<T>;

template <class T, int K>
struct HalvedRow {
  static constexpr int kOutputs = kHalvedOutputs<T, K>, kInputs = 2 * kOutputs, kHalo = K / 2 - 1;
  static constexpr int kBeside = kHalo == 3 ? 4 : 1;  // elements of one load on either side
  static constexpr int kPart = kInputs < kVector<T> ? kInputs : kVector<T>, kParts = kInputs / kPart;
  Pack<T, kPart> own[kParts];
  Pack<T, kBeside> left, right;

  /// What lies outside of the image is 0.
  __device__ __forceinline__ void load(const T* row, bool inside, bool first, bool last) {
#pragma unroll
    for (int i = 0; i < kParts; ++i) own[i] = inside ? load_pack<kPart>(row + i * kPart) : Pack<T, kPart>{};
    if constexpr (kHalo > 0) {
      left = inside && !first ? load_pack<kBeside>(row - kBeside) : Pack<T, kBeside>{};
      right = inside && !last ? load_pack<kBeside>(row + kInputs) : Pack<T, kBeside>{};
    }
  }
  template <class C>
  __device__ __forceinline__ void widen_all(C (&x)[kInputs + 2 * kHalo]) const {
    C beside[kBeside], part[kPart];
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      widen_pack(own[i], part);
#pragma unroll
      for (int e = 0; e < kPart; ++e) x[kHalo + i * kPart + e] = part[e];
    }
    if constexpr (kHalo > 0) {
      widen_pack(left, beside);
#pragma unroll
      for (int i = 0; i < kHalo; ++i) x[i] = beside[kBeside - kHalo + i];
      widen_pack(right, beside);
#pragma unroll
      for (int i = 0; i < kHalo; ++i) x[kHalo + kInputs + i] = beside[i];
    }
  }
};

/// The weights of window r at its K places.
template <int K>
__device__ __forceinline__ void regular_weights(const HalvedAxis& axis, int64_t r, float (&weight)[K]) {
  constexpr int kEdge = kHalvedEdge<K>;
  const bool first = r < kEdge, last = r >= axis.size - kEdge;
  const int edge = static_cast<int>(first ? r : axis.size - 1 - r);
#pragma unroll
  for (int k = 0; k < K; ++k) {
    weight[k] = axis.inner[k];
    if constexpr (kEdge > 0) {
      if (first || last) weight[k] = first ? axis.first[edge][k] : axis.last[edge][k];
    }
  }
}

/// The weights along W of a thread's outputs: only those at the image's edges differ.
template <int K, int Outputs>
struct HalvedWeights {
  static constexpr int kEdge = kHalvedEdge<K>, kOwn = Outputs > 2 * kEdge ? 2 * kEdge + 1 : Outputs;
  float weight[kOwn][K];

  static constexpr __device__ int place(int output) {
    return output < kEdge || kOwn == Outputs ? output : output >= Outputs - kEdge ? output - Outputs + kOwn : kEdge;
  }
  __device__ void fill(const HalvedAxis& axis, int64_t column) {
#pragma unroll
    for (int v = 0; v < Outputs; ++v)
      if (v <= kEdge || v >= Outputs - kEdge || kOwn == Outputs) regular_weights<K>(axis, column + v, weight[place(v)]);
  }
};

template <class T, int K>
__global__ void __launch_bounds__(kResampleThreads) resample_halved(const __grid_constant__ HalvedResample p) {
  using C = float;
  using Row = HalvedRow<T, K>;
  constexpr int V = Row::kOutputs, kHalo = Row::kHalo, kAhead = K == 2 ? 4 : 2;
  __shared__ C rows_weights[kHalvedStrip][K];
  const int64_t row = int64_t{blockIdx.y} * p.strip, height = p.height.size;
  const int rows = static_cast<int>(min(int64_t{p.strip}, height - row));
  for (int r = threadIdx.x; r < rows; r += kResampleThreads) regular_weights<K>(p.height, row + r, rows_weights[r]);
  __syncthreads();
  const int64_t unit = int64_t{blockIdx.x} * kResampleThreads + threadIdx.x, plane = quotient(unit, p.groups),
                group = unit - plane * p.groups;
  if (plane >= p.planes) return;
  const bool first = group == 0, last = group == p.groups - 1;
  const int64_t n = quotient(plane, p.channels), c = plane - n * p.channels;
  const T* x = static_cast<const T*>(p.from.data) + n * p.from.n + c * p.from.c + group * 2 * V;
  T* y = static_cast<T*>(const_cast<void*>(p.to.data)) + n * p.to.n + c * p.to.c + row * p.to.h + group * V;
  HalvedWeights<K, V> across;
  across.fill(p.width, group * V);
  C held[K][V] = {};
  const int count = 2 * rows + K - 2;  // input rows from 2 row - kHalo on
  for (int start = 0; start < count; start += kAhead) {
    Row raw[kAhead];
#pragma unroll
    for (int b = 0; b < kAhead; ++b) {
      const int64_t from = 2 * row - kHalo + start + b;
      raw[b].load(x + from * p.from.h, from >= 0 && from < 2 * height && start + b < count, first, last);
    }
#pragma unroll
    for (int b = 0; b < kAhead; ++b) {
#pragma unroll
      for (int k = 0; k + 1 < K; ++k)
#pragma unroll
        for (int v = 0; v < V; ++v) held[k][v] = held[k + 1][v];
      C in[2 * V + 2 * kHalo];
      raw[b].widen_all(in);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const C(&w)[K] = across.weight[across.place(v)];
        held[K - 1][v] = w[0] * in[2 * v];
#pragma unroll
        for (int k = 1; k < K; ++k) held[K - 1][v] = fma(w[k], in[2 * v + k], held[K - 1][v]);
      }
      // Every second row completes a window: kAhead and K are even.
      const int r = (start + b - (K - 1)) / 2;
      if (b % 2 == 0 || start + b < K - 1 || r >= rows) continue;
      C sum[V];
#pragma unroll
      for (int v = 0; v < V; ++v) {
        sum[v] = rows_weights[r][0] * held[0][v];
#pragma unroll
        for (int k = 1; k < K; ++k) sum[v] = fma(rows_weights[r][k], held[k][v], sum[v]);
      }
      store_once(y + r * p.to.h, convert_pack<T>(sum));
    }
  }
}

}  // namespace tenor::cuda
