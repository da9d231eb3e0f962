// Latent attention on Hopper: up to 64 heads of one row against one split of the keys an item.
//
// Scores are q [64 x 576] times the 64 keys of a stage, latent and position part side by side; the values are the
// latent part of the same stage, so a stage is read from memory once. Two warpgroups compute: each scores half of the
// keys and, through shared memory, takes the weights of all of them times its half of the values' columns. One warp
// loads boxes of pages by TMA into two stages. Split boundaries lie at fixed places of the sequence, so a row's bits
// depend on its own keys alone.
#pragma once

#include <cuda.h>

#include "src/cuda/block_scan.cuh"
#include "src/cuda/ptx/dependent_launch.cuh"
#include "src/cuda/ptx/mbarrier.cuh"
#include "src/cuda/ptx/tma.cuh"
#include "src/cuda/ptx/wgmma.cuh"
#include "src/ops/paged/paged_launch.h"

namespace tenor::cuda::paged {

inline constexpr int kLatentRank = kLatentLaunchRank, kLatentTail = kLatentLaunchTail,
                     kLatentHeads = kLatentLaunchHeads, kLatentKeys = 64, kLatentStages = 2;
inline constexpr int kLatentSlabs = (kLatentRank + kLatentTail) / 64;  // of 64 columns
inline constexpr int kSlabBytes = 64 * 128;
inline constexpr int kLatentParts = 3, kPartSlabs = kLatentSlabs / kLatentParts;  // of a stage, which arrive one by one
inline constexpr int kLatentThreads = 384, kLatentWorkers = 256;
inline constexpr int kLatentRows = kLatentLaunchRows;

/// One item, as the loading warp tells it to the others.
struct LatentItem {
  int row, chunk;
  int part;        // place of its partial state; -1: the row has no other split
  int begin, end;  // keys
};

struct LatentShared {
  alignas(1024) char query[kLatentSlabs * kSlabBytes];
  alignas(1024) char keys[kLatentStages][kLatentSlabs * kSlabBytes];
  alignas(1024) char weights[kSlabBytes];
  uint64_t full[kLatentStages][kLatentParts], empty[kLatentStages], item_full[2], item_empty[2];
  LatentItem items[2];
  float top[2][kLatentHeads], sum[2][kLatentHeads];
  int first_item[kLatentRows + 1];
  int scan[kLatentThreads / 32];
};
static_assert(sizeof(LatentShared) <= 232448);

/// What the kernel reads besides.
struct Latent : Decode {
  const void* q_tail;
  int64_t q_tail_row, q_tail_head;
  int tail_dim;
};

/// The library's name of a toolkit's 16-bit float.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, __nv_bfloat16>, BFloat16, Float16>;
__device__ __forceinline__ void latent_sync() { asm volatile("bar.sync 1, %0;" ::"n"(kLatentWorkers) : "memory"); }

/// first_item[i] = items of the rows before i.
__device__ inline void count_latent_items(const Latent& p, LatentShared& shared) {
  const int row = static_cast<int>(threadIdx.x);
  int items = 0;
  if (row < p.rows) {
    const OwnSplits own = own_splits(visible(p, row), length_of_splits(p, own_keys(p, row)));
    items = (own.last - own.first) * p.chunks;
  }
  const int prefix = block_scan(items, shared.scan);
  if (row < p.rows) shared.first_item[row + 1] = prefix;
  if (row == 0) shared.first_item[0] = 0;
  __syncthreads();
}

struct LatentPlace {
  LatentItem item;
  int sequence;
};
__device__ __forceinline__ LatentPlace latent_item_at(const Latent& p, const int* first_item, int index) {
  int low = 0, high = p.rows;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (first_item[middle] <= index ? low : high) = middle;
  }
  const Range seen = visible(p, low);
  const int length = length_of_splits(p, own_keys(p, low)), local = index - first_item[low], split = local / p.chunks;
  LatentPlace at;
  at.sequence = p.ids[low];
  at.item = {low, local - split * p.chunks, p.most_splits == 1 ? -1 : split, split * length,
             min(seen.end, (split + 1) * length)};
  return at;
}

