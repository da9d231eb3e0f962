// Reductions along the columns of a dense matrix of few columns, whatever their number: rows are copied into shared
// memory as one run of vectors, and read from there column by column. A ring of copies keeps the memory busy meanwhile.
#pragma once

#include "src/cuda/ptx/async_copy.cuh"
#include "src/ops/reduce/reduce_columns.cuh"

namespace tenor::reduce {

/// Groups of threads, each with a run of leaves of its own: `threads` of them, at least one a column while those are
/// fewer than a block's. A group copies the elements of `rows` leaves a column at a time: kChain pieces of as many
/// neighbouring rows, kOrderLanes apart.
struct NarrowGrid {
  int log_threads;
  int rows;    ///< a power of two, and whole vectors whatever the number of columns
  int rounds;  ///< such copies of a group
  int piece;   ///< bytes
  int pitch;   ///< bytes from group to group
  int splits;  ///< thread blocks that share the columns
};

inline constexpr int kNarrowStages = 3;  ///< of the ring
inline constexpr int kNarrowLevels = 8;
inline constexpr int kNarrowColumns = 4;  ///< of a thread, at most

/// Copies a group's pieces of the round that begins with element `first`; what lies beyond the matrix is left out.
template <class T>
__device__ __forceinline__ void copy_pieces(const T* __restrict__ x, int64_t first, int64_t step, int64_t count,
                                            const NarrowGrid& grid, char* to, int lane) {
  for (int v = lane * cuda::kVectorBytes; v < grid.piece; v += cuda::kVectorBytes << grid.log_threads) {
#pragma unroll
    for (int c = 0; c < kChain; ++c) {
      const int64_t bytes = (count - first - c * step) * static_cast<int64_t>(sizeof(T)) - v;
      if (bytes > 0)
        cuda::ptx::async_copy_16_part(to + c * grid.piece + v, reinterpret_cast<const char*>(x + first + c * step) + v,
                                      static_cast<int>(min(bytes, int64_t{cuda::kVectorBytes})));
    }
  }
}

/// The leaves of one column of a round that begins with row `row`, N at a time. kFull: all their elements are there.
template <int N, bool kFull, class T, class Op>
__device__ __forceinline__ void push_leaves(const Op& op, const T* from, const NarrowGrid& grid, int columns,
                                            int64_t row, int64_t count,
                                            Counter<typename Op::Core, kNarrowLevels>& counter) {
  const int apart = grid.piece / static_cast<int>(sizeof(T));
  for (int r = 0; r < grid.rows; r += N) {
    typename Op::Core::Acc leaf[N];
#pragma unroll
    for (int k = 0; k < N; ++k, from += columns) {
      leaf[k] = op.core.identity();
#pragma unroll
      for (int c = 0; c < kChain; ++c)
        if (kFull || row + r + k + c * cuda::kOrderLanes < count) op.fold(leaf[k], from[c * apart], 0, {});
    }
    counter.push(op.core, merge_all(op.core, leaf));
  }
}

/// The first row of a leaf.
__device__ __forceinline__ int64_t row_of_leaf(int64_t leaf) {
  return leaf / cuda::kOrderLanes * cuda::kOrderBlock + leaf % cuda::kOrderLanes;
}

template <class T, class Op, int K>
__global__ void __launch_bounds__(kThreads)
    narrow_kernel(const T* __restrict__ x, const __grid_constant__ Op op, const __grid_constant__ Shape shape,
                  const __grid_constant__ NarrowGrid grid, const __grid_constant__ Result result) {
  using A = typename Op::Core::Acc;
  extern __shared__ __align__(16) char ring[];
  const int threads = 1 << grid.log_threads, groups = kThreads >> grid.log_threads;
  const int group = threadIdx.x >> grid.log_threads, lane = threadIdx.x & (threads - 1);
  const int columns = static_cast<int>(shape.outputs);
  const int64_t count = shape.count * columns, step = cuda::kOrderLanes * columns;
  const int64_t begin = (int64_t{blockIdx.x} * groups + group) * grid.rounds * grid.rows;
  const auto row = [&](int round) { return row_of_leaf(begin + int64_t{round} * grid.rows); };
  const auto stage = [&](int round) { return ring + ((round % kNarrowStages) * groups + group) * grid.pitch; };
  const auto copy = [&](int round) {
    if (round < grid.rounds) copy_pieces(x, row(round) * columns, step, count, grid, stage(round), lane);
    cuda::ptx::async_copy_commit();
  };
  if (grid.splits > 1) cuda::ptx::launch_dependents();  // the second stage may take its place, and wait
  for (int round = 0; round + 1 < kNarrowStages; ++round) copy(round);
  Counter<typename Op::Core, kNarrowLevels> counter[K];
  for (int round = 0; round < grid.rounds; ++round) {
    cuda::ptx::async_copy_wait<kNarrowStages - 2>();
    __syncthreads();  // the copies of all are there, and the stage before has been read
    copy(round + kNarrowStages - 1);
    const bool full = row(round) + grid.rows - 1 + (kChain - 1) * cuda::kOrderLanes < shape.count;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (lane + k * threads >= columns) continue;
      const T* from = reinterpret_cast<const T*>(stage(round)) + lane + k * threads;
      if (full)
        push_leaves<cuda::kVector<T>, true>(op, from, grid, columns, row(round), shape.count, counter[k]);
      else
        push_leaves<cuda::kVector<T>, false>(op, from, grid, columns, row(round), shape.count, counter[k]);
    }
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < K; ++k) {
    A value[1] = {counter[k].finish(op.core)};
    meet_down<1>(op.core, value, reinterpret_cast<A*>(ring), grid.log_threads);
    const int column = lane + k * threads;
    if (group != 0 || column >= columns) continue;
    const int64_t to = shape.kept.ndim == 0 ? 0 : column * shape.kept.stride[1][0];
    if (grid.splits > 1)
      static_cast<A*>(result.partials)[blockIdx.x * shape.outputs + column] = value[0];
    else
      op.core.store(result, to, column, value[0]);
  }
}

}  // namespace tenor::reduce
