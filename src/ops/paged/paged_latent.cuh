// Latent attention on Hopper: up to 64 heads of one row against one split of the keys an item.
//
// Scores are q [64 x 576] times 64 keys a block, latent and position part side by side; the values are the latent part
// of the same keys, so a key is read from memory once. There is room for two blocks, and a warpgroup for each: it
// scores its block piece by piece as it arrives, makes weights of the scores and hands them with the rows' tops to the
// other through shared memory, where the block's position part was. Of the values' columns each warpgroup has half, of
// both blocks, with its own weights from registers. The first block of a pair is weighed while the second is scored,
// the second while the first one's values are added; so the first is on its way again while the second is added. Warps
// beside them load (paged_latent_load.cuh): a block falls empty piece by piece (halves of the columns, position part).
// Blocks of chunks of heads with the same keys run side by side, so that keys reach L2 once. Values are added in the
// order of the keys; where splits lie at fixed places of the sequence, a row's bits depend on its own keys alone.
#pragma once

#include "src/cuda/ptx/dependent_launch.cuh"
#include "src/cuda/ptx/swizzle.cuh"
#include "src/ops/paged/paged_latent_load.cuh"

namespace tenor::cuda::paged {

/// Lines [first, 64) of a block's latent part become zeros, so that what lies behind a length, NaN or not, counts for
/// nothing.
__device__ inline void clear_lines(char* keys, int first, int thread) {
  const int lines = kLatentKeys - first;
  for (int i = thread; i < lines * kTailSlab * 8; i += kLatentWorkers / 2) {
    const int slab = i / (lines * 8), rest = i - slab * lines * 8;
    *reinterpret_cast<uint4*>(keys + slab * kSlabBytes + (first + (rest >> 3)) * 128 + (rest & 7) * 16) =
        make_uint4(0, 0, 0, 0);
  }
}

/// A thread of the computing warpgroups: it holds rows 16 (thread / 32) + thread % 32 / 4 and eight below of its
/// group's keys and columns, 8 j + 2 (thread % 4) and the next.
struct LatentThread {
  int thread, group, lane, t;
  int row[2];
};
__device__ __forceinline__ LatentThread latent_thread() {
  const int worker = static_cast<int>(threadIdx.x) - 128, lane = worker & 31,
            row = (worker >> 5 & 3) * 16 + (lane >> 2);
  return {worker & 127, worker >> 7, lane, lane & 3, {row, row + 8}};
}
struct LatentState {
  float out[128], top[2], sum[2];
};
/// What a group keeps of its own block: the weights as an operand, the factor of what was summed before, the sums.
struct OwnBlock {
  uint32_t weights[16];
  float shrink[2], part[2];
};
/// A warp's word that it has read something.
__device__ __forceinline__ void arrive_by_warp(uint64_t* barrier) {
  __syncwarp();
  if ((threadIdx.x & 31) == 0) ptx::mbarrier_arrive(barrier);
}

/// Scores of the group's block, slab by slab as they arrive where the first group has the first block of a pair. The
/// order goes by the block's place in its pair, not by who scores it: that may be either, as items before had it.
template <class T, bool kFirst>
__device__ __forceinline__ void score_latent(LatentShared& shared, const LatentThread& me, uint32_t phase,
                                             float (&s)[32]) {
  const uint64_t a = ptx::wgmma_descriptor(shared.query), b = ptx::wgmma_descriptor(shared.keys[me.group]);
#pragma unroll
  for (int i = 0; i < kLatentSlabs; ++i) {
    const int slab = kFirst || i == kTailSlab ? i : i ^ 4;
    ptx::mbarrier_wait(&shared.full[me.group][slab], phase);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      ptx::wgmma<T, 64, ptx::TileLayout::kInner>(s, a + slab * (kSlabBytes >> 4) + k * ptx::kWgmmaStepK<>,
                                                 b + slab * (kSlabBytes >> 4) + k * ptx::kWgmmaStepK<>, i + k > 0);
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  group_sync(me.group);  // until every warp's products have read the position part, which weights overwrite
  ptx::wgmma_pin(s);
}
/// Keys from number `left` on are hidden, whatever lies there.
__device__ __forceinline__ void hide_latent(LatentShared& shared, const LatentThread& me, int left, float (&s)[32]) {
  if (left >= kLatentKeys) return;
  clear_lines(shared.keys[me.group], left, me.thread);
  ptx::fence_async_proxy();
  group_sync(me.group);  // before the group's own product reads the cleared lines
#pragma unroll
  for (int i = 0; i < 32; ++i)
    if ((i >> 2) * 8 + 2 * me.t + (i & 1) >= left) s[i] = -INFINITY;
}
/// The state's sums shrink to another top; tops seldom rise, and times 1 changes no bit.
__device__ __forceinline__ void shrink_latent(const float (&shrink)[2], LatentState& state) {
#pragma unroll
  for (int side = 0; side < 2; ++side) state.sum[side] *= shrink[side];
  if (!__any_sync(~0u, shrink[0] != 1.0f || shrink[1] != 1.0f)) return;
#pragma unroll
  for (int i = 0; i < 128; ++i) state.out[i] *= shrink[i >> 1 & 1];
}

/// Scores become weights, as operands and, with the rows' tops, in shared memory for the other group.
template <class T>
__device__ __forceinline__ void soften_latent(const Decode& p, LatentShared& shared, const LatentThread& me,
                                              const float (&s)[32], uint32_t (&weights)[16], float (&shrink)[2],
                                              float (&part)[2], LatentState& state) {
  float base[2];
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    float most = state.top[side];
#pragma unroll
    for (int j = 0; j < 8; ++j) most = fmaxf(most, fmaxf(s[4 * j + 2 * side], s[4 * j + 2 * side + 1]));
    base[side] = most;
  }
#pragma unroll
  for (int step = 1; step < 4; step *= 2)
#pragma unroll
    for (int side = 0; side < 2; ++side) base[side] = fmaxf(base[side], __shfl_xor_sync(~0u, base[side], step));
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    if (me.t == 0) shared.top[me.group][me.row[side]] = base[side];
    const float before = state.top[side];
    state.top[side] = base[side];
    if (base[side] == -INFINITY) base[side] = 0;
    shrink[side] = ptx::exp2_approximate((before - base[side]) * p.scale_log2);
    part[side] = 0;
  }
  const int line = (me.thread >> 5) * 16 + (me.lane & 15);
  char* to = shared.keys[me.group] + kTailSlab * kSlabBytes;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int j = 2 * k; j < 2 * k + 2; ++j)
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const float low = ptx::exp2_approximate((s[4 * j + 2 * side] - base[side]) * p.scale_log2),
                    high = ptx::exp2_approximate((s[4 * j + 2 * side + 1] - base[side]) * p.scale_log2);
        part[side] += low + high;
        weights[2 * j + side] = ptx::pack_pair<T>(low, high);
      }
    ptx::stmatrix_x4(to + ptx::swizzled_line(line, 2 * k + (me.lane >> 4)), weights[4 * k], weights[4 * k + 1],
                     weights[4 * k + 2], weights[4 * k + 3]);
  }
}

