// The Hopper decode kernel: up to 16 (row, head) pairs that share keys, against one split of the keys an item.
//
// A block is kWarps loading and kWarps computing warps, in pairs: each pair has a ring of stages of kKeys keys and
// values that TMA fills from the pages, and takes every kWarps-th kKeys of the sequence. Blocks are persistent; item i
// goes to block i mod grid. The warps' states are added up at the end of the item in the order of the warps, and a
// second kernel adds up the splits in their order. So bits depend on a row's own keys alone: split and stage boundaries
// lie at fixed places of the sequence, and a hidden key adds exactly nothing. What an item needs of the schedule is
// read once, into shared memory: a chain of loads from memory an item would empty the ring.
#pragma once

#include <cuda.h>

#include "src/cuda/ptx/dependent_launch.cuh"
#include "src/cuda/ptx/mbarrier.cuh"
#include "src/cuda/ptx/mma.cuh"
#include "src/cuda/ptx/swizzle.cuh"
#include "src/cuda/ptx/tma.cuh"
#include "src/ops/paged/paged_finish.cuh"

namespace tenor::cuda::paged {

template <class T_, int kDim_, int kKeys_, int kStages_, int kWarps_>
struct DecodeConfig {
  using T = T_;
  static constexpr int kDim = kDim_;        // of keys and values, padded
  static constexpr int kKeys = kKeys_;      // of a stage
  static constexpr int kStages = kStages_;  // of each pair of warps
  static constexpr int kWarps = kWarps_;    // that compute, and that load
  static constexpr int kThreads = 64 * kWarps;
  static constexpr int kHalf = kKeys * 128;            // bytes of 64 columns of a stage
  static constexpr int kTileBytes = kKeys * kDim * 2;  // of keys or values
};

template <class Config>
struct DecodeShared {
  struct Stage {
    alignas(1024) char keys[Config::kTileBytes];
    alignas(1024) char values[Config::kTileBytes];
  };
  Stage stages[Config::kWarps][Config::kStages];
  alignas(16) float total[Config::kWarps][kTileRows][Config::kDim + 4];
  float top[Config::kWarps][kTileRows], sum[Config::kWarps][kTileRows];
  uint64_t full[Config::kWarps][Config::kStages], empty[Config::kWarps][Config::kStages];
  Row rows[kMostRows];
  int first_item[2][kMostRows + 1];     // of each row: coarse splits, others
  unsigned short tile_rows[kMostRows];  // of the tile that starts there; 0: the row continues one
  int scan[32];
  TurnSlots turns;
};

/// The first key of an item that a pair of warps takes.
template <class Config>
__device__ __forceinline__ int first_key(const Item& item, int warp) {
  const int skip = warp - item.begin / Config::kKeys % Config::kWarps;
  return item.begin + (skip < 0 ? skip + Config::kWarps : skip) * Config::kKeys;
}

/// A loading warp: boxes of p.box keys by 64 columns, one a lane. Issuing a stage's boxes takes about as long as memory
/// takes to deliver one, hence several such warps.
template <class Config, class Shared>
__device__ void load_items(const Decode& p, const CUtensorMap* k_map, const CUtensorMap* v_map, Shared& shared,
                           int warp) {
  constexpr int kHalves = Config::kDim / 64;
  static_assert(Config::kKeys / 8 * kHalves * 2 <= 64 && Config::kWarps * Config::kKeys <= 32 * 8);
  const int lane = threadIdx.x & 31, items = items_of(p, shared), shift = __ffs(p.box) - 1,  // a power of two
      boxes = Config::kKeys >> shift, some = __ffs(boxes) - 1, total = boxes * kHalves * 2;
  // The box that this lane fetches of each stage, and the second one that small pages need.
  struct Box {
    int box, half, to;
    const CUtensorMap* map;
  };
  const auto box_of = [&](int n) {
    const int half = (n >> some) % kHalves, box = n & (boxes - 1);
    const bool values = n >= boxes * kHalves;
    return Box{box, half * 64, (values ? Config::kTileBytes : 0) + half * Config::kHalf + (box << shift) * 128,
               values ? v_map : k_map};
  };
  const Box mine[2] = {box_of(min(lane, total - 1)), box_of(min(lane + 32, total - 1))};
  // Lane l holds page and row of keys from + l * box; a page that is not there arrives as zeros.
  struct Page {
    int page, row;
  };
  const auto page_of = [&](const Item& item, int from) {
    const int key = from + (lane << shift), number = key / p.page_size;
    if (key >= item.end) return Page{p.pages, 0};
    return Page{p.tables[static_cast<int64_t>(shared.rows[item.row].sequence) * p.table_stride + number],
                key - number * p.page_size};
  };
  const int window = 32 << shift;  // keys whose pages the lanes hold
  Turns turns(p, shared.turns, warp == 0);
  int stage = 0, phase = 0, index = blockIdx.x;
  if (index >= items) return turns.leave();
  Item item = item_at<Config>(p, shared, index);
  Page next = page_of(item, item.begin);
  while (index < items) {
    const Item now = item;
    index = turns.next();
    int held = now.begin - window;
    bool more = true;
    Page page{};
    const auto advance = [&] {  // what comes next is on its way meanwhile
      held += window, page = next;
      more = now.end > held + window;
      if (!more && index < items) item = item_at<Config>(p, shared, index);
      if (more || index < items) next = more ? page_of(now, held + window) : page_of(item, item.begin);
    };
    for (int key = first_key<Config>(now, warp); key < now.end; key += Config::kWarps * Config::kKeys) {
      if (key >= held + window) advance();
      const int first = (key - held) >> shift;
      char* to = shared.stages[warp][stage].keys;
      ptx::mbarrier_wait(&shared.empty[warp][stage], phase ^ 1);
      if (lane == 0) ptx::mbarrier_arrive_expect(&shared.full[warp][stage], 2 * Config::kTileBytes);
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (i * 32 >= total) break;
        const int from = __shfl_sync(~0u, page.page, first + mine[i].box),
                  row = __shfl_sync(~0u, page.row, first + mine[i].box);
        if (i * 32 + lane < total)
          ptx::tma_load_4d(to + mine[i].to, mine[i].map, mine[i].half, row, now.kv_head, from,
                           &shared.full[warp][stage]);
      }
      if (++stage == Config::kStages) stage = 0, phase ^= 1;
    }
    while (more) advance();  // windows without a key of this warp's
  }
  turns.leave();
}

