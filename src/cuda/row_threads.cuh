// The threads that share a row: which place each has, and how they combine what each found.
#pragma once

#include "src/cuda/ptx/cluster.cuh"
#include "src/cuda/reduce.cuh"
#include "src/cuda/row.h"
#include "src/cuda/vector.cuh"

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

/// Several values, each combined by itself.
template <class Combine>
struct Each {
  Combine combine;
  template <class C, int K>
  __device__ __forceinline__ Pack<C, K> operator()(Pack<C, K> a, const Pack<C, K>& b) const {
#pragma unroll
    for (int k = 0; k < K; ++k) a.at[k] = combine(a.at[k], b.at[k]);
    return a;
  }
};

/// Where the threads of a block or cluster leave what they reduced, up to two values each. Two sets in turn: a set is
/// written again only after a barrier that everyone passes after reading it.
template <class C, bool kMayBeColumns>
struct RowScratch {
  static constexpr int kWarps = kRowThreads / kWarp;
  C value[2][2][kWarps * (kMayBeColumns ? kWarp : kRowCluster)];
  C shared[2][2][kMayBeColumns ? kRowCluster * kWarp : 1];
};

/// How the threads of a row lie, where that is known when compiling: it saves registers.
enum class RowShape : uint8_t {
  kWarps,    ///< whole warps of one row
  kLanes,    ///< some lanes of a warp
  kColumns,  ///< neighbouring lanes hold neighbouring rows
  kAny,
};

/// A thread's place among those of its row. kCluster: whether several blocks may share a row.
template <class C, RowShape kShape, bool kCluster>
class RowThreads {
 public:
  using Scratch = RowScratch<C, kShape == RowShape::kColumns || kShape == RowShape::kAny>;

  __device__ RowThreads(Scratch& scratch, bool columns) : scratch_(scratch), columns_(columns) {
    if (cluster() > 1) ptx::cluster_arrive();  // the other blocks must run before one writes to their memory
  }

  __device__ bool columns() const { return kShape == RowShape::kAny ? columns_ : kShape == RowShape::kColumns; }
  __device__ int cluster() const {
    if constexpr (!kCluster) return 1;
    return static_cast<int>(ptx::cluster_size());
  }
  __device__ int rank() const {
    if constexpr (!kCluster) return 0;
    return static_cast<int>(ptx::cluster_rank());
  }
  __device__ int threads() const { return columns() ? blockDim.y : blockDim.x; }  ///< of a row, in this block
  __device__ int rows() const { return columns() ? blockDim.z * kWarp : blockDim.y; }
  /// Rows are taken in groups of rows() by a block or cluster: this thread's row.
  __device__ int64_t row() const {
    const unsigned group = blockIdx.x / static_cast<unsigned>(cluster());
    return int64_t{group} * rows() + (columns() ? threadIdx.z * kWarp + threadIdx.x : threadIdx.y);
  }
  __device__ int place() const {
    return rank() * threads() + (columns() ? threadIdx.y : threadIdx.x);
  }                                                               ///< among the row's
  __device__ int count() const { return threads() * cluster(); }  ///< of them

  /// The combination of all the row's threads' values (K numbers each), in each of them, in a fixed order. Every thread
  /// of the cluster calls. combine(neutral, v) is v.
  template <int K, class Combine>
  __device__ Pack<C, K> reduce(Pack<C, K> value, const Pack<C, K>& neutral, Combine combine) {
    static_assert(K <= 2);
    set_ ^= 1;
    if (columns()) return reduce_columns(value, combine);
    if constexpr (kShape == RowShape::kWarps)
      value = warp_reduce(value, combine);
    else
      for (int mask = min(threads(), kWarp) / 2; mask > 0; mask /= 2) value = combine(value, shuffle_xor(value, mask));
    return kShape != RowShape::kLanes && count() > kWarp ? reduce_warps(value, neutral, combine) : value;
  }

 private:
  /// Over the warps of the block or cluster: every warp leaves its value in every block, and combines all of them.
  template <int K, class Combine>
  __device__ Pack<C, K> reduce_warps(const Pack<C, K>& value, const Pack<C, K>& neutral, Combine combine) {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = threads() / kWarp, blocks = cluster();
    auto& values = scratch_.value[set_];
    if (blocks == 1) {
#pragma unroll
      for (int k = 0; k < K; ++k)
        if (lane == 0) values[k][warp] = value.at[k];
      __syncthreads();
    } else {
      meet();
#pragma unroll
      for (int k = 0; k < K; ++k)
        if (lane < blocks) ptx::store_remote(values[k] + rank() * warps + warp, lane, value.at[k]);
      ptx::cluster_sync();
    }
    const auto found_by = [&](int i) {
      Pack<C, K> v;
#pragma unroll
      for (int k = 0; k < K; ++k) v.at[k] = values[k][i];
      return v;
    };
    const int found = warps * blocks;
    if (found <= kRowThreads / kWarp) {  // few: every thread reads them all
      Pack<C, K> all = found_by(0);
      for (int i = 1; i < found; ++i) all = combine(all, found_by(i));
      return all;
    }
    Pack<C, K> all = lane < found ? found_by(lane) : neutral;
    for (int i = lane + kWarp; i < found; i += kWarp) all = combine(all, found_by(i));
    return warp_reduce(all, combine);
  }

  /// Over the warps of the block, then over the blocks, lane by lane.
  template <int K, class Combine>
  __device__ Pack<C, K> reduce_columns(Pack<C, K> value, Combine combine) {
    const int lane = threadIdx.x, warps = threads(), blocks = cluster();
    const auto combined = [&](auto& values, int found) {
      Pack<C, K> all;
      for (int s = 0; s < found; ++s) {
        Pack<C, K> v;
#pragma unroll
        for (int k = 0; k < K; ++k) v.at[k] = values[k][s * kWarp + lane];
        all = s == 0 ? v : combine(all, v);
      }
      return all;
    };
    if (warps > 1) {
      auto& values = scratch_.value[set_];
#pragma unroll
      for (int k = 0; k < K; ++k) values[k][threadIdx.y * kWarp + lane] = value.at[k];
      __syncthreads();
      value = combined(values, warps);
    }
    if (blocks > 1) {
      auto& values = scratch_.shared[set_];
      meet();
#pragma unroll
      for (int k = 0; k < K; ++k)
        for (int b = threadIdx.y; b < blocks; b += warps)
          ptx::store_remote(values[k] + rank() * kWarp + lane, b, value.at[k]);
      ptx::cluster_sync();
      value = combined(values, blocks);
    }
    return value;
  }

  /// Before the first store to another block: all blocks have started.
  __device__ void meet() {
    if (!met_) ptx::cluster_wait();
    met_ = true;
  }

  Scratch& scratch_;
  int set_ = 0;
  bool columns_, met_ = false;
};

}  // namespace tenor::cuda
