// Kernels of one independent item a thread at a time: a grid of few waves whose threads loop over the rest.
#pragma once

#include "src/cuda/launch.h"

namespace tenor::cuda {

inline constexpr int kStrideThreads = 256;

/// For `count` items: four a thread at least, so that few of them make few blocks.
inline Grid stride_grid(int64_t count, Device device) {
  return {blocks_for(count, int64_t{4} * kStrideThreads, device), kStrideThreads};
}

/// Calls fn(i) for this thread's share of [0, count), in rising order. Blocks and grid are one-dimensional.
template <class F>
__device__ __forceinline__ void for_each_item(int64_t count, F&& fn) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) fn(i);
}

}  // namespace tenor::cuda