/// Queries as the left operand.
template <class Config>
__device__ __forceinline__ void load_query(const Decode& p, const Item& item, uint32_t (&q)[Config::kDim / 16][4]) {
  using T = typename Config::T;
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int i = g + 8 * side, row = p.chunks > 1 ? 0 : i / p.group,
              head = p.chunks > 1 ? item.chunk * kTileRows + i : i % p.group;
    const bool real = row < item.rows && head < p.group;
    const T* from = static_cast<const T*>(p.q) + (item.row + (real ? row : 0)) * p.q_row +
                    (item.kv_head * p.group + (real ? head : 0)) * p.q_head;
#pragma unroll
    for (int k = 0; k < Config::kDim / 16; ++k)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int d = k * 16 + half * 8 + 2 * t;
        q[k][side + 2 * half] = real && d < p.dim ? *reinterpret_cast<const uint32_t*>(from + d) : 0u;
      }
  }
}

/// Scores of a stage, hidden ones -inf.
template <class Config>
__device__ __forceinline__ void score(const Decode& p, uint32_t keys, const uint32_t (&q)[Config::kDim / 16][4],
                                      int first, const Range (&seen)[2], bool whole, float (&s)[Config::kKeys / 8][4]) {
  const int lane = threadIdx.x & 31, t = lane & 3;
#pragma unroll
  for (int n = 0; n < Config::kKeys / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) s[n][e] = 0;
#pragma unroll
  for (int k = 0; k < Config::kDim / 16; k += 2)
#pragma unroll
    for (int n = 0; n < Config::kKeys / 8; ++n) {
      uint32_t b[4];
      ptx::ldmatrix_x4(b, keys + ptx::swizzled_tile<Config::kHalf>(n * 8 + (lane & 7), k * 2 + (lane >> 3)));
      ptx::mma_m16n8k16<typename Config::T>(s[n], q[k][0], q[k][1], q[k][2], q[k][3], b[0], b[1]);
      ptx::mma_m16n8k16<typename Config::T>(s[n], q[k + 1][0], q[k + 1][1], q[k + 1][2], q[k + 1][3], b[2], b[3]);
    }
#pragma unroll
  for (int n = 0; n < Config::kKeys / 8; ++n) {
    if (p.softcap > 0)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[n][e] = p.softcap * tanhf(s[n][e] * p.scale / p.softcap) / p.scale;
    if (!whole)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int key = first + n * 8 + 2 * t + (e & 1);
        if (key < seen[e >> 1].begin || key >= seen[e >> 1].end) s[n][e] = -INFINITY;
      }
  }
}

