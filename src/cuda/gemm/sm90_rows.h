// Host side of the kernels for few rows (sm90_rows.cuh).
#pragma once

#include "src/cuda/gemm/sm90_gemm.h"
#include "src/cuda/gemm/sm90_rows.cuh"

namespace tenor::cuda::gemm {

/// Most rows that they take.
inline constexpr int kMostRows = 64;

/// Fills in how a launch of `blocks` blocks deals `ranges` times n columns: the ring takes shared memory up to `bytes`.
/// Returns what it takes of them.
int plan_rows(RowsShape& shape, int rows, int64_t ranges, int blocks, int bytes);

/// A matrix as large as this is not kept in L2: it would only push out what lies there, and be written over itself.
inline constexpr int64_t kHalfOfL2 = 32 << 20;

/// Shared memory of a block, at most.
inline constexpr int kRowsBytes = 208 << 10;

/// C = A B^T with m <= kMostRows; B lies [n,k].
cudaError_t sm90_rows(const GemmProblem& problem, cudaStream_t stream);

/// Calls fn.template operator()<T, kRows>() for the operands' type and the least of 8, 16, 32 and 64 rows that holds
/// `rows`.
template <class F>
cudaError_t visit_rows(bool bfloat16, int rows, F&& fn) {
  const auto of_type = [&]<class T>() {
    if (rows <= 8) return fn.template operator()<T, 8>();
    if (rows <= 16) return fn.template operator()<T, 16>();
    if (rows <= 32) return fn.template operator()<T, 32>();
    return fn.template operator()<T, 64>();
  };
  return bfloat16 ? of_type.template operator()<__nv_bfloat16>() : of_type.template operator()<__half>();
}

}  // namespace tenor::cuda::gemm
