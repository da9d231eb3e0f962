// One long dense row, of operators whose order shows and whose elements cost an addition or a product, in one launch:
// every thread block takes a share of one size and asks little, and the last to end finishes the tree. The general
// kernel (reduce_rows.cuh) leaves its results to a second launch.
#pragma once

#include "src/cuda/counters.h"
#include "src/ops/reduce/reduce_kernels.cuh"

namespace tenor::reduce {

inline constexpr int kLineThreads = 512, kLineWarps = kLineThreads / kWarp;
inline constexpr int kLineVectors = 8;  ///< of a thread, all on their way at once

/// Blocks of the order that a warp takes, and a thread block.
template <class T>
inline constexpr int kLineEach = kLineVectors* cuda::kVector<T>* kWarp / cuda::kOrderBlock;
template <class T>
inline constexpr int kLineBlocks = kLineEach<T>* kLineWarps;

/// The tree of N trees over the lanes, all at once: halves of the lanes go on with one of two each. In all lanes.
template <class Core, class A, int N>
__device__ __forceinline__ A meet_blocks(const Core& core, A (&value)[N]) {
  int mask = 1;
#pragma unroll
  for (int n = N; n > 1; n /= 2, mask *= 2) {
    const bool odd = threadIdx.x & mask;
#pragma unroll
    for (int b = 0; b < n; b += 2) {
      const A mine = odd ? value[b + 1] : value[b], other = odd ? value[b] : value[b + 1];
      value[b / 2] = core.merge(mine, cuda::shuffle_xor(other, mask));
    }
  }
#pragma unroll
  for (; mask < kWarp; mask *= 2) value[0] = core.merge(value[0], cuda::shuffle_xor(value[0], mask));
#pragma unroll
  for (mask = 1; mask < N; mask *= 2) value[0] = core.merge(value[0], cuda::shuffle_xor(value[0], mask));
  return value[0];
}

/// The tree of the threads' values, in the first warp.
template <class Core, class A>
__device__ __forceinline__ A meet_line(const Core& core, A value, A* shared) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  if (warp > 0) return value;
  value = lane < kLineWarps ? shared[lane] : core.identity();
#pragma unroll
  for (int mask = 1; mask < kLineWarps; mask *= 2) value = core.merge(value, cuda::shuffle_xor(value, mask));
  return value;
}

/// The tree of `count` partial results, `each` a thread: a power of two.
template <class Core, class A>
__device__ __forceinline__ A finish_line(const Core& core, const A* partials, int count, int each, A* shared) {
  const int first = threadIdx.x * each, end = min(first + each, count);
  Counter<Core, kPartialLevels> counter;
  for (int s = first; s < end; s += kPartialsAtOnce) {
    A x[kPartialsAtOnce];
#pragma unroll
    for (int k = 0; k < kPartialsAtOnce; ++k) x[k] = s + k < end ? __ldcg(partials + s + k) : core.identity();
    counter.push(core, merge_all(core, x));
  }
  A value = counter.finish(core);
#pragma unroll
  for (int mask = 1; mask < kWarp; mask *= 2) value = core.merge(value, cuda::shuffle_xor(value, mask));
  return meet_line(core, value, shared);
}

/// Of `count` elements, whole shares; result.partials holds one accumulator a thread block.
template <class T, class Op>
__global__ void __launch_bounds__(kLineThreads, 2)
    line_kernel(const T* __restrict__ x, const __grid_constant__ Op op, const __grid_constant__ Result result, int each,
                int* ended) {
  using A = typename Op::Core::Acc;
  constexpr int V = cuda::kVector<T>, kEach = kLineEach<T>, kPacks = kLineVectors / kEach;
  __shared__ A shared[kLineWarps];
  __shared__ bool last;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const T* from = x + (int64_t{blockIdx.x} * kLineWarps + warp) * (kEach * cuda::kOrderBlock) + lane * V;
  Pack<T, V> pack[kEach][kPacks];
#pragma unroll
  for (int b = 0; b < kEach; ++b)
#pragma unroll
    for (int k = 0; k < kPacks; ++k) pack[b][k] = cuda::load_past_l1<V>(from + b * cuda::kOrderBlock + k * (V * kWarp));
  constexpr int kGroups = kPacks / kChain;  // vectors of a block's row of leaves; they meet last, as blocks do
  const NoShift none[V] = {};
  A value[kEach * kGroups];
#pragma unroll
  for (int i = 0; i < kEach * kGroups; ++i) {
    A leaf[V];
#pragma unroll
    for (A& a : leaf) a = op.core.identity();
#pragma unroll
    for (int c = 0; c < kChain; ++c) fold_each(op, pack[i / kGroups][c * kGroups + i % kGroups], none, leaf);
    value[i] = merge_all(op.core, leaf);
  }
  const A block = meet_line(op.core, meet_blocks(op.core, value), shared);
  A* partials = static_cast<A*>(result.partials);
  if (threadIdx.x == 0) {
    partials[blockIdx.x] = block;
    __threadfence();
    last = atomicAdd(ended, 1) == static_cast<int>(gridDim.x) - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  const A all = finish_line(op.core, partials, static_cast<int>(gridDim.x), each, shared);
  if (threadIdx.x == 0) op.core.store(result, 0, 0, all);
}

}  // namespace tenor::reduce
