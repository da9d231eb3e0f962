// The kernels of a scan, all in the order of cuda/scan_order.h. Rows: a warp holds a tile of a line in registers.
// Columns: a thread block holds a part of a tile of up to 32 neighbouring lines, each thread eight groups of one line.
// A line is walked from its start, or, where there are few lines, cut into parts: their tiles' totals first, what
// precedes each tile, then every part from there.
#pragma once

#include "src/cuda/launch.h"
#include "src/cuda/ptx/dependent_launch.cuh"
#include "src/cuda/reduce.cuh"
#include "src/cuda/scan_order.h"
#include "src/cuda/vector.cuh"
#include "src/ops/scan/scan_ops.cuh"

namespace tenor::scan {

using cuda::kWarp;
using cuda::Pack;

inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / kWarp;
inline constexpr int kGroup = cuda::kScanGroup;
inline constexpr int kTile = cuda::kScanTile;

/// How lines are shared out. `totals` [tiles, lines] and `spans` [spans, lines] are what precedes a tile in its span,
/// and a span; null where a line is walked from its start. The first pass writes totals.
struct Share {
  int log_lanes;    ///< rows: lanes of a line; fewer than a warp only where they hold it whole
  int log_sharing;  ///< rows: warps that share a line; columns: lines side by side
  int64_t tiles;    ///< of a part
  unsigned parts;   ///< of a line
  void* totals;
  void* spans;
};

/// The value that lane `from` holds.
template <class T>
__device__ __forceinline__ T shuffle(const T& value, int from) {
  constexpr int kWords = (sizeof(T) + 3) / 4;
  uint32_t words[kWords] = {};
  memcpy(words, &value, sizeof(T));
#pragma unroll
  for (uint32_t& word : words) word = __shfl_sync(~0u, word, from);
  T out;
  memcpy(&out, words, sizeof(T));
  return out;
}

/// N neighbours from p, which is aligned where `vectors`; `step` apart.
template <int N, class T>
__device__ __forceinline__ void load_run(const T* __restrict__ p, int64_t step, bool vectors, int left, T (&x)[N]) {
  constexpr int kPack = cuda::kVector<T> < N ? cuda::kVector<T> : N;
  if (vectors && left >= N) {
#pragma unroll
    for (int r = 0; r < N; r += kPack) *reinterpret_cast<Pack<T, kPack>*>(x + r) = cuda::load_pack<kPack>(p + r);
  } else {
#pragma unroll
    for (int r = 0; r < N; ++r)
      if (r < left) x[r] = p[r * step];
  }
}
template <int N, class T>
__device__ __forceinline__ void store_run(T* __restrict__ p, int64_t step, bool vectors, int left, const T (&x)[N]) {
  constexpr int kPack = cuda::kVector<T> < N ? cuda::kVector<T> : N;
  if (vectors && left >= N) {
#pragma unroll
    for (int r = 0; r < N; r += kPack) cuda::store_pack<kPack>(p + r, *reinterpret_cast<const Pack<T, kPack>*>(x + r));
  } else {
#pragma unroll
    for (int r = 0; r < N; ++r)
      if (r < left) p[r * step] = x[r];
  }
}

/// Results of the group x[first ..] from what precedes it, into y[to ..]; `left` elements of x are there.
template <int N, int M, class Op, class A>
__device__ __forceinline__ void group_results(const Op& op, const A& before, const typename Op::In (&x)[N], int first,
                                              int64_t i, int left, typename Op::Out (&y)[M], int64_t (&places)[M],
                                              int to) {
  A running = op.identity();
#pragma unroll
  for (int j = 0; j < kGroup; ++j) {
    if (first + j >= left) continue;
    running = op.merge(running, op.leaf(x[first + j], i + first + j));
    const A all = op.merge(before, running);
    y[to + j] = op.value(all);
    if constexpr (Op::kIndices) places[to + j] = all.index;
  }
}

// ---- rows ----

/// Elements of a line that a lane holds side by side, and such runs in a tile.
template <class T>
inline constexpr int kRun = sizeof(T) <= 2 ? 8 : 4;

/// The groups' partial results in the tile up to and with each group (inclusive), and the tile's runs' (in every lane).
template <class Op>
struct TileScan {
  using A = typename Op::Acc;
  using T = typename Op::In;
  static constexpr int kN = kRun<T>, kGroups = kN / kGroup, kRuns = kTile / kWarp / kN;
  A groups[kRuns][kGroups], runs[kRuns];

