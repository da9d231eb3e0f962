// Rows of a cluster of blocks, several in turn: while one is computed the next is on its way into shared memory, so
// that what the blocks wait for one another does not keep the memory waiting.
#pragma once

#include "src/cuda/ptx/tma.cuh"
#include "src/cuda/row_held.cuh"

namespace tenor::cuda {

inline constexpr int kRingThreads = kRowThreads / 2;

/// Dense rows that begin at multiples of 16 bytes and are whole vectors, otherwise as HeldRow. A block's part of a row
/// takes a stage of the ring; kVectors: of vectors of its length and type, by which all rows are scaled, it keeps its
/// part for all rows.
template <class T, int N, int kVectors, RowFit kFit>
class RingRow : public HeldRow<T, N, RowShape::kWarps, kVector<T>, held_elements(sizeof(T), true), true, kFit> {
  static constexpr int kShare = held_elements(sizeof(T), true);
  using Base = HeldRow<T, N, RowShape::kWarps, kVector<T>, kShare, true, kFit>;
  static_assert(kVectors <= 2 && (kVectors == 0 || sizeof(T) == 2));

 public:
  using Threads = typename Base::Threads;
  static constexpr int kKept = kVectors;
  /// 96 KiB with the vectors, or 64: room for a second block on the multiprocessor.
  static constexpr int kStages = sizeof(T) == 2 ? 3 - kVectors : 1, kParts = kStages + kVectors, kBarriers = kStages + 2;
  static constexpr size_t kPartBytes = size_t{kRingThreads} * kShare * sizeof(T);
  struct Memory {
    uint4* parts;    ///< kParts of kPartBytes: the stages, then the vectors
    uint64_t* full;  ///< kBarriers: of the stages, of the vectors, and that of what has been read
  };

  /// The `in_turn` rows of this cluster (fewer at the end).
  __device__ RingRow(const typename Base::Problem& problem, typename Threads::Scratch& scratch, const Memory& memory,
                     int in_turn)
      : Base(problem, scratch), memory_(memory) {
    begin_ = this->threads_.group() * in_turn;
    rows_ = static_cast<int>(min(int64_t{in_turn}, this->rows() - begin_));
    this->left_ = static_cast<int>(problem.length) - this->first();
    if (threadIdx.x == 0) {
      for (int s = 0; s < kStages; ++s) ptx::mbarrier_init(memory_.full + s, 1);
      ptx::mbarrier_init(memory_.full + kStages, max(kVectors, 1));
      ptx::mbarrier_init(memory_.full + kStages + 1, blockDim.x / kWarp);
      ptx::mbarrier_init_fence();
    }
    __syncthreads();
    for (int i = 0; i < kStages; ++i) fetch(i);
  }

  /// Keeps this block's part of a vector, the k-th of kVectors, each of which is given once; null: none.
  __device__ void keep(int k, const T* vector) {
    if (threadIdx.x == 0) copy(kStages + k, vector ? vector + this->first() : nullptr, memory_.full + kStages);
  }
  /// What lies in it beside this thread's p-th access.
  __device__ __forceinline__ uint4 kept(int k, int p) const { return part(kStages + k)[p * kWarp]; }

  /// Takes the next row, which run() then writes; false where there is none.
  __device__ bool next() {
    if (taken_ == rows_) return false;
    this->row_ = begin_ + taken_;
    const int stage = taken_ % kStages;
    if (kVectors > 0 && taken_ == 0) ptx::mbarrier_wait(memory_.full + kStages, 0);
    ptx::mbarrier_wait(memory_.full + stage, taken_ / kStages & 1);
#pragma unroll
    for (int p = 0; p < Base::kPacks; ++p)
      if (this->holds(p)) this->held_[p] = part(stage)[p * kWarp];
    ++taken_;
    return true;
  }
  /// The elements have been used once, so they are in registers: the next row may come where they were, before the warps
  /// join what they found. One thread waits until all warps say so.
  __device__ void release() {
    uint64_t* read = memory_.full + kStages + 1;
    __syncwarp();
    if (threadIdx.x % kWarp == 0) ptx::mbarrier_arrive(read);
    if (threadIdx.x == 0) ptx::mbarrier_wait(read, (taken_ - 1) & 1);
    fetch(taken_ - 1 + kStages);
    released_ = true;
  }
  /// Behind the barrier at which the block's warps joined what they found, so that all of them have read this row's
  /// stage: the next one may come there.
  template <class F>
  __device__ void write(int to, F f) {
    if (!released_) fetch(taken_ - 1 + kStages);
    released_ = false;
    Base::write(to, f);
  }

 private:
  /// Where this thread's accesses lie in a part.
  __device__ __forceinline__ const uint4* part(int k) const {
    const int mine = threadIdx.x / kWarp * Base::kPacks * kWarp + threadIdx.x % kWarp;
    return memory_.parts + k * (kPartBytes / kVectorBytes) + mine;
  }
  /// Starts the copy of row i of this cluster.
  __device__ void fetch(int i) {
    if (threadIdx.x == 0 && i < rows_) copy(i % kStages, this->data(0, begin_ + i), memory_.full + i % kStages);
  }
  /// By one thread, of what this block holds; `barrier` counts its bytes.
  __device__ void copy(int to, const T* from, uint64_t* barrier) {
    const int elements = max(min(static_cast<int>(blockDim.x) * kShare, this->left_), 0);
    const auto bytes = from ? static_cast<uint32_t>(elements * static_cast<int>(sizeof(T))) : 0;
    ptx::mbarrier_arrive_expect(barrier, bytes);
    if (bytes > 0) ptx::bulk_load(memory_.parts + to * (kPartBytes / kVectorBytes), from, bytes, barrier);
  }

  Memory memory_;
  int64_t begin_;
  int rows_, taken_ = 0;
  bool released_ = false;
};

}  // namespace tenor::cuda
