// The ends of rows that begin and end anywhere, and what lanes hand one another between them.
#pragma once

#include <cstring>

#include "src/cuda/bytes.cuh"
#include "src/cuda/vector.cuh"

namespace tenor::cuda {

/// The first n elements at p, at most a vector; zeros behind them.
template <class T>
__device__ __noinline__ uint4 load_few(const T* p, int n) {
  Pack<T, kVector<T>> few{};
#pragma unroll
  for (int j = 0; j < kVector<T>; ++j)
    if (j < n) few.at[j] = p[j];
  uint4 words;
  memcpy(&words, &few, sizeof(words));
  return words;
}

/// Writes elements begin..end - 1 of a vector that begins at p.
template <class T>
__device__ __noinline__ void store_few(T* p, uint4 words, int begin, int end) {
  Pack<T, kVector<T>> each;
  memcpy(&each, &words, sizeof(words));
#pragma unroll
  for (int j = 0; j < kVector<T>; ++j)
    if (j >= begin && j < end) p[j] = each.at[j];
}

/// What that lane holds. All lanes of the warp call.
__device__ __forceinline__ uint4 from_lane(const uint4& words, int lane) {
  return {__shfl_sync(~0u, words.x, lane), __shfl_sync(~0u, words.y, lane), __shfl_sync(~0u, words.z, lane),
          __shfl_sync(~0u, words.w, lane)};
}

}  // namespace tenor::cuda