  /// Of `left` elements from `first` on. kFull: the tile is whole, as is the warp. Of a tile that is not, which is its
  /// line's last, the runs that are not there hold anything, and so does the total.
  template <bool kFull>
  __device__ __forceinline__ void scan(const Op& op, const T (&x)[kRuns][kN], int64_t first, int left, int used,
                                       int lanes, int lane) {
#pragma unroll
    for (int p = 0; p < kRuns; ++p) {
      if (!kFull && p >= used) break;
      const int at = (p * kWarp + lane) * kN;
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        A running = op.identity();
#pragma unroll
        for (int j = g * kGroup; j < (g + 1) * kGroup; ++j)
          if (kFull || at + j < left) running = op.merge(running, op.leaf(x[p][j], first + at + j));
        groups[p][g] = running;
      }
      if constexpr (kGroups == 2) groups[p][1] = op.merge(groups[p][0], groups[p][1]);
    }
    const int base = static_cast<int>(threadIdx.x) & (kWarp - 1) & ~(lanes - 1);
#pragma unroll 1
    for (int half = 1; half < lanes; half *= 2) {
      const bool right = lane & half;
      const int from = base + (right ? (lane & ~(half - 1)) - 1 : lane);  // the last lane of the block before
#pragma unroll
      for (int p = 0; p < kRuns; ++p) {
        if (!kFull && p >= used) break;
        const A before = shuffle(groups[p][kGroups - 1], from);
#pragma unroll
        for (int g = 0; g < kGroups; ++g)
          if (right) groups[p][g] = op.merge(before, groups[p][g]);
      }
    }
#pragma unroll
    for (int p = 0; p < kRuns; ++p)
      if (kFull || p < used) runs[p] = shuffle(groups[p][kGroups - 1], base + lanes - 1);
#pragma unroll
    for (int half = 1; half < kRuns; half *= 2)
#pragma unroll
      for (int p = kRuns - 1; p > 0; --p) {
        if ((p & half) == 0) continue;
        const A before = runs[(p & ~(half - 1)) - 1];
#pragma unroll
        for (int g = 0; g < kGroups; ++g) groups[p][g] = op.merge(before, groups[p][g]);
        runs[p] = op.merge(before, runs[p]);
      }
  }

  template <bool kFull, bool kVectors>
  __device__ __forceinline__ void write(const Op& op, const T (&x)[kRuns][kN], const A& carry, int64_t first, int left,
                                        int used, const Lines& lines, int lane, typename Op::Out* y,
                                        int64_t* places) const {
#pragma unroll
    for (int p = 0; p < kRuns; ++p) {
      if (!kFull && p >= used) break;
      const int at = (p * kWarp + lane) * kN, here = kFull ? kN : max(left - at, 0);
      A before = shuffle(groups[p][kGroups - 1], (static_cast<int>(threadIdx.x) & (kWarp - 1)) - (lane > 0));
      if (lane == 0 && p > 0) before = runs[p > 0 ? p - 1 : 0];
      typename Op::Out out[kN];
      int64_t at_places[kN];
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const A base = g > 0 ? op.merge(carry, groups[p][g > 0 ? g - 1 : 0]) : at > 0 ? op.merge(carry, before) : carry;
        group_results(op, base, x[p], g * kGroup, first + at, here, out, at_places, g * kGroup);
      }
      const int64_t to = (first + at) * (kVectors ? 1 : lines.y_step), step = kVectors ? 1 : lines.y_step;
      if (kFull || here > 0) store_run(y + to, step, kVectors, here, out);
      if constexpr (Op::kIndices)
        if (kFull || here > 0) store_run(places + to, step, kVectors, here, at_places);
    }
  }
};

/// Thread blocks that must fit a multiprocessor together.
template <class Op>
inline constexpr int kResidents = sizeof(typename Op::In) <= 4 && sizeof(typename Op::Acc) <= 8 ? 3 : 2;