/// The group's own block: from its scores the weights, which are the other group's as well from here on.
template <class T>
__device__ __forceinline__ void weigh_own_block(const Decode& p, LatentShared& shared, const LatentThread& me,
                                                const float (&s)[32], bool last, OwnBlock& own, LatentState& state) {
  if (last) arrive_by_warp(&shared.query_empty);
  soften_latent<T>(p, shared, me, s, own.weights, own.shrink, own.part, state);
  ptx::fence_async_proxy();
  ptx::mbarrier_arrive(&shared.weights[me.group]);
}
/// Their product with the group's half of the values' columns, which then are the loading warp's again.
template <class T>
__device__ __forceinline__ void add_own_block(LatentShared& shared, const LatentThread& me, OwnBlock& own,
                                              LatentState& state) {
  constexpr auto kOuter = ptx::TileLayout::kOuter;
  shrink_latent(own.shrink, state);
#pragma unroll
  for (int side = 0; side < 2; ++side) state.sum[side] += own.part[side];
  const uint64_t b = ptx::wgmma_descriptor<kOuter>(shared.keys[me.group] + me.group * 4 * kSlabBytes);
  const auto& w = own.weights;
  ptx::wgmma_pin(state.out);
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k)
    ptx::wgmma<T, 256, kOuter>(state.out, w[4 * k], w[4 * k + 1], w[4 * k + 2], w[4 * k + 3],
                               b + k * ptx::kWgmmaStepK<kOuter>, true);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
