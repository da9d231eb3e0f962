// The Hopper decode kernel: up to 16 (row, head) pairs that share keys, against one or several splits of the keys an
// item.
//
// A block is kWarps loading and kWarps computing warps, in pairs: each pair has a ring of stages of kKeys keys and
// values that TMA fills from the pages, and takes every kWarps-th kKeys of the sequence. Blocks are persistent and take
// items one by one. The warps' states are added up at the end of a split in the order of the warps, and splits in their
// order, those of one item here, the others by a second kernel. So bits depend on a row's own keys alone: split and
// stage boundaries lie at fixed places of the sequence, and a hidden key adds exactly nothing. What an item needs of
// the schedule is read once, into shared memory: a chain of loads from memory an item would empty the ring.
#pragma once

#include <cuda.h>

#include "src/cuda/ptx/async_copy.cuh"
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
  static constexpr bool kJoins = decode_joins(kDim);
  static constexpr bool kQueriesShared = !kJoins;    // lie in shared memory, for there are no registers left
  static constexpr int kQueryBytes = kDim * 2 + 16;  // of a row there, so that eight rows lie in different banks
};

template <class Config>
struct DecodeShared {
  struct Stage {
    alignas(1024) char keys[Config::kTileBytes];
    alignas(1024) char values[Config::kTileBytes];
  };
  Stage stages[Config::kWarps][Config::kStages];
  alignas(16) float total[Config::kWarps][kTileRows][Config::kDim + 4];
  alignas(16) char queries[Config::kQueriesShared ? kTileRows * Config::kQueryBytes : 16];
  float top[Config::kWarps][kTileRows], sum[Config::kWarps][kTileRows];
  uint64_t full[Config::kWarps][Config::kStages], empty[Config::kWarps][Config::kStages];
  Row rows[kMostRows];
  int first_item[2][kMostRows + 1];     // of each row: items of several splits, of one
  unsigned short tile_rows[kMostRows];  // of the tile that starts there; 0: the row continues one
  int64_t scan[32];
  TurnSlots turns;
};

/// Where a warp is in its pair's ring.
struct RingPlace {
  int stage, phase;
  template <class Config>
  __device__ __forceinline__ void advance() {
    if (++stage == Config::kStages) stage = 0, phase ^= 1;
  }
};

/// The first key from `begin` on, the first of a stage, that a pair of warps takes.
template <class Config>
__device__ __forceinline__ int first_key(int begin, int warp) {
  const int skip = warp - begin / Config::kKeys % Config::kWarps;
  return begin + (skip < 0 ? skip + Config::kWarps : skip) * Config::kKeys;
}

/// A box of a stage: p.box keys, a power of two, by 64 columns.
template <class Config>
struct LoadBox {
  static constexpr int kHalves = Config::kDim / 64;
  int box, half, to;  // of the stage's keys; first column; where in the stage
  const CUtensorMap* map;
  static __device__ __forceinline__ int count(int shift) { return (Config::kKeys >> shift) * kHalves * 2; }
  /// Number n of them: those of keys, then those of values.
  __device__ __forceinline__ LoadBox(const CUtensorMap* k_map, const CUtensorMap* v_map, int shift, int n) {
    const int boxes = Config::kKeys >> shift, column = (n >> (__ffs(boxes) - 1)) % kHalves;
    const bool values = n >= boxes * kHalves;
    box = n & (boxes - 1), half = column * 64;
    to = (values ? Config::kTileBytes : 0) + column * Config::kHalf + (box << shift) * 128;
    map = values ? v_map : k_map;
  }
};

/// Where the queries of row i of an item's tile are; null: there are none.
template <class T>
__device__ __forceinline__ const T* query_of(const Decode& p, const Item& item, int i) {
  const Place at = place_of(p, item, i);
  return at.head < 0 ? nullptr : static_cast<const T*>(p.q) + at.row * p.q_row + at.head * p.q_head;
}

/// A loading warp's way through its block's items: lane l holds page and row of the keys from held + l * box on, of a
/// window of 32 boxes, and what comes next is on its way meanwhile.
template <class Config, class Shared>
class LoadWalk {
 public:
  struct Place {
    int page, row;
  };
  __device__ __forceinline__ LoadWalk(const Decode& p, const Shared& shared, Turns& turns, int shift)
      : p_(p), shared_(shared), turns_(turns), shift_(shift), items_(items_of(p, shared)), index_(blockIdx.x) {
    if (index_ >= items_) return;
    item_ = item_at<Config>(p, shared, index_);
    next_ = places_of(item_, item_.begin);
  }
  /// Begins the next item; false where there is none.
  __device__ __forceinline__ bool begin() {
    if (index_ >= items_) return false;
    now_ = item_;
    held_ = now_.begin - window(), more_ = true;
    return true;
  }
  __device__ __forceinline__ const Item& item() const { return now_; }
  /// Makes the warp hold the places of the stage from `key` on; returns the lane with its first.
  __device__ __forceinline__ int hold(int key) {
    if (key >= held_ + window()) advance();
    return (key - held_) >> shift_;
  }
  __device__ __forceinline__ Place place(int lane) const {
    return {__shfl_sync(~0u, here_.page, lane), __shfl_sync(~0u, here_.row, lane)};
  }
  /// Behind the item's last stage: windows without a key of this warp's.
  __device__ __forceinline__ void end() {
    while (more_) advance();
  }

