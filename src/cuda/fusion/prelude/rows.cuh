// Reductions along rows in fused kernels, in the reduction order of cuda/reduction_order.h: the bits of the eager ones.
//
// A row is cut into blocks of 1024 elements. A block is one warp's, which takes it as four sets of 256 elements, a lane
// 8 neighbours of each (two packs of 4, four of 2, eight single ones): eight leaves a lane. Of rows of up to 256
// elements a few lanes take 8 elements each, and several rows share a warp.
#pragma once

#include "src/cuda/fusion/prelude/packs.cuh"
#include "src/cuda/lane_tree.cuh"

namespace tenor::fused {

inline constexpr int kSlots = 8;  // leaves of a lane
inline constexpr int kChain = 4;  // elements of a leaf
inline constexpr int kOrderBlock = 1024;

template <class T>
__device__ __forceinline__ T exchanged(T value, int mask) {
  return __shfl_xor_sync(~0u, value, mask);
}
__device__ __forceinline__ uint64_t exchanged(uint64_t value, int mask) {
  return __shfl_xor_sync(~0u, static_cast<unsigned long long>(value), mask);
}
__device__ __forceinline__ int64_t exchanged(int64_t value, int mask) {
  return __shfl_xor_sync(~0u, static_cast<long long>(value), mask);
}

/// The value of the first of `lanes` neighbouring lanes, in all of them.
template <class T>
__device__ __forceinline__ T leading(T value, int lanes) {
  return __shfl_sync(~0u, value, 0, lanes);
}

/// Lane 0's value.
template <class T>
__device__ __forceinline__ T first_lane(T value) {
  if constexpr (std::is_integral_v<T> && sizeof(T) == 8)
    return static_cast<T>(__shfl_sync(~0u, static_cast<unsigned long long>(value), 0));
  else
    return __shfl_sync(~0u, value, 0);
}

// ---- what meets: identity, merge, and how an element is taken in ----

/// Sums of floats, and modulo 2^64 of integers as A has them.
template <class C>
struct SumOf {
  using Acc = C;
  static __device__ Acc identity() { return 0; }
  static __device__ Acc merge(Acc a, Acc b) { return a + b; }
};
template <class C>
struct ProductOf {
  using Acc = C;
  static __device__ Acc identity() { return 1; }
  static __device__ Acc merge(Acc a, Acc b) { return a * b; }
};
/// The largest of x, or of its mirror image (-x; ~x of integers) for the smallest; a NaN stays.
template <class K, bool kSmallest>
struct ExtremeOf {
  using Acc = K;
  static __device__ Acc identity() {
    if constexpr (std::is_floating_point_v<K>)
      return -std::numeric_limits<K>::infinity();
    else
      return std::numeric_limits<K>::lowest();
  }
  static __device__ Acc mirrored(Acc x) {
    if constexpr (!kSmallest)
      return x;
    else if constexpr (std::is_floating_point_v<K>)
      return -x;
    else
      return static_cast<K>(~x);
  }
  static __device__ Acc merge(Acc a, Acc b) {
    if constexpr (std::is_same_v<K, float>) {
      float y;
      asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
      return y;
    } else {
      return a > b ? a : b;
    }
  }
};

/// Count, mean and sum of squared deviations of some elements, as pairs of groups meet (Chan, Golub and LeVeque, 1983).
template <class C>
struct Moment {
  C count, mean, squares;
};
template <class C>
__device__ __forceinline__ Moment<C> exchanged(Moment<C> m, int mask) {
  return {exchanged(m.count, mask), exchanged(m.mean, mask), exchanged(m.squares, mask)};
}
template <class C>
__device__ __forceinline__ Moment<C> leading(Moment<C> m, int lanes) {
  return {leading(m.count, lanes), leading(m.mean, lanes), leading(m.squares, lanes)};
}
template <class C>
__device__ __forceinline__ Moment<C> first_lane(Moment<C> m) {
  return leading(m, 32);
}
template <class C>
struct MomentsOf {
  using Acc = Moment<C>;
  static __device__ Acc identity() { return {0, 0, 0}; }
  static __device__ Acc merge(Acc a, Acc b) {
    if (b.count == 0) return a;
    const C count = a.count + b.count, share = a.count == b.count ? C(0.5) : b.count / count, apart = b.mean - a.mean;
    return {count, a.mean + apart * share, a.squares + b.squares + apart * apart * (a.count * share)};
  }
  /// One element more of a leaf, which has fewer than four.
  static __device__ Acc with(Acc a, C value) {
    constexpr C kShares[] = {C(1), C(1) / 2, C(1) / 3, C(1) / 4};
    const C share = a.count == 0 ? kShares[0] : a.count == 1 ? kShares[1] : a.count == 2 ? kShares[2] : kShares[3];
    const C apart = value - a.mean;
    a.mean += apart * share;
    a.squares += apart * (value - a.mean);
    a.count += 1;
    return a;
  }
  /// A leaf of four, in two passes.
  static __device__ Acc four(const C (&x)[4]) {
    const C mean = ((x[0] + x[1]) + (x[2] + x[3])) * C(0.25);
    const C apart[] = {x[0] - mean, x[1] - mean, x[2] - mean, x[3] - mean};
    return {C(4), mean, (apart[0] * apart[0] + apart[1] * apart[1]) + (apart[2] * apart[2] + apart[3] * apart[3])};
  }
  static __device__ Acc leaf(const C (&x)[4], int n) {
    if (n == 4) return four(x);
    Acc a = identity();
#pragma unroll
    for (int c = 0; c < 3; ++c)
      if (c < n) a = with(a, x[c]);
    return a;
  }
};
/// squares / freedom, or its root.
template <bool kRoot, class C>
__device__ __forceinline__ C deviation(const Moment<C>& m, C freedom) {
  const C v = freedom > 0 ? m.squares / freedom : std::numeric_limits<C>::quiet_NaN();
  return kRoot ? static_cast<C>(sqrt(v)) : v;
}

/// How an element becomes an accumulator, widened to float where it is of 16 or 8 bits. A: what integers' sums are
/// formed in.
template <class C, class A = C>
struct TakeValue {
  template <class S>
  static __device__ C take(S x) {
    return static_cast<C>(convert<A>(x));
  }
};
template <class C>
struct TakeSquare {
  template <class S>
  static __device__ C take(S x) {
    const C v = convert<C>(x);
    return v * v;
  }
};
template <class C>
struct TakeMagnitude {
  template <class S>
  static __device__ C take(S x) {
    return fabs(convert<C>(x));
  }
};
struct TakeNonzero {
  template <class S>
  static __device__ uint64_t take(S x) {
    return convert<bool>(x);
  }
};
template <class K, bool kSmallest>
struct TakeExtreme {
  template <class S>
  static __device__ K take(S x) {
    return ExtremeOf<K, kSmallest>::mirrored(static_cast<K>(x));
  }
};

/// A reduction on its way through one block.
template <class Core, class Take, int V>
struct Leaves {
  using Acc = typename Core::Acc;
  Acc leaf[kSlots];
  __device__ __forceinline__ Leaves() {
#pragma unroll
    for (Acc& a : leaf) a = Core::identity();
  }
  /// Pack k of the block's.
  template <class S, int N>
  __device__ __forceinline__ void fold(int k, const Pack<S, N>& x) {
    core::Compute<S> wide[V];
    widen_into(x, wide);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      Acc& a = leaf[k % (kSlots / V) * V + v];
      a = Core::merge(a, Take::take(wide[v]));
    }
  }
  __device__ __forceinline__ Acc tree(int lanes) {
    return cuda::lane_tree<V>(Core(), leaf, lanes, [](Acc a, int mask) { return exchanged(a, mask); });
  }
};

