// The computing warpgroups of the Hopper kernel, and the kernel.
#pragma once

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

/// s = 64 rows of q times a tile of keys, all in flight.
template <class Config>
__device__ __forceinline__ void flash_scores(float (&s)[Config::kKeys / 2], const FlashShared<Config>& shared,
                                             int group, int task_stage, int stage) {
#pragma unroll
  for (int b = 0; b < Config::kBlocks; ++b) {
    const uint64_t q = ptx::wgmma_descriptor(shared.q[task_stage][b] + group * 64 * 64),
                   k = ptx::wgmma_descriptor(shared.k[stage][b]);
#pragma unroll
    for (int step = 0; step < 4; ++step)
      ptx::wgmma<typename Config::T, Config::kKeys, ptx::TileLayout::kInner>(
          s, q + step * ptx::kWgmmaStepK<>, k + step * ptx::kWgmmaStepK<>, b + step > 0);
  }
  ptx::wgmma_commit();
}

/// o += weights times a tile of values, all in flight.
template <class Config>
__device__ __forceinline__ void flash_values(float (&o)[Config::kDim / 2], const uint32_t (&p)[Config::kKeys / 4],
                                             const FlashShared<Config>& shared, int stage) {
  constexpr auto kOuter = ptx::TileLayout::kOuter;
  const uint64_t v = ptx::wgmma_descriptor<kOuter, Config::kKeys>(shared.v[stage][0]);
#pragma unroll
  for (int step = 0; step < Config::kKeys / 16; ++step)
    ptx::wgmma<typename Config::T, Config::kDim, kOuter>(o, p[4 * step], p[4 * step + 1], p[4 * step + 2],
                                                         p[4 * step + 3], v + step * ptx::kWgmmaStepK<kOuter>, true);
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
    FlashTasks<Config> tasks;
    const int place = first_row();
    for (FlashTask t; tasks.next(t, shared_); tasks.advance()) {
      FlashRows rows{{-INFINITY, -INFINITY}, {0, 0}, {0, 0}};
      float o[Config::kDim / 2];
#pragma unroll
      for (float& x : o) x = 0;
      bool poisoned = false;
      if (!t.empty()) {
        query_ = make_int2(t.query_of(shape_, place), t.query_of(shape_, place + 8));
        if constexpr (Config::kGeneral) planes_.find(shape_, t, place);
        attend(o, rows, t, poisoned);
      }
      store(o, rows, tasks.again(shared_), place, poisoned);
      if (speaks_) tasks.release(shared_);
    }
    if (group_ == 0) turn_wait<Config>(group_);  // the turn that the last group passed on
    if (speaks_) ptx::tma_store_wait_read<0>();
  }

 private:
  __device__ __forceinline__ void store(const float (&o)[Config::kDim / 2], const FlashRows& rows, const FlashTask& t,
                                        int place, bool poisoned) {
    const float2 inverse = flash_sums<Config>(rows, shared_.scratch.lse, shape_, t, place);
    const int stage = ring_q_.stage;
    const bool staged = stages_ && !t.empty();
    bool odd = poisoned;
    if constexpr (!Config::kStaged)
      odd |= flash_store<Config>(o, inverse, shape_, t, place);
    else if (shape_.splits > 1)
      odd |= store_partial<Config>(o, inverse, shape_, t, place);
    else if (staged)
      odd |= flash_stage<Config>(shared_, o, inverse, group_, stage), ptx::fence_async_proxy();
    odd = flash_any(group_, odd);  // and all have read the task
    if (!t.empty()) ring_q_.advance();
    if constexpr (!Config::kStaged)
      if (!odd) return;
    if (Config::kStaged && staged && shape_.tma_out && !odd) {
      if (speaks_) flash_send<Config>(shared_, maps_.out, shape_, t, group_, stage);
      owes_ = true;
      return;
    }
    const FlashTask copy = t;  // only what a call takes by address leaves the registers
    if (Config::kStaged && staged) {
      flash_send_rows<Config>(shared_, shape_, copy, group_, stage);
      flash_sync(group_);
      if (speaks_) ptx::mbarrier_arrive(&shared_.empty_q[stage]);
    } else if (Config::kStaged && stages_) {
      flash_store_nothing<Config>(shape_, copy, group_);
    }
    if (odd) flash_restore<Config>(shared_.scratch, shape_, copy, group_);
  }
  /// Gives back the place of the queries of the task before, from where its rows have been sent.
  __device__ __forceinline__ void settle() {
    if (owes_ && speaks_) {
      ptx::tma_store_wait_read<0>();
      ptx::mbarrier_arrive(&shared_.empty_q[ring_q_.stage ^ 1]);
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
    ptx::mbarrier_wait(&shared_.full_q[ring_q_.stage], ring_q_.parity);
    ptx::mbarrier_wait(&shared_.full_k[ring_k_.stage], ring_k_.parity);
    turn_wait<Config>(group_);
    ptx::wgmma_fence();
    flash_scores<Config>(s, shared_, group_, ring_q_.stage, ring_k_.stage);
    turn_pass<Config>(group_);
    if constexpr (Config::kStaged) settle();
    ptx::wgmma_wait<0>();
    keep_order(s);
    if (t.hides<Config>(n)) finish<true>(s, t, n);
    if constexpr (Config::kBiasTiles) flash_sync(group_);  // all have read the bias
    release_k();
    flash_softmax<Config::kGeneral>(s, rows, shape_.scale_log2);
    flash_pack<typename Config::T>(p, s);
    const int masked = Config::kGeneral ? t.begin : max(t.full_end, t.begin);
    for (--n; n >= masked; --n) step<true>(o, s, p, rows, t, n, poisoned);
    if constexpr (!Config::kGeneral) {
      for (; n >= t.full_begin; --n) step<false>(o, s, p, rows, t, n, poisoned);
      for (; n >= t.begin; --n) step<true>(o, s, p, rows, t, n, poisoned);
    }
    if (speaks_ && !stages_) ptx::mbarrier_arrive(&shared_.empty_q[ring_q_.stage]);
    wait_values(t, t.begin, poisoned);
    ptx::wgmma_fence();
    flash_values<Config>(o, p, shared_, ring_v_.stage);
    ptx::wgmma_wait<0>();
    keep_order(o);
    release_v();
  }

  /// Scores of tile n while the values of tile n + 1 are added up.
  template <bool kHides>
  __device__ __forceinline__ void step(float (&o)[Config::kDim / 2], float (&s)[Config::kKeys / 2],
                                       uint32_t (&p)[Config::kKeys / 4], FlashRows& rows, const FlashTask& t, int n,
                                       bool& poisoned) {
    ptx::mbarrier_wait(&shared_.full_k[ring_k_.stage], ring_k_.parity);
    turn_wait<Config>(group_);
    ptx::wgmma_fence();
    flash_scores<Config>(s, shared_, group_, ring_q_.stage, ring_k_.stage);
    wait_values(t, n + 1, poisoned);
    ptx::wgmma_fence();  // lest the compiler orders more than it must
    flash_values<Config>(o, p, shared_, ring_v_.stage);
    turn_pass<Config>(group_);
    ptx::wgmma_wait<1>();
    keep_order(s);
    if constexpr (!Config::kBiasTiles) release_k();
    finish<kHides>(s, t, n);
    if constexpr (Config::kBiasTiles) flash_sync(group_), release_k();  // all have read the bias
    flash_softmax<Config::kGeneral>(s, rows, shape_.scale_log2);
    if constexpr (Config::kTaskStages == 1) end_block(s);
    ptx::wgmma_wait<0>();
    keep_order(o), keep_order(s);
    release_v();
    flash_pack<typename Config::T>(p, s);
#pragma unroll
    for (int i = 0; i < Config::kDim / 2; ++i) o[i] *= rows.shrink[i >> 1 & 1];
  }

  /// What was computed stays before what follows: the assembler would wait for the product first and run the
  /// exponentials after it, not beside it. It moves nothing across the loop of a wait; this one, for the queries, is
  /// long over. Measured to gain 4% at head sizes of 256 and with a bias, and nothing elsewhere.
  __device__ __forceinline__ void end_block(float (&s)[Config::kKeys / 2]) {
    keep_order(s);
    ptx::mbarrier_wait(&shared_.full_q[ring_q_.stage], ring_q_.parity);
  }

  template <bool kHides>
  __device__ __forceinline__ void finish(float (&s)[Config::kKeys / 2], const FlashTask& t, int n) {
    if constexpr (Config::kGeneral)
      flash_finish_scores<Config>(s, shape_, shared_.bias[Config::kBiasTiles ? ring_k_.stage : 0], planes_, t, query_,
                                  first_row(), n);
    else if constexpr (kHides)
      flash_hide<Config>(s, t, query_, n);
  }
  __device__ __forceinline__ void wait_values(const FlashTask& t, int n, bool& poisoned) {
    const int stage = ring_v_.stage;
    if (!t.hides<Config>(n)) return ptx::mbarrier_wait(&shared_.full_v[stage], ring_v_.parity);
    ptx::mbarrier_wait(&shared_.checked_v[stage], ring_v_.parity);
#pragma unroll
    for (bool found : shared_.poisoned[stage]) poisoned |= found;
  }
  __device__ __forceinline__ void release_k() {
    if (speaks_) ptx::mbarrier_arrive(&shared_.empty_k[ring_k_.stage]);
    ring_k_.advance();
  }
  __device__ __forceinline__ void release_v() {
    if (speaks_) ptx::mbarrier_arrive(&shared_.empty_v[ring_v_.stage]);
    ring_v_.advance();
  }

  FlashShared<Config>& shared_;
  const FlashShape& shape_;
  const FlashMaps& maps_;
  const int group_;
  const bool speaks_, stages_;
  bool owes_ = false;
  int2 query_;  // of this thread's rows
  FlashPlanes planes_;
  FlashRing<Config::kStages> ring_k_, ring_v_;
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
    ptx::mbarrier_init(&shared.full_k[s], 1), ptx::mbarrier_init(&shared.empty_k[s], Config::kGroups);
    ptx::mbarrier_init(&shared.full_v[s], 1), ptx::mbarrier_init(&shared.empty_v[s], kValueReaders);
    ptx::mbarrier_init(&shared.checked_v[s], Config::kCheckers);
  }
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
  __syncthreads();
  if (threadIdx.x < 128) {
    ptx::registers_decrease<Config::kServeRegisters>();
    const int warp = threadIdx.x / 32;
    if (threadIdx.x == 0) FlashLoader<Config>(shared, shape, maps).run();
    if (threadIdx.x == 32) flash_plan<Config>(shared, shape);
    if (warp >= 2) flash_check<Config>(shared, warp - 2);
  } else {
    ptx::registers_increase<Config::kComputeRegisters>();
    FlashComputer<Config>(shared, shape, maps).run();
  }
}

}  // namespace tenor::attn