 private:
  __device__ __forceinline__ int window() const { return 32 << shift_; }
  /// A page that is not there arrives as zeros.
  __device__ __forceinline__ Place places_of(const Item& item, int from) const {
    const int key = from + (static_cast<int>(threadIdx.x & 31) << shift_), number = key / p_.page_size;
    if (key >= item.end) return {p_.pages, 0};
    return {p_.tables[static_cast<int64_t>(shared_.rows[item.row].sequence) * p_.table_stride + number],
            key - number * p_.page_size};
  }
  __device__ __forceinline__ void advance() {
    held_ += window(), here_ = next_;
    more_ = now_.end > held_ + window();
    if (more_) {
      next_ = places_of(now_, held_ + window());
      return;
    }
    index_ = turns_.next();
    if (index_ >= items_) return;
    item_ = item_at<Config>(p_, shared_, index_);
    next_ = places_of(item_, item_.begin);
  }

  const Decode& p_;
  const Shared& shared_;
  Turns& turns_;
  const int shift_, items_;
  int index_, held_ = 0;
  bool more_ = false;
  Item item_, now_;  // the next, this
  Place here_{}, next_{};
};

/// A loading warp: a box a lane, two where pages are small. Issuing a stage's boxes takes about as long as memory takes
/// to deliver one, hence several such warps.
template <class Config, class Shared>
__device__ void load_items(const Decode& p, const CUtensorMap* k_map, const CUtensorMap* v_map, Shared& shared,
                           int warp) {
  using Box = LoadBox<Config>;
  static_assert(Config::kKeys / 8 * Box::kHalves * 2 <= 64 && Config::kWarps * Config::kKeys <= 32 * 8);
  const int lane = threadIdx.x & 31, shift = __ffs(p.box) - 1, total = Box::count(shift);
  const Box mine[2] = {{k_map, v_map, shift, min(lane, total - 1)}, {k_map, v_map, shift, min(lane + 32, total - 1)}};
  Turns turns(p, shared.turns, warp == 0);
  LoadWalk<Config, Shared> walk(p, shared, turns, shift);
  RingPlace ring{0, 0};
  while (walk.begin()) {
    const Item& item = walk.item();
    for (int key = first_key<Config>(item.begin, warp); key < item.end; key += Config::kWarps * Config::kKeys) {
      const int first = walk.hold(key);
      uint64_t* full = &shared.full[warp][ring.stage];
      char* to = shared.stages[warp][ring.stage].keys;
      ptx::mbarrier_wait(&shared.empty[warp][ring.stage], ring.phase ^ 1);
      if (lane == 0) ptx::mbarrier_arrive_expect(full, 2 * Config::kTileBytes);
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (i * 32 >= total) break;
        const auto at = walk.place(first + mine[i].box);
        if (i * 32 + lane < total)
          ptx::tma_load_4d(to + mine[i].to, mine[i].map, mine[i].half, at.row, item.kv_head, at.page, full);
      }
      ring.template advance<Config>();
    }
    walk.end();
  }
  turns.leave();
}

/// A thread's queries as the left operand.
template <class Config>
using QueryRegisters = uint32_t[Config::kQueriesShared ? 1 : Config::kDim / 16][4];
template <class Config>
__device__ __forceinline__ void load_query(const Decode& p, const Item& item, QueryRegisters<Config>& q) {
  using T = typename Config::T;
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const T* from = query_of<T>(p, item, g + 8 * side);
#pragma unroll
    for (int k = 0; k < Config::kDim / 16; ++k)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int d = k * 16 + half * 8 + 2 * t;
        q[k][side + 2 * half] = from && d < p.dim ? *reinterpret_cast<const uint32_t*>(from + d) : 0u;
      }
  }
}
/// The computing warps' queries on their way to shared memory, sixteen bytes at a time or four; who waits for them has
/// all the others wait.
template <class Config, class Shared>
__device__ __forceinline__ void fetch_queries(const Decode& p, const Item& item, Shared& shared) {
  using T = typename Config::T;
  constexpr int kRowThreads = 32 * Config::kWarps / kTileRows;
  const int i = static_cast<int>(threadIdx.x) / kRowThreads, mine = static_cast<int>(threadIdx.x) % kRowThreads;
  const T* from = query_of<T>(p, item, i);
  char* to = shared.queries + i * Config::kQueryBytes;
  const bool wide = ((reinterpret_cast<uintptr_t>(p.q) / 2 | p.q_row | p.q_head | p.dim) & 7) == 0;
  const auto copy = [&](int d, auto part) {
    const bool real = from && d < p.dim;
    part(to + 2 * d, real ? from + d : static_cast<const T*>(p.q), real);
  };
  if (wide) {
#pragma unroll
    for (int d = 0; d < Config::kDim; d += kRowThreads * 8)
      copy(d + mine * 8, [](void* a, const void* b, bool real) { ptx::async_copy_16(a, b, real); });
  } else {
#pragma unroll 1
    for (int d = 0; d < Config::kDim; d += kRowThreads * 2)
      copy(d + mine * 2, [](void* a, const void* b, bool real) { ptx::async_copy_4(a, b, real); });
  }
  ptx::async_copy_commit();
}
/// Columns [16 k, 16 k + 16).
template <class Config, class Shared>
__device__ __forceinline__ void query_at(const QueryRegisters<Config>& q, const Shared& shared, int k,
                                         uint32_t (&a)[4]) {
  if constexpr (Config::kQueriesShared) {
    const int lane = threadIdx.x & 31;
    ptx::ldmatrix_x4(
        a, ptx::shared_address(shared.queries + (lane & 15) * Config::kQueryBytes + k * 32) + (lane >> 4) * 16);
  } else {
#pragma unroll
    for (int e = 0; e < 4; ++e) a[e] = q[k][e];
  }
}

