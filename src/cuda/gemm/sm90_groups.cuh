// Groups of rows that are known on the device only: row i of a product belongs to group g where offsets[g] <= i <
// offsets[g + 1]. Kernels count each group's tiles themselves, so that nothing waits for the host.
#pragma once

#include <cstdint>

namespace tenor::cuda::gemm {

/// The offsets as they lie in memory. Whatever they hold, no group reaches below 0, past `rows` or before its start.
struct GroupOffsets {
  const void* data;
  bool wide;  ///< int64, else int32
  int groups, rows;

  __device__ __forceinline__ int first(int group) const {
    const int64_t at = wide ? static_cast<const int64_t*>(data)[group] : static_cast<const int32_t*>(data)[group];
    return static_cast<int>(at < 0 ? 0 : at > rows ? rows : at);
  }
  __device__ __forceinline__ int last(int group) const { return max(first(group), first(group + 1)); }
};

/// Fills starts[0..groups] with the tiles, of `height` rows, that lie before each group; all threads of the block call
/// it.
__device__ inline void count_tiles(int* starts, const GroupOffsets& offsets, int height) {
  for (int g = threadIdx.x; g < offsets.groups; g += blockDim.x)
    starts[g + 1] = (offsets.last(g) - offsets.first(g) + height - 1) / height;
  if (threadIdx.x == 0) starts[0] = 0;
  __syncthreads();
  if (threadIdx.x < 32)
    for (int g = threadIdx.x, before = 0; g - static_cast<int>(threadIdx.x) < offsets.groups; g += 32) {
      int sum = g < offsets.groups ? starts[g + 1] : 0;
      for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(~0u, sum, step);
        if (static_cast<int>(threadIdx.x) >= step) sum += other;
      }
      if (g < offsets.groups) starts[g + 1] = before + sum;
      before += __shfl_sync(~0u, sum, 31);
    }
  __syncthreads();
}

/// The group whose tiles number `tile` is one of.
__device__ __forceinline__ int group_of(const int* starts, int groups, int tile) {
  int low = 0, high = groups;  // starts[low] <= tile < starts[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (starts[middle] <= tile ? low : high) = middle;
  }
  return low;
}

}  // namespace tenor::cuda::gemm