/// kTotals: the tiles' totals alone.
template <class Op, bool kTotals, bool kVectors>
__global__ void __launch_bounds__(kThreads, kResidents<Op>)
    row_scan(const typename Op::In* __restrict__ x, typename Op::Out* __restrict__ y, int64_t* __restrict__ places,
             const __grid_constant__ Op op, const __grid_constant__ Lines lines, const __grid_constant__ Share share) {
  using A = typename Op::Acc;
  using T = typename Op::In;
  constexpr int kN = kRun<T>, kRuns = TileScan<Op>::kRuns;
  __shared__ A shared[2][kWarps];
  const int lanes = 1 << share.log_lanes, lane = threadIdx.x & (lanes - 1), group = threadIdx.x >> share.log_lanes;
  const int sharing = 1 << share.log_sharing, warp = group & (sharing - 1);
  const unsigned block = share.parts == 1 ? blockIdx.x : blockIdx.x / share.parts;
  const int64_t line =
                    (int64_t{block} * kThreads >> (share.log_lanes + share.log_sharing)) + (group >> share.log_sharing),
                part = blockIdx.x - block * share.parts;
  const bool valid = line < lines.lines;
  int64_t at[2] = {0, 0};
  if (valid) offsets(lines.kept, line, at);
  const T* from = x + at[0];
  A* totals = static_cast<A*>(share.totals);
  A spans = op.identity(), tiles = op.identity();
  if (kTotals) cuda::ptx::launch_dependents();
  if (!kTotals && totals) cuda::ptx::wait_for_previous();  // the kernels in front overlap
  if (!kTotals && totals && valid) {
    spans = static_cast<const A*>(share.spans)[part * share.tiles / cuda::kScanSpan * lines.lines + line];
    tiles = totals[part * share.tiles * lines.lines + line];
  }
  for (int64_t t = part * share.tiles, round = 0; t < (part + 1) * share.tiles && t * kTile < lines.count;
       t += sharing, ++round) {
    const int64_t own = t + warp, first = own * kTile;
    const int there = static_cast<int>(max(min(lines.count - first, int64_t{kTile}), int64_t{0})),
              left = valid ? there : 0;
    const int used = lanes < kWarp ? 1 : (there + kWarp * kN - 1) / (kWarp * kN);
    const bool full = there == kTile && left == kTile;  // then lanes is kWarp: fewer hold less
    alignas(16) T held[kRuns][kN];
#pragma unroll
    for (int p = 0; p < kRuns; ++p) {
      const int i = (p * kWarp + lane) * kN;
      if (p < used && i < left)
        load_run<kN>(from + (first + i) * (kVectors ? 1 : lines.x_step), kVectors ? 1 : lines.x_step, kVectors,
                     left - i, held[p]);
    }
    TileScan<Op> tile;
    if (full)
      tile.template scan<true>(op, held, first, kTile, kRuns, kWarp, lane);
    else
      tile.template scan<false>(op, held, first, left, used, lanes, lane);
    const A total = tile.runs[kRuns - 1];
    if constexpr (kTotals) {
      if (valid && lane == 0 && there > 0) totals[own * lines.lines + line] = total;
    } else {
      if (!totals && t % cuda::kScanSpan == 0) {
        spans = op.merge(spans, tiles);
        tiles = op.identity();
      }
      A before = tiles;
      if (sharing > 1) {
        if (lane == 0) shared[round % 2][group] = total;
        __syncthreads();
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
          if (w >= sharing) break;
          if (w == warp) before = tiles;
          tiles = op.merge(tiles, shared[round % 2][group - warp + w]);
        }
      } else {
        tiles = op.merge(tiles, total);
      }
      const A carry = op.merge(spans, before);
      if (full)
        tile.template write<true, kVectors>(op, held, carry, first, kTile, kRuns, lines, lane, y + at[1],
                                            places + at[1]);
      else if (there > 0)
        tile.template write<false, kVectors>(op, held, carry, first, left, used, lines, lane, y + at[1],
                                             places + at[1]);
    }
  }
}

// ---- columns ----

inline constexpr int kThreadGroups = 8;  ///< groups of a line that a thread holds
inline constexpr int kThreadElements = kThreadGroups * kGroup;

/// Whether a thread loads its next elements while it works on those it has.
template <class Op>
inline constexpr bool kAhead = sizeof(typename Op::In) <= 4 && sizeof(typename Op::Acc) <= 4;

/// The first `left` elements of a column from `from` on.
template <class T>
__device__ __forceinline__ void load_column(const T* __restrict__ from, int64_t step, int left,
                                            T (&x)[kThreadElements]) {
  if (left >= kThreadElements) {
#pragma unroll
    for (T& v : x) v = *from, from += step;
  } else {
#pragma unroll
    for (int r = 0; r < kThreadElements; ++r, from += step)
      if (r < left) x[r] = *from;
  }
}

