// Grouped products: each group of rows with a matrix of its own (mixture of experts).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

namespace tenor::cuda::gemm {

/// What becomes of the rows of C where they are one token's: out[:] = sum over slots s, ascending, of weights[s] *
/// C[rows[s],:], each step rounded to float32, then + shared; rounded once. Every row of C is a slot's.
struct TokenSum {
  const int* rows = nullptr;      ///< [slots]
  const void* weights = nullptr;  ///< [slots]
  const void* shared = nullptr;   ///< [n], or null
  void* out = nullptr;            ///< [n] of the operands' dtype; null: there is no sum
  int* arrivals = nullptr;        ///< kMostArrivals zeros, which are zeros again afterwards
  int slots = 0;
  bool float_weights = false, float_shared = false;  ///< else of the operands' dtype
};
inline constexpr int kMostArrivals = 256;

/// C[i,:] = A[i,:] * B[g]^T, rounded once, for the rows i of group g: offsets[g] <= i < offsets[g + 1]. The offsets lie
/// on the device and rise from 0 to at most m; others are clamped. Rows of no group are not written. Strides count
/// elements between rows; k is contiguous in A and B, n in C.
/// With `up`, a second matrix a group that lies as B does, C[i,:] = silu(A[i,:] * B[g]^T) * (A[i,:] * up[g]^T), which
/// is rounded once.
struct GroupedProblem {
  const void* a;        ///< [m,k]
  const void* b;        ///< [groups,n,k]
  void* c;              ///< [m,n]
  const void* offsets;  ///< groups + 1 of int64, or of int32
  bool wide_offsets;
  int m, n, k, groups;
  int64_t stride_a, stride_b, group_b, stride_c;
  bool bfloat16;              ///< operands; else float16
  bool float_result = false;  ///< C is float32, unrounded; else of the operands' dtype
  const void* up = nullptr;   ///< [groups,n,k]
  bool one_row = false;       ///< A is [1,k], the row of every group; no group has two
  TokenSum sum = {};          ///< for m groups of one row, 2 m at most the device's multiprocessors
};

/// Whether the current device takes the sum over so many slots.
bool takes_token_sum(int slots);

/// Why the kernels cannot take it; empty when they can.
std::string sm90_grouped_why_not(const GroupedProblem& problem);

/// How it is computed: by the kernel for few rows, by tiles of 128 rows and 192 or 256 columns, by tiles of 192 x 192,
/// or as the mean of rows a group suggests. No choice changes a bit of the result.
enum class GroupedPlan { kAuto, kRows, kTiles, kWideTiles, kTallTiles };

/// Launches it on the stream; asks nothing of the device's memory. The bits of an element are those of sm90_gemm on its
/// row alone: they depend on its row, its group's matrix and k.
cudaError_t sm90_grouped(const GroupedProblem& problem, cudaStream_t stream, GroupedPlan plan = GroupedPlan::kAuto);

}  // namespace tenor::cuda::gemm
