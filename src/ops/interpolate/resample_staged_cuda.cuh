// Linear and cubic resampling in two dims of rows that do not shrink, along W. A warp takes 256 outputs of a row and
// goes down a strip. It brings the piece of an input row that they read into shared memory as it computes with it,
// edges repeated, so that a tap costs one load at a constant distance; rows that several output rows read stay in
// registers, resampled along W.
#pragma once

#include "src/ops/interpolate/resample_fixed_cuda.cuh"

namespace tenor::cuda {

inline constexpr int kStagedColumns = 256;  // outputs of a warp
inline constexpr int kStagedPairs = 4;      // pairs of neighbours that a lane owns, 64 columns apart
template <int K>
inline constexpr int kStagedRows = K == 4 ? 2 : 4;  // input rows that are brought in together
inline constexpr int kStagedWarps = kResampleThreads / 32;
inline constexpr int64_t kStagedPlanes = 4;  // that a warp takes at most

struct StagedResample {
  FixedResample image;  ///< units: warps a strip; groups: pieces of 256 columns a row
  int64_t planes;
  int each;    ///< planes that a warp takes, one after the other
  bool pairs;  ///< pairs of results can be stored as one
};

/// Where a lane's outputs read the staged piece, and with which weights.
template <class C, int K>
struct StagedTaps {
  int at[kStagedPairs][2];
  C weight[kStagedPairs][2][K];

  /// Columns from `column` on; `low` is the input column that the piece begins with.
  __device__ void place(const FixedResample& p, int64_t column, int64_t low, int lane) {
#pragma unroll
    for (int i = 0; i < kStagedPairs; ++i)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const auto t = core::fixed_taps_at<K, C>(p.width, min(column + 64 * i + 2 * lane + e, p.width.out - 1));
        at[i][e] = static_cast<int>(t.first - low);
#pragma unroll
        for (int k = 0; k < K; ++k) weight[i][e][k] = t.weight[k];
      }
  }
};

template <class T, class C>
__device__ __forceinline__ void store_pair(T* to, C a, C b, bool pair, bool second) {
  if (pair) {
    const C both[2] = {a, b};
    store_pack(to, convert_pack<T>(both));
  } else {
    to[0] = convert<T>(a);
    if (second) to[1] = convert<T>(b);
  }
}

/// The last `K` input rows of a strip, resampled along W: a lane's outputs of each.
template <class C, int K>
struct StagedRows {
  C held[K][kStagedPairs][2] = {};

  /// The next row, which `staged` holds.
  __device__ __forceinline__ void push(const StagedTaps<C, K>& taps, const C* staged) {
#pragma unroll
    for (int i = 0; i < kStagedPairs; ++i)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
#pragma unroll
        for (int k = 0; k + 1 < K; ++k) held[k][i][e] = held[k + 1][i][e];
        const C* from = staged + taps.at[i][e];
        C sum = taps.weight[i][e][0] * from[0];
#pragma unroll
        for (int k = 1; k < K; ++k) sum = fma(taps.weight[i][e][k], from[k], sum);
        held[K - 1][i][e] = sum;
      }
  }
  /// An output row, `to` being the place of the lane's first output; `columns` of the piece exist.
  template <class T>
  __device__ __forceinline__ void store(const C* weights, T* to, int lane, int columns, bool pairs) const {
    C weight[K];
#pragma unroll
    for (int k = 0; k < K; ++k) weight[k] = weights[k];
#pragma unroll
    for (int i = 0; i < kStagedPairs; ++i) {
      C sum[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        sum[e] = weight[0] * held[0][i][e];
#pragma unroll
        for (int k = 1; k < K; ++k) sum[e] = fma(weight[k], held[k][i][e], sum[e]);
      }
      if (64 * i + 2 * lane < columns) store_pair(to + 64 * i, sum[0], sum[1], pairs, 64 * i + 2 * lane + 1 < columns);
    }
  }
};

