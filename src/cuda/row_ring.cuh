// Rows of a cluster of blocks, several in turn: while one is computed the next is on its way into shared memory, so
// that what the blocks wait for one another does not keep the memory waiting.
#pragma once

#include "src/cuda/ptx/tma.cuh"
#include "src/cuda/row_held.cuh"

namespace tenor::cuda {

inline constexpr int kRingThreads = kRowThreads / 2;
/// Rows that a cluster computes at once, each by kRingThreads of a block's threads: while one waits for other blocks
/// the other computes, and both find the vectors that scale them in the same place.
inline constexpr int kRingRows = 2;

/// Dense rows that begin at multiples of 16 bytes and are whole vectors, otherwise as HeldRow. A block's part of a row
/// takes a stage of a ring; kVectors: of vectors of its length and type, by which all rows are scaled, it keeps its
/// part for all rows.
template <class T, int N, int kVectors, RowFit kFit>
class RingRow : public HeldRow<T, N, RowShape::kWarps, kVector<T>, held_elements(sizeof(T), true), true, kFit> {
  static constexpr int kShare = held_elements(sizeof(T), true);
  using Base = HeldRow<T, N, RowShape::kWarps, kVector<T>, kShare, true, kFit>;
  static_assert(kVectors <= 2 && (kVectors == 0 || sizeof(T) == 2));

 public:
  using Threads = typename Base::Threads;
  static constexpr int kKept = kVectors;
  static constexpr int kStages =
      sizeof(T) == 2 ? 3 - kVectors / 2 : 1;  ///< of a ring, so that all fits a multiprocessor
  static constexpr int kParts = kRingRows * kStages + kVectors, kBarriers = kRingRows * (kStages + 1) + 1;
  static constexpr size_t kPartBytes = size_t{kRingThreads} * kShare * sizeof(T);
  struct Memory {
    uint4* parts;    ///< kParts of kPartBytes: the vectors, then the stages of each ring
    uint64_t* full;  ///< kBarriers: of the vectors, then of each ring's stages and of what has been read
  };

  /// The `in_turn` rows of these threads (fewer at the end).
  __device__ RingRow(const typename Base::Problem& problem, typename Threads::Scratch& scratch, const Memory& memory,
                     int in_turn)
      : Base(problem, scratch), memory_(memory), full_(memory.full + 1 + threadIdx.y * (kStages + 1)) {
    begin_ = this->threads_.row(this->threads_.group()) * in_turn;
    rows_ = static_cast<int>(max(min(int64_t{in_turn}, this->rows() - begin_), int64_t{0}));
    this->left_ = static_cast<int>(problem.length) - this->first();
    if (threadIdx.x == 0) {
      if (threadIdx.y == 0) ptx::mbarrier_init(memory_.full, max(kVectors, 1));
      for (int s = 0; s < kStages; ++s) ptx::mbarrier_init(full_ + s, 1);
      ptx::mbarrier_init(full_ + kStages, blockDim.x / kWarp);
      ptx::mbarrier_init_fence();
    }
    __syncthreads();
    for (int i = 0; i < kStages; ++i) fetch(i);
  }

  /// Keeps this block's part of a vector, the k-th of kVectors, each of which is given once; null: none.
  __device__ void keep(int k, const T* vector) {
    if (threadIdx.x + threadIdx.y == 0) copy(k, vector ? vector + this->first() : nullptr, memory_.full);
  }
  /// What lies in it beside this thread's p-th access.
  __device__ __forceinline__ uint4 kept(int k, int p) const { return part(k)[p * kWarp]; }

  /// Takes the next row, which run() then writes; false where there is none.
  __device__ bool next() {
    if (taken_ == rows_) return false;
    this->row_ = begin_ + taken_;
    const int stage = taken_ % kStages;
    if (kVectors > 0 && taken_ == 0) ptx::mbarrier_wait(memory_.full, 0);
    ptx::mbarrier_wait(full_ + stage, taken_ / kStages & 1);
#pragma unroll
    for (int p = 0; p < Base::kPacks; ++p)
      if (this->holds(p)) this->held_[p] = part(part_of(stage))[p * kWarp];
    ++taken_;
    return true;
  }
  /// The elements have been used once, so they are in registers: the next row may come where they were, before the
  /// warps join what they found. One thread waits until all warps say so.
  __device__ void release() {
    uint64_t* read = full_ + kStages;
    __syncwarp();
    if (threadIdx.x % kWarp == 0) ptx::mbarrier_arrive(read);
    if (threadIdx.x == 0) ptx::mbarrier_wait(read, (taken_ - 1) & 1);
    fetch(taken_ - 1 + kStages);
    released_ = true;
  }
  /// Behind the barrier at which the block's warps joined what they found, so that all of them have read this row's
  /// stage: the next one may come there.
  template <bool kReads = true, class F>
  __device__ void write(int to, F f) {
    if (!released_) fetch(taken_ - 1 + kStages);
    released_ = false;
    Base::template write<kReads>(to, f);
  }

 private:
  /// Where this thread's accesses lie in a part.
  __device__ __forceinline__ const uint4* part(int k) const {
    const int mine = threadIdx.x / kWarp * Base::kPacks * kWarp + threadIdx.x % kWarp;
    return memory_.parts + k * (kPartBytes / kVectorBytes) + mine;
  }
  static __device__ int part_of(int stage) { return kVectors + static_cast<int>(threadIdx.y) * kStages + stage; }
  /// Starts the copy of row i of these threads.
  __device__ void fetch(int i) {
    const int stage = i % kStages;
    if (threadIdx.x == 0 && i < rows_) copy(part_of(stage), this->data(0, begin_ + i), full_ + stage);
  }
  /// By one thread, of what this block holds; `barrier` counts its bytes.
  __device__ void copy(int to, const T* from, uint64_t* barrier) {
    const int elements = max(min(static_cast<int>(blockDim.x) * kShare, this->left_), 0);
    const auto bytes = from ? static_cast<uint32_t>(elements * static_cast<int>(sizeof(T))) : 0;
    ptx::mbarrier_arrive_expect(barrier, bytes);
    if (bytes > 0) ptx::bulk_load(memory_.parts + to * (kPartBytes / kVectorBytes), from, bytes, barrier);
  }

  Memory memory_;
  uint64_t* full_;
  int64_t begin_;
  int rows_, taken_ = 0;
  bool released_ = false;
};

}  // namespace tenor::cuda
