// How the decode kernel's blocks end a split: the warps' states meet in the order of the warps, and join those of the
// item's splits before.
#pragma once

#include "src/cuda/ptx/async_copy.cuh"
#include "src/ops/paged/paged_schedule.cuh"

namespace tenor::cuda::paged {

/// The warps that compute meet.
__device__ __forceinline__ void consumers_sync(int threads) {
  asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
}

/// One computing warp's state of a split: lane 4g + t holds rows g and g + 8.
template <class Config>
struct WarpState {
  static constexpr int kColumns = Config::kDim / 8;
  float out[kColumns][4];
  float top[2], sum[2];
};

/// Row i of an item's tile.
__device__ __forceinline__ Place place_of(const Decode& p, const Item& item, int i) {
  const int row = p.chunks > 1 ? 0 : i / p.group, head = p.chunks > 1 ? item.chunk * kTileRows + i : i % p.group;
  if (row >= item.rows || head >= p.group) return {0, -1};
  return {item.row + row, item.kv_head * p.group + head};
}

/// The warps' states of a split in shared memory.
template <class Config, class Shared>
__device__ __forceinline__ void share_state(const WarpState<Config>& state, Shared& shared) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    float sum = state.sum[side];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if (t == 0) shared.top[warp][g + 8 * side] = state.top[side], shared.sum[warp][g + 8 * side] = sum;
#pragma unroll
    for (int c = 0; c < Config::kDim / 8; ++c)
      *reinterpret_cast<float2*>(&shared.total[warp][g + 8 * side][c * 8 + 2 * t]) =
          make_float2(state.out[c][2 * side], state.out[c][2 * side + 1]);
  }
}

/// Columns [d, d + 4) of a partial state.
__device__ __forceinline__ void write_part(const Decode& p, int64_t part, int d, const float (&x)[4], float top,
                                           float sum) {
  float* to = p.part_out + part * p.value_dim + d;
  if (p.value_dim % 4 == 0) {
    if (d < p.value_dim) *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
  } else {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (d + e < p.value_dim) to[e] = x[e];
  }
  if (d == 0) p.part_state[part] = make_float2(top, sum);
}
/// Columns [d, d + 4) of a result.
template <class T>
__device__ __forceinline__ void write_columns(const Decode& p, const Place& at, int d, const float (&x)[4], float top,
                                              float sum) {
  const float share = share_of(p, at.head, top, sum);
#pragma unroll
  for (int e = 0; e < 4; e += 2) write_pair<T>(p, at, d + e, x[e], x[e + 1], share);
  if (d == 0 && p.lse) p.lse[at.row * p.lse_row + at.head * p.lse_head] = lse_of(p, top, sum);
}

/// Four columns of a row, summed up.
struct RowSum {
  float top, sum, total[4];
};
/// A thread's share of an item's sums over its splits: four columns of some rows; where items are single splits,
/// nothing is kept.
template <class Config>
struct ItemSum {
  static constexpr int kRowThreads = Config::kDim / 4, kRows = 32 * Config::kWarps / kRowThreads;  // at once
  static constexpr int kCount = kTileRows / kRows;
  RowSum rows[Config::kJoins ? kCount : 1];
  static __device__ __forceinline__ int column() { return static_cast<int>(threadIdx.x) % kRowThreads * 4; }
  static __device__ __forceinline__ int row(int i) { return static_cast<int>(threadIdx.x) / kRowThreads + i * kRows; }
  /// Number i, chosen by selections.
  __device__ __forceinline__ RowSum at(int i) const {
    RowSum x = rows[0];
#pragma unroll
    for (int n = 1; n < kCount && Config::kJoins; ++n) {
      x.top = n == i ? rows[n].top : x.top, x.sum = n == i ? rows[n].sum : x.sum;
#pragma unroll
      for (int e = 0; e < 4; ++e) x.total[e] = n == i ? rows[n].total[e] : x.total[e];
    }
    return x;
  }
};

