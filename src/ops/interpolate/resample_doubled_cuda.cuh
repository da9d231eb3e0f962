// An image of two dims doubled along both, rows dense: nearest, linear and cubic, and the gradients of halving. Every
// second output has the same weights, so that nothing is worked out or looked up: a thread owns as many neighbouring
// outputs as one store takes, has the inputs that they read in registers, and goes down a strip with as many rows,
// resampled along W, as there are taps.
#pragma once

#include "src/ops/interpolate/resample_fixed_cuda.cuh"

namespace tenor::cuda {

/// The gradient of halving: the weights of every second result and of those between, and by what inputs at either end
/// of a dim (height, width) are multiplied, for whose windows the image had no room.
struct DoubledGradient {
  float early[4], late[4];
  float first[2][2], last[2][2];
};
/// Inputs at an end that are.
template <int K>
inline constexpr int kDoubledEdge = K == 1   ? 0
                                    : K == 2 ? 1
                                             : 2;

struct DoubledResample {
  StridedImage from, to;
  int64_t channels, planes, height;  ///< of `from`
  int64_t groups;                    ///< threads a row
  int strip;                         ///< pairs of output rows of a thread
  int64_t columns;                   ///< of `from`
  DoubledGradient gradient;
};

/// Outputs of a thread, which read half as many inputs and K / 2 more on either side.
template <class T>
inline constexpr int kDoubledOutputs = kVector<T>;
template <class T, int K>
inline constexpr int kDoubledAhead = K == 4 || sizeof(T) == 1 ? 2 : 4;  // rows loaded together
template <int K>
inline constexpr int kDoubledStrip = K == 4 ? 16 : 8;

/// Of the pair above the image, the second row is the first of the image; linear rows make it with the next pair.
template <int K, bool Gradient>
inline constexpr int kPairsAbove = K == 4 || (K == 2 && Gradient) ? 1 : 0;

/// The weights of an output: of those that lie a quarter behind an input (Late) or in front of one.
template <int K, class C>
__device__ __forceinline__ core::FixedTaps<K, C> doubled_taps(bool late) {
  return core::fixed_taps_of<K, C>(0, late ? C(0.25) : C(0.75));
}

/// What input i of n of a dim is multiplied by.
template <int K>
__device__ __forceinline__ float edge_factor(const DoubledGradient& g, int dim, int64_t i, int64_t n) {
  if (i >= 0 && i < kDoubledEdge<K>) return g.first[dim][i];
  return i < n && i >= n - kDoubledEdge<K> ? g.last[dim][n - 1 - i] : 1.0f;
}

/// What a thread's outputs of every row read and weigh: beyond an edge the image repeats it, a gradient is 0.
template <class T, int K, bool Gradient>
struct DoubledColumns {
  using C = core::Compute<T>;
  static constexpr int kInputs = kDoubledOutputs<T> / 2, kHalo = K / 2, kFactors = Gradient ? kInputs + 2 * kHalo : 1;
  bool first, last;
  C early[K], late[K], factor[kFactors];

  __device__ DoubledColumns(const DoubledResample& p, int64_t group) : first(group == 0), last(group == p.groups - 1) {
    const auto early_taps = doubled_taps<K, C>(false), late_taps = doubled_taps<K, C>(true);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      early[k] = Gradient ? C(p.gradient.early[k]) : early_taps.weight[k];
      late[k] = Gradient ? C(p.gradient.late[k]) : late_taps.weight[k];
    }
#pragma unroll
    for (int i = 0; i < kFactors; ++i)
      factor[i] = Gradient ? C(edge_factor<K>(p.gradient, 1, group * kInputs - kHalo + i, p.columns)) : C(1);
  }
};

/// A row's inputs of a thread.
template <class T, int K, bool Gradient>
struct DoubledRow {
  static constexpr int kOutputs = kDoubledOutputs<T>, kInputs = kOutputs / 2, kHalo = K / 2;
  static constexpr int kBeside = kHalo > 0 ? kHalo : 1;
  Pack<T, kInputs> own;
  Pack<T, kBeside> left, right;

  __device__ __forceinline__ void load(const T* row, bool first, bool last) {
    own = load_pack<kInputs>(row);
    if constexpr (kHalo > 0) {
      left = load_pack<kHalo>(first ? row : row - kHalo);
      right = load_pack<kHalo>(last ? row : row + kInputs);
    }
  }
  /// Its outputs along W.
  template <class C>
  __device__ __forceinline__ void weigh(const DoubledColumns<T, K, Gradient>& columns, C (&out)[kOutputs]) const {
    C x[kInputs + 2 * kBeside], beside[kBeside], inner[kInputs];
    widen_pack(own, inner);
#pragma unroll
    for (int i = 0; i < kInputs; ++i) x[kHalo + i] = inner[i];
    widen_pack(left, beside);
#pragma unroll
    for (int i = 0; i < kHalo; ++i) x[i] = columns.first ? (Gradient ? C(0) : inner[0]) : beside[i];
    widen_pack(right, beside);
#pragma unroll
    for (int i = 0; i < kHalo; ++i)
      x[kHalo + kInputs + i] = columns.last ? (Gradient ? C(0) : inner[kInputs - 1]) : beside[i];
    if constexpr (Gradient) {
#pragma unroll
      for (int i = 0; i < kInputs + 2 * kHalo; ++i) x[i] *= columns.factor[i];
    }
#pragma unroll
    for (int v = 0; v < kOutputs; ++v) {
      const C(&weight)[K] = v % 2 ? columns.late : columns.early;
      const C* from = x + v / 2 + v % 2;
      out[v] = weight[0] * from[0];
#pragma unroll
      for (int k = 1; k < K; ++k) out[v] = fma(weight[k], from[k], out[v]);
    }
    // The position of the first output is clamped to the first input's; the second has weight 0.
    if constexpr (K == 2 && !Gradient) out[0] = columns.first ? fma(C(0), x[2], x[1]) : out[0];
  }
};

