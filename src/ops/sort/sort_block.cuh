// A row that fits a block's shared memory, sorted by radix. Keys stand above indices in one value. Of 64-bit keys the
// value holds the first 32 of the bits in which the row's keys differ; runs of elements that agree in those are put in
// order afterwards.
#pragma once

#include "src/cuda/block_radix.cuh"
#include "src/ops/sort/sort_wanted.cuh"

namespace tenor::cuda {

/// The key in the upper half of it, the index in the lowest 16 bits.
template <class K>
using Sortable = std::conditional_t<sizeof(K) <= 2, uint32_t, uint64_t>;

template <class K, int Threads, int Each>
class BlockRow {
 public:
  using P = Sortable<K>;
  using Space = RadixSpace<P, Threads, Each>;

  /// Every thread of the block calls every function.
  __device__ BlockRow(const K* x, int n, core::KeyCode code, Space& space) : x_(x), n_(n), code_(code), space_(space) {
    sort();
    if constexpr (sizeof(K) == 8)
      if (shift_ > low_) resolve();
  }

  __device__ uint32_t index(int i) const { return static_cast<uint16_t>(space_.items[i]); }
  __device__ K key(int i) const {
    if (shift_ > low_) return key_at(index(i));
    return static_cast<K>(base_ | static_cast<K>(top(i)) << shift_);
  }

 private:
  static constexpr int kKey = 4 * sizeof(P);  // the first bit of the key
  static_assert(Threads * Each <= 65536);
  static constexpr int kHeld =
      Each <= 8 || sizeof(K) <= 2 ? Each : 1;  // keys that registers have room for, else read twice
  static constexpr int kLongestRun = 32;       // of equal leading bits that one thread puts in order

  __device__ K key_at(uint32_t i) const { return core::encode(x_[i], code_); }
  __device__ P top(int i) const { return space_.items[i] >> kKey; }
  __device__ static P value(K bits, int i) { return static_cast<P>(bits) << kKey | static_cast<P>(i); }

  __device__ void sort() {
    const K first = key_at(0);
    K keys[kHeld], varying = 0;
#pragma unroll
    for (int e = 0; e < Each; ++e) {
      const int i = radix_place<Each>(e);
      const K key = i < n_ ? key_at(i) : first;
      varying |= static_cast<K>(key ^ first);
      if constexpr (kHeld == Each) keys[e] = key;
    }
    varying = block_reduce<Threads>(varying, reinterpret_cast<K*>(space_.items),
                                    [](K a, K b) { return static_cast<K>(a | b); });
    __syncthreads();
    const int high = 64 - __clzll(static_cast<long long>(varying));
    low_ = varying == 0 ? 0 : __ffsll(static_cast<long long>(varying)) - 1;
    shift_ = max(low_, high - kKey);
    base_ = static_cast<K>(first & ~varying);
    P v[Each];
#pragma unroll
    for (int e = 0; e < Each; ++e) {
      const int i = radix_place<Each>(e);
      v[e] = ~P(0);
      if (i < n_) v[e] = value(static_cast<K>((kHeld == Each ? keys[e % kHeld] : key_at(i)) >> shift_), i);
    }
    block_radix_sort(v, kKey, kKey + high - shift_, space_);
  }

  /// Elements that agree in the bits sorted by so far stand in index order.
  __device__ void resolve() {
    bool later = false;
    for (int i = static_cast<int>(threadIdx.x); i + 1 < n_; i += Threads)
      later = later || (top(i) == top(i + 1) && key(i + 1) < key(i));
    if (!__syncthreads_or(later)) return;
    bool is_long = false;
    for (int i = static_cast<int>(threadIdx.x); i + 1 < n_; i += Threads) {
      const P mine = top(i);
      if (top(i + 1) != mine || (i > 0 && top(i - 1) == mine)) continue;
      int end = i + 2;
      while (end < n_ && end - i <= kLongestRun && top(end) == mine) ++end;
      if (end - i > kLongestRun)
        is_long = true;
      else
        order_run(i, end);
    }
    if (__syncthreads_or(is_long)) sort_in_two();
  }

  /// By insertion; equal keys stay in index order.
  __device__ void order_run(int begin, int end) {
    for (int i = begin + 1; i < end; ++i) {
      const P moved = space_.items[i];
      const K moved_key = key(i);
      int to = i;
      for (; to > begin && moved_key < key(to - 1); --to) space_.items[to] = space_.items[to - 1];
      space_.items[to] = moved;
    }
  }

  /// Many elements agree in the leading bits: by the trailing ones first, then by the leading ones.
  __device__ void sort_in_two() {
    P v[Each];
    const K trailing = static_cast<K>((K(1) << (shift_ - low_)) - 1);
#pragma unroll
    for (int e = 0; e < Each; ++e) {
      const int i = radix_place<Each>(e);
      v[e] = i < n_ ? value(static_cast<K>(key_at(i) >> low_ & trailing), i) : ~P(0);
    }
    block_radix_sort(v, kKey, kKey + shift_ - low_, space_);
#pragma unroll
    for (int e = 0; e < Each; ++e) {
      const int i = radix_place<Each>(e);
      v[e] = i < n_ ? value(static_cast<K>(key(i) >> shift_), index(i)) : ~P(0);
    }
    block_radix_sort(v, kKey, kKey + kKey, space_);
  }

  const K* x_;
  int n_;
  core::KeyCode code_;
  Space& space_;
  K base_ = 0;               // the bits that all keys share
  int low_ = 0, shift_ = 0;  // the lowest bit in which keys differ, and the lowest one that the values hold
};

/// Blocks that a multiprocessor's registers are shared by.
template <int Threads, int Each>
inline constexpr int kBlocksAtOnce = Threads >= 1024 ? 1 : (Each <= 8 ? 1024 : 512) / Threads;

template <class K, int Threads, int Each>
__global__ void __launch_bounds__(Threads, kBlocksAtOnce<Threads, Each>)
    sort_block_kernel(const K* __restrict__ x, int n, int64_t stride, core::KeyCode code, Wanted wanted, K* values,
                      int64_t* indices) {
  extern __shared__ __align__(16) char memory[];
  using Row = BlockRow<K, Threads, Each>;
  const int64_t row = blockIdx.x;
  const K* const from = x + row * stride;
  const Row sorted(from, n, code, *reinterpret_cast<typename Row::Space*>(memory));
  write_wanted(from, sorted, n, wanted, code, values ? values + row * wanted.count : nullptr,
               indices ? indices + row * wanted.count : nullptr);
}

}  // namespace tenor::cuda
