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

/// What the parts of a row were found to be, as one thread sees them: each() calls it for some of them, and combined()
/// combines what the threads made of theirs. kPacked: a part's values lie side by side.
template <class C, int K, bool kPacked>
struct RowParts {
  static constexpr int kFew = 4;  ///< parts that every thread takes, rather than one a lane and then five shuffles
  using Part = Pack<C, K>;
  const C* values;  ///< the k-th value of part i at values[i * K + k], or values[k * between + i * pitch]
  int between, pitch;
  int count, lane;  ///< kPacked: this thread's lane

  __device__ __forceinline__ Part part(int i) const {
    if constexpr (kPacked) {
      return reinterpret_cast<const Part*>(values)[i];
    } else {
      Part out;
#pragma unroll
      for (int k = 0; k < K; ++k) out.at[k] = values[k * between + i * pitch];
      return out;
    }
  }
  template <class F>
  __device__ __forceinline__ void each(F f) const {
    if (!kPacked) {
      for (int i = 0; i < count; ++i) f(part(i));
    } else if (count <= kFew) {
#pragma unroll
      for (int i = 0; i < kFew; ++i)
        if (i < count) f(part(i));
    } else if (lane < count) {  // never more than lanes
      f(part(lane));
    }
  }
  template <class V, class Combine>
  __device__ __forceinline__ V combined(V mine, Combine combine) const {
    return !kPacked || count <= kFew ? mine : warp_reduce(mine, combine);
  }
};

/// Joins parts two by two. combine(neutral, v) is v.
template <class V, class Combine>
struct InPairs {
  V neutral;
  Combine combine;
  template <class Parts>
  __device__ __forceinline__ V operator()(const Parts& parts) const {
    V all = neutral;
    parts.each([&](const V& part) { all = combine(all, part); });
    return parts.combined(all, combine);
  }
};

/// How the threads of a row lie, where that is known when compiling: it saves registers.
enum class RowShape : uint8_t {
  kWarps,    ///< whole warps of one row
  kLanes,    ///< some lanes of a warp
  kColumns,  ///< neighbouring lanes hold neighbouring rows
  kAny,
};

/// Where the threads of a block or cluster leave what they reduced, up to kMost values each.
template <class C, RowShape kShape, bool kCluster>
struct RowScratch {
  static constexpr int kMost = 4, kWarps = kRowThreads / kWarp;
  static constexpr bool kColumns = kShape == RowShape::kColumns || kShape == RowShape::kAny;
  /// Two in turn where rows are computed one after the other: a set is written again only after a barrier that everyone
  /// passes after reading it.
  static constexpr int kSets = kColumns ? 1 : 2;
  alignas(4 * sizeof(C)) C value[kSets][kMost][kWarps * (kColumns ? kWarp : 1)];
  alignas(4 * sizeof(C)) C shared[kSets][kMost][kCluster ? kRowCluster * (kColumns ? kWarp : 1) : 1];
  uint64_t arrived[kSets];  ///< barriers that count what other blocks send
};

/// A thread's place among those of its row. kCluster: whether several blocks may share a row.
template <class C, RowShape kShape, bool kCluster>
class RowThreads {
 public:
  using Scratch = RowScratch<C, kShape, kCluster>;

