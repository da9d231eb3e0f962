// flash_tensorcore on Hopper: attention in one pass over the keys, both products on the tensor cores (wgmma), operands
// brought by TMA. Sources of the technique: FlashAttention-3 (arXiv 2407.08608), online softmax (arXiv 1805.02867).
//
// A block holds 64 query rows of one head for each computing warpgroup; one more warpgroup serves: a thread loads, two
// warps look for NaN and infinities among the values. Keys are walked in tiles from the last that any row sees to the
// first. Tiles begin at multiples of kKeys from key 0, and one that hides all of a row's keys changes no bit of the
// row, so a row's bits depend on its own problem alone.
#pragma once

#include <cuda.h>

#include "src/cuda/ptx/mbarrier.cuh"
#include "src/cuda/ptx/tma.cuh"
#include "src/cuda/ptx/wgmma.cuh"
#include "src/ops/attention/attention_device.cuh"

namespace tenor::attn {

namespace ptx = tenor::cuda::ptx;

/// Everything that a kernel is compiled for.
template <class T_, int kDim_, int kKeys_, int kGroups_, bool kTurns_, bool kGeneral_>
struct FlashConfig {
  using T = T_;
  static constexpr int kDim = kDim_;           ///< columns of q, k and v, as they lie in shared memory
  static constexpr int kKeys = kKeys_;         ///< of a tile
  static constexpr int kGroups = kGroups_;     ///< computing warpgroups
  static constexpr bool kTurns = kTurns_;      ///< they take turns on the tensor cores
  static constexpr bool kGeneral = kGeneral_;  ///< mask, bias or softcap
  static constexpr int kStages = 2;            ///< tiles of keys, and of values, in shared memory
  static constexpr int kTaskStages = kDim < 256 && !kGeneral ? 2 : 1;  ///< tiles of queries
  static constexpr bool kBiasTiles = kGeneral && kDim < 256;           ///< has room for tiles of bias
  static constexpr int kTasks = 3;                                     ///< told of: the last, this and the next
  static constexpr int kCheckers = 2;  ///< warps that look for values that are not finite
  static constexpr int kRows = 64 * kGroups, kThreads = 128 * (kGroups + 1), kBlocks = kDim / 64;
  static constexpr int kServeRegisters = kGroups == 2 ? 40 : 32, kComputeRegisters = kGroups == 2 ? 232 : 160;
};

/// What a launch needs beside the problem.
struct FlashShape {
  DeviceProblem p;
  int tasks;  ///< tiles of rows of all heads
  int pack;   ///< heads whose rows share a tile: 1, or all of a key head's, row r being head r % pack of query r / pack
  int splits, split;  ///< parts of the keys, each a task of its own, and tiles of keys a part; 1: all of them are one
  float *partial, *partial_lse;  ///< of more parts: [splits, batch, heads, queries, value_dim] and less its last dim
  int section;                   ///< heads whose keys and values stay in L2 together
  int* counter;                  ///< of tasks given out beyond the first of each block; null: rounds in order
  int before, after;             ///< query i of equally long sequences sees keys i + before .. i + after
  float scale_log2;              ///< scale * log2(e)
  bool shared_head[4], shared_batch[4];  ///< q, k, v, bias: one for all heads, or for the whole batch
  bool bias_tiles;                       ///< bias comes by TMA, tile by tile with the keys
  bool wide_out;                         ///< rows of out are written sixteen bytes at a time
  bool mask_pairs;                       ///< mask is read two neighbours at a time
};

/// One tile of rows, and the tiles of keys that it needs.
struct FlashTask {
  int row, queries, keys;    // the first query, and the sequence's lengths; row -1: there is no more to do
  int sequence, q, k;        // which, and its first row of q and of k
  int head, kv_head, batch;  // the first head
  int part;                  // of the keys
  int before, after;
  int begin, end;            // tiles of keys
  int full_begin, full_end;  // of these, tiles that hide no key from any row