template <class Op, bool kTotals>
__global__ void __launch_bounds__(kThreads, kAhead<Op> ? 2 : kResidents<Op>)
    column_scan(const typename Op::In* __restrict__ x, typename Op::Out* __restrict__ y, int64_t* __restrict__ places,
                const __grid_constant__ Op op, const __grid_constant__ Lines lines,
                const __grid_constant__ Share share) {
  using A = typename Op::Acc;
  using T = typename Op::In;
  __shared__ A shared[2][kThreads];
  const int across = 1 << share.log_sharing, down = kThreads >> share.log_sharing, tx = threadIdx.x & (across - 1),
            ty = threadIdx.x >> share.log_sharing;
  const int rows = down * kThreadElements,
            steps = kTile / kThreadElements * across / kThreads;  // rows of a step; 1, 2 or 4 steps a tile
  const unsigned block = share.parts == 1 ? blockIdx.x : blockIdx.x / share.parts;
  const int64_t line = int64_t{block} * across + tx, part = blockIdx.x - block * share.parts;
  const bool valid = line < lines.lines;
  int64_t at[2] = {0, 0};
  if (valid) offsets(lines.kept, line, at);
  A* totals = static_cast<A*>(share.totals);
  A spans = op.identity(), tiles = op.identity(), first_half = op.identity(), quarter = op.identity(),
    last = op.identity();
  if (kTotals) cuda::ptx::launch_dependents();
  if (!kTotals && totals) cuda::ptx::wait_for_previous();
  if (!kTotals && totals && valid) {
    spans = static_cast<const A*>(share.spans)[part * share.tiles / cuda::kScanSpan * lines.lines + line];
    tiles = totals[part * share.tiles * lines.lines + line];
  }
  int64_t step = part * share.tiles * steps;
  const int64_t end = min((part + 1) * share.tiles * kTile, lines.count);
  const auto left_at = [&](int64_t first) {
    return static_cast<int>(max(min((valid ? lines.count : 0) - first, int64_t{kThreadElements}), int64_t{0}));
  };
  const T* from = x + at[0];
  T held[kThreadElements], next[kAhead<Op> ? kThreadElements : 1];
  if constexpr (kAhead<Op>) {
    const int64_t first = step * rows + ty * kThreadElements;
    load_column(from + first * lines.x_step, lines.x_step, left_at(first), next);
  }
  for (int64_t start = step * rows; start < end; ++step, start += rows) {
    const int inner = static_cast<int>(step) & (steps - 1);  // the step's place in its tile
    if (!totals && inner == 0 && step / steps % cuda::kScanSpan == 0) {
      spans = op.merge(spans, tiles);
      tiles = op.identity();
    }
    const int64_t first = start + ty * kThreadElements;
    const int left = left_at(first);
    if constexpr (kAhead<Op>) {
#pragma unroll
      for (int r = 0; r < kThreadElements; ++r) held[r] = next[r];
      if (start + rows < end)
        load_column(from + (first + rows) * lines.x_step, lines.x_step, left_at(first + rows), next);
    } else {
      load_column(from + first * lines.x_step, lines.x_step, left, held);
    }

    // Inclusive partial results of the groups: in the thread, then over the threads below one another.
    A groups[kThreadGroups];
#pragma unroll
    for (int g = 0; g < kThreadGroups; ++g) {
      A running = op.identity();
#pragma unroll
      for (int j = g * kGroup; j < (g + 1) * kGroup; ++j)
        if (j < left) running = op.merge(running, op.leaf(held[j], first + j));
      groups[g] = running;
    }
#pragma unroll
    for (int half = 1; half < kThreadGroups; half *= 2)
#pragma unroll
      for (int g = kThreadGroups - 1; g > 0; --g)
        if (g & half) groups[g] = op.merge(groups[(g & ~(half - 1)) - 1], groups[g]);
    int buffer = 0;
    for (int half = 1; half < down; half *= 2, buffer ^= 1) {
      shared[buffer][ty * across + tx] = groups[kThreadGroups - 1];
      __syncthreads();
      if ((ty & half) == 0) continue;
      const A before = shared[buffer][((ty & ~(half - 1)) - 1) * across + tx];
#pragma unroll
      for (int g = 0; g < kThreadGroups; ++g) groups[g] = op.merge(before, groups[g]);
    }
    shared[buffer][ty * across + tx] = groups[kThreadGroups - 1];
    __syncthreads();
    const A all = shared[buffer][(down - 1) * across + tx];
    if constexpr (!kTotals) {
      const A carry = op.merge(spans, tiles);
      // The steps before in this tile, smaller subtrees first.
      const auto within = [&](A value) {
        if (inner & 1) value = op.merge(quarter, value);
        if (inner & 2) value = op.merge(first_half, value);
        return value;
      };
      A before = ty > 0      ? op.merge(carry, within(shared[buffer][(ty - 1) * across + tx]))
                 : inner > 0 ? op.merge(carry, last)
                             : carry;
      int64_t to = at[1] + first * lines.y_step;
#pragma unroll
      for (int g = 0; g < kThreadGroups; ++g) {
        typename Op::Out out[kGroup];
        int64_t at_places[kGroup];
        group_results(op, before, held, g * kGroup, first, left, out, at_places, 0);
#pragma unroll
        for (int j = 0; j < kGroup; ++j, to += lines.y_step) {
          if (g * kGroup + j >= left) continue;
          y[to] = out[j];
          if constexpr (Op::kIndices) places[to] = at_places[j];
        }
        if (g + 1 < kThreadGroups) before = op.merge(carry, within(groups[g]));
      }
      last = within(all);
    }
    A total = all;  // of the tile, where this is its last step
    if (inner & 1) total = op.merge(quarter, total);
    if (inner & 1 && inner & 2) total = op.merge(first_half, total);
    if (inner == 1 && steps > 2) first_half = total;
    if ((inner & 1) == 0) quarter = total;
    const bool ends = inner == steps - 1 || start + rows >= lines.count;
    if (ends && !kTotals) tiles = op.merge(tiles, total);
    if (ends && kTotals && valid && ty == 0)
      totals[step / steps * lines.lines + line] = total;  // of the last tile none is wanted
    __syncthreads();
  }
}

