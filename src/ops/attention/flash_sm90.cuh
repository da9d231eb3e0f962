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
#include "src/ops/attention/flash_restore.cuh"

namespace tenor::attn {

/// What happens to scores between the products, other than their scale and what place hides.
enum class FlashOptions {
  kNone,
  kBias,  ///< bias that TMA brings
  kAny    ///< mask, bias, softcap
};

/// Everything that a kernel is compiled for.
template <class T_, int kDim_, int kKeys_, int kGroups_, bool kTurns_, FlashOptions kOptions_>
struct FlashConfig {
  using T = T_;
  static constexpr int kDim = kDim_;        ///< columns of q, k and v, as they lie in shared memory
  static constexpr int kKeys = kKeys_;      ///< of a tile
  static constexpr int kGroups = kGroups_;  ///< computing warpgroups
  static constexpr bool kTurns = kTurns_;   ///< they take turns on the tensor cores
  static constexpr FlashOptions kOptions = kOptions_;
  static constexpr bool kGeneral = kOptions != FlashOptions::kNone;
  static constexpr bool kScaled = kGeneral;  ///< scores come to the softmax with their scale
  static constexpr int kStages = 2;          ///< tiles of keys, and of values, in shared memory
  static constexpr int kTaskStages = kDim < 256 && !kGeneral ? 2 : 1;  ///< tiles of queries
  static constexpr bool kBiasTiles = kGeneral;                         ///< tiles of bias lie beside those of keys
  static constexpr bool kStaged = kTaskStages > 1;                     ///< rows leave by way of shared memory
  static constexpr int kTasks = 2;                                     ///< told of: this and the next
  static constexpr bool kHoldsTasks = kStaged;  ///< has registers for what computing threads need of a task
  static constexpr int kCheckers = 2;           ///< warps that look for values that are not finite
  static constexpr int kRows = 64 * kGroups, kThreads = 128 * (kGroups + 1), kBlocks = kDim / 64;
  static constexpr int kServeRegisters = kGroups == 2 ? 40 : 32, kComputeRegisters = kGroups == 2 ? 232 : 160;
};

/// The shared memory of a block. Tiles lie in blocks of 64 columns, swizzled, from multiples of 1024 bytes on.
template <class Config>
struct alignas(1024) FlashShared {
  typename Config::T q[Config::kTaskStages][Config::kBlocks][Config::kRows * 64];
  typename Config::T k[Config::kStages][Config::kBlocks][Config::kKeys * 64];
  typename Config::T v[Config::kStages][Config::kBlocks][Config::kKeys * 64];
  FlashBiasTile<Config> bias[Config::kBiasTiles ? Config::kStages : 1];
  uint64_t full_q[Config::kTaskStages], empty_q[Config::kTaskStages], full_task[Config::kTasks],
      empty_task[Config::kTasks];
  uint64_t full_k[Config::kStages], empty_k[Config::kStages];
  uint64_t full_v[Config::kStages], checked_v[Config::kStages], empty_v[Config::kStages];
  uint64_t over;  ///< whose only phase has ended before anyone looks at it
  FlashTask task[Config::kTasks];
  bool poisoned[Config::kStages][Config::kCheckers];  ///< values were not finite, and are 0 here
  FlashScratch<Config> scratch;                       ///< for rows that see such a value
};

/// Turn number `count` in a ring of stages: the stage, and the parity of the round.
template <int kStages>
struct FlashRing {
  unsigned count = 0;
  __device__ __forceinline__ int stage() const { return static_cast<int>(count % kStages); }
  __device__ __forceinline__ uint32_t parity() const { return count / kStages & 1; }
  __device__ __forceinline__ void advance() { ++count; }
};

/// The tasks of this block, as every warp but the planning one learns of them.
template <class Config>
class FlashTasks {
 public:
  explicit __device__ FlashTasks(FlashShared<Config>& shared) : shared_(shared) {}
  /// Waits for the next; false where there is none.
  __device__ __forceinline__ bool next() {
    ptx::mbarrier_wait(&shared_.full_task[ring_.stage()], ring_.parity());
    return task().row >= 0;
  }
  /// It stays in shared memory, where it is read when it is needed: nobody has registers for all of it.
  __device__ __forceinline__ const FlashTask& task() const { return shared_.task[ring_.stage()]; }
  /// Called by one thread of a warp or group, all of which are done with it; before advance().
  __device__ __forceinline__ void release() { ptx::mbarrier_arrive(&shared_.empty_task[ring_.stage()]); }
  __device__ __forceinline__ void advance() { ring_.advance(); }