/// s becomes the weights exp(scale (s - top)); the state's sums shrink to the new top.
template <class Config>
__device__ __forceinline__ void soften(const Decode& p, float (&s)[Config::kKeys / 8][4], WarpState<Config>& state) {
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    float top = state.top[side];
#pragma unroll
    for (int n = 0; n < Config::kKeys / 8; ++n) top = fmaxf(top, fmaxf(s[n][2 * side], s[n][2 * side + 1]));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    const float base = top == -INFINITY ? 0.0f : top,
                shrink = ptx::exp2_approximate((state.top[side] - base) * p.scale_log2);
    float sum = 0;
#pragma unroll
    for (int n = 0; n < Config::kKeys / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        sum += s[n][2 * side + e] = ptx::exp2_approximate((s[n][2 * side + e] - base) * p.scale_log2);
    state.sum[side] = state.sum[side] * shrink + sum;
    state.top[side] = top;
#pragma unroll
    for (int c = 0; c < WarpState<Config>::kColumns; ++c)
      state.out[c][2 * side] *= shrink, state.out[c][2 * side + 1] *= shrink;
  }
}

/// Two bits of 16 where keys first + 2t, + 1 are in the range.
__device__ __forceinline__ uint32_t pair_mask(const Range& seen, int key) {
  return (key >= seen.begin && key < seen.end ? 0xFFFFu : 0u) |
         (key + 1 >= seen.begin && key + 1 < seen.end ? 0xFFFF0000u : 0u);
}

/// out += weights * values. Where some key is hidden from a row, its values count as zeros for that row, whatever they
/// hold.
template <class Config>
__device__ __forceinline__ void accumulate(const Decode& p, const Item& item, const Row* rows, uint32_t values,
                                           const float (&s)[Config::kKeys / 8][4], int first, bool whole,
                                           WarpState<Config>& state) {
  using T = typename Config::T;
  const int lane = threadIdx.x & 31, t = lane & 3;
  uint32_t weights[Config::kKeys / 16][4];
#pragma unroll
  for (int k = 0; k < Config::kKeys / 16; ++k)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      weights[k][e] = ptx::pack_pair<T>(s[2 * k + (e >> 1)][2 * (e & 1)], s[2 * k + (e >> 1)][2 * (e & 1) + 1]);
  if (whole) {
#pragma unroll
    for (int k = 0; k < Config::kKeys / 16; ++k)
#pragma unroll
      for (int c = 0; c < Config::kDim / 8; c += 2) {
        uint32_t b[4];
        ptx::ldmatrix_x4_transposed(
            b, values + ptx::swizzled_tile<Config::kHalf>(k * 16 + (lane >> 3 & 1) * 8 + (lane & 7), c + (lane >> 4)));
        ptx::mma_m16n8k16<T>(state.out[c], weights[k][0], weights[k][1], weights[k][2], weights[k][3], b[0], b[1]);
        ptx::mma_m16n8k16<T>(state.out[c + 1], weights[k][0], weights[k][1], weights[k][2], weights[k][3], b[2], b[3]);
      }
    return;
  }
  for (int row = 0; row < item.rows; ++row) {
    const Range seen = rows[item.row + row].seen;
    const bool mine[2] = {p.chunks > 1 || (lane >> 2) / p.group == row,
                          p.chunks > 1 || ((lane >> 2) + 8) / p.group == row};
#pragma unroll
    for (int c = 0; c < Config::kDim / 8; c += 2) {
      float low[4], high[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) low[e] = state.out[c][e], high[e] = state.out[c + 1][e];
#pragma unroll
      for (int k = 0; k < Config::kKeys / 16; ++k) {
        uint32_t b[4];
        ptx::ldmatrix_x4_transposed(
            b, values + ptx::swizzled_tile<Config::kHalf>(k * 16 + (lane >> 3 & 1) * 8 + (lane & 7), c + (lane >> 4)));
        const uint32_t m0 = pair_mask(seen, first + k * 16 + 2 * t), m1 = pair_mask(seen, first + k * 16 + 8 + 2 * t);
        ptx::mma_m16n8k16<T>(low, weights[k][0], weights[k][1], weights[k][2], weights[k][3], b[0] & m0, b[1] & m1);
        ptx::mma_m16n8k16<T>(high, weights[k][0], weights[k][1], weights[k][2], weights[k][3], b[2] & m0, b[3] & m1);
      }
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (mine[e >> 1]) state.out[c][e] = low[e], state.out[c + 1][e] = high[e];
    }
  }
}