/// The greater or the lesser pair of 16-bit floats, NaN where one is.
template <class S, bool kLesser>
__device__ __forceinline__ uint32_t extreme_pair(uint32_t a, uint32_t b) {
  uint32_t y;
  if constexpr (std::is_same_v<S, BFloat16>) {
    if constexpr (kLesser)
      asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    else
      asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  } else {
    if constexpr (kLesser)
      asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    else
      asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  }
  return y;
}
/// Leaves of extremes of 16-bit floats, which are compared by pairs and widened once: that changes no comparison.
template <class S, bool kSmallest, int V>
struct ShortExtremes {
  using Core = ExtremeOf<float, kSmallest>;
  static constexpr uint32_t kLargest = std::is_same_v<S, BFloat16> ? 0x7F807F80u : 0x7C007C00u;  // infinities
  uint32_t pair[kSlots / 2];
  __device__ __forceinline__ ShortExtremes() {
#pragma unroll
    for (uint32_t& p : pair) p = kSmallest ? kLargest : kLargest | 0x80008000u;
  }
  template <int N>
  __device__ __forceinline__ void fold(int k, const Pack<S, N>& x) {
    uint32_t words[V / 2];
    words_of<V>(x, words);
#pragma unroll
    for (int w = 0; w < V / 2; ++w) {
      uint32_t& p = pair[k % (kSlots / V) * (V / 2) + w];
      p = extreme_pair<S, kSmallest>(p, words[w]);
    }
  }
  __device__ __forceinline__ float tree(int lanes) {
    Pack<S, kSlots> narrow;
    memcpy(&narrow, pair, sizeof(pair));
    float leaf[kSlots];
    cuda::widen_pack(narrow, leaf);
#pragma unroll
    for (float& a : leaf) a = Core::mirrored(a);
    return cuda::lane_tree<V>(Core(), leaf, lanes, [](float a, int mask) { return exchanged(a, mask); });
  }
};