 private:
  FlashShared<Config>& shared_;
  FlashRing<Config::kTasks> ring_;
};

/// How TMA sees the operands.
struct FlashMaps {
  CUtensorMap q, k, v, bias, out;
};

/// The planning thread: finds the block's tasks, each while the one before is worked on, and takes none before it must.
/// It takes longer than the loading thread, on which everything waits, could spare.
template <class Config>
__device__ void flash_plan(FlashShared<Config>& shared, const FlashShape& shape) {
  FlashRing<Config::kTasks> ring;
  int at = blockIdx.x;
  const auto next = [&] { return static_cast<int>(gridDim.x) + (shape.counter ? atomicAdd(shape.counter, 1) : at); };
  for (bool first = true; at < shape.tasks; first = false) {
    FlashTask& t = shared.task[ring.stage()];
    ptx::mbarrier_wait(&shared.empty_task[ring.stage()], ring.parity() ^ 1);
    if (!first) at = next();
    while (at < shape.tasks && !t.template find<Config>(shape, at)) at = next();
    if (at >= shape.tasks) t.row = -1;
    ptx::mbarrier_arrive(&shared.full_task[ring.stage()]);
    ring.advance();
  }
}

/// The loading thread: keeps the stages full.
template <class Config>
class FlashLoader {
 public:
  __device__ FlashLoader(FlashShared<Config>& shared, const FlashShape& shape, const FlashMaps& maps)
      : shared_(shared), shape_(shape), maps_(maps) {}

  __device__ void run() {
    for (FlashTasks<Config> tasks(shared_); tasks.next(); tasks.advance()) {
      const FlashTask t = tasks.task();  // of which this thread, on which everything waits, keeps what it needs
      tasks.release();
      if (!t.empty()) load(t);
    }
  }

 private:
  __device__ void load_q(const FlashTask& t) {
    const int stage = ring_q_.stage();
    ptx::mbarrier_wait(&shared_.empty_q[stage], ring_q_.parity() ^ 1);
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
    const int begin = t.begin;
    load_q(t);
    load_k(t, t.end - 1);
#pragma unroll 1
    for (int n = t.end - 2; n >= begin; --n) {
      load_k(t, n);
      load_v(t, n + 1);
    }
    load_v(t, begin);
  }
  __device__ void load_k(const FlashTask& t, int n) {
    const int stage = ring_k_.stage();
    uint64_t* full = &shared_.full_k[stage];
    ptx::mbarrier_wait(&shared_.empty_k[stage], ring_k_.parity() ^ 1);
    const bool bias = Config::kBiasTiles && shape_.bias_tiles;
    ptx::mbarrier_arrive_expect(full, sizeof(shared_.k[0]) + (bias ? sizeof(shared_.bias[0]) : 0));
    load_tile(shared_.k[stage], maps_.k, t, n, 1, full);
    if (bias) load_bias(stage, t, n, full);
    ring_k_.advance();
  }
  __device__ void load_v(const FlashTask& t, int n) {
    const int stage = ring_v_.stage();
    ptx::mbarrier_wait(&shared_.empty_v[stage], ring_v_.parity() ^ 1);
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
};

/// A checking warp: in tiles that hide keys from some row, a value that is not finite gives way to 0, since a hidden
/// key's weight of 0 would not silence it. What visible keys of such a tile hold is put back at the end
/// (flash_restore).
template <class Config>
__device__ void flash_check(FlashShared<Config>& shared, int checker) {
  FlashRing<Config::kStages> ring;
  using T = typename Config::T;
  const int lane = threadIdx.x % 32;
  constexpr int kUnits = Config::kBlocks * Config::kKeys * 64 * 2 / 16, kStep = 32 * Config::kCheckers;
  for (FlashTasks<Config> tasks(shared); tasks.next(); tasks.advance()) {
    const FlashTask& t = tasks.task();
    for (int n = t.end - 1; n >= t.begin; --n) {
      ptx::mbarrier_wait(&shared.full_v[ring.stage()], ring.parity());
      bool found = false;
      if (t.template hides<Config>(n)) {
        uint4* tile = reinterpret_cast<uint4*>(shared.v[ring.stage()]);
        const auto each = [&](auto visit) {
#pragma unroll 4
          for (int i = checker * 32 + lane; i < kUnits; i += kStep) visit(tile[i]);
        };
        uint32_t odd = 0;
        each([&](const uint4& x) { odd |= flash_odd<T>(x); });
        found = __any_sync(~0u, (odd & kNotSigns) != 0);
        if (found) {
          each([](uint4& x) { x = finite_only<T>(x); });
          ptx::fence_async_proxy();
        }
      }
      if (lane == 0) shared.poisoned[ring.stage()][checker] = found;
      __syncwarp();
      if (lane == 0) {
        ptx::mbarrier_arrive(&shared.checked_v[ring.stage()]);
        ptx::mbarrier_arrive(&shared.empty_v[ring.stage()]);
      }
      ring.advance();
    }
    __syncwarp();
    if (lane == 0) tasks.release();
  }
}

}  // namespace tenor::attn