  /// False for a place without rows.
  template <class Config>
  __device__ __forceinline__ bool find(const FlashShape& s, int i) {
    part = i % s.splits, i /= s.splits;
    const DeviceProblem& p = s.p;
    const int heads = static_cast<int>(p.kv_heads * p.group) / s.pack, rows = Config::kRows / s.pack;
    int shift = 0;
    if (p.cu_q.data) {
      const int slot = (s.tasks - 1 - i) / heads;
      head = (s.tasks - 1 - i) % heads, batch = 0;
      const Slot place(p, slot, rows, 1);
      const Sequence at(p, place.sequence);
      sequence = static_cast<int>(place.sequence), q = static_cast<int>(at.q), k = static_cast<int>(at.k);
      queries = static_cast<int>(at.queries), keys = static_cast<int>(at.keys);
      row = static_cast<int>(place.tile) * rows;
      if (p.causal != Causal::kTopLeft) shift = keys - queries;
    } else {
      const int tiles = (static_cast<int>(p.queries) + rows - 1) / rows;
      const int all = heads * static_cast<int>(p.sequences), per_section = s.section * tiles;
      const int section = i / per_section, within = i - section * per_section, first = section * s.section;
      const int here = min(s.section, all - first), at = first + within % here;  // longest rows first
      head = at % heads, batch = at / heads, sequence = batch, q = k = 0;
      queries = static_cast<int>(p.queries), keys = static_cast<int>(p.keys);
      row = (tiles - 1 - within / here) * rows;
    }
    head *= s.pack, kv_head = head / static_cast<int>(p.group);
    before = s.before + shift, after = s.after + shift;
    if (row >= queries) return false;
    const int last = min(row + rows, queries) - 1;
    const int low = max(row + before, 0), high = min(last + after + 1, keys);
    begin = low / Config::kKeys, end = high > low ? (high + Config::kKeys - 1) / Config::kKeys : begin;
    const int full_low = max(last + before, 0), full_high = max(min(row + after + 1, keys), 0);
    full_begin = min(max((full_low + Config::kKeys - 1) / Config::kKeys, begin), end);
    full_end = max(min(full_high / Config::kKeys, end), full_begin);
    if (s.splits > 1) keep_part(part * s.split, part == s.splits - 1 ? end : (part + 1) * s.split);
    return true;
  }
  /// Of the tiles only [first, past).
  __device__ __forceinline__ void keep_part(int first, int past) {
    end = min(end, past), begin = min(max(begin, first), end);
    full_end = min(max(full_end, begin), end), full_begin = min(max(full_begin, begin), full_end);
  }
  /// The query and head of a row of the tile.
  __device__ __forceinline__ int query_of(const FlashShape& s, int r) const {
    return row + (s.pack == 1 ? r : r / s.pack);
  }
  __device__ __forceinline__ int head_of(const FlashShape& s, int r) const {
    return head + (s.pack == 1 ? 0 : r % s.pack);
  }
  template <class Config>
  __device__ __forceinline__ bool holds(const FlashShape& s, int r) const {
    if (s.pack == 1) return row + r < queries;
    return r < Config::kRows / s.pack * s.pack && query_of(s, r) < queries;
  }
  __device__ __forceinline__ bool empty() const { return begin == end; }
  /// Whether tile n hides a key from some row: by the diagonal, the window or the end, or by anything else.
  __device__ __forceinline__ bool hides_by_place(int n) const { return n >= full_end || n < full_begin; }
  template <class Config>
  __device__ __forceinline__ bool hides(int n) const {
    return Config::kGeneral || hides_by_place(n);
  }
};

/// The shared memory of a block. Tiles lie in blocks of 64 columns, swizzled, from multiples of 1024 bytes on.
template <class Config>
struct alignas(1024) FlashShared {
  typename Config::T q[Config::kTaskStages][Config::kBlocks][Config::kRows * 64];
  typename Config::T k[Config::kStages][Config::kBlocks][Config::kKeys * 64];
  typename Config::T v[Config::kStages][Config::kBlocks][Config::kKeys * 64];
  typename Config::T bias[Config::kBiasTiles ? Config::kStages : 1][Config::kKeys / 64]
                         [Config::kBiasTiles ? Config::kRows * 64 : 64];
  uint64_t full_q[Config::kTaskStages], empty_q[Config::kTaskStages], full_task[Config::kTasks],
      empty_task[Config::kTasks];
  uint64_t full_k[Config::kStages], empty_k[Config::kStages];
  uint64_t full_v[Config::kStages], checked_v[Config::kStages], empty_v[Config::kStages];
  FlashTask task[Config::kTasks];
  bool poisoned[Config::kStages][Config::kCheckers];  ///< values were not finite, and are 0 here
  float lse[Config::kRows];                           ///< for rows that see such a value
};

/// A ring of stages and the parity of the round it is in.
template <int kStages>
struct FlashRing {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

/// The tasks of this block, as every other warp than the loading one learns of them.
template <class Config>
class FlashTasks {
 public:
  /// Takes the next; false where there is none.
  __device__ __forceinline__ bool next(FlashTask& task, FlashShared<Config>& shared) {
    ptx::mbarrier_wait(&shared.full_task[ring_.stage], ring_.parity);
    task = shared.task[ring_.stage];
    return task.row >= 0;
  }
  /// Called by one thread of a warp or group, all of which have taken it.
  __device__ __forceinline__ void release(FlashShared<Config>& shared) {
    ptx::mbarrier_arrive(&shared.empty_task[ring_.stage]);
  }
  __device__ __forceinline__ void advance() { ring_.advance(); }

