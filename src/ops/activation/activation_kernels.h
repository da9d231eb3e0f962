// Entry points of the CPU kernels of this family: single-threaded, over a block of dense rows; operands gate, up,
// result.
#pragma once

#include "src/cpu/rows.h"
#include "tenor/dtype.h"

namespace tenor::cpu {

void silu_mul_rows(const RowBlock& block, DType dtype);
void gelu_mul_rows(const RowBlock& block, DType dtype);
void gelu_tanh_mul_rows(const RowBlock& block, DType dtype);

}  // namespace tenor::cpu
