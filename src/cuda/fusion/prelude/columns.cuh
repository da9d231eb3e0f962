// Reductions down columns in fused kernels, in the reduction order of cuda/reduction_order.h. A thread takes
// neighbouring columns, and of them an aligned run of leaves; the threads below one another then meet as neighbours do.
#pragma once

#include "src/cuda/fusion/prelude/rows.cuh"

namespace tenor::fused {

inline constexpr int kColumnThreads = 512;

/// Which leaves of how many columns a thread takes.
template <int kAcross>
struct ColumnThreads {
  static constexpr int kDown = kColumnThreads / kAcross;
  int across, down;
  __device__ ColumnThreads() : across(threadIdx.x % kAcross), down(threadIdx.x / kAcross) {}
  /// The element c of leaf q, of leaves of one element or of four.
  template <int kElements, class I>
  static __device__ __forceinline__ I element(I q, int c) {
    return kElements == 1 ? q : q / 256 * 1024 + q % 256 + c * 256;
  }
  /// The values of all that lie below one another, in every thread. `shared`: memory for those of all threads, which
  /// nothing reads or writes any more.
  template <class Core, class Acc, int V>
  __device__ __forceinline__ void meet(Acc (&value)[V], Acc* shared) const {
    Acc* const own = shared + (down * kAcross + across) * V;
#pragma unroll
    for (int v = 0; v < V; ++v) own[v] = value[v];
    for (int step = 1; step < kDown; step *= 2) {
      __syncthreads();
      if (down % (2 * step) != 0) continue;
#pragma unroll
      for (int v = 0; v < V; ++v) own[v] = value[v] = Core::merge(value[v], own[step * kAcross * V + v]);
    }
    __syncthreads();
#pragma unroll
    for (int v = 0; v < V; ++v) value[v] = shared[across * V + v];
    __syncthreads();
  }
};

/// One leaf of each of V columns.
template <class Core, class Take, int V>
struct ColumnLeaf {
  typename Core::Acc leaf[V];
  __device__ __forceinline__ ColumnLeaf() {
#pragma unroll
    for (auto& a : leaf) a = Core::identity();
  }
  template <class S, int N>
  __device__ __forceinline__ void fold(int, const Pack<S, N>& x) {
    core::Compute<S> wide[V];
    widen_into(x, wide);
#pragma unroll
    for (int v = 0; v < V; ++v) leaf[v] = Core::merge(leaf[v], Take::take(wide[v]));
  }
  __device__ __forceinline__ typename Core::Acc done(int v) const { return leaf[v]; }
};
/// Likewise of moments about a value of each column's.
template <class C, int V>
struct ColumnMoments {
  const C (&shift)[V];
  C x[V][kChain];
  int count = 0;
  __device__ __forceinline__ explicit ColumnMoments(const C (&about)[V]) : shift(about) {}
  template <class S, int N>
  __device__ __forceinline__ void fold(int c, const Pack<S, N>& pack) {
    C wide[V];
    widen_into(pack, wide);
#pragma unroll
    for (int v = 0; v < V; ++v) x[v][c] = wide[v] - shift[v];
    count = c + 1;
  }
  __device__ __forceinline__ Moment<C> done(int v) const { return MomentsOf<C>::leaf(x[v], count); }
};

/// Leaves of V columns that come in order meet as a counter carries: at most 2^(kLevels - 1) of them.
template <class Core, int V, int kLevels>
struct ColumnCounter {
  using Acc = typename Core::Acc;
  Acc slot[kLevels][V];
  unsigned count = 0;
  template <class Leaf>
  __device__ __forceinline__ void push(const Leaf& leaf) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      Acc value = leaf.done(v);
      bool carries = true;  // no break: the slots must stay in registers
#pragma unroll
      for (int level = 0; level < kLevels; ++level) {
        const bool taken = count >> level & 1;
        if (carries && taken) value = Core::merge(slot[level][v], value);
        if (carries && !taken) slot[level][v] = value;
        carries = carries && taken;
      }
    }
    ++count;
  }
  __device__ __forceinline__ void finish(Acc (&total)[V]) const {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      Acc value = Core::identity();
      bool some = false;
#pragma unroll
      for (int level = 0; level < kLevels; ++level) {
        const bool taken = count >> level & 1;
        if (taken) value = some ? Core::merge(slot[level][v], value) : slot[level][v];
        some = some || taken;
      }
      total[v] = value;
    }
  }
};

}  // namespace tenor::fused