/// The loading warp: one box of p.box keys by 64 columns a lane. What an item needs is read while the one before is on
/// its way.
__device__ inline void load_latent(const Latent& p, const CUtensorMap* map, const CUtensorMap* tail_map,
                                   LatentShared& shared) {
  const int lane = threadIdx.x & 31, items = shared.first_item[p.rows], boxes = kLatentKeys / p.box,
            total = boxes * kLatentSlabs;
  int stage = 0, phase = 0, index = static_cast<int>(blockIdx.x), count = 0;
  if (index >= items) return;
  const auto page_of = [&](const LatentPlace& at, int from) {
    const int key = from + lane * p.box;
    return key < at.item.end ? p.tables[at.sequence * p.table_stride + key / p.page_size]
                             : p.pages;  // one that is not there arrives as zeros
  };
  LatentPlace next = latent_item_at(p, shared.first_item, index);
  int next_page = page_of(next, next.item.begin);
  while (index < items) {
    const LatentPlace now = next;
    const int slot = count & 1;
    ptx::mbarrier_wait(&shared.item_empty[slot], (count >> 1 & 1) ^ 1);
    if (lane == 0) {
      shared.items[slot] = now.item;
      ptx::mbarrier_arrive(&shared.item_full[slot]);
    }
    ++count;
    index += gridDim.x;
    int page = 0, held = now.item.begin - 32 * p.box;
    for (int key = now.item.begin; key < now.item.end; key += kLatentKeys) {
      if (key >= held + 32 * p.box) {
        held = key, page = next_page;
        const bool further = now.item.end > held + 32 * p.box;
        if (!further && index < items) next = latent_item_at(p, shared.first_item, index);
        next_page = further ? page_of(now, held + 32 * p.box) : index < items ? page_of(next, next.item.begin) : 0;
      }
      ptx::mbarrier_wait(&shared.empty[stage], phase ^ 1);
      if (lane < kLatentParts) ptx::mbarrier_arrive_expect(&shared.full[stage][lane], kPartSlabs * kSlabBytes);
      __syncwarp();
      for (int i = 0; i < total; i += 32) {
        const int n = i + lane, slab = n / boxes, box = n - slab * boxes, at = key + box * p.box;
        const int from = __shfl_sync(~0u, page, (at - held) / p.box & 31);
        if (n >= total) continue;
        const bool tail = slab == kLatentSlabs - 1;
        ptx::tma_load_4d(shared.keys[stage] + slab * kSlabBytes + box * p.box * 128, tail ? tail_map : map,
                         tail ? 0 : slab * 64, at % p.page_size, 0, from, &shared.full[stage][slab / kPartSlabs]);
      }
      if (++stage == kLatentStages) stage = 0, phase ^= 1;
    }
  }
}

/// Where 16-byte chunk `chunk` of a line of 128 bytes lies.
__device__ __forceinline__ int swizzled_line(int line, int chunk) { return line * 128 + ((chunk ^ (line & 7)) << 4); }

/// Queries of a chunk of heads, both parts, into shared memory; zeros where there is none.
__device__ inline void load_latent_query(const Latent& p, const LatentItem& item, LatentShared& shared, int worker) {
  const int heads = min(kLatentHeads, p.heads - item.chunk * kLatentHeads), rank = p.value_dim;
  for (int i = worker; i < kLatentHeads * kLatentSlabs * 8; i += kLatentWorkers) {
    const int r = i / (kLatentSlabs * 8), c = i - r * kLatentSlabs * 8, slab = c >> 3;
    const bool tail = slab == kLatentSlabs - 1;
    const int d = tail ? (c & 7) * 8 : c * 8, head = item.chunk * kLatentHeads + r;
    uint4 x = make_uint4(0, 0, 0, 0);
    if (r < heads && d < (tail ? p.tail_dim : rank)) {
      const auto* from = tail ? static_cast<const uint16_t*>(p.q_tail) + item.row * p.q_tail_row + head * p.q_tail_head
                              : static_cast<const uint16_t*>(p.q) + item.row * p.q_row + head * p.q_head;
      x = *reinterpret_cast<const uint4*>(from + d);
    }
    *reinterpret_cast<uint4*>(shared.query + slab * kSlabBytes + swizzled_line(r, c & 7)) = x;
  }
}

/// Lines [first, 64) of a stage become zeros, so that what lies behind a length, NaN or not, counts for nothing.
__device__ inline void clear_lines(char* keys, int first, int worker) {
  const int lines = kLatentKeys - first;
  for (int i = worker; i < lines * kLatentSlabs * 8; i += kLatentWorkers) {
    const int slab = i / (lines * 8), rest = i - slab * lines * 8;
    *reinterpret_cast<uint4*>(keys + slab * kSlabBytes + (first + (rest >> 3)) * 128 + (rest & 7) * 16) =
        make_uint4(0, 0, 0, 0);
  }
}

/// A thread of the computing warpgroups: it holds rows 16 (thread / 32) + thread % 32 / 4 and eight below of its
/// group's columns, 8 j + 2 (thread % 4) and the next.
struct LatentThread {
  int worker, group, lane, t;
  int row[2];
};
__device__ __forceinline__ LatentThread latent_thread() {
  const int worker = static_cast<int>(threadIdx.x) - 128, lane = worker & 31,
            row = (worker >> 5 & 3) * 16 + (lane >> 2);
  return {worker, worker >> 7, lane, lane & 3, {row, row + 8}};
}
struct LatentState {
  float out[128], top[2], sum[2];
};