/// Where a lane's part of the staged piece lies in an input row.
template <int Parts>
struct StagedPlaces {
  int at[Parts];
};

/// A warp's strip of one plane: input rows of x, results at y, the place of the lane's first one.
template <class T, int K, int Parts, class C = core::Compute<T>>
__device__ __forceinline__ void staged_strip(const StripPlan<C, K>& plan, const StagedTaps<C, K>& taps,
                                             const StagedPlaces<Parts>& places, const T* x, T* y, int64_t y_row,
                                             C (*buffer)[Parts * 32], int rows, int columns, bool pairs) {
  constexpr int kRows = kStagedRows<K>;
  const int lane = threadIdx.x % 32;
  T raw[kRows][Parts];
  const auto load = [&](int start) {
#pragma unroll
    for (int b = 0; b < kRows; ++b) {
      const T* from = x + plan.source[min(start + b, plan.count - 1)];
#pragma unroll
      for (int m = 0; m < Parts; ++m) raw[b][m] = from[places.at[m]];
    }
  };
  StagedRows<C, K> held;
  int r = 0;
  load(0);
  for (int start = 0; start < plan.count; start += kRows) {
    __syncwarp();
#pragma unroll
    for (int b = 0; b < kRows; ++b)
#pragma unroll
      for (int m = 0; m < Parts; ++m) buffer[b][lane + 32 * m] = widen(raw[b][m]);
    __syncwarp();
    if (start + kRows < plan.count) load(start + kRows);
#pragma unroll
    for (int b = 0; b < kRows; ++b) {
      if (start + b >= plan.count) break;
      held.push(taps, buffer[b]);
      for (; r < rows && plan.last[r] == start + b; ++r)
        held.store(plan.weight[r], y + r * y_row, lane, columns, pairs);
    }
  }
}

/// Parts: 32 elements of the piece each. The piece of the widest step is 256 + K + 1 elements long.
template <class T, int K, int Parts>
__global__ void __launch_bounds__(kResampleThreads, 4) resample_staged(const __grid_constant__ StagedResample q) {
  using C = core::Compute<T>;
  const FixedResample& p = q.image;
  __shared__ StripPlan<C, K> plan;
  __shared__ C staged[kStagedWarps][kStagedRows<K>][Parts * 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t row = int64_t{blockIdx.y} * p.strip;
  const int rows = static_cast<int>(min(int64_t{p.strip}, p.height.out - row));
  plan.fill(p, row, rows);
  __syncthreads();
  const int64_t unit = int64_t{blockIdx.x} * kStagedWarps + warp;
  if (unit >= p.units) return;
  const int64_t group = quotient(unit, p.groups), piece = unit - group * p.groups, first_plane = group * q.each,
                column = piece * kStagedColumns;
  const int64_t low = core::fixed_taps_at<K, C>(p.width, column).first;
  StagedTaps<C, K> taps;
  taps.place(p, column, low, lane);
  StagedPlaces<Parts> places;
#pragma unroll
  for (int m = 0; m < Parts; ++m) places.at[m] = static_cast<int>(core::clamp_index(low + lane + 32 * m, p.width.in));
  const int columns = static_cast<int>(min(int64_t{kStagedColumns}, p.width.out - column));
  for (int64_t plane = first_plane; plane < min(first_plane + q.each, q.planes); ++plane) {
    const int64_t n = quotient(plane, p.channels), c = plane - n * p.channels;
    const T* x = static_cast<const T*>(p.from.data) + n * p.from.n + c * p.from.c;
    T* y = static_cast<T*>(const_cast<void*>(p.to.data)) + n * p.to.n + c * p.to.c + row * p.to.h + column + 2 * lane;
    staged_strip<T, K, Parts>(plan, taps, places, x, y, p.to.h, staged[warp], rows, columns, q.pairs);
  }
}

}  // namespace tenor::cuda
