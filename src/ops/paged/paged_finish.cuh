// How the decode kernel's blocks end an item: the warps' states meet in the order of the warps.
#pragma once

#include "src/ops/paged/paged_schedule.cuh"

namespace tenor::cuda::paged {

/// The warps that compute meet.
__device__ __forceinline__ void consumers_sync(int threads) {
  asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
}

/// One computing warp's state of an item: lane 4g + t holds rows g and g + 8.
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

/// The warps' states of an item in shared memory.
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

/// Adds up the warps' states, a warp a row at a time, and writes what comes of it: the result of a row without a second
/// split, else this split's partial state.
template <class Config, class Shared>
__device__ void finish_item(const Decode& p, const Item& item, const WarpState<Config>& state, Shared& shared) {
  constexpr int kRowThreads = Config::kDim / 4, kRows = 32 * Config::kWarps / kRowThreads;
  share_state<Config>(state, shared);
  consumers_sync(32 * Config::kWarps);
  const int used = p.chunks > 1 ? min(kTileRows, p.group - item.chunk * kTileRows) : item.rows * p.group,
            d = static_cast<int>(threadIdx.x) % kRowThreads * 4;
  for (int r = static_cast<int>(threadIdx.x) / kRowThreads; r < used; r += kRows) {
    const Place at = place_of(p, item, r);
    const OwnSplits own = own_splits(shared.rows[at.row].seen, item.cut);
    const bool alone = own.last - own.first <= 1;
    if (own.last == own.first ? item.split != item.first : item.split < own.first || item.split >= own.last) continue;
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
    if (alone) {
      write_columns<typename Config::T>(p, at, d, total, top, sum);
    } else {
      write_part(p, part_of(p, at) + item.split, d, total, top, sum);
    }
  }
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
