// What the CUDA kernels of paged attention are given, and which keys a row sees.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "src/cuda/convert.cuh"
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
  int* turns;       // two words that are 0 between launches: items given out, blocks that have ended; then Load's share
  int done_splits;  // rows of that many splits at most have their results before the merging kernel
  bool out_pairs;   // whether two neighbouring columns of out can be written at once
  int64_t table_stride;
  int sequences, rows, heads, kv_heads, group, chunks, rows_of_tile;
  int dim, value_dim, pages, page_size, box;
  float scale, scale_log2, softcap;
  bool causal;
  int left, right;     // -1: unlimited
  bool latent;         // splits by latent_split_length
  int asked;           // splits that a SplitWorkspace asks for; 0: by split_length
  int long_splits;     // about as many for sequences of more than kLongKeys; 0: by split_length
  int length;          // keys of a split of latent attention, more where a row had too many; 0: by latent_split_length
  int most_splits;     // of a row
  bool even;           // splits by the load of all rows (Load), not by a row's own keys alone
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

/// `length`, doubled until there are at most that many splits.
__host__ __device__ inline int length_within(int keys, int64_t length, int most) {
  while (keys > length * most) length *= 2;
  return static_cast<int>(min(length, int64_t{INT32_MAX}));
}
/// Keys of a split, by the row's own number of keys: few enough that a row has at most kMostSplits. `asked` for that
/// many of them, whole stages.
inline constexpr int kMostSplits = 128, kShortSplit = 512, kAskedStep = 64;
__host__ __device__ inline int split_length(int keys, int asked = 0) {
  if (asked > 0) return max(1, (keys + asked * kAskedStep - 1) / (asked * kAskedStep)) * kAskedStep;
  return length_within(keys, kShortSplit, kMostSplits);
}
/// Longer sequences are cut so that the parts of one keep all multiprocessors busy to the end.
inline constexpr int kLongKeys = kShortSplit * kMostSplits;
__host__ __device__ inline int long_split_length(int keys, int splits) {
  int length = keys / splits / kAskedStep * kAskedStep;
  while (keys > int64_t{length} * kMostSplits) length += kAskedStep;
  return length;
}
/// As many, less than kMostSplits, that `units` times them go evenly into `places`, twice at most.
inline int long_splits(int units, int places) {
  const int rounds = min(2, (kMostSplits - 2) * units / places);
  return rounds > 0 ? max(1, rounds * places / units) : kMostSplits - 2;
}
/// The same for latent attention, whose partial states are large beside its keys.
inline constexpr int kMostLatentSplits = 64, kLatentSplit = 2048, kLongLatentSplit = 1024, kLongLatent = 16384;
__host__ __device__ inline int latent_split_length(int keys, int asked = 0) {
  if (asked > 0) return split_length(keys, asked);
  return length_within(keys, keys > kLongLatent ? kLongLatentSplit : kLatentSplit, kMostLatentSplits);
}
/// Of a row with at most `keys` keys.
inline int most_splits(int64_t keys, int asked, bool latent) {
  if (asked > 0) return asked;
  const int64_t length = !latent              ? kShortSplit
                         : keys > kLongLatent ? kLongLatentSplit
                                              : kLatentSplit,
                most = latent ? kMostLatentSplits : kMostSplits;
  return static_cast<int>(min(most, max(int64_t{1}, (keys + length - 1) / length)));
}

__device__ __forceinline__ int length_of_splits(const Decode& p, int own) {
  if (p.length > 0) return length_within(own, p.length, p.most_splits);
  if (p.long_splits > 0 && own > kLongKeys) return long_split_length(own, p.long_splits);
  return p.latent ? latent_split_length(own, p.asked) : split_length(own, p.asked);
}
/// How a row's keys are cut: the first `edge` of them into splits of `coarse` keys, a multiple of which it is, the
/// others into splits of `fine`.
struct Cut {
  int coarse, fine, edge;
  __device__ __forceinline__ int coarse_splits() const { return edge / coarse; }
  __device__ __forceinline__ int begin(int split) const {
    const int first = coarse_splits();
    return split < first ? split * coarse : edge + (split - first) * fine;
  }
  __device__ __forceinline__ int end(int split) const { return begin(split + 1); }
  __device__ __forceinline__ int holding(int key) const {
    return key < edge ? key / coarse : coarse_splits() + (key - edge) / fine;
  }
  __device__ __forceinline__ bool operator==(const Cut& x) const {
    return coarse == x.coarse && fine == x.fine && edge == x.edge;
  }
};

