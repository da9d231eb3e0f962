// The end of a weight gradient: what the blocks of a kernel summed, added up in ascending order of eight slices of
// them, then of the slices, and rounded once.
#pragma once

#include "src/cuda/launch.h"
#include "src/cuda/ptx/dependent_launch.cuh"

namespace tenor::conv {

inline constexpr int kSumSlices = 8, kSumElements = 32, kSumThreads = kSumSlices * kSumElements;

/// store(i, sum over blocks of sums[block, i]) for i < count.
template <class Store>
__global__ void __launch_bounds__(kSumThreads)
    add_block_sums(const float* sums, int64_t count, int blocks, const __grid_constant__ Store store) {
  cuda::ptx::wait_for_previous();
  __shared__ float slices[kSumSlices][kSumElements];
  const int own = threadIdx.x % kSumElements, slice = threadIdx.x / kSumElements;
  const int64_t i = blockIdx.x * int64_t{kSumElements} + own;
  const int per = (blocks + kSumSlices - 1) / kSumSlices, last = min(blocks, (slice + 1) * per);
  float sum = 0;
  if (i < count)
#pragma unroll 8
    for (int block = slice * per; block < last; ++block) sum += sums[block * count + i];
  slices[slice][own] = sum;
  __syncthreads();
  if (slice != 0 || i >= count) return;
#pragma unroll
  for (int k = 1; k < kSumSlices; ++k) sum += slices[k][own];
  store(i, sum);
}

template <class Store>
void launch_block_sums(const char* op, Device device, const float* sums, int64_t count, int blocks,
                       const Store& store) {
  cuda::Grid grid{static_cast<unsigned>((count + kSumElements - 1) / kSumElements), kSumThreads};
  grid.early = true;
  cuda::launch(op, add_block_sums<Store>, grid, device, sums, count, blocks, store);
}

}  // namespace tenor::conv
