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
// and launch_rows<Softmax, T>(...) runs it: over rows in registers (row_held.cuh) where they lie dense and aligned,
// else over rows of any layout (row_general.cuh).
#pragma once

#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/cuda/row_general.cuh"
#include "src/cuda/row_held.cuh"

namespace tenor::cuda {

/// Two blocks of kRowThreads threads share a multiprocessor: a block's loads, reductions and stores overlap with those
/// of other blocks only. More blocks would leave 40 registers a thread, and rows of 16-bit elements would spill.
template <class Op, class T, RowShape kShape, int W, int kShare, bool kCluster>
__global__ void __launch_bounds__(kRowThreads, 2)
    held_row_kernel(const __grid_constant__ RowProblem<Op::kTensors> problem,
                    const __grid_constant__ typename Op::Parameters parameters) {
  using Row = HeldRow<T, Op::kTensors, kShape, W, kShare, kCluster>;
  __shared__ typename Row::Threads::Scratch scratch;
  Row row(problem, scratch);
  Op::run(row, parameters);
}

template <class Op, class T>
__global__ void __launch_bounds__(kRowThreads, 2)
    general_row_kernel(const __grid_constant__ RowProblem<Op::kTensors> problem,
                       const __grid_constant__ typename Op::Parameters parameters) {
  extern __shared__ uint4 held[];
  __shared__ typename GeneralRow<T, Op::kTensors>::Threads::Scratch scratch;
  GeneralRow<T, Op::kTensors> row(problem, scratch, reinterpret_cast<T*>(held));
  Op::run(row, parameters);
}

/// Operators for rows of 16-bit elements that lie dense and aligned only.
template <class Op>
inline constexpr bool kWideOnly = requires {
  requires Op::kWideOnly;
};

inline Grid grid_of(const RowPlan& plan, int64_t rows) {
  const auto threads = static_cast<unsigned>(plan.threads), several = static_cast<unsigned>(plan.rows);
  const dim3 block = plan.columns ? dim3(kWarp, threads, several / kWarp) : dim3(threads, several);
  return {static_cast<unsigned>((rows + plan.rows - 1) / plan.rows * plan.cluster), block, 0, plan.cluster};
}

/// Runs the operator over the problem. The one table of its kernels.
template <class Op, class T>
void launch_rows(const char* op, const RowPlan& plan, const RowProblem<Op::kTensors>& problem,
                 const typename Op::Parameters& parameters, Device device) {
  if (problem.outer.count == 0 || problem.length == 0) return;
  Grid grid = grid_of(plan, problem.outer.count);
  using enum RowShape;
  constexpr int kWide = kVector<T>;
  const auto held = [&]<RowShape kShape, int W, bool kCluster = false>() {
    constexpr int kShare = held_elements(sizeof(T), W > 1 && kCluster);
    launch(op, held_row_kernel<Op, T, kShape, W, kShare, kCluster>, grid, device, problem, parameters);
  };
  const auto wide = [&] {
    if (plan.threads < kWarp) return held.template operator()<kLanes, kWide>();
    plan.is_long ? held.template operator()<kWarps, kWide, true>() : held.template operator()<kWarps, kWide>();
  };
  if constexpr (kWideOnly<Op>) {
    if constexpr (sizeof(T) == 2) wide();
  } else if (!plan.registers) {
    grid.shared = static_cast<size_t>(plan.share) * sizeof(T) * grid.threads.x * grid.threads.y * grid.threads.z;
    launch(op, general_row_kernel<Op, T>, grid, device, problem, parameters);
  } else if (plan.columns) {
    held.template operator()<kColumns, 1, true>();
  } else if (plan.wide) {
    wide();
  } else {
    plan.threads < kWarp ? held.template operator()<kLanes, 1>() : held.template operator()<kWarps, 1, true>();
  }
}

}  // namespace tenor::cuda