/// What there is to do in a launch of the decode kernel: the keys that each block would take if all took as many. Rows
/// that are no longer are one split, but the last ones, whose short splits let all blocks end together. A longer row is
/// cut into as many splits of nearly a share as it holds shares, which blocks take first, each one at most, and short
/// ones. Where a share is short itself, so are all splits.
struct Load {
  static constexpr int kShort = 2048, kStep = 128, kMostCoarse = 96;
  int share, last_rows;
  __device__ __forceinline__ Cut cut(int row, int rows, int own) const {
    if (share < kShort) {
      const int length = length_within(own, max(kShortSplit, (share + kStep - 1) / kStep * kStep), kMostSplits);
      return {length, length, 0};
    }
    if (own <= share + kShortSplit) {
      const int length = row < rows - last_rows ? INT32_MAX : length_within(own, kShortSplit, kMostSplits);
      return {length, length, 0};
    }
    const int each = max(share, own / kMostCoarse), count = own / each, rest = each / (share < 3 * kShort ? 12 : 8),
              coarse = (each - rest) / kAskedStep * kAskedStep, edge = count * coarse;
    return {coarse, length_within(own - edge, kShortSplit, kMostSplits - count), edge};
  }
};
__device__ __forceinline__ Cut cut_of(const Decode& p, const Load& load, int row, int own) {
  if (p.even) return load.cut(row, p.rows, own);
  const int length = length_of_splits(p, own);
  return {length, length, 0};
}
/// The load that the decode kernel in front left behind.
__device__ __forceinline__ Load load_of(const Decode& p) {
  if (!p.even) return {0, 0};
  return {__ldcg(p.turns + 2), __ldcg(p.turns + 3)};
}

/// Splits that hold something of a row: partial states are kept of these alone.
struct OwnSplits {
  int first, last;
};
__device__ __forceinline__ OwnSplits own_splits(const Range& seen, const Cut& cut) {
  if (seen.begin >= seen.end) return {0, 0};
  return {cut.holding(seen.begin), cut.holding(seen.end - 1) + 1};
}
__device__ __forceinline__ OwnSplits own_splits(const Range& seen, int length) {
  if (seen.begin >= seen.end) return {0, 0};
  return {seen.begin / length, (seen.end + length - 1) / length};
}

/// One over the denominator, with the sink; 0 for a row that saw nothing. A division for each column would cost more
/// than all else at the end of a row.
__device__ __forceinline__ float share_of(const Decode& p, int head, float top, float sum) {
  if (top == -INFINITY && sum == 0) return 0;
  return 1 / (p.sinks ? sum + expf(p.sinks[head] - top * p.scale) : sum);
}
__device__ __forceinline__ float lse_of(const Decode& p, float top, float sum) {
  return top == -INFINITY && sum == 0 ? -INFINITY : top * p.scale + logf(sum);
}

/// One (row, head); head < 0: none.
struct Place {
  int row, head;
};
template <class T>
__device__ __forceinline__ void write_result(const Decode& p, const Place& at, int d, float value, float share) {
  static_cast<T*>(p.out)[at.row * p.out_row + at.head * p.out_head + d * p.out_col] = convert<T>(value * share);
}
/// Columns d and d + 1, d even.
template <class T>
__device__ __forceinline__ void write_pair(const Decode& p, const Place& at, int d, float low, float high,
                                           float share) {
  if (d >= p.value_dim) return;
  if (p.out_pairs) {
    *reinterpret_cast<uint32_t*>(static_cast<T*>(p.out) + at.row * p.out_row + at.head * p.out_head + d) =
        ptx::pack_pair<T>(low * share, high * share);
    return;
  }
  write_result<T>(p, at, d, low, share);
  if (d + 1 < p.value_dim) write_result<T>(p, at, d + 1, high, share);
}
__device__ __forceinline__ int64_t part_of(const Decode& p, const Place& at) {
  return (static_cast<int64_t>(at.row) * p.heads + at.head) * p.most_splits;
}

}  // namespace tenor::cuda::paged