/// Likewise of moments about a value of the row's, whose leaves are formed once their elements are all there.
template <class C, int V>
struct MomentLeaves {
  C shift, x[kSlots][kChain];
  int count[kSlots];
  __device__ __forceinline__ explicit MomentLeaves(C about) : shift(about) {
#pragma unroll
    for (int& n : count) n = 0;
  }
  template <class S, int N>
  __device__ __forceinline__ void fold(int k, const Pack<S, N>& pack) {
    C wide[V];
    widen_into(pack, wide);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const int slot = k % (kSlots / V) * V + v;
      x[slot][k / (kSlots / V)] = wide[v] - shift;
      ++count[slot];
    }
  }
  __device__ __forceinline__ Moment<C> tree(int lanes) {
    Moment<C> leaf[kSlots];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) leaf[s] = MomentsOf<C>::leaf(x[s], count[s]);
    const auto exchange = [](Moment<C> m, int mask) { return exchanged(m, mask); };
    return leading(cuda::lane_tree<V>(MomentsOf<C>(), leaf, lanes, exchange), lanes);  // their merge does not commute
  }
};

/// The threads of rows: kLanes of a warp, or kWarps whole warps a row.
template <int V, int kLanes, int kWarps>
struct RowThreads {
  static constexpr int kPacks = kLanes == 32 ? kOrderBlock / 32 / V : kSlots / V;  ///< of a lane and block
  int lane, warp;
  __device__ RowThreads() : lane(threadIdx.x % kLanes), warp(threadIdx.x / 32) {}
  /// Which of the row's warps this is.
  __device__ __forceinline__ int warp_of_row() const { return kWarps > 1 ? warp : 0; }
  /// The first element of pack k of the block.
  __device__ __forceinline__ int element(int k) const { return (k * kLanes + lane) * V; }
  /// What `each` blocks a warp gave, block b's in lane b: their combination over the row, in every thread. `scratch` is
  /// memory for kWarps that no reduction before used since the last barrier.
  template <class Core, class Acc>
  __device__ __forceinline__ Acc meet(Acc value, int each, uint64_t* scratch) const {
    if (each > 1) {
      for (int mask = 1; mask < each; mask *= 2) value = Core::merge(value, exchanged(value, mask));
      value = first_lane(value);
    }
    if constexpr (kWarps > 1) {
      Acc* shared = reinterpret_cast<Acc*>(scratch);
      if (lane == 0) shared[warp] = value;
      __syncthreads();
      value = lane < kWarps ? shared[lane] : Core::identity();
#pragma unroll
      for (int mask = 1; mask < kWarps; mask *= 2) value = Core::merge(value, exchanged(value, mask));
      value = first_lane(value);
    }
    return value;
  }
};

/// What a thread block of several that share a row leaves for the last of them.
template <class Acc>
__device__ __forceinline__ void leave_part(Acc* parts, int64_t at, Acc value) {
  if (threadIdx.x == 0) const_cast<volatile Acc*>(parts)[at] = value;
}
template <class Core, class Acc>
__device__ __forceinline__ Acc part_of(const Acc* parts, int64_t chunks) {
  return threadIdx.x < chunks ? const_cast<const volatile Acc*>(parts)[threadIdx.x] : Core::identity();
}
/// Whether this thread block is the last of the row's, all of whose parts it then sees.
__device__ __forceinline__ bool comes_last(int* counter, int64_t chunks) {
  __shared__ bool last;
  __threadfence();
  if (threadIdx.x == 0) last = atomicAdd(counter, 1) == chunks - 1;
  __syncthreads();
  __threadfence();
  return last;
}

}  // namespace tenor::fused