/// Scores of a stage, hidden ones -inf.
template <class Config, class Shared>
__device__ __forceinline__ void score(const Decode& p, uint32_t keys, const QueryRegisters<Config>& q,
                                      const Shared& shared, int first, const Range (&seen)[2], bool whole,
                                      float (&s)[Config::kKeys / 8][4]) {
  const int lane = threadIdx.x & 31, t = lane & 3;
#pragma unroll
  for (int n = 0; n < Config::kKeys / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) s[n][e] = 0;
#pragma unroll
  for (int k = 0; k < Config::kDim / 16; k += 2) {
    uint32_t low[4], high[4];
    query_at<Config>(q, shared, k, low), query_at<Config>(q, shared, k + 1, high);
#pragma unroll
    for (int n = 0; n < Config::kKeys / 8; ++n) {
      uint32_t b[4];
      ptx::ldmatrix_x4(b, keys + ptx::swizzled_tile<Config::kHalf>(n * 8 + (lane & 7), k * 2 + (lane >> 3)));
      ptx::mma_m16n8k16<typename Config::T>(s[n], low[0], low[1], low[2], low[3], b[0], b[1]);
      ptx::mma_m16n8k16<typename Config::T>(s[n], high[0], high[1], high[2], high[3], b[2], b[3]);
    }
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

/// A computing warp's keys of [begin, end) of an item.
template <class Config, class Shared>
__device__ __forceinline__ void attend(const Decode& p, const Item& item, int begin, int end,
                                       const QueryRegisters<Config>& q, Shared& shared, RingPlace& ring,
                                       WarpState<Config>& state) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
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
  for (int key = first_key<Config>(begin, warp); key < end; key += Config::kWarps * Config::kKeys) {
    ptx::mbarrier_wait(&shared.full[warp][ring.stage], ring.phase);
    const bool whole = key >= last_row.begin && key + Config::kKeys <= first_row.end;
    const auto& stage = shared.stages[warp][ring.stage];
    float s[Config::kKeys / 8][4];
    score<Config>(p, ptx::shared_address(stage.keys), q, shared, key, seen, whole, s);
    soften<Config>(p, s, state);
    accumulate<Config>(p, item, shared.rows, ptx::shared_address(stage.values), s, key, whole, state);
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(&shared.empty[warp][ring.stage]);
    ring.template advance<Config>();
  }
}

template <class Config, class Shared>
__device__ void compute_items(const Decode& p, Shared& shared) {
  const int items = items_of(p, shared);
  int index = blockIdx.x;
  if (index >= items) return;
  Item item = item_at<Config>(p, shared, index);
  QueryRegisters<Config> q;
  if constexpr (Config::kQueriesShared) {
    fetch_queries<Config>(p, item, shared);
    ptx::async_copy_wait<0>();
    consumers_sync(32 * Config::kWarps);
  } else {
    load_query<Config>(p, item, q);
  }
  Turns turns(p, shared.turns, false);
  RingPlace ring{0, 0};
  while (index < items) {
    const Item now = item;
    ItemSum<Config> all{};
    const int last = Config::kJoins ? now.last : now.split + 1;
    for (int split = now.split; split < last; ++split) {
      const int from = split * now.cut.length, to = split + 1 < last ? from + now.cut.length : now.end;
      WarpState<Config> state;
      attend<Config>(p, now, max(from, now.begin), to, q, shared, ring, state);
      if (split + 1 == last) {
        index = turns.next();
        if (index < items) {  // the queries are on their way while this item ends
          item = item_at<Config>(p, shared, index);
          if constexpr (!Config::kQueriesShared) load_query<Config>(p, item, q);
        }
      }
      finish_split<Config>(p, now, split, state, shared, all);
    }
    if (Config::kQueriesShared && index < items) fetch_queries<Config>(p, item, shared);
    finish_item<Config>(p, now, all, shared);
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
