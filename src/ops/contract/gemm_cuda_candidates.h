// What the CUDA candidates make of a problem before any kernel: host code that every build has, so that `explain` can
// ask them for a device that is not here.
#pragma once

#include "src/ops/contract/gemm.h"

namespace tenor::contract {

/// "rows" with the few rows as a.
inline GemmProblem with_few_rows(const GemmProblem& p) { return p.m <= p.n ? p : transposed(p); }

/// The same matrices with their dims exchanged.
inline Matrix turned(Matrix x) {
  std::swap(x.row, x.col);
  return x;
}

/// Whether x's rows are contiguous and each starts at a multiple of 16 bytes.
bool rows_aligned(const Matrix& x, int64_t rows, int64_t cols);

/// The problem as the Hopper GEMM takes it: a's rows contiguous along k, b's columns along k or its rows along n.
struct TilesProblem {
  GemmProblem problem;
  bool b_outer = false;                 ///< b's rows along n
  bool copy_a = false, copy_b = false;  ///< operands that do not lie so
};
TilesProblem tiles_problem(const GemmProblem& p);

/// A matrix as cuBLASLt reads it, transposed: a row-major one is "not transposed".
struct Operand {
  bool readable = false, transposed = false;
  int64_t lead = 0;
};
Operand operand_of(const Matrix& x, int64_t rows, int64_t cols);

/// cuBLASLt takes one batch dim.
inline int64_t batch_of(const GemmProblem& p) { return p.batch.empty() ? 1 : p.batch.back(); }
inline int64_t batch_stride(const Matrix& x) { return x.batch.empty() ? 0 : x.batch.back(); }

/// Why the library at hand has nothing for a problem on this machine's device. gemm_vendor_cuda.cpp
std::string cublaslt_why_not(const GemmProblem& p);

}  // namespace tenor::contract
