// The end of a weight gradient: what the blocks of a kernel summed, added up in ascending order of eight slices of
// them, then of the slices, and rounded once.
#pragma once

#include "src/cuda/launch.h"
#include "src/cuda/ptx/dependent_launch.cuh"
#include "src/ops/conv/conv_mend.cuh"

namespace tenor::conv {

inline constexpr int kSumSlices = 8, kSumElements = 32, kSumThreads = kSumSlices * kSumElements;

/// Element find(i) of the gradient = the sum over blocks of sums[block, i], i < count; where find(i).out < 0 there is
/// none. Blocks multiply zeros, at the border and past their ranges: a sum that is NaN is summed again from what there
/// is.
template <class T, class Find>
__global__ void __launch_bounds__(kSumThreads, 6)
    add_block_sums(const float* sums, int64_t count, int blocks, const __grid_constant__ ConvProblem p,
                   const __grid_constant__ Find find) {
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
  if (slice != 0) return;  // a warp stays
#pragma unroll
  for (int k = 1; k < kSumSlices; ++k) sum += slices[k][own];
  const WeightPlace at = find(i < count ? i : 0);
  const bool exists = i < count && at.out >= 0, wrong = exists && sum != sum;
  if (__any_sync(~0u, wrong)) sum = mend_gradient<T>(p, at, wrong, sum);
  if (exists) reinterpret_cast<T*>(p.weight.data)[offset_of(p.weight, at)] = cuda::convert<T>(sum);
}

template <class T, class Find>
void launch_block_sums(const ConvProblem& p, const float* sums, int64_t count, int blocks, const Find& find) {
  cuda::Grid grid{static_cast<unsigned>((count + kSumElements - 1) / kSumElements), kSumThreads};
  grid.early = true;
  cuda::launch("conv_weight_backward", add_block_sums<T, Find>, grid, p.device, sums, count, blocks, p, find);
}

}  // namespace tenor::conv
