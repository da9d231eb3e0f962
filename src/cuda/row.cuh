// Row kernels: load a row, reduce it, write a result of its length. An operator is a struct
//
//     struct Softmax {
//       static constexpr int kTensors = 2;  // of its RowProblem: x and the result
//       struct Parameters { ... };
//       template <class Row> static __device__ void run(Row& row, const Parameters& p) {
//         const auto top = row.combine(-INFINITY, [](auto v) { return v; }, Max());
//         ...
//         row.write(1, [&](auto& values, int64_t i, int64_t spacing) { ... });
//       }
//     };
//
// and launch_rows<Softmax, T>(...) runs it: over rows in registers (row_held.cuh) where they lie dense and aligned, else over
// rows of any layout (row_general.cuh).
#pragma once

#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/cuda/row_general.cuh"
#include "src/cuda/row_held.cuh"

namespace tenor::cuda {

/// Blocks of kRowThreads threads that a multiprocessor must hold: 16-bit rows leave registers for three, and need them, since
/// a block's loads, reductions and stores overlap with those of other blocks only.
template <class T, int W>
inline constexpr int kRowBlocks = W > 1 && sizeof(T) == 2 ? 3 : 2;

template <class Op, class T, RowKind kKind, int W>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks<T, W>)
    held_row_kernel(const __grid_constant__ RowProblem<Op::kTensors> problem, const __grid_constant__ typename Op::Parameters parameters) {
  __shared__ RowScratch<core::Compute<T>> scratch;
  HeldRow<T, Op::kTensors, kKind, W> row(problem, scratch);
  row.for_rows([&] { Op::run(row, parameters); });
}

template <class Op, class T>
__global__ void __launch_bounds__(kRowThreads, 2)
    general_row_kernel(const __grid_constant__ RowProblem<Op::kTensors> problem, const __grid_constant__ typename Op::Parameters parameters) {
  extern __shared__ uint4 held[];
  __shared__ RowScratch<core::Compute<T>> scratch;
  GeneralRow<T, Op::kTensors> row(problem, scratch, reinterpret_cast<T*>(held));
  row.for_rows([&] { Op::run(row, parameters); });
}

inline Grid grid_of(const RowPlan& plan, int64_t rows) {
  const auto threads = static_cast<unsigned>(plan.threads), several = static_cast<unsigned>(plan.rows);
  const dim3 block = plan.columns ? dim3(kWarp, threads, several / kWarp) : dim3(threads, several);
  return {static_cast<unsigned>((rows + plan.rows - 1) / plan.rows * plan.cluster), block, 0, plan.cluster};
}

/// Runs the operator over the problem. The one table of its kernels.
template <class Op, class T>
void launch_rows(const char* op, const RowPlan& plan, const RowProblem<Op::kTensors>& problem, const typename Op::Parameters& parameters, Device device) {
  if (problem.outer.count == 0 || problem.length == 0) return;
  Grid grid = grid_of(plan, problem.outer.count);
  const auto held = [&]<RowKind kKind, int W>() {
    launch(op, held_row_kernel<Op, T, kKind, W>, grid, device, problem, parameters);
  };
  if (!plan.registers) {
    grid.shared = held_elements(sizeof(T)) * sizeof(T) * grid.threads.x * grid.threads.y * grid.threads.z;
    return launch(op, general_row_kernel<Op, T>, grid, device, problem, parameters);
  }
  if (plan.columns) return held.template operator()<RowKind::kColumns, 1>();
  const bool warps = plan.threads >= kWarp;
  if (plan.wide) return warps ? held.template operator()<RowKind::kWarps, kVector<T>>() : held.template operator()<RowKind::kLanes, kVector<T>>();
  return warps ? held.template operator()<RowKind::kWarps, 1>() : held.template operator()<RowKind::kLanes, 1>();
}

}  // namespace tenor::cuda
