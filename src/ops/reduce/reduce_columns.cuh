// Reductions along columns: a thread takes a few neighbouring outputs, and walks down.
#pragma once

#include "src/core/type_name.h"
#include "src/ops/reduce/reduce_kernels.cuh"

namespace tenor::reduce {

struct ColumnGrid {
  int log_across;  ///< threads side by side over the outputs; the others lie over the leaves
  int leaves;      ///< of a thread, a power of two
  int splits;      ///< thread blocks that share an output: gridDim.y, or x where `swapped`
  bool swapped;
};

/// Leaves of the reduction order whose loads are in flight together, and elements of each. Columns of up to kOrderLanes
/// elements have leaves of one.
template <bool kShort>
inline constexpr int kLeaves = kShort ? 8 : 2;
template <bool kShort>
inline constexpr int kLeafElements = kShort ? 1 : kChain;
inline constexpr int kSteps = 8;       ///< times kLeaves that a thread takes, at most
inline constexpr int kStepLevels = 4;  ///< log2(kSteps) + 1

/// How many leaves there are. Where their order does not show, a leaf's elements are neighbours.
template <bool kOrdered>
inline int64_t column_leaves(int64_t count) {
  if (count <= cuda::kOrderLanes) return count;
  return kOrdered ? (count + cuda::kOrderBlock - 1) / cuda::kOrderBlock * cuda::kOrderLanes
                  : (count + kChain - 1) / kChain;
}

/// The element c of leaf q.
template <bool kOrdered, bool kShort>
__device__ __forceinline__ int64_t element_of(int64_t q, int c) {
  if constexpr (kShort) return q;
  if constexpr (!kOrdered) return q * kChain + c;
  return q / cuda::kOrderLanes * cuda::kOrderBlock + q % cuda::kOrderLanes + c * cuda::kOrderLanes;
}

/// The leaves of one column among those loaded, as one accumulator more. kFull: all their elements are there.
template <int V, bool kShort, bool kFull, class T, class Op, class S, class A, int N>
__device__ __forceinline__ void fold_column(const Op& op, const Pack<T, V> (&x)[N], int v, int64_t leaf, int64_t count,
                                            S shift, A& acc, Counter<typename Op::Core, kStepLevels>& counter) {
  constexpr bool kOrdered = Op::Core::kOrdered;
  constexpr int kL = kLeaves<kShort>, kE = kLeafElements<kShort>;
  const auto is_there = [&](int k, int c) { return kFull || element_of<kOrdered, kShort>(leaf + k, c) < count; };
  if constexpr (kHasGroups<Op>) {
    T near[N];
#pragma unroll
    for (int k = 0; k < N; ++k) near[k] = x[k].at[v];
    const int64_t first = element_of<false, kShort>(leaf, 0);
    const int n = kFull ? N : static_cast<int>(min(count - first, int64_t{N}));
    if (n > 0) op.take(acc, op.template largest<N>(near, n), first);
  } else if constexpr (!kOrdered) {
#pragma unroll
    for (int k = 0; k < N; ++k)
      if (is_there(k / kE, k % kE)) op.fold(acc, x[k].at[v], 0, shift);
  } else {
    A leaves[kL];
#pragma unroll
    for (int k = 0; k < kL; ++k) {
      leaves[k] = op.core.identity();
      if constexpr (kHasLeaves<Op> && kE == 4) {
        if (is_there(k, 3)) {
          op.fold_leaf(leaves[k], x[4 * k].at[v], x[4 * k + 1].at[v], x[4 * k + 2].at[v], x[4 * k + 3].at[v], shift);
          continue;
        }
      }
#pragma unroll
      for (int c = 0; c < kE; ++c)
        if (is_there(k, c)) op.fold(leaves[k], x[k * kE + c].at[v], 0, shift);
    }
#pragma unroll
    for (int step = 1; step < kL; step *= 2)
#pragma unroll
      for (int k = 0; k < kL; k += 2 * step) leaves[k] = op.core.merge(leaves[k], leaves[k + step]);
    counter.push(op.core, leaves[0]);
  }
}

/// The elements of two neighbouring columns at once.
template <int V, bool kShort, class T, class Op, class A, int N>
__device__ __forceinline__ void fold_column_pair(const Op& op, const Pack<T, V> (&x)[N], int v, int64_t leaf,
                                                 A (&acc)[V]) {
  uint32_t pairs[N];
#pragma unroll
  for (int k = 0; k < N; ++k) pairs[k] = reinterpret_cast<const uint32_t*>(&x[k])[v / 2];
  if constexpr (kHasGroups<Op>)
    op.fold_pairs(acc[v], acc[v + 1], pairs, element_of<false, kShort>(leaf, 0));
  else
    op.fold_pairs(acc[v], acc[v + 1], pairs);
}

/// Loads the leaves from `leaf` on, and takes in those of each column.
template <int V, Walk W, bool kShort, bool kFull, class T, class Op, class S, class A>
__device__ __forceinline__ void step_down(const Op& op, const Shape& shape, const T* __restrict__ from, int64_t leaf,
                                          const S (&shift)[V], A (&acc)[V],
                                          Counter<typename Op::Core, kStepLevels> (&counter)[V]) {
  constexpr int kE = kLeafElements<kShort>, kN = kLeaves<kShort> * kE;
  Pack<T, V> pack[kN];
#pragma unroll
  for (int k = 0; k < kN; ++k) {
    const int64_t i = element_of<Op::Core::kOrdered, kShort>(leaf + k / kE, k % kE);
    if (kFull || i < shape.count) pack[k] = load_pack<V>(from + offset<W>(shape, i));
  }
  if constexpr (kFull && V % 2 == 0 && HasPairs<Op, A>) {
#pragma unroll
    for (int v = 0; v < V; v += 2) fold_column_pair<V, kShort>(op, pack, v, leaf, acc);
  } else {
#pragma unroll
    for (int v = 0; v < V; ++v)
      fold_column<V, kShort, kFull>(op, pack, v, leaf, shape.count, shift[v], acc[v], counter[v]);
  }
}

/// Sums or means of T in one access; false where they do not lie so, or end as something else.
template <class T, int V, class A>
__device__ __forceinline__ bool store_together(const A (&value)[V], int64_t step, int64_t to, const Result& result) {
  const FinishKind kind = result.finish.kind;
  T* out = static_cast<T*>(result.out) + to;
  if (result.finish.out != core::kDTypeOf<T> || (kind != FinishKind::kNone && kind != FinishKind::kMean) || step != 1 ||
      reinterpret_cast<uintptr_t>(out) % sizeof(Pack<T, V>) != 0)
    return false;
  A y[V];
#pragma unroll
  for (int v = 0; v < V; ++v)
    y[v] = kind == FinishKind::kMean ? value[v] / static_cast<A>(result.finish.count) : value[v];
  cuda::store_pack<V>(out, cuda::convert_pack<T>(y));
  return true;
}

/// What V neighbouring outputs from number `output` on end as: results, the first of them at `to`, or partial results.
template <class T, int V, class Core, class A>
__device__ __forceinline__ void store_columns(const Core& core, const A (&value)[V], const Shape& shape, int splits,
                                              int split, int64_t output, int64_t to, const Result& result) {
  if (splits > 1) {
    A* partials = static_cast<A*>(result.partials) + split * shape.outputs + output;
    constexpr bool kFours = sizeof(A) == 4 && V % 4 == 0;
#pragma unroll
    for (int v = 0; v < V; v += kFours ? 4 : 1) {
      if constexpr (kFours)
        cuda::store_pack<4>(partials + v, reinterpret_cast<const Pack<A, 4>&>(value[v]));
      else
        partials[v] = value[v];
    }
    return;
  }
  const int64_t step = shape.kept.ndim == 0 ? 0 : shape.kept.stride[1][shape.kept.ndim - 1];
  if constexpr (Core::kOrdered && std::is_floating_point_v<A>) {
    if (store_together<T>(value, step, to, result)) return;
  }
#pragma unroll
  for (int v = 0; v < V; ++v) core.store(result, to + v * step, output + v, value[v]);
}

/// Thread blocks that must fit a multiprocessor together.
template <class T, class Op, int V>
inline constexpr int kColumnResidents = sizeof(typename Op::Core::Acc) > 4 || V == 8 ? 2 : 3;

template <class T, class Op, int V, Walk W, bool kShort>
__global__ void __launch_bounds__(kThreads, kColumnResidents<T, Op, V>)
    column_kernel(const T* __restrict__ x, const __grid_constant__ Op op, const __grid_constant__ Shape shape,
                  const __grid_constant__ ColumnGrid grid, const __grid_constant__ Result result) {
  using A = typename Op::Core::Acc;
  constexpr bool kOrdered = Op::Core::kOrdered;
  constexpr int kL = kLeaves<kShort>, kE = kLeafElements<kShort>;
  __shared__ A shared[kThreads * V];
  const int across = 1 << grid.log_across, tx = threadIdx.x & (across - 1), ty = threadIdx.x >> grid.log_across,
            down = kThreads >> grid.log_across;
  const int tile = grid.swapped ? blockIdx.y : blockIdx.x, split = grid.swapped ? blockIdx.x : blockIdx.y;
  const int64_t output = (int64_t{tile} * across + tx) * V;
  const bool valid = output < shape.outputs;
  int64_t at[2] = {0, 0};
  if (valid) offsets(shape.kept, output, at);
  const T* from = x + at[0];
  decltype(op.shift(0, from, true)) shift[V];
#pragma unroll
  for (int v = 0; v < V; ++v) shift[v] = op.shift(valid ? output + v : 0, from + v, valid && shape.count > 0);

  if (grid.splits > 1) cuda::ptx::launch_dependents();  // the second stage may take its place, and wait
  A acc[V], value[V];
  Counter<typename Op::Core, kStepLevels> counter[V];
#pragma unroll
  for (A& a : acc) a = op.core.identity();
  const int64_t begin = (int64_t{split} * down + ty) * grid.leaves;
  for (int64_t leaf = begin;
       leaf < begin + grid.leaves && valid && element_of<kOrdered, kShort>(leaf & -cuda::kOrderLanes, 0) < shape.count;
       leaf += kL) {
    if (element_of<kOrdered, kShort>(leaf + kL - 1, kE - 1) < shape.count)
      step_down<V, W, kShort, true>(op, shape, from, leaf, shift, acc, counter);
    else
      step_down<V, W, kShort, false>(op, shape, from, leaf, shift, acc, counter);
  }
#pragma unroll
  for (int v = 0; v < V; ++v) {
    value[v] = kOrdered ? counter[v].finish(op.core) : acc[v];
    if constexpr (kHasGroups<Op>)
      if (valid) find_in_group<kL * kE, W>(op, shape, from + v, value[v]);
  }
  meet_down<V>(op.core, value, shared, grid.log_across);
  if (valid && ty == 0) store_columns<T>(op.core, value, shape, grid.splits, split, output, at[1], result);
}

}  // namespace tenor::reduce
