// Row kernels: load a row, reduce it, write a result of its length. An operator is a struct
//
//     struct Softmax {
//       static constexpr int kTensors = 2;  // of its RowProblem: x and the result
//       struct Parameters { ... };
//       template <class Row> static __device__ auto prepare(const Row& row, const Parameters& p);  // once a thread
//       template <class Row, class Ahead>
//       static __device__ void run(Row& row, const Parameters& p, const Ahead& ahead) {
//         const auto sum = row.sum([](auto v, auto& part) { part += v; });
//         ...
//         row.write(1, [&](auto& values, int64_t i, int64_t spacing, int k) { ... });
//       }
//     };
//
// and launch_rows<Softmax, T>(...) runs it: over rows in registers (row_held.cuh) where they lie dense and aligned,
// those of several blocks in turn (row_ring.cuh), else over rows of any layout (row_general.cuh).
#pragma once

#include <array>

#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/cuda/row_general.cuh"
#include "src/cuda/row_held.cuh"
#include "src/cuda/row_ring.cuh"

namespace tenor::cuda {

/// What a kernel is told of its rows.
template <int N, RowFit kFit>
using RowsOf = std::conditional_t<kFit == RowFit::kFull, EvenRows<N>, RowProblem<N>>;
template <int N, RowFit kFit>
RowsOf<N, kFit> rows_of(const RowProblem<N>& problem) {
  if constexpr (kFit == RowFit::kFull)
    return even_rows(problem);
  else
    return problem;
}

/// Two blocks of kRowThreads threads share a multiprocessor: a block's loads, reductions and stores overlap with those
/// of other blocks only. More blocks would leave 40 registers a thread, and rows of 16-bit elements would spill.
template <class Op, class T, RowShape kShape, int W, bool kCluster, RowFit kFit>
__global__ void __launch_bounds__(W > 1 && kCluster ? kRingThreads : kRowThreads, 2)
    held_row_kernel(const __grid_constant__ RowsOf<Op::kTensors, kFit> problem,
                    const __grid_constant__ typename Op::Parameters parameters) {
  constexpr int kShare = kShape == RowShape::kLanes ? kLanesShare : held_elements(sizeof(T), W > 1 && kCluster);
  using Row = HeldRow<T, Op::kTensors, kShape, W, kShare, kCluster, kFit>;
  __shared__ typename Row::Threads::Scratch scratch;
  Row row(problem, scratch);
  if (kFit == RowFit::kFull && !row.exists()) return;  // whole warps, whose rows are theirs alone
  row.load();
  Op::run(row, parameters, Op::prepare(row, parameters));
}

/// Vectors of which an operator keeps what its rows in turn need (RingRow::keep).
template <class Op>
constexpr int kept_vectors() {
  if constexpr (requires { Op::kKept; }) return Op::kKept;
  return 0;
}
template <class Op, class T, RowFit kFit>
using RingRowOf = RingRow<T, Op::kTensors, sizeof(T) == 2 ? kept_vectors<Op>() : 0, kFit>;

template <class Op, class T, RowFit kFit>
__global__ void __launch_bounds__(kRingThreads* kRingRows, 1)
    ring_row_kernel(const __grid_constant__ RowsOf<Op::kTensors, kFit> problem,
                    const __grid_constant__ typename Op::Parameters parameters, int in_turn) {
  if constexpr (ptx::kHasClusters) {
    using Row = RingRowOf<Op, T, kFit>;
    extern __shared__ __align__(128) uint4 parts[];
    __shared__ uint64_t full[Row::kBarriers];
    __shared__ typename Row::Threads::Scratch scratch[kRingRows];
    Row row(problem, scratch[threadIdx.y], {parts, full}, in_turn);
    const auto ahead = Op::prepare(row, parameters);
    while (row.next()) Op::run(row, parameters, ahead);
  }
}

template <class Op, class T>
__global__ void __launch_bounds__(kRowThreads, 2)
    general_row_kernel(const __grid_constant__ RowProblem<Op::kTensors> problem,
                       const __grid_constant__ typename Op::Parameters parameters) {
  extern __shared__ uint4 held[];
  __shared__ typename GeneralRow<T, Op::kTensors>::Threads::Scratch scratch;
  GeneralRow<T, Op::kTensors> row(problem, scratch, reinterpret_cast<T*>(held));
  Op::run(row, parameters, Op::prepare(row, parameters));
}

/// Shared memory of an operator's own in kernels of aligned rows of one block.
template <class Op>
size_t own_shared(const typename Op::Parameters& parameters, int64_t length, size_t item) {
  if constexpr (requires { Op::shared_bytes(parameters, length, item); })
    return Op::shared_bytes(parameters, length, item);
  return 0;
}

/// Operators for aligned rows of at most 4-byte elements only, whose vectors are of their type.
template <class Op>
inline constexpr bool kOwnVectors = requires {
  requires Op::kOwnVectors;
};

/// Operators for rows of 16-bit elements by whole warps of one block only.
template <class Op>
inline constexpr bool kBlocksOnly = requires {
  requires Op::kBlocksOnly;
};

inline Grid grid_of(const RowPlan& plan, int64_t rows) {
  const auto threads = static_cast<unsigned>(plan.threads), several = static_cast<unsigned>(plan.rows);
  const dim3 block = plan.columns ? dim3(kWarp, threads, several / kWarp) : dim3(threads, several);
  return {static_cast<unsigned>((rows + plan.rows - 1) / plan.rows * plan.cluster), block, 0, plan.cluster};
}

/// Launches over rows in turn: as many a cluster as make one round of clusters, whose starts cost more than the load
/// that later ones would even out; of clusters of two, four rounds.
template <class Op, class T, RowFit kFit>
void launch_ring(const char* op, const RowPlan& plan, const RowProblem<Op::kTensors>& problem,
                 const typename Op::Parameters& parameters, Device device) {
  Grid grid = grid_of(plan, problem.outer.count);
  grid.shared = RingRowOf<Op, T, kFit>::kParts * RingRowOf<Op, T, kFit>::kPartBytes;
  grid.threads.y = kRingRows;
  static DeviceCount at_once[kRowCluster + 1];  // clusters, by their size
  const auto find = [&] { return clusters_at_once(op, ring_row_kernel<Op, T, kFit>, grid); };
  const int64_t clusters = int64_t{plan.cluster > 2 ? 1 : 4} * at_once[plan.cluster].of(device, find);
  if (problem.outer.count <= clusters) {  // a cluster each, of blocks that leave room for others
    using Row = RingRowOf<Op, T, kFit>;
    grid.threads.y = 1, grid.shared = (Row::kStages + Row::kKept) * Row::kPartBytes;
  }
  const int64_t rings = clusters * grid.threads.y;
  const int64_t in_turn = std::max<int64_t>((problem.outer.count + rings - 1) / rings, 1);
  const int64_t turns = in_turn * grid.threads.y;
  grid.blocks.x = static_cast<unsigned>((problem.outer.count + turns - 1) / turns * plan.cluster);
  launch(op, ring_row_kernel<Op, T, kFit>, grid, device, rows_of<Op::kTensors, kFit>(problem), parameters,
         static_cast<int>(in_turn));
}

/// Runs the operator over the problem. The one table of its kernels.
template <class Op, class T>
void launch_rows(const char* op, const RowPlan& plan, const RowProblem<Op::kTensors>& problem,
                 const typename Op::Parameters& parameters, Device device) {
  if (problem.outer.count == 0 || problem.length == 0) return;
  Grid grid = grid_of(plan, problem.outer.count);
  using enum RowShape;
  constexpr int kWide = kVector<T>;
  const auto held = [&]<RowShape kShape, int W, bool kCluster, RowFit kFit>() {
    if (kFit != RowFit::kAnywhere && kShape != kColumns)
      grid.shared = own_shared<Op>(parameters, problem.length, sizeof(T));
    launch(op, held_row_kernel<Op, T, kShape, W, kCluster, kFit>, grid, device, rows_of<Op::kTensors, kFit>(problem),
           parameters);
  };
  const auto aligned = [&] {
    const bool full = problem.length == int64_t{plan.threads} * plan.cluster * plan.share && problem.outer.ndim <= 1;
    if constexpr (!kBlocksOnly<Op>) {
      if (plan.threads < kWarp) return held.template operator()<kLanes, kWide, false, RowFit::kAligned>();
      if (plan.split)
        return full ? launch_ring<Op, T, RowFit::kFull>(op, plan, problem, parameters, device)
                    : launch_ring<Op, T, RowFit::kAligned>(op, plan, problem, parameters, device);
    }
    full ? held.template operator()<kWarps, kWide, false, RowFit::kFull>()
         : held.template operator()<kWarps, kWide, false, RowFit::kAligned>();
  };
  if constexpr (kOwnVectors<Op>) {
    if constexpr (sizeof(T) <= (kBlocksOnly<Op> ? 2 : 4)) aligned();
  } else if (!plan.registers) {
    grid.shared = static_cast<size_t>(plan.share) * sizeof(T) * grid.threads.x * grid.threads.y * grid.threads.z;
    // The scratch of float64 is 32 KiB: with it even few held elements need more than a launch gives unasked.
    if (sizeof(T) == 8) grid.shared = std::max<size_t>(grid.shared, 24 * 1024 + 1);
    launch(op, general_row_kernel<Op, T>, grid, device, problem, parameters);
  } else if (plan.columns) {
    held.template operator()<kColumns, 1, true, RowFit::kAligned>();
  } else if (plan.aligned) {
    aligned();
  } else if (plan.split) {
    held.template operator()<kWarps, kWide, true, RowFit::kAnywhere>();
  } else {
    plan.threads < kWarp ? held.template operator()<kLanes, kWide, false, RowFit::kAnywhere>()
                         : held.template operator()<kWarps, kWide, false, RowFit::kAnywhere>();
  }
}

}  // namespace tenor::cuda
