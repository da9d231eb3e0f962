// Reductions along columns for operators whose order shows and whose elements cost little: a thread takes a whole
// subtree of leaves, so that how its leaves meet is settled when the kernel is compiled. The general kernel
// (reduce_columns.cuh) carries at run time, which costs three instructions an element.
#pragma once

#include <bit>

#include "src/ops/reduce/reduce_columns.cuh"

namespace tenor::reduce {

inline constexpr int kTreeAhead = 2;  ///< leaves whose loads are in flight together

/// Leaves of a thread: powers of two that divide kOrderLanes, so that their elements lie evenly. Few where the tensor
/// is small.
inline constexpr int kTreeMany = 16, kTreeFew = 4;

/// The elements of a leaf, a row of V columns each, from row `row` on, which `from` points to. kFull: all are there.
template <int V, bool kFull, class T>
__device__ __forceinline__ void load_leaf(const T* __restrict__ from, int64_t step, int64_t row, int64_t count,
                                          Pack<T, V> (&pack)[kChain]) {
  const int64_t chain = cuda::kOrderLanes * step;
#pragma unroll
  for (int c = 0; c < kChain; ++c)
    if (kFull || row + c * cuda::kOrderLanes < count) pack[c] = cuda::load_past_l1<V>(from + c * chain);
}
/// Whole leaves alike in a subtree that is whole and in one that is not, as every kernel folds them.
template <int V, bool kFull, class T, class Op, class S, class A>
__device__ __forceinline__ void fold_leaf(const Op& op, const Pack<T, V> (&pack)[kChain], int64_t row, int64_t count,
                                          const S (&shift)[V], A (&leaf)[V]) {
  if constexpr (kHasLeaves<Op>) {
    if (kFull || row + (kChain - 1) * cuda::kOrderLanes < count) {
#pragma unroll
      for (int v = 0; v < V; ++v)
        op.fold_leaf(leaf[v], pack[0].at[v], pack[1].at[v], pack[2].at[v], pack[3].at[v], shift[v]);
      return;
    }
  }
#pragma unroll
  for (A& a : leaf) a = op.core.identity();
#pragma unroll
  for (int c = 0; c < kChain; ++c) {
    if (!kFull && row + c * cuda::kOrderLanes >= count) break;
    fold_each(op, pack[c], shift, leaf);
  }
}

/// A thread's subtree: `row` is the first leaf's first.
template <int V, int L, bool kFull, class T, class Op, class S, class A>
__device__ __forceinline__ void fold_subtree(const Op& op, const T* __restrict__ from, int64_t step, int64_t row,
                                             int64_t count, const S (&shift)[V], A (&value)[V]) {
  Counter<typename Op::Core, std::bit_width(unsigned{L})> counter[V];
  Pack<T, V> pack[kTreeAhead][kChain];
  A leaf[V];
  from += row * step;
  if constexpr (kFull) {
#pragma unroll
    for (int j = 0; j < kTreeAhead; ++j, from += step) load_leaf<V, true>(from, step, row + j, count, pack[j]);
#pragma unroll
    for (int j = 0; j < L; ++j) {
      fold_leaf<V, true>(op, pack[j % kTreeAhead], row + j, count, shift, leaf);
      if (j + kTreeAhead < L) load_leaf<V, true>(from, step, row + j + kTreeAhead, count, pack[j % kTreeAhead]);
      from += step;
#pragma unroll
      for (int v = 0; v < V; ++v) counter[v].template push<true>(op.core, leaf[v]);
    }
  } else {
#pragma unroll 1
    for (int j = 0; j < L && row + j < count; ++j, from += step) {
      load_leaf<V, false>(from, step, row + j, count, pack[0]);
      fold_leaf<V, false>(op, pack[0], row + j, count, shift, leaf);
#pragma unroll
      for (int v = 0; v < V; ++v) counter[v].push(op.core, leaf[v]);
    }
  }
#pragma unroll
  for (int v = 0; v < V; ++v) value[v] = counter[v].finish(op.core);
}

/// What the columns of a thread block have come to, `across` threads of V columns side by side: column c at shared[c],
/// once the block has passed a barrier. Neighbouring subtrees meet in the warp, the warps' in shared memory.
template <int V, class Core, class A>
__device__ __forceinline__ void meet_columns(const Core& core, A (&value)[V], A* shared, int log_across) {
  const int across = 1 << log_across, columns = V << log_across, tx = threadIdx.x & (across - 1),
            ty = threadIdx.x >> log_across;
  for (int mask = across; mask < kWarp; mask *= 2) {
#pragma unroll
    for (int v = 0; v < V; ++v) value[v] = core.merge(value[v], cuda::shuffle_xor(value[v], mask));
  }
  const int in_warp = max(kWarp >> log_across, 1), rows = (kThreads >> log_across) / in_warp;
  if (ty % in_warp == 0) {
#pragma unroll
    for (int v = 0; v < V; ++v) shared[ty / in_warp * columns + tx * V + v] = value[v];
  }
  __syncthreads();
  if (rows == 1) return;
  for (int c = threadIdx.x; c < columns; c += kThreads) {
    A part[kWarps];
#pragma unroll
    for (int r = 0; r < kWarps; ++r) part[r] = r < rows ? shared[r * columns + c] : core.identity();
    shared[c] = merge_all(core, part);
  }
}

/// Thread blocks that share an output: grid.splits; the threads of one lie as in column_kernel.
template <class T, class Op, int V, int L>
__global__ void __launch_bounds__(kThreads, 2)
    tree_kernel(const T* __restrict__ x, const __grid_constant__ Op op, const __grid_constant__ Shape shape,
                const __grid_constant__ ColumnGrid grid, const __grid_constant__ Result result) {
  using A = typename Op::Core::Acc;
  __shared__ A shared[kThreads * V];
  const int across = 1 << grid.log_across, columns = V << grid.log_across, tx = threadIdx.x & (across - 1),
            ty = threadIdx.x >> grid.log_across, down = kThreads >> grid.log_across;
  const int tile = grid.swapped ? blockIdx.y : blockIdx.x, split = grid.swapped ? blockIdx.x : blockIdx.y;
  const int64_t first = int64_t{tile} * columns, output = first + tx * V;
  const bool valid = output < shape.outputs;
  int64_t at[2] = {0, 0};
  if (valid) kept_offsets(shape, output, at);
  if (grid.splits > 1) cuda::ptx::launch_dependents();  // the second stage may take its place, and wait
  const int64_t leaf = (int64_t{split} * down + ty) * L, row = element_of<true, false>(leaf, 0),
                last = element_of<true, false>(leaf + L - 1, kChain - 1), step = shape.reduced.stride[0][0];
  const T* from = x + at[0];
  decltype(op.shift(0, from, true)) shift[V];
#pragma unroll
  for (int v = 0; v < V; ++v) shift[v] = op.shift(valid ? output + v : 0, from + v, valid && shape.count > 0);
  A value[V];
  if (valid && last < shape.count)
    fold_subtree<V, L, true>(op, from, step, row, shape.count, shift, value);
  else
    fold_subtree<V, L, false>(op, from, step, row, valid ? shape.count : 0, shift, value);
  meet_columns<V>(op.core, value, shared, grid.log_across);
  for (int c = threadIdx.x; c < columns && first + c < shape.outputs; c += kThreads) {
    if (grid.splits > 1) {
      static_cast<A*>(result.partials)[split * shape.outputs + first + c] = shared[c];
      continue;
    }
    int64_t to[2];
    kept_offsets(shape, first + c, to);
    op.core.store(result, to[1], first + c, shared[c]);
  }
}

}  // namespace tenor::reduce