#pragma unroll
  for (uint32_t& two : own.weights) asm volatile("" : "+r"(two)::"memory");  // the product read them until now
  ptx::wgmma_pin(state.out);
  arrive_by_warp(&shared.empty[me.group][me.group]);
}

/// The other group's block is weighed: the tops from here on, and the factor of what was summed before.
__device__ __forceinline__ void meet_other_block(const Decode& p, LatentShared& shared, const LatentThread& me,
                                                 uint32_t phase, float (&shrink)[2], LatentState& state) {
  const int block = me.group ^ 1;
  ptx::mbarrier_wait(&shared.weights[block], phase);
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const float most = shared.top[block][me.row[side]], base = most == -INFINITY ? 0.0f : most;
    shrink[side] = ptx::exp2_approximate((state.top[side] - base) * p.scale_log2);
    state.top[side] = most;
  }
}
/// Its weights times this group's half of the values' columns, on its way.
template <class T>
__device__ __forceinline__ void begin_other_block(LatentShared& shared, const LatentThread& me, uint32_t phase,
                                                  const float (&shrink)[2], LatentState& state) {
  constexpr auto kOuter = ptx::TileLayout::kOuter;
  const int block = me.group ^ 1;
  for (int slab = me.group * 4; slab < me.group * 4 + 4; ++slab) ptx::mbarrier_wait(&shared.full[block][slab], phase);
  shrink_latent(shrink, state);
  const uint64_t a = ptx::wgmma_descriptor(shared.keys[block] + kTailSlab * kSlabBytes),
                 b = ptx::wgmma_descriptor<kOuter>(shared.keys[block] + me.group * 4 * kSlabBytes);
  ptx::wgmma_pin(state.out);
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k)
    ptx::wgmma<T, 256, kOuter>(state.out, a + k * ptx::kWgmmaStepK<>, b + k * ptx::kWgmmaStepK<kOuter>, true);
  ptx::wgmma_commit();
}
/// Until it is done; what it read is the loading warp's again.
__device__ __forceinline__ void end_other_block(LatentShared& shared, const LatentThread& me, LatentState& state) {
  ptx::wgmma_wait<0>();
  ptx::wgmma_pin(state.out);
  arrive_by_warp(&shared.empty[me.group ^ 1][me.group]);
  arrive_by_warp(&shared.empty[me.group ^ 1][2]);
}

/// This split's partial state of a row: the group's columns.
__device__ __forceinline__ void write_latent_part(const Decode& p, const LatentThread& me, int side, int64_t part,
                                                  float sum, const LatentState& state) {
  const int column = me.group * 256 + 2 * me.t;
  float* to = p.part_out + part * p.value_dim + column;
#pragma unroll
  for (int j = 0; j < 32; ++j)
    if (column + 8 * j < p.value_dim)
      *reinterpret_cast<float2*>(to + 8 * j) =
          make_float2(state.out[4 * j + 2 * side], state.out[4 * j + 2 * side + 1]);
  if (column == 0) p.part_state[part] = make_float2(state.top[side], sum);
}

