// What the CUDA kernels of paged attention are given, and which keys a row sees.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "src/cuda/convert.cuh"
#include "src/cuda/ptx/float.cuh"
#include "tenor/dtype.h"

namespace tenor::cuda::paged {

/// Rows that one launch of the decode and latent kernels may have: their schedules lie in shared memory.
inline constexpr int kMostRows = 512;

/// `length`, doubled until there are at most that many splits.
__host__ __device__ inline int length_within(int keys, int64_t length, int most) {
  while (keys > length * most) length *= 2;
  return static_cast<int>(min(length, int64_t{INT32_MAX}));
}
/// Keys of a split, by the row's own number of keys: few enough that a row has at most kMostSplits. `asked` for that
/// many of them, whole stages.
inline constexpr int kMostSplits = 128, kShortSplit = 512, kAskedStep = 64;
__host__ __device__ inline int split_length(int keys, int asked = 0) {
  if (asked > 0) {
    const int64_t length = (int64_t{keys} + asked * kAskedStep - 1) / (asked * kAskedStep) * kAskedStep;
    return static_cast<int>(max(int64_t{kAskedStep}, min(length, int64_t{INT32_MAX})));
  }
  return length_within(keys, kShortSplit, kMostSplits);
}
/// Splits of a longer row, of `places` multiprocessors and `units` items a split: as many as they take in one round of
/// items, in two where one would leave too many of them idle.
inline int long_splits(int units, int places) {
  constexpr int kFewest = 8;
  const auto rounds = [&](int n) { return std::clamp(n * places / units, kFewest, kMostSplits); };
  const auto idle = [&](int splits) { return (places - splits * units % places) % places; };  // in the last round
  const int one = rounds(1), two = rounds(2);
  return 12 * idle(one) <= places ? one : two;
}
/// Keys of a split of a row that has at most `splits` of them, at least kShortSplit.
__host__ __device__ inline int long_split_length(int keys, int splits) {
  return max(kShortSplit, split_length(keys, splits));
}
/// Whether an item of the decode kernel may be several splits, for heads of up to `dim`: larger ones leave no registers
/// for the sum over them.
constexpr bool decode_joins(int dim) { return dim <= 128; }

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
  int long_splits;     // of a long row of the decode kernel; 0: by split_length
  int length;          // keys of a split of latent attention, more where a row had too many; 0: by latent_split_length
  int most_splits;     // of a row
  bool joins;          // whether an item may be several splits of a row (Load)
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
  if (p.long_splits > 0) return long_split_length(own, p.long_splits);
  return p.latent ? latent_split_length(own, p.asked) : split_length(own, p.asked);
}
/// Splits of a row that hold something of it.
struct OwnSplits {
  int first, last;
};
__device__ __forceinline__ OwnSplits own_splits(const Range& seen, int length) {
  if (seen.begin >= seen.end) return {0, 0};
  return {seen.begin / length, (seen.end - 1) / length + 1};
}

/// How a row's keys are cut, `length` to a split, and who adds the splits up: those before number `joined` one item of
/// the decode kernel, as it goes from one to the next, the others the merging kernel. Both do so in the splits' order,
/// by the same operations (Fold), so that `joined` moves no bit and is free to go by what there is to do.
struct Cut {
  int length, joined;
  __device__ __forceinline__ bool operator==(const Cut& x) const { return length == x.length && joined == x.joined; }
  /// The partial state in which the splits before `joined` are, under the number of the last one; that of the first
  /// split where there is none.
  __device__ __forceinline__ int first_part(const OwnSplits& own) const {
    return max(own.first, min(joined, own.last) - 1);
  }
};

/// What there is to do in a launch of the decode kernel: the keys that each block would take if all took as many. Rows
/// that are no longer are one item, but the last ones, whose splits one by one let all blocks end together. Of a longer
/// row nearly a share is one item, which blocks take first, and the rest is splits.
struct Load {
  int share, last_rows;
  __device__ __forceinline__ int joined(int row, int rows, const Range& seen, int length) const {
    const int keys = seen.end - seen.begin;
    if (keys <= share + kShortSplit) return row < rows - last_rows ? INT32_MAX : 0;
    const int count = (share - share / 8) / length;
    return count > 1 ? seen.begin / length + count : 0;
  }
};
__device__ __forceinline__ Cut cut_of(const Decode& p, const Load& load, int row, const Range& seen, int own) {
  const int length = length_of_splits(p, own);
  return {length, p.joins ? load.joined(row, p.rows, seen, length) : 0};
}
/// The load that the decode kernel in front left behind.
__device__ __forceinline__ Load load_of(const Decode& p) {
  if (!p.joins) return {0, 0};
  return {__ldcg(p.turns + 2), __ldcg(p.turns + 3)};
}

/// Adding a state to the sum of those before it: what the sum and the state shrink by. Explicit operations: the decode
/// and the merging kernel must agree to the last bit.
struct Fold {
  float shrink, weight;
  __device__ __forceinline__ float operator()(float sum, float x) const {
    return __fmaf_rn(weight, x, __fmul_rn(sum, shrink));
  }
};
/// `before` and `top` the largest scores of the sum and of the state, `all` of both.
__device__ __forceinline__ Fold fold_of(const Decode& p, float before, float top, float all) {
  const float base = all == -INFINITY ? 0.0f : all;
  return {ptx::exp2_approximate((before - base) * p.scale_log2), ptx::exp2_approximate((top - base) * p.scale_log2)};
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