// ---- what precedes each tile and each span ----

/// Chains of `length` values of a line each become what precedes each value in its chain; sums gets the chains' totals.
/// There are `steps` values a line. A thread a chain: neighbouring lines lie side by side.
template <class Op>
__global__ void __launch_bounds__(kThreads)
    carry_kernel(const __grid_constant__ Op op, typename Op::Acc* values, typename Op::Acc* sums, int64_t steps,
                 int64_t lines, int64_t length, int64_t chains) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  cuda::ptx::launch_dependents();
  cuda::ptx::wait_for_previous();
  if (i >= chains) return;
  const int64_t chain = i / lines, line = i % lines, end = min((chain + 1) * length, steps);
  typename Op::Acc before = op.identity();
#pragma unroll 16
  for (int64_t t = chain * length; t < end; ++t) {
    const typename Op::Acc value = values[t * lines + line];
    values[t * lines + line] = before;
    before = op.merge(before, value);
  }
  sums[chain * lines + line] = before;
}

/// Likewise, a thread block a chain, which it stages in shared memory: for few lines.
template <class Op>
__global__ void __launch_bounds__(kThreads)
    staged_carry_kernel(const __grid_constant__ Op op, typename Op::Acc* values, typename Op::Acc* sums, int64_t steps,
                        int64_t lines, int64_t length) {
  using A = typename Op::Acc;
  __shared__ A shared[kThreads];
  const int64_t chain = blockIdx.x / lines, line = blockIdx.x % lines, end = min((chain + 1) * length, steps);
  A before = op.identity();
  cuda::ptx::launch_dependents();
  cuda::ptx::wait_for_previous();
  for (int64_t t = chain * length; t < end; t += kThreads) {
    const int n = static_cast<int>(min(end - t, int64_t{kThreads}));
    A* own = values + (t + threadIdx.x) * lines + line;
    if (threadIdx.x < n) shared[threadIdx.x] = *own;
    __syncthreads();
    if (threadIdx.x == 0) {
#pragma unroll 16
      for (int k = 0; k < n; ++k) {
        const A value = shared[k];
        shared[k] = before;
        before = op.merge(before, value);
      }
    }
    __syncthreads();
    if (threadIdx.x < n) *own = shared[threadIdx.x];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[chain * lines + line] = before;
}

}  // namespace tenor::scan