/// The whole row: the group's columns.
template <class T>
__device__ __forceinline__ void write_latent_result(const Decode& p, const LatentThread& me, int side, const Place& at,
                                                    float sum, const LatentState& state) {
  const int column = me.group * 256 + 2 * me.t;
  const float share = share_of(p, at.head, state.top[side], sum);
  if (p.out_pairs) {  // apart from the rest, whose code is long: it is met once an item, by an empty instruction cache
    auto* to = reinterpret_cast<uint32_t*>(static_cast<Stored<T>*>(p.out) + at.row * p.out_row + at.head * p.out_head +
                                           column);
#pragma unroll
    for (int j = 0; j < 32; ++j)
      if (column + 8 * j < p.value_dim)
        to[4 * j] = ptx::pack_pair<T>(state.out[4 * j + 2 * side] * share, state.out[4 * j + 2 * side + 1] * share);
  } else {
#pragma unroll
    for (int j = 0; j < 32; ++j)
      write_pair<Stored<T>>(p, at, column + 8 * j, state.out[4 * j + 2 * side], state.out[4 * j + 2 * side + 1], share);
  }
  if (column == 0 && p.lse) p.lse[at.row * p.lse_row + at.head * p.lse_head] = lse_of(p, state.top[side], sum);
}

/// The warpgroups' sums meet, then each writes its columns: the result of a row without a second split, else a partial
/// state.
template <class T>
__device__ __forceinline__ void finish_latent(const Decode& p, LatentShared& shared, const LatentThread& me,
                                              const LatentItem& item, int count, LatentState& state) {
  auto& sums = shared.sum[count & 1];
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    state.sum[side] += __shfl_xor_sync(~0u, state.sum[side], 1);
    state.sum[side] += __shfl_xor_sync(~0u, state.sum[side], 2);
    if (me.t == 0) sums[me.group][me.row[side]] = state.sum[side];
  }
  ptx::mbarrier_arrive(&shared.sums), ptx::mbarrier_wait(&shared.sums, count & 1);
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const Place at{item.row, item.chunk * kLatentHeads + me.row[side]};
    if (at.head >= p.heads) continue;
    const float sum = sums[0][me.row[side]] + sums[1][me.row[side]];
    if (item.parts > 1) {
      write_latent_part(p, me, side, part_of(p, at) + item.part, sum, state);
    } else {
      write_latent_result<T>(p, me, side, at, sum, state);
    }
  }
}

/// A pair of blocks whose first is the group's own. The other group weighs the second meanwhile.
template <class T>
__device__ __forceinline__ void take_first(const Decode& p, LatentShared& shared, const LatentThread& me, int block,
                                           int left, LatentState& state) {
  OwnBlock own;
  {
    float s[32];
    score_latent<T, true>(shared, me, block >> 1 & 1, s);
    hide_latent(shared, me, left, s);
    weigh_own_block<T>(p, shared, me, s, left <= 2 * kLatentKeys, own, state);
  }
  add_own_block<T>(shared, me, own, state);
  if (left <= kLatentKeys) return;
  float shrink[2];
  meet_other_block(p, shared, me, (block + 1) >> 1 & 1, shrink, state);
  begin_other_block<T>(shared, me, (block + 1) >> 1 & 1, shrink, state);
  end_other_block(shared, me, state);
}
/// A pair whose second block is the group's own: it is scored while the other group weighs the first, and weighed while
/// the first one's values are added.
template <class T>
__device__ __forceinline__ void take_second(const Decode& p, LatentShared& shared, const LatentThread& me, int block,
                                            int left, LatentState& state) {
  float shrink[2];
  if (left <= kLatentKeys) {
    meet_other_block(p, shared, me, block >> 1 & 1, shrink, state);
    begin_other_block<T>(shared, me, block >> 1 & 1, shrink, state);
    end_other_block(shared, me, state);
    return;
  }
  OwnBlock own;
  {
    float s[32];
    score_latent<T, false>(shared, me, (block + 1) >> 1 & 1, s);
    hide_latent(shared, me, left - kLatentKeys, s);
    meet_other_block(p, shared, me, block >> 1 & 1, shrink, state);
    begin_other_block<T>(shared, me, block >> 1 & 1, shrink, state);
    weigh_own_block<T>(p, shared, me, s, left <= 3 * kLatentKeys, own, state);
  }
  end_other_block(shared, me, state);
  add_own_block<T>(shared, me, own, state);
}

