// Prefix sums over the threads of a block.
#pragma once

#include "src/cuda/reduce.cuh"

namespace tenor::cuda {

/// The inclusive sum over the threads of the block; `warps` holds one value a warp.
template <class T>
__device__ __forceinline__ T block_scan(T value, T* warps) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int step = 1; step < kWarp; step *= 2) {
    const T before = __shfl_up_sync(~0u, value, step);
    if (lane >= step) value += before;
  }
  __syncthreads();
  if (lane == kWarp - 1) warps[warp] = value;
  __syncthreads();
  T sum = 0;
  for (int w = 0; w < warp; ++w) sum += warps[w];
  return value + sum;
}

}  // namespace tenor::cuda
