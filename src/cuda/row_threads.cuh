// The threads that share a row: which place each has, and how they combine what each found.
#pragma once

#include "src/cuda/ptx/cluster.cuh"
#include "src/cuda/reduce.cuh"
#include "src/cuda/row.h"

namespace tenor::cuda {

struct Sum {
  template <class C>
  __device__ __forceinline__ C operator()(C a, C b) const {
    return a + b;
  }
};
/// The greater of two; a NaN is passed over.
struct Max {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
  __device__ __forceinline__ double operator()(double a, double b) const { return fmax(a, b); }
};

/// Where the threads of a block or cluster leave what they reduced. Two sets in turn: a set is written again only after a
/// barrier that everyone passes after reading it.
template <class C>
struct RowScratch {
  static constexpr int kWarps = kRowThreads / kWarp;
  C value[2][kWarps * kWarp];
  C shared[2][kRowCluster * kWarp];
};

/// A thread's place among those of its row. kMayBeColumns: whether neighbouring lanes may hold neighbouring rows.
template <class C, bool kMayBeColumns>
class RowThreads {
 public:
  __device__ RowThreads(RowScratch<C>& scratch, bool columns) : scratch_(scratch), columns_(kMayBeColumns && columns) {
    cluster_ = static_cast<int>(ptx::cluster_size());
    rank_ = static_cast<int>(ptx::cluster_rank());
    if (cluster_ > 1) ptx::cluster_arrive();  // the other blocks must run before one writes to their memory
    if (columns_) {
      threads_ = blockDim.y;
      rows_ = blockDim.z * kWarp;
      mine_ = threadIdx.z * kWarp + threadIdx.x;
      place_ = threadIdx.y;
    } else {
      threads_ = blockDim.x;
      rows_ = blockDim.y;
      mine_ = threadIdx.y;
      place_ = threadIdx.x;
    }
    place_ += rank_ * threads_;
  }

  /// Rows are taken in groups of rows() by a block or cluster: this one takes group(), then every groups()-th.
  __device__ int rows() const { return rows_; }
  __device__ int64_t group() const { return blockIdx.x / static_cast<unsigned>(cluster_); }
  __device__ int64_t groups() const { return gridDim.x / static_cast<unsigned>(cluster_); }
  __device__ int64_t row(int64_t group) const { return group * rows_ + mine_; }  ///< this thread's of that group
  __device__ int place() const { return place_; }                 ///< among all threads of the row
  __device__ int count() const { return threads_ * cluster_; }    ///< of them

  /// The combination of all the row's threads' values, in each of them, in a fixed order. Every thread of the cluster calls.
  /// combine(neutral, v) is v.
  template <class Combine>
  __device__ C reduce(C value, C neutral, Combine combine) {
    set_ ^= 1;
    if (columns_) return reduce_columns(value, combine);
    for (int mask = min(threads_, kWarp) / 2; mask > 0; mask /= 2) value = combine(value, shuffle_xor(value, mask));
    return count() > kWarp ? reduce_warps(value, neutral, combine) : value;
  }

 private:
  /// Over the warps of the block or cluster: every warp leaves its value in every block, and combines all of them.
  template <class Combine>
  __device__ C reduce_warps(C value, C neutral, Combine combine) {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = threads_ / kWarp;
    C* values = scratch_.value[set_];
    if (cluster_ == 1) {
      if (lane == 0) values[warp] = value;
      __syncthreads();
    } else {
      meet();
      if (lane < cluster_) ptx::store_remote(values + rank_ * warps + warp, lane, value);
      ptx::cluster_sync();
    }
    const int found = warps * cluster_;
    if (found <= kRowThreads / kWarp) {  // few: every thread reads them all
      value = values[0];
      for (int i = 1; i < found; ++i) value = combine(value, values[i]);
      return value;
    }
    value = lane < found ? values[lane] : neutral;
    for (int i = lane + kWarp; i < found; i += kWarp) value = combine(value, values[i]);
    return warp_reduce(value, combine);
  }

  /// Over the warps of the block, then over the blocks, lane by lane.
  template <class Combine>
  __device__ C reduce_columns(C value, Combine combine) {
    const int lane = threadIdx.x;
    if (threads_ > 1) {
      C* values = scratch_.value[set_] + lane;
      values[threadIdx.y * kWarp] = value;
      __syncthreads();
      value = values[0];
      for (int s = 1; s < threads_; ++s) value = combine(value, values[s * kWarp]);
    }
    if (cluster_ > 1) {
      C* values = scratch_.shared[set_] + lane;
      meet();
      for (int b = threadIdx.y; b < cluster_; b += threads_) ptx::store_remote(values + rank_ * kWarp, b, value);
      ptx::cluster_sync();
      value = values[0];
      for (int b = 1; b < cluster_; ++b) value = combine(value, values[b * kWarp]);
    }
    return value;
  }

  /// Before the first store to another block: all blocks have started.
  __device__ void meet() {
    if (!met_) ptx::cluster_wait();
    met_ = true;
  }

  RowScratch<C>& scratch_;
  int threads_, cluster_, rank_, place_, rows_, mine_;
  int set_ = 0;
  bool columns_, met_ = false;
};

}  // namespace tenor::cuda