  __device__ RowThreads(Scratch& scratch, bool columns) : scratch_(scratch), columns_(columns) {
    if constexpr (kCluster && ptx::kHasClusters) {
      if (cluster() == 1) return;
      if (threadIdx.x == 0 && (kGroups || threadIdx.y + threadIdx.z == 0)) {
        for (uint64_t& barrier : scratch_.arrived) ptx::mbarrier_init(&barrier, 1);
        ptx::mbarrier_init_fence();
      }
      ptx::cluster_arrive();  // the other blocks must run before one writes to their memory
    }
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
  /// Rows are taken in groups of rows() by a block or cluster: which group.
  __device__ int64_t group() const { return blockIdx.x / static_cast<unsigned>(cluster()); }
  /// This thread's row of that group.
  __device__ int64_t row(int64_t group) const {
    return group * rows() + (columns() ? threadIdx.z * kWarp + threadIdx.x : threadIdx.y);
  }
  __device__ int place() const {
    return rank() * threads() + (columns() ? threadIdx.y : threadIdx.x);
  }                                                               ///< among the row's
  __device__ int count() const { return threads() * cluster(); }  ///< of them
  /// Threads of the row that combine what they found without waiting: lanes of a warp, of columns each for itself.
  __device__ int near() const { return columns() ? 1 : min(count(), kWarp); }

  /// Over those threads, in each of them.
  template <class V, class Combine>
  __device__ __forceinline__ V reduce_near(V value, Combine combine) const {
    if (columns()) return value;
    if constexpr (kShape == RowShape::kWarps) {
      return warp_reduce(value, combine);
    } else {
      for (int mask = near() / 2; mask > 0; mask /= 2) value = combine(value, shuffle_xor(value, mask));
      return value;
    }
  }
  /// What `join` makes of the values that all near groups found (K numbers each), in every thread, in a fixed order. Of
  /// columns it is called again with what it made in each block of the cluster. Every thread of the cluster calls.
  template <int K, class Join>
  __device__ Pack<C, K> join(const Pack<C, K>& found, Join join) {
    static_assert(K <= Scratch::kMost);
    if (kShape == RowShape::kLanes || count() <= near()) return found;
    turn();
    return columns() ? join_columns(found, join) : join_warps(found, join);
  }
  /// The combination of all the row's threads' values, likewise.
  template <int K, class Combine>
  __device__ Pack<C, K> reduce(Pack<C, K> value, const Pack<C, K>& neutral, Combine combine) {
    return join(reduce_near(value, combine), InPairs<Pack<C, K>, Combine>{neutral, combine});
  }

 private:
  /// Over the warps of the block, then over the blocks.
  template <int K, class Join>
  __device__ Pack<C, K> join_warps(Pack<C, K> value, Join join) {
    static_assert(Scratch::kWarps <= kWarp && kRowCluster <= kWarp);
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = threads() / kWarp, blocks = cluster();
    const auto all_of = [&](const C* values, int parts) {
      return join(RowParts<C, K, true>{values, 0, 0, parts, lane});
    };
    if (warps > 1) {
      C* values = scratch_.value[set()][0];
      if (lane == 0) reinterpret_cast<Pack<C, K>*>(values)[warp] = value;
      sync();
      value = all_of(values, warps);
    }
    if constexpr (kCluster && ptx::kHasClusters) {
      if (blocks == 1) return value;
      C* values = scratch_.shared[set()][0];
      uint64_t* arrived = scratch_.arrived + set();
      meet();
      if (threadIdx.x == 0) ptx::mbarrier_arrive_expect(arrived, blocks * K * static_cast<uint32_t>(sizeof(C)));
#pragma unroll
      for (int k = 0; k < K; ++k)
        if (threadIdx.x < blocks) ptx::store_remote_async(values + rank() * K + k, threadIdx.x, value.at[k], arrived);
      ptx::mbarrier_wait(arrived, (turns_ - 1) / Scratch::kSets & 1);
      value = all_of(values, blocks);
    }
    return value;
  }

  /// Over the warps of the block, then over the blocks, lane by lane.
  template <int K, class Join>
  __device__ Pack<C, K> join_columns(Pack<C, K> value, Join join) {
    const int lane = threadIdx.x, warps = threads(), blocks = cluster();
    const auto all_of = [&](auto& values, int parts) {
      return join(RowParts<C, K, false>{values[0] + lane, sizeof(values[0]) / sizeof(C), kWarp, parts, lane});
    };
    if (warps > 1) {
      auto& values = scratch_.value[set()];
#pragma unroll
      for (int k = 0; k < K; ++k) values[k][threadIdx.y * kWarp + lane] = value.at[k];
      __syncthreads();
      value = all_of(values, warps);
    }
    if (blocks > 1) {
      auto& values = scratch_.shared[set()];
      meet();
#pragma unroll
      for (int k = 0; k < K; ++k)
        for (int b = threadIdx.y; b < blocks; b += warps)
          ptx::store_remote(values[k] + rank() * kWarp + lane, b, value.at[k]);
      ptx::cluster_sync();
      value = all_of(values, blocks);
    }
    return value;
  }

  /// Rows of clusters may be several in a block, each with a scratch of its own.
  static constexpr bool kGroups = kShape == RowShape::kWarps && kCluster;
  /// The row's threads in this block meet.
  __device__ void sync() const {
    if constexpr (kGroups)
      asm volatile("bar.sync %0, %1;" ::"r"(threadIdx.y + 1), "r"(blockDim.x) : "memory");
    else
      __syncthreads();
  }
  /// On to the next set, which nobody reads any more.
  __device__ void turn() {
    if (Scratch::kSets == 1 && turns_ > 0) cluster() > 1 ? ptx::cluster_sync() : __syncthreads();
    ++turns_;
  }
  __device__ int set() const { return turns_ % Scratch::kSets; }
  /// Before the first store to another block: all blocks have started.
  __device__ void meet() {
    if (!met_) ptx::cluster_wait();
    met_ = true;
  }

  Scratch& scratch_;
  int turns_ = 0;
  bool columns_, met_ = false;
};

}  // namespace tenor::cuda