/// Scores of the group's half of a stage's keys, hidden ones -inf; of each row the largest goes to shared memory.
template <class T>
__device__ __forceinline__ void score_latent(LatentShared& shared, const LatentThread& me, int stage, uint32_t phase,
                                             int left, float (&s)[16]) {
  ptx::wgmma_fence();
#pragma unroll
  for (int slab = 0; slab < kLatentSlabs; ++slab) {
    if (slab % kPartSlabs == 0) ptx::mbarrier_wait(&shared.full[stage][slab / kPartSlabs], phase);
    const uint64_t a = ptx::wgmma_descriptor(shared.query + slab * kSlabBytes),
                   b = ptx::wgmma_descriptor(shared.keys[stage] + slab * kSlabBytes + me.group * 32 * 128);
#pragma unroll
    for (int k = 0; k < 4; ++k) ptx::wgmma<T, 32, ptx::TileLayout::kInner>(s, a + k * ptx::kWgmmaStepK<>, b + k * ptx::kWgmmaStepK<>, slab + k > 0);
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  if (left < kLatentKeys)
#pragma unroll
    for (int i = 0; i < 16; ++i)
      if (me.group * 32 + (i >> 2) * 8 + 2 * me.t + (i & 1) >= left) s[i] = -INFINITY;
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    float most = -INFINITY;
#pragma unroll
    for (int j = 0; j < 4; ++j) most = fmaxf(most, fmaxf(s[4 * j + 2 * side], s[4 * j + 2 * side + 1]));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
    if (me.t == 0) shared.top[me.group][me.row[side]] = most;
  }
}

/// Scores become weights, in shared memory; the state's sums shrink to the new top.
template <class T>
__device__ __forceinline__ void soften_latent(const Latent& p, LatentShared& shared, const LatentThread& me,
                                              const float (&s)[16], LatentState& state) {
  float shrink[2];
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int row = me.row[side];
    const float most = fmaxf(state.top[side], fmaxf(shared.top[0][row], shared.top[1][row])),
                base = most == -INFINITY ? 0.0f : most;
    shrink[side] = ptx::exp2_approximate((state.top[side] - base) * p.scale_log2);
    float part = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float low = ptx::exp2_approximate((s[4 * j + 2 * side] - base) * p.scale_log2),
                  high = ptx::exp2_approximate((s[4 * j + 2 * side + 1] - base) * p.scale_log2);
      part += low + high;
      *reinterpret_cast<uint32_t*>(shared.weights + swizzled_line(row, 4 * me.group + j) + 4 * me.t) =
          ptx::pack_pair<Stored<T>>(low, high);
    }
    state.sum[side] = state.sum[side] * shrink[side] + part;
    state.top[side] = most;
  }
  if (__any_sync(~0u, shrink[0] != 1.0f || shrink[1] != 1.0f)) {  // tops seldom rise; times 1 changes no bit
#pragma unroll
    for (int i = 0; i < 128; ++i) state.out[i] *= shrink[i >> 1 & 1];
  }
}

/// out += the weights of all keys of a stage times the group's half of the values' columns.
template <class T>
__device__ __forceinline__ void add_latent_values(LatentShared& shared, const LatentThread& me, int stage,
                                                  LatentState& state) {
  ptx::wgmma_fence();
  const uint64_t a = ptx::wgmma_descriptor(shared.weights);
  const uint64_t b = ptx::wgmma_descriptor<ptx::TileLayout::kOuter>(shared.keys[stage] + me.group * 4 * kSlabBytes);
#pragma unroll
  for (int k = 0; k < 4; ++k)
    ptx::wgmma<T, 256, ptx::TileLayout::kOuter>(state.out, a + k * ptx::kWgmmaStepK<>,
                                                b + k * ptx::kWgmmaStepK<ptx::TileLayout::kOuter>, true);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
}

