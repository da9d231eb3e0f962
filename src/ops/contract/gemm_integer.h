// Kernels of the "integer" candidate.
#pragma once

#include "src/ops/contract/gemm.h"

namespace tenor::contract {

/// A part of one product of matrices of one dtype, an integer or bool. Batch strides are not looked at.
struct IntegerTask {
  Matrix a, b, c;
  const void* bias;
  int64_t bias_row, bias_col, k;
  int64_t first_row, last_row, first_column, last_column;  ///< of c: what is computed
};

}  // namespace tenor::contract

namespace tenor::cpu {

/// c = a b + bias, modulo 2^bits; of bool "or" of "and".
void multiply_integers(const contract::IntegerTask& task, DType dtype);

}  // namespace tenor::cpu
