// Reductions over a warp and a block, in a fixed tree: the same bits each time. Combine takes two values of T and is
// commutative; T is any trivially copyable type.
#pragma once

#include <cstring>

namespace tenor::cuda {

inline constexpr int kWarp = 32;

/// The value that the lane with `mask` flipped holds.
template <class T>
__device__ __forceinline__ T shuffle_xor(T value, int mask) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, long long>) {
    return __shfl_xor_sync(~0u, value, mask);
  } else {
    constexpr int kWords = (sizeof(T) + 3) / 4;
    uint32_t words[kWords] = {};
    memcpy(words, &value, sizeof(T));
#pragma unroll
    for (uint32_t& word : words) word = __shfl_xor_sync(~0u, word, mask);
    memcpy(&value, words, sizeof(T));
    return value;
  }
}

/// The combination of all lanes' values (of groups of `Width` neighbouring lanes), in every lane.
template <int Width = kWarp, class T, class Combine>
__device__ __forceinline__ T warp_reduce(T value, Combine combine) {
#pragma unroll
  for (int mask = Width / 2; mask > 0; mask /= 2) value = combine(value, shuffle_xor(value, mask));
  return value;
}

/// The combination of all threads' values, in every thread. `shared` holds one T a warp; every thread of the block calls.
template <int Threads, class T, class Combine>
__device__ __forceinline__ T block_reduce(T value, T* shared, Combine combine) {
  static_assert(Threads % kWarp == 0 && Threads <= 1024);
  constexpr int kWarps = Threads / kWarp;
  value = warp_reduce(value, combine);
  if constexpr (kWarps > 1) {
    __syncthreads();  // an earlier reduction may still read `shared`
    if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
    __syncthreads();
    value = shared[threadIdx.x % kWarps];
    value = warp_reduce<kWarps>(value, combine);
  }
  return value;
}

}  // namespace tenor::cuda