/// The warpgroups' sums meet, then each writes its columns: the result of a row without a second split, else a partial
/// state.
template <class T>
__device__ __forceinline__ void finish_latent(const Latent& p, LatentShared& shared, const LatentThread& me,
                                              const LatentItem& item, LatentState& state) {
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    state.sum[side] += __shfl_xor_sync(~0u, state.sum[side], 1);
    state.sum[side] += __shfl_xor_sync(~0u, state.sum[side], 2);
    if (me.t == 0) shared.sum[me.group][me.row[side]] = state.sum[side];
  }
  latent_sync();  // also the end of this item's use of the queries
  const int column = me.group * 256 + 2 * me.t;
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const Place at{item.row, item.chunk * kLatentHeads + me.row[side]};
    if (at.head >= p.heads) continue;
    const float sum = shared.sum[0][me.row[side]] + shared.sum[1][me.row[side]];
    if (item.part < 0) {
      const float whole = whole_of(p, at.head, state.top[side], sum);
#pragma unroll
      for (int j = 0; j < 64; ++j)
        if (column + 8 * (j >> 1) + (j & 1) < p.value_dim)
          write_result<Stored<T>>(p, at, column + 8 * (j >> 1) + (j & 1), state.out[4 * (j >> 1) + 2 * side + (j & 1)],
                                  whole);
      if (column == 0 && p.lse) p.lse[at.row * p.lse_row + at.head * p.lse_head] = lse_of(p, state.top[side], sum);
    } else {
      const int64_t part = part_of(p, at) + item.part;
      float* to = p.part_out + part * p.value_dim + column;
#pragma unroll
      for (int j = 0; j < 32; ++j)
        if (column + 8 * j < p.value_dim)
          *reinterpret_cast<float2*>(to + 8 * j) =
              make_float2(state.out[4 * j + 2 * side], state.out[4 * j + 2 * side + 1]);
      if (column == 0) p.part_state[part] = make_float2(state.top[side], sum);
    }
  }
}

/// What the two warpgroups do.
template <class T>
__device__ void compute_latent(const Latent& p, LatentShared& shared) {
  const LatentThread me = latent_thread();
  const int items = shared.first_item[p.rows];
  int stage = 0, count = 0;
  uint32_t phase = 0;
  for (int index = static_cast<int>(blockIdx.x); index < items; index += gridDim.x, ++count) {
    ptx::mbarrier_wait(&shared.item_full[count & 1], count >> 1 & 1);
    const LatentItem item = shared.items[count & 1];
    load_latent_query(p, item, shared, me.worker);
    ptx::fence_async_proxy();
    latent_sync();
    if (me.worker == 0) ptx::mbarrier_arrive(&shared.item_empty[count & 1]);
    LatentState state{{}, {-INFINITY, -INFINITY}, {0, 0}};
    for (int key = item.begin; key < item.end; key += kLatentKeys) {
      const int left = item.end - key;
      if (left < kLatentKeys) {
        for (auto& part : shared.full[stage]) ptx::mbarrier_wait(&part, phase);
        clear_lines(shared.keys[stage], left, me.worker);
        ptx::fence_async_proxy();
        latent_sync();
      }
      float s[16];
      score_latent<T>(shared, me, stage, phase, left, s);
      latent_sync();
      soften_latent<T>(p, shared, me, s, state);
      ptx::fence_async_proxy();
      latent_sync();
      add_latent_values<T>(shared, me, stage, state);
      __syncwarp();
      if (me.lane == 0) ptx::mbarrier_arrive(&shared.empty[stage]);
      if (++stage == kLatentStages) stage = 0, phase ^= 1;
    }
    finish_latent<T>(p, shared, me, item, state);
  }
}

/// Zeros and -inf in rows without keys, where no second kernel does it.
template <class T>
__device__ void write_empty_latent(const Latent& p, const LatentShared& shared) {
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
    latent_kernel(const __grid_constant__ CUtensorMap map, const __grid_constant__ CUtensorMap tail_map,
                  const __grid_constant__ Latent p) {
  if constexpr (!ptx::kIsHopper) return;  // in PTX for other devices the kernel is empty, and never launched
  extern __shared__ __align__(1024) char latent_memory[];
  auto& shared = *reinterpret_cast<LatentShared*>(latent_memory);
  if (threadIdx.x == 0) {
    for (int s = 0; s < kLatentStages; ++s) {
      for (auto& part : shared.full[s]) ptx::mbarrier_init(&part, 1);
      ptx::mbarrier_init(&shared.empty[s], kLatentWorkers / 32);
    }
    for (int s = 0; s < 2; ++s)
      ptx::mbarrier_init(&shared.item_full[s], 1), ptx::mbarrier_init(&shared.item_empty[s], 1);
    ptx::mbarrier_init_fence();
  }
  count_latent_items(p, shared);
  ptx::launch_dependents();  // merge_decoded waits for the end of all blocks
  if (threadIdx.x < 128) {
    ptx::registers_decrease<40>();
    if (threadIdx.x < 32) load_latent(p, &map, &tail_map, shared);
    if (p.most_splits == 1) write_empty_latent<Stored<T>>(p, shared);
  } else {
    ptx::registers_increase<232>();
    compute_latent<T>(p, shared);
  }
}

}  // namespace tenor::cuda::paged
