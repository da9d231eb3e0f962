// Reductions along columns for operators whose order shows and whose elements cost an addition or a product: a thread
// takes a whole subtree of leaves, so that how its leaves meet is settled when the kernel is compiled. The
// general kernel (reduce_columns.cuh) carries at run time, which costs three instructions an element.
#pragma once

#include <bit>

#include "src/ops/reduce/reduce_columns.cuh"

namespace tenor::reduce {

inline constexpr int kTreeAhead = 2;  ///< leaves whose loads are in flight together

/// Leaves of a thread: powers of two that divide kOrderLanes, so that their elements lie evenly. Few where the tensor
/// is small.
inline constexpr int kTreeMany = 16, kTreeFew = 4;

/// The elements of a leaf, a row of V columns each, from row `row` on. kFull: all are there.
template <int V, bool kFull, class T>
__device__ __forceinline__ void load_leaf(const T* __restrict__ from, int64_t step, int64_t row, int64_t count,
                                          Pack<T, V> (&pack)[kChain]) {
#pragma unroll
  for (int c = 0; c < kChain; ++c)
    if (kFull || row + c * cuda::kOrderLanes < count)
      pack[c] = cuda::load_past_l1<V>(from + (row + c * cuda::kOrderLanes) * step);
}
template <int V, bool kFull, class T, class Op, class A>
__device__ __forceinline__ void fold_leaf(const Op& op, const Pack<T, V> (&pack)[kChain], int64_t row, int64_t count,
                                          A (&leaf)[V]) {
#pragma unroll
  for (A& a : leaf) a = op.core.identity();
#pragma unroll
  for (int c = 0; c < kChain; ++c) {
    if (!kFull && row + c * cuda::kOrderLanes >= count) break;
#pragma unroll
    for (int v = 0; v < V; ++v) op.fold(leaf[v], pack[c].at[v], 0, {});
  }
}

/// A thread's subtree: `row` is the first leaf's first.
template <int V, int L, bool kFull, class T, class Op, class A>
__device__ __forceinline__ void fold_subtree(const Op& op, const T* __restrict__ from, int64_t step, int64_t row,
                                             int64_t count, A (&value)[V]) {
  Counter<typename Op::Core, std::bit_width(unsigned{L})> counter[V];
  Pack<T, V> pack[kTreeAhead][kChain];
  A leaf[V];
  if constexpr (kFull) {
#pragma unroll
    for (int j = 0; j < kTreeAhead; ++j) load_leaf<V, true>(from, step, row + j, count, pack[j]);
#pragma unroll
    for (int j = 0; j < L; ++j) {
      fold_leaf<V, true>(op, pack[j % kTreeAhead], row + j, count, leaf);
      if (j + kTreeAhead < L) load_leaf<V, true>(from, step, row + j + kTreeAhead, count, pack[j % kTreeAhead]);
#pragma unroll
      for (int v = 0; v < V; ++v) counter[v].push(op.core, leaf[v]);
    }
  } else {
#pragma unroll 1
    for (int j = 0; j < L && row + j < count; ++j) {
      load_leaf<V, false>(from, step, row + j, count, pack[0]);
      fold_leaf<V, false>(op, pack[0], row + j, count, leaf);
#pragma unroll
      for (int v = 0; v < V; ++v) counter[v].push(op.core, leaf[v]);
    }
  }
#pragma unroll
  for (int v = 0; v < V; ++v) value[v] = counter[v].finish(op.core);
}

/// Thread blocks that share an output: grid.splits; the threads of one lie as in column_kernel.
template <class T, class Op, int V, int L>
__global__ void __launch_bounds__(kThreads, 2)
    tree_kernel(const T* __restrict__ x, const __grid_constant__ Op op, const __grid_constant__ Shape shape,
                const __grid_constant__ ColumnGrid grid, const __grid_constant__ Result result) {
  using A = typename Op::Core::Acc;
  __shared__ A shared[kThreads * V];
  const int across = 1 << grid.log_across, tx = threadIdx.x & (across - 1), ty = threadIdx.x >> grid.log_across,
            down = kThreads >> grid.log_across;
  const int tile = grid.swapped ? blockIdx.y : blockIdx.x, split = grid.swapped ? blockIdx.x : blockIdx.y;
  const int64_t output = (int64_t{tile} * across + tx) * V;
  const bool valid = output < shape.outputs;
  int64_t at[2] = {0, 0};
  if (valid) offsets(shape.kept, output, at);
  if (grid.splits > 1) cuda::ptx::launch_dependents();  // the second stage may take its place, and wait
  const int64_t leaf = (int64_t{split} * down + ty) * L, row = element_of<true, false>(leaf, 0),
                last = element_of<true, false>(leaf + L - 1, kChain - 1), step = shape.reduced.stride[0][0];
  A value[V];
  if (valid && last < shape.count)
    fold_subtree<V, L, true>(op, x + at[0], step, row, shape.count, value);
  else
    fold_subtree<V, L, false>(op, x + at[0], step, row, valid ? shape.count : 0, value);
  meet_down<V>(op.core, value, shared, grid.log_across);
  if (valid && ty == 0) store_columns<T>(op.core, value, shape, grid.splits, split, output, at[1], result);
}

}  // namespace tenor::reduce
