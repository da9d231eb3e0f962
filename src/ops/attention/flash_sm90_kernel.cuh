// The computing warpgroups of the Hopper kernel, and the kernel.
#pragma once

#include "src/cuda/ptx/dependent_launch.cuh"
#include "src/ops/attention/flash_sm90_scores.cuh"
#include "src/ops/attention/flash_sm90_store.cuh"

namespace tenor::attn {

/// Keeps the compiler from moving what reads or writes these registers across this place.
template <int kCount>
__device__ __forceinline__ void keep_order(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

/// Warpgroups issue their products in turn, so that one's softmax runs beside another's products.
template <class Config>
__device__ __forceinline__ void turn_wait(int group) {
  if constexpr (Config::kTurns) asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory");
}
template <class Config>
__device__ __forceinline__ void turn_pass(int group) {
  if constexpr (Config::kTurns)
    asm volatile("bar.arrive %0, 256;" ::"r"(1 + (group + 1 == Config::kGroups ? 0 : group + 1)) : "memory");
}

/// A descriptor whose register the compiler knows nothing of, so that it holds that one and not every sum of it and a
/// step, for which it has none.
class FlashDescriptor {
 public:
  explicit __device__ __forceinline__ FlashDescriptor(uint64_t first) : high_(first >> 32 << 32), low_(first) {
    asm volatile("" : "+r"(low_));
  }
  /// `units` of 16 bytes on.
  __device__ __forceinline__ uint64_t at(uint64_t units) const { return high_ | (low_ + static_cast<uint32_t>(units)); }

 private:
  uint64_t high_;
  uint32_t low_;
};

/// s = 64 rows of q times a tile of keys, all in flight.
template <class Config>
__device__ __forceinline__ void flash_scores(float (&s)[Config::kKeys / 2], const FlashShared<Config>& shared,
                                             int group, int task_stage, int stage) {
  constexpr uint64_t kQueries = sizeof(shared.q[0][0]) >> 4, kKeys = sizeof(shared.k[0][0]) >> 4;  // of a block
  const FlashDescriptor q(ptx::wgmma_descriptor(shared.q[task_stage][0] + group * 64 * 64)),
      k(ptx::wgmma_descriptor(shared.k[stage][0]));
#pragma unroll
  for (int b = 0; b < Config::kBlocks; ++b)
#pragma unroll
    for (int step = 0; step < 4; ++step)
      ptx::wgmma<typename Config::T, Config::kKeys, ptx::TileLayout::kInner>(
          s, q.at(b * kQueries + step * ptx::kWgmmaStepK<>), k.at(b * kKeys + step * ptx::kWgmmaStepK<>), b + step > 0);
  ptx::wgmma_commit();
}

/// o += weights times a tile of values, all in flight.
template <class Config>
__device__ __forceinline__ void flash_values(float (&o)[Config::kDim / 2], const uint32_t (&p)[Config::kKeys / 4],
                                             const FlashShared<Config>& shared, int stage) {
  constexpr auto kOuter = ptx::TileLayout::kOuter;
  const FlashDescriptor v(ptx::wgmma_descriptor<kOuter, Config::kKeys>(shared.v[stage][0]));
#pragma unroll
  for (int step = 0; step < Config::kKeys / 16; ++step)
    ptx::wgmma<typename Config::T, Config::kDim, kOuter>(o, p[4 * step], p[4 * step + 1], p[4 * step + 2],
                                                         p[4 * step + 3], v.at(step * ptx::kWgmmaStepK<kOuter>), true);
  ptx::wgmma_commit();
}

/// A computing warpgroup: 64 rows of each of the block's tasks.
template <class Config>
class FlashComputer {
 public:
  __device__ FlashComputer(FlashShared<Config>& shared, const FlashShape& shape, const FlashMaps& maps)
      : shared_(shared),
        shape_(shape),
        maps_(maps),
        group_(threadIdx.x / 128 - 1),
        speaks_(threadIdx.x % 128 == 0),
        stages_(Config::kStaged && shape.splits == 1) {}

  __device__ __forceinline__ void run() {
    if (group_ == Config::kGroups - 1) turn_pass<Config>(group_);  // the first group begins
    for (FlashTasks<Config> tasks(shared_); tasks.next(); tasks.advance()) {
      FlashRows rows{{-INFINITY, -INFINITY}, {0, 0}, {0, 0}};
      float o[Config::kDim / 2];
#pragma unroll
      for (float& x : o) x = 0;
      bool poisoned = false;
      if (TaskView t = tasks.task(); !t.empty()) attend(o, rows, t, poisoned);
      store(o, rows, tasks.task(), first_row(), poisoned);
      if (speaks_) tasks.release();
    }
    if (group_ == 0) turn_wait<Config>(group_);  // the turn that the last group passed on
    if (speaks_) ptx::tma_store_wait_read<0>();
  }

 private:
  static constexpr bool kAny = Config::kOptions == FlashOptions::kAny;  ///< then no tile is spared anything
  /// Short tasks feel each read of it.
  using TaskView = std::conditional_t<Config::kHoldsTasks, const FlashTask, const FlashTask&>;

  __device__ __forceinline__ void store(const float (&o)[Config::kDim / 2], const FlashRows& rows,
                                        const FlashTask& task, int place, bool poisoned) {
    TaskView t = task;
    const float2 inverse = flash_sums<Config>(rows, shared_.scratch.lse, shape_, t, place);
    const int stage = ring_q_.stage();
    const bool empty = t.empty(), staged = stages_ && !empty;
    bool odd = poisoned;
    if constexpr (!Config::kStaged)
      odd |= flash_store<Config>(o, inverse, shape_, t, place);
    else if (shape_.splits > 1)
      odd |= store_partial<Config>(o, inverse, shape_, t, place);
    else if (staged)
      odd |= flash_stage<Config>(shared_, o, inverse, group_, stage), ptx::fence_async_proxy();
    // After this, unless all meet again, only the thread that releases the task may read it where it lies.
    odd = flash_any(group_, odd);
    if (!empty) ring_q_.advance();
    if constexpr (!Config::kStaged)
      if (!odd) return;
    if (Config::kStaged && staged && shape_.tma_out && !odd) {
      if (speaks_) flash_send<Config>(shared_, maps_.out, shape_, t, group_, stage);
      owes_ = true;
      return;
    }
    if (Config::kStaged && staged) {
      flash_send_rows<Config>(shared_, shape_, task, group_, stage);
      flash_sync(group_);
      if (speaks_) ptx::mbarrier_arrive(&shared_.empty_q[stage]);
    } else if (Config::kStaged && stages_) {
      flash_store_nothing<Config>(shape_, task, group_);
      flash_sync(group_);
    }
    if (odd) flash_restore<Config>(shared_.scratch, shape_, task, group_);
  }
  /// Gives back the place of the queries of the task before, from where its rows have been sent.
  __device__ __forceinline__ void settle() {
    if (owes_ && speaks_) {
      ptx::tma_store_wait_read<0>();
      ptx::mbarrier_arrive(&shared_.empty_q[(ring_q_.count + 1) % Config::kTaskStages]);
    }
    owes_ = false;
  }
  /// Of the tile, this thread's; the other is eight below.
  __device__ __forceinline__ int first_row() const {
    return group_ * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  }
  __device__ __forceinline__ void attend(float (&o)[Config::kDim / 2], FlashRows& rows, const FlashTask& t,
                                         bool& poisoned) {
    float s[Config::kKeys / 2];
    uint32_t p[Config::kKeys / 4];
    int n = t.end - 1;
    ptx::mbarrier_wait(&shared_.full_q[ring_q_.stage()], ring_q_.parity());
    ptx::mbarrier_wait(&shared_.full_k[ring_v_.stage()], ring_v_.parity());
    turn_wait<Config>(group_);
    ptx::wgmma_fence();
    flash_scores<Config>(s, shared_, group_, ring_q_.stage(), ring_v_.stage());
    turn_pass<Config>(group_);
    if constexpr (Config::kStaged) settle();
    ptx::wgmma_wait<0>();
    keep_order(s);
    checked_ = t.template hides<Config>(n);
    if (kAny || t.hides_by_place(n))
      finish<true>(s, t, n, ring_v_.stage());
    else
      finish<false>(s, t, n, ring_v_.stage());
    release_k(ring_v_.stage());
    flash_softmax<Config::kScaled>(s, rows, shape_.scale_log2);
    flash_pack<typename Config::T>(p, s);
    --n;
    if constexpr (!kAny) {
      for (const int past = t.full_end; n >= past; --n) step<true>(o, s, p, rows, t, n, poisoned);
      for (const int past = t.full_begin; n >= past; --n) step<false>(o, s, p, rows, t, n, poisoned);
    }
    for (const int past = t.begin; n >= past; --n) step<true>(o, s, p, rows, t, n, poisoned);
    if (speaks_ && !stages_) ptx::mbarrier_arrive(&shared_.empty_q[ring_q_.stage()]);
    wait_values(poisoned);
    ptx::wgmma_fence();
    flash_values<Config>(o, p, shared_, ring_v_.stage());
    ptx::wgmma_wait<0>();
    keep_order(o);
    release_v();
  }

  /// Scores of tile n while the values of tile n + 1 are added up.
  template <bool kHides>
  __device__ __forceinline__ void step(float (&o)[Config::kDim / 2], float (&s)[Config::kKeys / 2],
                                       uint32_t (&p)[Config::kKeys / 4], FlashRows& rows, const FlashTask& t, int n,
                                       bool& poisoned) {
    const FlashRing<Config::kStages> keys{ring_v_.count + 1};
    ptx::mbarrier_wait(&shared_.full_k[keys.stage()], keys.parity());
    turn_wait<Config>(group_);
    ptx::wgmma_fence();
    flash_scores<Config>(s, shared_, group_, ring_q_.stage(), keys.stage());
    wait_values(poisoned);
    checked_ = Config::kGeneral || kHides;
    ptx::wgmma_fence();  // lest the compiler orders more than it must
    flash_values<Config>(o, p, shared_, ring_v_.stage());
    turn_pass<Config>(group_);
    ptx::wgmma_wait<1>();
    keep_order(s);
    if constexpr (!Config::kBiasTiles) release_k(keys.stage());
    finish<kHides>(s, t, n, keys.stage());
    if constexpr (Config::kBiasTiles) release_k(keys.stage());
    flash_softmax<Config::kScaled>(s, rows, shape_.scale_log2);
    if constexpr (Config::kTaskStages == 1) end_block(s);
    ptx::wgmma_wait<0>();
    keep_order(o), keep_order(s);
    release_v();
    flash_pack<typename Config::T>(p, s);
#pragma unroll
    for (int i = 0; i < Config::kDim / 2; ++i) o[i] *= rows.shrink[i >> 1 & 1];
  }

  /// What was computed stays before what follows: the assembler would wait for the product first and run the
  /// exponentials after it, not beside it. It moves nothing across the loop of a wait; this one waits for nothing. (A
  /// barrier of the rings would not do: a warp that lags may meet it a phase later, and then waits for ever.) Measured
  /// to gain 4% at head sizes of 256 and with a bias, and to cost 3% at 128 without one.
  __device__ __forceinline__ void end_block(float (&s)[Config::kKeys / 2]) {
    keep_order(s);
    ptx::mbarrier_wait(&shared_.over, 0);
  }

  template <bool kHides>
  __device__ __forceinline__ void finish(float (&s)[Config::kKeys / 2], const FlashTask& t, int n, int stage) {
    auto& bias = shared_.bias[Config::kBiasTiles ? stage : 0];
    const int first = group_ * 64 + threadIdx.x % 128 / 32 * 16;
    if constexpr (kAny) return FlashLines<Config>(bias, shape_, t, first, n).finish(s);
    if constexpr (Config::kGeneral) flash_add_tile<Config>(s, bias, first, shape_.scale);
    if constexpr (kHides) flash_hide<Config>(s, shape_, t, first_row(), n);
  }
  /// For the next tile of values; `checked_` says whether it is one that hides keys.
  __device__ __forceinline__ void wait_values(bool& poisoned) {
    const int stage = ring_v_.stage();
    if (!checked_) return ptx::mbarrier_wait(&shared_.full_v[stage], ring_v_.parity());
    ptx::mbarrier_wait(&shared_.checked_v[stage], ring_v_.parity());
#pragma unroll
    for (bool found : shared_.poisoned[stage]) poisoned |= found;
  }
  /// The tile of keys, and that of bias, of which each warp has read its rows.
  __device__ __forceinline__ void release_k(int stage) {
    if constexpr (Config::kBiasTiles) __syncwarp();
    if (Config::kBiasTiles ? threadIdx.x % 32 == 0 : speaks_) ptx::mbarrier_arrive(&shared_.empty_k[stage]);
  }
  __device__ __forceinline__ void release_v() {
    if (speaks_) ptx::mbarrier_arrive(&shared_.empty_v[ring_v_.stage()]);
    ring_v_.advance();
  }

  FlashShared<Config>& shared_;
  const FlashShape& shape_;
  const FlashMaps& maps_;
  const int group_;
  const bool speaks_, stages_;
  bool owes_ = false, checked_ = false;
  FlashRing<Config::kStages> ring_v_;  ///< of values; keys are a tile ahead but for a task's first
  FlashRing<Config::kTaskStages> ring_q_;
};

template <class Config>
__device__ __forceinline__ void flash_init(FlashShared<Config>& shared) {
  constexpr int kValueReaders = Config::kGroups + Config::kCheckers, kTaskReaders = kValueReaders + 1;
  for (int i = 0; i < Config::kTaskStages; ++i)
    ptx::mbarrier_init(&shared.full_q[i], 1), ptx::mbarrier_init(&shared.empty_q[i], Config::kGroups);
  for (int i = 0; i < Config::kTasks; ++i)
    ptx::mbarrier_init(&shared.full_task[i], 1), ptx::mbarrier_init(&shared.empty_task[i], kTaskReaders);
  for (int s = 0; s < Config::kStages; ++s) {
    ptx::mbarrier_init(&shared.full_k[s], 1);
    ptx::mbarrier_init(&shared.empty_k[s], Config::kBiasTiles ? 4 * Config::kGroups : Config::kGroups);
    ptx::mbarrier_init(&shared.full_v[s], 1), ptx::mbarrier_init(&shared.empty_v[s], kValueReaders);
    ptx::mbarrier_init(&shared.checked_v[s], Config::kCheckers);
  }
  ptx::mbarrier_init(&shared.over, 1), ptx::mbarrier_arrive(&shared.over);
  ptx::mbarrier_init_fence();
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    flash_sm90(const __grid_constant__ FlashMaps maps, const __grid_constant__ FlashShape shape) {
  if constexpr (!ptx::kIsHopper) return;  // in PTX for other devices the kernel is empty, and never launched
  extern __shared__ __align__(1024) unsigned char raw[];
  auto& shared = *reinterpret_cast<FlashShared<Config>*>(raw);
  if (threadIdx.x == 0) {
    flash_init(shared);
    ptx::tma_prefetch_map(&maps.q), ptx::tma_prefetch_map(&maps.k), ptx::tma_prefetch_map(&maps.v);
  }
  check_offsets(shape.p);
  if (shape.splits > 1) ptx::launch_dependents();  // the kernel that joins waits for the end of all blocks
  __syncthreads();
  if (threadIdx.x < 128) {
    if constexpr (Config::kGroups > 1) ptx::registers_decrease<Config::kServeRegisters>();
    const int warp = threadIdx.x / 32;
    if (threadIdx.x == 0) FlashLoader<Config>(shared, shape, maps).run();
    if (threadIdx.x == 32) flash_plan<Config>(shared, shape);
    if (warp >= 2) flash_check<Config>(shared, warp - 2);
  } else {
    if constexpr (Config::kGroups > 1) ptx::registers_increase<Config::kComputeRegisters>();
    FlashComputer<Config>(shared, shape, maps).run();
  }
}

}  // namespace tenor::attn
