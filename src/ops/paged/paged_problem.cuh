// What the CUDA kernels of paged attention are given, and which keys a row sees.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "src/cuda/convert.cuh"
#include "src/cuda/ptx/dependent_launch.cuh"
#include "src/cuda/ptx/float.cuh"
#include "tenor/dtype.h"

namespace tenor::cuda::paged {

/// Rows that one launch of the decode and latent kernels may have: their schedules lie in shared memory.
inline constexpr int kMostRows = 512;

/// Strides count elements.
struct Decode {
  const void* q;
  int64_t q_row, q_head;
  void* out;
  int64_t out_row, out_head, out_col;
  float* lse;  // or null
  int64_t lse_row, lse_head;
  const float* sinks;  // [heads] or null
  const int *tables, *lengths, *ids, *positions;
  int64_t table_stride;
  int rows, heads, kv_heads, group, chunks, rows_of_tile;
  int dim, value_dim, pages, page_size, box;
  float scale, scale_log2, softcap;
  bool causal;
  int left, right;     // -1: unlimited
  bool latent;         // splits by latent_split_length
  int asked;           // splits that a SplitWorkspace asks for; 0: by split_length
  int most_splits;     // of a row
  float* part_out;     // [rows, heads, most_splits, value_dim]
  float2* part_state;  // [rows, heads, most_splits]: top, sum
};

struct Range {
  int begin, end;
};

/// Keys of the row's sequence that a row without a window sees: what splits go by.
__device__ __forceinline__ int own_keys(const Decode& p, int row) {
  const int s = p.ids[row];
  if (s < 0) return 0;
  const int length = p.lengths[s];
  return p.causal ? min(length, p.positions[row] + 1) : length;
}
__device__ __forceinline__ Range visible(const Decode& p, int row) {
  const int s = p.ids[row];
  if (s < 0) return {0, 0};
  const int at = p.positions[row];
  int begin = 0, end = own_keys(p, row);
  if (p.left >= 0) begin = max(0, at - min(p.left, at));
  if (p.right >= 0) end = static_cast<int>(min(static_cast<int64_t>(end), int64_t{at} + p.right + 1));
  return {min(begin, end), end};
}

/// Keys of a split, by the row's own number of keys: few enough that a row has at most kMostSplits. `asked` for that
/// many of them, whole stages.
inline constexpr int kMostSplits = 64, kShortSplit = 512, kAskedStep = 64;
__host__ __device__ inline int split_length(int keys, int asked = 0) {
  if (asked > 0) return max(1, (keys + asked * kAskedStep - 1) / (asked * kAskedStep)) * kAskedStep;
  int length = kShortSplit;
  while (keys / length >= kMostSplits) length *= 2;
  return length;
}
/// The same for latent attention, whose partial states are large beside its keys.
inline constexpr int kLatentSplit = 2048, kLongLatentSplit = 1024, kLongLatent = 16384;
__host__ __device__ inline int latent_split_length(int keys, int asked = 0) {
  if (asked > 0) return split_length(keys, asked);
  int length = keys > kLongLatent ? kLongLatentSplit : kLatentSplit;
  while (keys / length >= kMostSplits) length *= 2;
  return length;
}
/// Of a row with at most `keys` keys.
inline int most_splits(int64_t keys, int asked, bool latent) {
  if (asked > 0) return asked;
  const int64_t length = !latent ? kShortSplit : keys > kLongLatent ? kLongLatentSplit : kLatentSplit;
  return static_cast<int>(min(int64_t{kMostSplits}, max(int64_t{1}, (keys + length - 1) / length)));
}

__device__ __forceinline__ int length_of_splits(const Decode& p, int own) {
  return p.latent ? latent_split_length(own, p.asked) : split_length(own, p.asked);
}
/// Splits that hold something of a row: partial states are kept of these alone.
struct OwnSplits {
  int first, last;
};
__device__ __forceinline__ OwnSplits own_splits(const Range& seen, int length) {
  if (seen.begin >= seen.end) return {0, 0};
  return {seen.begin / length, (seen.end + length - 1) / length};
}

/// The denominator, with the sink; 0 for a row that saw nothing.
__device__ __forceinline__ float whole_of(const Decode& p, int head, float top, float sum) {
  if (top == -INFINITY && sum == 0) return 0;
  return p.sinks ? sum + expf(p.sinks[head] - top * p.scale) : sum;
}
__device__ __forceinline__ float lse_of(const Decode& p, float top, float sum) {
  return top == -INFINITY && sum == 0 ? -INFINITY : top * p.scale + logf(sum);
}

/// One (row, head); head < 0: none.
struct Place {
  int row, head;
};
template <class T>
__device__ __forceinline__ void write_result(const Decode& p, const Place& at, int d, float value, float whole) {
  static_cast<T*>(p.out)[at.row * p.out_row + at.head * p.out_head + d * p.out_col] =
      convert<T>(whole == 0 ? 0.0f : value / whole);
}
__device__ __forceinline__ int64_t part_of(const Decode& p, const Place& at) {
  return (static_cast<int64_t>(at.row) * p.heads + at.head) * p.most_splits;
}

/// A warp adds up the first `splits` partial states of one (row, head) in columns [column, column + kMergeColumns), in
/// order, and writes the result.
inline constexpr int kMergeColumns = 64;
template <class T>
__device__ void merge_parts(const Decode& p, const Place& at, int splits, int column) {
  constexpr int kEach = kMergeColumns / 32;
  const int lane = threadIdx.x & 31, mine = column + lane;
  const int64_t part = part_of(p, at);
  float top = -INFINITY;
  for (int n = lane; n < splits; n += 32) top = fmaxf(top, __ldcg(&p.part_state[part + n]).x);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
  const float base = top == -INFINITY ? 0.0f : top;
  float total[kEach] = {}, sum = 0;
  for (int first = 0; first < splits; first += 32) {
    float2 state = make_float2(-INFINITY, 0.0f);
    if (first + lane < splits) state = __ldcg(&p.part_state[part + first + lane]);
    const float weight = ptx::exp2_approximate((state.x - base) * p.scale_log2);
    const int count = min(32, splits - first);
#pragma unroll 8
    for (int n = 0; n < count; ++n) {
      const float w = __shfl_sync(~0u, weight, n);
      sum += w * __shfl_sync(~0u, state.y, n);
      const float* from = p.part_out + (part + first + n) * p.value_dim;
#pragma unroll
      for (int e = 0; e < kEach; ++e)
        if (mine + 32 * e < p.value_dim) total[e] += w * __ldcg(from + mine + 32 * e);
    }
  }
  const float whole = whole_of(p, at.head, top, sum);
#pragma unroll
  for (int e = 0; e < kEach; ++e)
    if (mine + 32 * e < p.value_dim) write_result<T>(p, at, mine + 32 * e, total[e], whole);
  if (mine == 0 && p.lse) p.lse[at.row * p.lse_row + at.head * p.lse_head] = lse_of(p, top, sum);
}

/// A warp a (row, head) and columns: its splits.
inline constexpr int kMergeThreads = 128;
inline dim3 merge_blocks(const Decode& p) {
  const int64_t pairs = int64_t{p.rows} * p.heads;
  return dim3(static_cast<unsigned>((pairs + kMergeThreads / 32 - 1) / (kMergeThreads / 32)),
              static_cast<unsigned>((p.value_dim + kMergeColumns - 1) / kMergeColumns));
}
template <class T>
__global__ void __launch_bounds__(kMergeThreads) merge_decoded(const __grid_constant__ Decode p) {
  const int64_t i = int64_t{blockIdx.x} * (kMergeThreads / 32) + threadIdx.x / 32;
  if (i >= int64_t{p.rows} * p.heads) return;
  const Place at{static_cast<int>(i / p.heads), static_cast<int>(i % p.heads)};
  const OwnSplits own = own_splits(visible(p, at.row), length_of_splits(p, own_keys(p, at.row)));
  ptx::wait_for_previous();
  merge_parts<T>(p, at, own.last - own.first, static_cast<int>(blockIdx.y) * kMergeColumns);
}

}  // namespace tenor::cuda::paged
