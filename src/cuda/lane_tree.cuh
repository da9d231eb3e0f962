// The leaves of one block of the reduction order (cuda/reduction_order.h), as the lanes of a row hold them.
#pragma once

namespace tenor::cuda {

/// Leaf (g * lanes + lane) * V + j at slot g * V + j: their tree, in lane 0, and in every lane where core.merge
/// commutes. shuffle(value, mask): the value of the lane whose number differs in the bits of `mask`.
template <int V, class Core, class A, int N, class Shuffle>
__device__ __forceinline__ A lane_tree(const Core& core, A (&leaf)[N], int lanes, Shuffle shuffle) {
#pragma unroll
  for (int step = 1; step < V && step < N; step *= 2)
#pragma unroll
    for (int j = 0; j < N; j += 2 * step) leaf[j] = core.merge(leaf[j], leaf[j + step]);
  for (int mask = 1; mask < lanes; mask *= 2)
#pragma unroll
    for (int g = 0; g < N; g += V) leaf[g] = core.merge(leaf[g], shuffle(leaf[g], mask));
#pragma unroll
  for (int step = V; step < N; step *= 2)
#pragma unroll
    for (int g = 0; g < N; g += 2 * step) leaf[g] = core.merge(leaf[g], leaf[g + step]);
  return leaf[0];
}

}  // namespace tenor::cuda