template <class Config, class Shared>
__device__ void compute_items(const Decode& p, Shared& shared) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, items = items_of(p, shared);
  int stage = 0, phase = 0;
  if (static_cast<int>(blockIdx.x) >= items) return;
  Item item = item_at<Config>(p, shared, blockIdx.x);
  uint32_t q[Config::kDim / 16][4];
  load_query<Config>(p, item, q);
  Turns turns(p, shared.turns, false);
  for (int index = blockIdx.x; index < items;) {
    WarpState<Config> state;
#pragma unroll
    for (int c = 0; c < Config::kDim / 8; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e) state.out[c][e] = 0;
    Range seen[2];
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      state.top[side] = -INFINITY, state.sum[side] = 0;
      const int i = (lane >> 2) + 8 * side;
      seen[side] = shared.rows[item.row + (p.chunks > 1 ? 0 : min(i / p.group, item.rows - 1))].seen;
    }
    const Range first_row = shared.rows[item.row].seen, last_row = shared.rows[item.row + item.rows - 1].seen;
    for (int key = first_key<Config>(item, warp); key < item.end; key += Config::kWarps * Config::kKeys) {
      ptx::mbarrier_wait(&shared.full[warp][stage], phase);
      const bool whole = key >= last_row.begin && key + Config::kKeys <= first_row.end;
      float s[Config::kKeys / 8][4];
      score<Config>(p, ptx::shared_address(shared.stages[warp][stage].keys), q, key, seen, whole, s);
      soften<Config>(p, s, state);
      accumulate<Config>(p, item, shared.rows, ptx::shared_address(shared.stages[warp][stage].values), s, key, whole,
                         state);
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(&shared.empty[warp][stage]);
      if (++stage == Config::kStages) stage = 0, phase ^= 1;
    }
    const Item done = item;
    index = turns.next();
    if (index < items) {  // the queries are on their way while this item ends
      item = item_at<Config>(p, shared, index);
      load_query<Config>(p, item, q);
    }
    finish_item<Config>(p, done, state, shared);
    consumers_sync(32 * Config::kWarps);
  }
}

/// The lines of the page tables on their way to L2, each by some block, before the lengths are known that say which.
__device__ __forceinline__ void prefetch_schedule(const Decode& p) {
  const auto prefetch = [](const void* line) { asm volatile("prefetch.global.L2 [%0];" ::"l"(line)); };
  for (int at = threadIdx.x * 32; at < p.sequences; at += blockDim.x * 32) prefetch(p.lengths + at);
  const int64_t bytes = p.sequences * p.table_stride * int64_t{4}, step = int64_t{gridDim.x} * blockDim.x * 128;
  for (int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * 128; at < bytes; at += step)
    prefetch(reinterpret_cast<const char*>(p.tables) + at);
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    decode_kernel(const __grid_constant__ CUtensorMap k_map, const __grid_constant__ CUtensorMap v_map,
                  const __grid_constant__ Decode p) {
  if constexpr (!ptx::kIsHopper) return;  // in PTX for other devices the kernel is empty, and never launched
  extern __shared__ char memory[];
  auto& shared =
      *reinterpret_cast<DecodeShared<Config>*>((reinterpret_cast<uintptr_t>(memory) + 1023) & ~uintptr_t{1023});
  if (threadIdx.x == 0) {
    for (int i = 0; i < Config::kWarps * Config::kStages; ++i)
      ptx::mbarrier_init(&shared.full[0][i], 1), ptx::mbarrier_init(&shared.empty[0][i], 1);
    init_turns(shared.turns, 2 * Config::kWarps - 1);
    ptx::mbarrier_init_fence();
  }
  if (threadIdx.x == 0) ptx::tma_prefetch_map(&k_map), ptx::tma_prefetch_map(&v_map);
  prefetch_schedule(p);
  read_schedule(p, shared, Config::kThreads);
  ptx::launch_dependents();  // the merging kernel waits for the end of all blocks
  __syncthreads();
  if (threadIdx.x >= 32 * Config::kWarps) {
    load_items<Config>(p, &k_map, &v_map, shared, static_cast<int>(threadIdx.x) / 32 - Config::kWarps);
  } else {
    compute_items<Config>(p, shared);
  }
  write_empty<typename Config::T>(p, shared);
}

}  // namespace tenor::cuda::paged
