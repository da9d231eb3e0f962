// An image of two dims doubled along both, rows dense: nearest, linear and cubic. Every second output has the same
// weights, so that nothing is worked out or looked up: a thread owns as many neighbouring outputs as one store takes,
// has the inputs that they read in registers, and goes down a strip with as many rows, resampled along W, as there are
// taps.
#pragma once

#include "src/ops/interpolate/resample_fixed_cuda.cuh"

namespace tenor::cuda {

struct DoubledResample {
  StridedImage from, to;
  int64_t channels, planes, height;  ///< of `from`
  int64_t groups;                    ///< threads a row
  int strip;                         ///< pairs of output rows of a thread
};

/// Outputs of a thread, which read half as many inputs and K / 2 more on either side.
template <class T>
inline constexpr int kDoubledOutputs = kVector<T>;
template <class T, int K>
inline constexpr int kDoubledAhead = K == 4 || sizeof(T) == 1 ? 2 : 4;  // rows loaded together
template <int K>
inline constexpr int kDoubledStrip = K == 4 ? 16 : 8;

/// The weights of an output: of those that lie a quarter behind an input (Late) or in front of one.
template <int K, class C>
__device__ __forceinline__ core::FixedTaps<K, C> doubled_taps(bool late) {
  return core::fixed_taps_of<K, C>(0, late ? C(0.25) : C(0.75));
}

/// A row's inputs of a thread.
template <class T, int K>
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
  /// Its outputs along W; edges are repeated.
  template <class C>
  __device__ __forceinline__ void weigh(bool first, bool last, C (&out)[kOutputs]) const {
    C x[kInputs + 2 * kBeside], beside[kBeside], inner[kInputs];
    widen_pack(own, inner);
#pragma unroll
    for (int i = 0; i < kInputs; ++i) x[kHalo + i] = inner[i];
    widen_pack(left, beside);
#pragma unroll
    for (int i = 0; i < kHalo; ++i) x[i] = first ? inner[0] : beside[i];
    widen_pack(right, beside);
#pragma unroll
    for (int i = 0; i < kHalo; ++i) x[kHalo + kInputs + i] = last ? inner[kInputs - 1] : beside[i];
    const auto early = doubled_taps<K, C>(false), late = doubled_taps<K, C>(true);
#pragma unroll
    for (int v = 0; v < kOutputs; ++v) {
      const auto& t = v % 2 ? late : early;
      const C* from = x + v / 2 + v % 2;
      out[v] = t.weight[0] * from[0];
#pragma unroll
      for (int k = 1; k < K; ++k) out[v] = fma(t.weight[k], from[k], out[v]);
    }
    // The position of the first output is clamped to the first input's; the second has weight 0.
    if constexpr (K == 2) out[0] = first ? fma(C(0), x[2], x[1]) : out[0];
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

/// Pairs of output rows 2 m + 1 and 2 m + 2, which read the input rows m - K / 2 + 1 .. m + K / 2, for m from `begin`
/// to before `end`.
template <class T, int K>
__device__ __forceinline__ void doubled_strip(const DoubledResample& p, const T* x, T* y, int64_t begin, int64_t end,
                                              bool first, bool last) {
  using C = core::Compute<T>;
  constexpr int V = kDoubledOutputs<T>, kHalo = K / 2, kAhead = kDoubledAhead<T, K>;
  const auto early = doubled_taps<K, C>(false), late = doubled_taps<K, C>(true);
  C held[K][V] = {};
  int64_t m = begin - (K - 1);  // of the pair that the next row completes
  while (m < end) {
    DoubledRow<T, K> raw[kAhead];
#pragma unroll
    for (int b = 0; b < kAhead; ++b)
      raw[b].load(x + core::clamp_index(m + b + kHalo, p.height) * p.from.h, first, last);
#pragma unroll
    for (int b = 0; b < kAhead; ++b, ++m) {
#pragma unroll
      for (int k = 0; k + 1 < K; ++k)
#pragma unroll
        for (int v = 0; v < V; ++v) held[k][v] = held[k + 1][v];
      raw[b].weigh(first, last, held[K - 1]);
      if (m < begin || m >= end) continue;
      T* to = y + (2 * m + 1) * p.to.h;
      if (K == 2 && m == 0) {
        constexpr C kClamped[K] = {1};
        store_doubled<T>(to - p.to.h, kClamped, held);
      }
      if (m >= 0) store_doubled<T>(to, late.weight, held);
      if (m + 1 < p.height) store_doubled<T>(to + p.to.h, early.weight, held);
    }
  }
}

/// Elements moved as they lie: rows 2 m and 2 m + 1.
template <class T>
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
      for (int v = 0; v < V; ++v) out.at[v] = raw[b].at[v / 2];
      T* to = y + 2 * (m + b) * p.to.h;
      store_once(to, out);
      store_once(to + p.to.h, out);
    }
  }
}

template <class T, int K>
__global__ void __launch_bounds__(kResampleThreads) resample_doubled(const __grid_constant__ DoubledResample p) {
  const int64_t unit = int64_t{blockIdx.x} * kResampleThreads + threadIdx.x, plane = quotient(unit, p.groups),
                group = unit - plane * p.groups;
  if (plane >= p.planes) return;
  const int64_t n = quotient(plane, p.channels), c = plane - n * p.channels, column = group * (kDoubledOutputs<T> / 2);
  const T* x = static_cast<const T*>(p.from.data) + n * p.from.n + c * p.from.c + column;
  T* y = static_cast<T*>(const_cast<void*>(p.to.data)) + n * p.to.n + c * p.to.c + 2 * column;
  // Cubic rows begin with the pair above the image, of which the second row is the first of the image.
  const int64_t above = K == 4 ? 1 : 0, begin = int64_t{blockIdx.y} * p.strip - above,
                end = min(begin + p.strip, p.height);
  if constexpr (K == 1)
    doubled_copies<T>(p, x, y, begin, end);
  else
    doubled_strip<T, K>(p, x, y, begin, end, group == 0, group == p.groups - 1);
}

}  // namespace tenor::cuda
