// Entry points of the vectorised CPU kernels: single-threaded, over one dense row.
#pragma once

#include <cstddef>

#include "tenor/dtype.h"

namespace tenor::cpu {

/// sums[i] += weight * row[i], each step rounded; sums are of the row's compute type.
void add_weighted_row(DType dtype, double weight, const void* row, void* sums, size_t n);
/// out[i] = silu(gate[i]) * up[i], rounded to `dtype`; gate and up are of its compute type.
void gated_row(DType dtype, const void* gate, const void* up, void* out, size_t n);

}  // namespace tenor::cpu