 private:
  FlashRing<Config::kTasks> ring_;
};

/// How TMA sees the operands.
struct FlashMaps {
  CUtensorMap q, k, v, bias;
};

/// The loading thread: gives out tasks and keeps the stages full.
template <class Config>
class FlashLoader {
 public:
  __device__ FlashLoader(FlashShared<Config>& shared, const FlashShape& shape, const FlashMaps& maps)
      : shared_(shared), shape_(shape), maps_(maps) {}

  __device__ void run() {
    next_ = blockIdx.x;
    then_ = next();
    publish(then_);
    while (then_.row >= 0) {
      const FlashTask t = then_;
      if (t.empty())
        look_ahead();
      else
        load(t);
    }
  }

 private:
  /// The next task that has rows.
  __device__ FlashTask next() {
    FlashTask t{};
    while (next_ < shape_.tasks) {
      const int task = next_;
      next_ = gridDim.x + (shape_.counter ? atomicAdd(shape_.counter, 1) : task);  // the answer takes a while
      if (t.template find<Config>(shape_, task)) return t;
    }
    t.row = -1;
    return t;
  }
  /// Finds and tells of the next task while there is still much to do.
  __device__ void look_ahead() {
    then_ = next();
    publish(then_);
  }
  __device__ void publish(const FlashTask& task) {
    ptx::mbarrier_wait(&shared_.empty_task[tasks_.stage], tasks_.parity ^ 1);
    shared_.task[tasks_.stage] = task;
    ptx::mbarrier_arrive(&shared_.full_task[tasks_.stage]);
    tasks_.advance();
  }
  __device__ void load_q(const FlashTask& t) {
    const int stage = ring_q_.stage;
    ptx::mbarrier_wait(&shared_.empty_q[stage], ring_q_.parity ^ 1);
    ptx::mbarrier_arrive_expect(&shared_.full_q[stage], Config::kRows / shape_.pack * shape_.pack * Config::kDim * 2);
    const int row = t.q + t.row, head = shape_.shared_head[0] ? 0 : t.head,
              batch = shape_.shared_batch[0] ? 0 : t.batch;
    const bool packs = shape_.pack > 1;  // then heads are the map's inner dim
    for (int b = 0; b < Config::kBlocks; ++b)
      ptx::tma_load_4d(shared_.q[stage][b], &maps_.q, b * 64, packs ? head : row, packs ? row : head, batch,
                       &shared_.full_q[stage]);
    ring_q_.advance();
  }
  __device__ void load(const FlashTask& t) {
    load_q(t);
    load_k(t, t.end - 1);
    for (int n = t.end - 2; n >= t.begin; --n) {
      load_k(t, n);
      load_v(t, n + 1);
      if (n == t.end - 2) look_ahead();  // the stages are full
    }
    load_v(t, t.begin);
    if (t.end - t.begin == 1) look_ahead();
  }
  __device__ void load_k(const FlashTask& t, int n) {
    const int stage = ring_k_.stage;
    uint64_t* full = &shared_.full_k[stage];
    ptx::mbarrier_wait(&shared_.empty_k[stage], ring_k_.parity ^ 1);
    const bool bias = Config::kBiasTiles && shape_.bias_tiles;
    ptx::mbarrier_arrive_expect(full, sizeof(shared_.k[0]) + (bias ? sizeof(shared_.bias[0]) : 0));
    load_tile(shared_.k[stage], maps_.k, t, n, 1, full);
    if (bias) load_bias(stage, t, n, full);
    ring_k_.advance();
  }
  __device__ void load_v(const FlashTask& t, int n) {
    const int stage = ring_v_.stage;
    ptx::mbarrier_wait(&shared_.empty_v[stage], ring_v_.parity ^ 1);
    ptx::mbarrier_arrive_expect(&shared_.full_v[stage], sizeof(shared_.v[0]));
    load_tile(shared_.v[stage], maps_.v, t, n, 2, &shared_.full_v[stage]);
    ring_v_.advance();
  }
  __device__ void load_bias(int stage, const FlashTask& t, int n, uint64_t* full) {
    const int head = shape_.shared_head[3] ? 0 : t.head, batch = shape_.shared_batch[3] ? 0 : t.batch;
    for (int b = 0; b < Config::kKeys / 64; ++b)
      ptx::tma_load_4d(shared_.bias[stage][b], &maps_.bias, n * Config::kKeys + b * 64, t.row, head, batch, full);
  }
  __device__ void load_tile(typename Config::T (&to)[Config::kBlocks][Config::kKeys * 64], const CUtensorMap& map,
                            const FlashTask& t, int n, int operand, uint64_t* full) {
    const int head = shape_.shared_head[operand] ? 0 : t.kv_head, batch = shape_.shared_batch[operand] ? 0 : t.batch;
    for (int b = 0; b < Config::kBlocks; ++b)
      ptx::tma_load_4d(to[b], &map, b * 64, t.k + n * Config::kKeys, head, batch, full);
  }