/// What the two warpgroups do: of each pair of blocks one weighs the first and one the second, and both take the values
/// of both, in the order of the keys.
template <class T>
__device__ void compute_latent(const Decode& p, LatentShared& shared) {
  const LatentThread me = latent_thread();
  const int items = shared.first_item[p.rows];
  int count = 0, block = 0;
  for (int index = static_cast<int>(blockIdx.x); index < items; index += gridDim.x, ++count) {
    ptx::mbarrier_wait(&shared.item_full[count & 1], count >> 1 & 1);
    const LatentItem item = shared.items[count & 1];
    ptx::mbarrier_arrive(&shared.item_empty[count & 1]);
    ptx::mbarrier_wait(&shared.query_full, count & 1);
    LatentState state{{}, {-INFINITY, -INFINITY}, {0, 0}};
    const bool first = (block & 1) == me.group;
    for (int key = item.begin; key < item.end; key += 2 * kLatentKeys) {
      const int left = item.end - key;
      if (first)
        take_first<T>(p, shared, me, block, left, state);
      else
        take_second<T>(p, shared, me, block, left, state);
      block += left > kLatentKeys ? 2 : 1;
    }
    if (!first && item.end - item.begin <= kLatentKeys) arrive_by_warp(&shared.query_empty);
    finish_latent<T>(p, shared, me, item, count, state);
  }
}

/// Zeros and -inf in rows without keys.
template <class T>
__device__ void write_empty_latent(const Decode& p, const LatentShared& shared) {
  for (int row = blockIdx.x; row < p.rows; row += gridDim.x) {
    if (shared.first_item[row + 1] > shared.first_item[row]) continue;
    for (int i = threadIdx.x & 127; i < p.heads * p.value_dim; i += 128) {
      const int head = i / p.value_dim, d = i - head * p.value_dim;
      static_cast<T*>(p.out)[row * p.out_row + head * p.out_head + d * p.out_col] = T{};
      if (d == 0 && p.lse) p.lse[row * p.lse_row + head * p.lse_head] = -INFINITY;
    }
  }
}

/// T is __nv_bfloat16 or __half.
template <class T>
__global__ void __launch_bounds__(kLatentThreads, 1)
    latent_kernel(const __grid_constant__ LatentMaps maps, const __grid_constant__ Decode p) {
  if constexpr (!ptx::kIsHopper) return;  // in PTX for other devices the kernel is empty, and never launched
  extern __shared__ __align__(1024) char latent_memory[];
  auto& shared = *reinterpret_cast<LatentShared*>(latent_memory);
  if (threadIdx.x == 0) {
    for (int b = 0; b < kLatentBlocks; ++b) {
      for (auto& slab : shared.full[b]) ptx::mbarrier_init(&slab, 1);
      for (auto& piece : shared.empty[b]) ptx::mbarrier_init(&piece, kLatentWorkers / 64);
    }
    for (auto& group : shared.weights) ptx::mbarrier_init(&group, kLatentWorkers / 2);
    ptx::mbarrier_init(&shared.sums, kLatentWorkers);
    ptx::mbarrier_init(&shared.query_full, 1), ptx::mbarrier_init(&shared.query_empty, kLatentWorkers / 32);
    for (int s = 0; s < 2; ++s)
      ptx::mbarrier_init(&shared.item_full[s], 1), ptx::mbarrier_init(&shared.item_empty[s], kLatentWorkers);
    ptx::mbarrier_init_fence();
  }
  count_latent_items(p, shared);
  ptx::launch_dependents();  // merge_decoded waits for the end of all blocks
  if (threadIdx.x < 128) {
    ptx::registers_decrease<56>();
    load_latent(p, maps, shared);
    write_empty_latent<Stored<T>>(p, shared);
  } else {
    ptx::registers_increase<224>();
    compute_latent<T>(p, shared);
  }
}

}  // namespace tenor::cuda::paged