/// Rows of an item's tile.
__device__ __forceinline__ int used_rows(const Decode& p, const Item& item) {
  return p.chunks > 1 ? min(kTileRows, p.group - item.chunk * kTileRows) : item.rows * p.group;
}
/// The sum over the warps of a row's split, which is the first of those that the item adds up, or joins them.
template <class Config, class Shared>
__device__ __forceinline__ void add_split(const Decode& p, const Shared& shared, int r, bool first, RowSum& all) {
  const int d = ItemSum<Config>::column();
  float top = -INFINITY, sum = 0, total[4] = {};
#pragma unroll
  for (int w = 0; w < Config::kWarps; ++w) top = fmaxf(top, shared.top[w][r]);
  const float base = top == -INFINITY ? 0.0f : top;
#pragma unroll
  for (int w = 0; w < Config::kWarps; ++w) {
    const float weight = ptx::exp2_approximate((shared.top[w][r] - base) * p.scale_log2);
    const float4 x = *reinterpret_cast<const float4*>(&shared.total[w][r][d]);
    sum += weight * shared.sum[w][r];
    total[0] += weight * x.x, total[1] += weight * x.y, total[2] += weight * x.z, total[3] += weight * x.w;
  }
  const float before = all.top, both = first ? top : fmaxf(before, top);
  const Fold fold = fold_of(p, before, top, both);
  all.top = both;
  all.sum = first ? sum : fold(all.sum, sum);
#pragma unroll
  for (int e = 0; e < 4; ++e) all.total[e] = first ? total[e] : fold(all.total[e], total[e]);
}

/// Adds up the warps' states of one of the item's splits, a warp a row at a time. A row that sees nothing has the state
/// of the tile's first split.
template <class Config, class Shared>
__device__ __forceinline__ void finish_split(const Decode& p, const Item& item, int split,
                                             const WarpState<Config>& state, Shared& shared, ItemSum<Config>& all) {
  share_state<Config>(state, shared);
  consumers_sync(32 * Config::kWarps);
  if constexpr (!Config::kJoins) return;  // finish_item adds them up, a row at a time
  const int used = used_rows(p, item), begin = split * item.cut.length;
#pragma unroll
  for (int i = 0; i < ItemSum<Config>::kCount; ++i) {
    if (all.row(i) >= used) break;
    const Range seen = shared.rows[item.row + (p.chunks > 1 ? 0 : all.row(i) / p.group)].seen;
    const bool nothing = seen.begin >= seen.end;
    if (nothing ? split == item.first : begin < seen.end && seen.begin - begin < item.cut.length)
      add_split<Config>(p, shared, all.row(i), nothing || split == item.split || begin <= seen.begin, all.rows[i]);
  }
  consumers_sync(32 * Config::kWarps);
}

/// Writes what comes of an item: the results of rows of which it has all splits, else partial states. One row after the
/// other, and chosen by selections: four copies of this would take longer to come from memory than the item's end.
template <class Config, class Shared>
__device__ __forceinline__ void finish_item(const Decode& p, const Item& item, const ItemSum<Config>& all,
                                            const Shared& shared) {
  const int used = used_rows(p, item), d = all.column();
#pragma unroll 1
  for (int i = 0; i < ItemSum<Config>::kCount && all.row(i) < used; ++i) {
    const Place at = place_of(p, item, all.row(i));
    const OwnSplits own = own_splits(shared.rows[at.row].seen, item.cut.length);
    const bool empty = own.first == own.last;
    if (empty ? item.split != item.first : item.split >= own.last || item.last <= own.first) continue;
    RowSum x = all.at(i);
    if constexpr (!Config::kJoins) add_split<Config>(p, shared, all.row(i), true, x);
    if (empty || (item.split <= own.first && own.last <= item.last)) {
      write_columns<typename Config::T>(p, at, d, x.total, x.top, x.sum);
    } else {
      write_part(p, part_of(p, at) + min(own.last, item.last) - 1, d, x.total, x.top, x.sum);
    }
  }
  if constexpr (Config::kQueriesShared) ptx::async_copy_wait<0>();  // the next item's
  if constexpr (!Config::kJoins) consumers_sync(32 * Config::kWarps);
}

/// Zeros and -inf in the rows whose tile has no item.
template <class T, class Shared>
__device__ void write_empty(const Decode& p, const Shared& shared) {
  for (int row = blockIdx.x; row < p.rows; row += gridDim.x) {
    int first = row;
    while (shared.tile_rows[first] == 0) --first;
    const int next = first + shared.tile_rows[first];
    if (shared.first_item[0][next] > shared.first_item[0][first] ||
        shared.first_item[1][next] > shared.first_item[1][first])
      continue;
    for (int i = threadIdx.x; i < p.heads * p.value_dim; i += blockDim.x) {
      const int head = i / p.value_dim, d = i - head * p.value_dim;
      static_cast<T*>(p.out)[row * p.out_row + head * p.out_head + d * p.out_col] = T{};
    }
    if (p.lse)
      for (int head = threadIdx.x; head < p.heads; head += blockDim.x)
        p.lse[row * p.lse_row + head * p.lse_head] = -INFINITY;
  }
}

}  // namespace tenor::cuda::paged