/// One output row from the rows held.
template <class T, int K, class C, int V>
__device__ __forceinline__ void store_doubled(T* to, const C (&weight)[K], const C (&held)[K][V]) {
  C sum[V];
#pragma unroll
  for (int v = 0; v < V; ++v) {
    sum[v] = weight[0] * held[0][v];
#pragma unroll
    for (int k = 1; k < K; ++k) sum[v] = fma(weight[k], held[k][v], sum[v]);
  }
  store_once(to, convert_pack<T>(sum));
}

/// What row q gives to a gradient, where it lies at an edge or beyond.
template <int K, class C, int V>
__device__ __forceinline__ void scale_row(const DoubledResample& p, int64_t q, C (&row)[V]) {
  if (q >= kDoubledEdge<K> && q < p.height - kDoubledEdge<K>) return;
  const bool inside = q >= 0 && q < p.height;
  const C factor = edge_factor<K>(p.gradient, 0, q, p.height);
#pragma unroll
  for (int v = 0; v < V; ++v) row[v] = inside ? row[v] * factor : C(0);
}

/// Pairs of output rows 2 m + 1 and 2 m + 2, which read the input rows m - K / 2 + 1 .. m + K / 2, for m from `begin`
/// to before `end`.
template <class T, int K, bool Gradient>
__device__ __forceinline__ void doubled_strip(const DoubledResample& p, const DoubledColumns<T, K, Gradient>& columns,
                                              const T* x, T* y, int64_t begin, int64_t end) {
  using C = core::Compute<T>;
  constexpr int V = kDoubledOutputs<T>, kHalo = K / 2, kAhead = kDoubledAhead<T, K>;
  C held[K][V] = {};
  int64_t m = begin - (K - 1);  // of the pair that the next row completes
  while (m < end) {
    DoubledRow<T, K, Gradient> raw[kAhead];
#pragma unroll
    for (int b = 0; b < kAhead; ++b)
      raw[b].load(x + core::clamp_index(m + b + kHalo, p.height) * p.from.h, columns.first, columns.last);
#pragma unroll
    for (int b = 0; b < kAhead; ++b, ++m) {
#pragma unroll
      for (int k = 0; k + 1 < K; ++k)
#pragma unroll
        for (int v = 0; v < V; ++v) held[k][v] = held[k + 1][v];
      raw[b].weigh(columns, held[K - 1]);
      if constexpr (Gradient) scale_row<K>(p, m + kHalo, held[K - 1]);
      if (m < begin || m >= end) continue;
      T* to = y + (2 * m + 1) * p.to.h;
      if (K == 2 && !Gradient && m == 0) {
        constexpr C kClamped[K] = {1};
        store_doubled<T>(to - p.to.h, kClamped, held);
      }
      if (m >= 0) store_doubled<T>(to, columns.late, held);
      if (m + 1 < p.height) store_doubled<T>(to + p.to.h, columns.early, held);
    }
  }
}

/// Elements moved as they lie, or a quarter of a gradient: rows 2 m and 2 m + 1.
template <class T, bool Gradient>
__device__ __forceinline__ void doubled_copies(const DoubledResample& p, const T* x, T* y, int64_t begin, int64_t end) {
  constexpr int V = kDoubledOutputs<T>, kAhead = kDoubledAhead<T, 1>;
  for (int64_t m = begin; m < end; m += kAhead) {
    Pack<T, V / 2> raw[kAhead];
#pragma unroll
    for (int b = 0; b < kAhead; ++b) raw[b] = load_pack<V / 2>(x + min(m + b, p.height - 1) * p.from.h);
#pragma unroll
    for (int b = 0; b < kAhead; ++b) {
      if (m + b >= end) break;
      Pack<T, V> out;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        if constexpr (Gradient)
          out.at[v] = convert<T>(widen(raw[b].at[v / 2]) / 4);
        else
          out.at[v] = raw[b].at[v / 2];
      }
      T* to = y + 2 * (m + b) * p.to.h;
      store_once(to, out);
      store_once(to + p.to.h, out);
    }
  }
}

template <class T, int K, bool Gradient>
__global__ void __launch_bounds__(kResampleThreads) resample_doubled(const __grid_constant__ DoubledResample p) {
  const int64_t unit = int64_t{blockIdx.x} * kResampleThreads + threadIdx.x, plane = quotient(unit, p.groups),
                group = unit - plane * p.groups;
  if (plane >= p.planes) return;
  const int64_t n = quotient(plane, p.channels), c = plane - n * p.channels, column = group * (kDoubledOutputs<T> / 2);
  const T* x = static_cast<const T*>(p.from.data) + n * p.from.n + c * p.from.c + column;
  T* y = static_cast<T*>(const_cast<void*>(p.to.data)) + n * p.to.n + c * p.to.c + 2 * column;
  const int64_t begin = int64_t{blockIdx.y} * p.strip - kPairsAbove<K, Gradient>, end = min(begin + p.strip, p.height);
  if constexpr (K == 1)
    doubled_copies<T, Gradient>(p, x, y, begin, end);
  else
    doubled_strip<T, K, Gradient>(p, DoubledColumns<T, K, Gradient>(p, group), x, y, begin, end);
}

}  // namespace tenor::cuda