  FlashShared<Config>& shared_;
  const FlashShape& shape_;
  const FlashMaps& maps_;
  FlashRing<Config::kStages> ring_k_, ring_v_;
  FlashRing<Config::kTaskStages> ring_q_;
  FlashRing<Config::kTasks> tasks_;
  FlashTask then_;
  int next_;
};

/// Two elements with every NaN or infinity as 0.
template <class T>
__device__ __forceinline__ uint32_t finite_only(uint32_t two) {
  constexpr uint32_t kExponent = std::is_same_v<T, __half> ? 0x7C007C00u : 0x7F807F80u,
                     kOne = std::is_same_v<T, __half> ? 0x04000400u : 0x00800080u;
  const uint32_t bad = ((two & kExponent) + kOne) & 0x80008000u;  // an exponent of ones carries into the sign
  return two & ~((bad >> 15) * 0xFFFFu);
}

/// A checking warp: in tiles that hide keys from some row, a value that is not finite gives way to 0, since a hidden
/// key's weight of 0 would not silence it. What visible keys of such a tile hold is put back at the end (flash_poison).
template <class Config>
__device__ void flash_check(FlashShared<Config>& shared, int checker) {
  FlashTasks<Config> tasks;
  FlashRing<Config::kStages> ring;
  const int lane = threadIdx.x % 32;
  constexpr int kUnits = Config::kBlocks * Config::kKeys * 64 * 2 / 16, kStep = 32 * Config::kCheckers;
  for (FlashTask t; tasks.next(t, shared); tasks.advance()) {
    __syncwarp();
    if (lane == 0) tasks.release(shared);
    for (int n = t.end - 1; n >= t.begin; --n) {
      ptx::mbarrier_wait(&shared.full_v[ring.stage], ring.parity);
      bool found = false;
      if (t.hides<Config>(n)) {
        uint4* tile = reinterpret_cast<uint4*>(shared.v[ring.stage]);
#pragma unroll 4
        for (int i = checker * 32 + lane; i < kUnits; i += kStep) {
          const uint4 x = tile[i];
          using T = typename Config::T;
          const uint4 y{finite_only<T>(x.x), finite_only<T>(x.y), finite_only<T>(x.z), finite_only<T>(x.w)};
          if (x.x == y.x && x.y == y.y && x.z == y.z && x.w == y.w) continue;
          tile[i] = y;
          found = true;
        }
        found = __any_sync(~0u, found);
        if (found) ptx::fence_async_proxy();
      }
      if (lane == 0) shared.poisoned[ring.stage][checker] = found;
      __syncwarp();
      if (lane == 0) {
        ptx::mbarrier_arrive(&shared.checked_v[ring.stage]);
        ptx::mbarrier_arrive(&shared.empty_v[ring.stage]);
      }
      ring.advance();
    }
  }
}

}  // namespace tenor::attn
