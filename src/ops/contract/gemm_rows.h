// The kernels of the "rows" candidate: a few rows against a large matrix, which is read once, at memory speed.
#pragma once

#include <cstdint>

#include "src/ops/contract/gemm.h"

namespace tenor::contract {

inline constexpr int64_t kFewRows = 8;

/// rows [count][k], dense and of the compute type, against columns of the other operand: what both kernels take.
struct RowsTask {
  const void* rows;
  int64_t count, k;
  DType compute, dtype;  ///< of the rows and the sums; of the columns
  const void* columns;   ///< the matrix's first element
  int64_t col_step, k_step;
};

}  // namespace tenor::contract

namespace tenor::cpu {

/// sums[i][j - first] of columns [first, last) for k in [start, start + depth): at most one block of the reduction
/// order, k contiguous (k_step 1). `pitch`: between rows of sums.
void dot_columns(const contract::RowsTask& task, int64_t first, int64_t last, int64_t start, int64_t depth, void* sums,
                 int64_t pitch);
/// sums[i][j - first] += columns [first, last), contiguous (col_step 1): a chain of FMAs over k in [start, start +
/// depth).
void add_rows(const contract::RowsTask& task, int64_t first, int64_t last, int64_t start, int64_t depth, void* sums,
              int64_t pitch);

}  // namespace tenor::cpu
