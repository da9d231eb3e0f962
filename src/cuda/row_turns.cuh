// Rows of one block each, several in turn: while one is computed the next are on their way into shared memory. For
// operators that instructions bound as much as memory does: what they prepare is prepared once, vectors stay in
// registers, and the next row does not wait until this one is written.
#pragma once

#include "src/cuda/ptx/mbarrier.cuh"
#include "src/cuda/row_held.cuh"

namespace tenor::cuda {

inline constexpr int kTurnRows = 4;    ///< of a block, where each is one warp's
inline constexpr int kMostStages = 8;  ///< rows that are on their way, or being read

/// ptx::bulk_load under the policy of load_lasting.
__device__ __forceinline__ void bulk_load_lasting(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(ptx::shared_address(to)),
      "l"(from), "r"(bytes), "r"(ptx::shared_address(barrier)), "l"(last_to_leave())
      : "memory");
}

/// Dense rows that begin at multiples of 16 bytes and are whole vectors, otherwise as HeldRow, whose bits they have.
template <class T, int N, RowFit kFit>
class TurnRow : public HeldRow<T, N, RowShape::kWarps, kVector<T>, held_elements(sizeof(T)), false, kFit> {
  static constexpr int kShare = held_elements(sizeof(T));
  using Base = HeldRow<T, N, RowShape::kWarps, kVector<T>, kShare, false, kFit>;

 public:
  using Threads = typename Base::Threads;
  static constexpr bool kInTurn = true;  ///< what an operator prepares is for all of a thread's rows
  /// Of a stage of a row of that many threads.
  static constexpr size_t stage_bytes(int threads) { return static_cast<size_t>(threads) * kShare * sizeof(T); }
  using Barriers = uint64_t[kTurnRows][kMostStages];  ///< of each row of the block

  __device__ TurnRow(const typename Base::Problem& problem, typename Threads::Scratch& scratch, Barriers& full,
                     uint4* memory, int stages)
      : Base(problem, scratch), full_(full[threadIdx.y]), stages_(stages) {
    size_ = static_cast<int>(stage_bytes(blockDim.x)) / kVectorBytes;
    memory_ = memory + threadIdx.y * stages * size_;
    this->left_ = static_cast<int>(problem.length) - this->first();
    step_ = int64_t{gridDim.x} * blockDim.y;
    this->row_ -= step_;
    if (threadIdx.x == 0) {
      for (int s = 0; s < stages; ++s) ptx::mbarrier_init(full_ + s, 1);
      ptx::mbarrier_init_fence();
    }
    __syncthreads();
    for (int s = 0; s < stages; ++s) fetch(s, s + 1);
  }

  /// Takes the next row, which run() then writes; false where there is none.
  __device__ bool next() {
    this->row_ += step_;
    if (!this->exists()) return false;
    ptx::mbarrier_wait(full_ + stage_, phase_);
    const uint4* from = memory_ + stage_ * size_ + this->first() / Base::kGroup;
#pragma unroll
    for (int p = 0; p < Base::kPacks; ++p)
      if (this->holds(p)) this->held_[p] = from[p * kWarp];
    return true;
  }
  /// Behind the barrier at which the row's warps joined what they found, so that all of them have read its stage:
  /// another may come there.
  template <class F>
  __device__ void write(int to, F f) {
    if (blockDim.x == kWarp) __syncwarp();  // one warp joins nothing
    fetch(stage_, stages_);
    if (++stage_ == stages_) stage_ = 0, phase_ ^= 1;
    Base::write(to, f);
  }

 private:
  /// Starts the copy of the row that comes `ahead` turns after this one.
  __device__ void fetch(int stage, int ahead) {
    const int64_t row = this->row_ + ahead * step_;
    if (threadIdx.x != 0 || row >= this->rows()) return;
    const auto bytes = static_cast<uint32_t>(this->problem_.length * static_cast<int64_t>(sizeof(T)));
    ptx::mbarrier_arrive_expect(full_ + stage, bytes);
    bulk_load_lasting(memory_ + stage * size_, this->data(0, row), bytes, full_ + stage);
  }

  uint64_t* full_;
  uint4* memory_;
  int64_t step_;
  int stages_, size_, stage_ = 0, phase_ = 0;
};

}  // namespace tenor::cuda
