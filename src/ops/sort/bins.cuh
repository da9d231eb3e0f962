// Integers counted in bins, a bin a value.
#pragma once

#include "src/cuda/stride_loop.cuh"

namespace tenor::cuda {

inline __global__ void zero_kernel(int64_t* out, int64_t count) {
  for_each_item(count, [&](int64_t i) { out[i] = 0; });
}

/// Bins that a block counts in its own memory first: then it has `bins` words of shared memory.
inline constexpr int64_t kOwnBins = 8192;

/// counts[x[i] - low] += 1. Integer sums: the same in any order.
template <class T>
__global__ void count_kernel(const T* __restrict__ x, int64_t count, T low, int64_t bins, unsigned long long* counts) {
  extern __shared__ uint32_t own[];
  const bool shares = bins <= kOwnBins;
  for (int64_t b = threadIdx.x; shares && b < bins; b += blockDim.x) own[b] = 0;
  __syncthreads();
  for_each_item(count, [&](int64_t i) {
    const uint64_t bin = static_cast<uint64_t>(x[i]) - static_cast<uint64_t>(low);
    if (shares)
      atomicAdd(&own[bin], 1u);
    else
      atomicAdd(&counts[bin], 1ull);
  });
  __syncthreads();
  for (int64_t b = threadIdx.x; shares && b < bins; b += blockDim.x)
    if (own[b] > 0) atomicAdd(&counts[b], static_cast<unsigned long long>(own[b]));
}

}  // namespace tenor::cuda
