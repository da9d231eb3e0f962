// Tiles of strided memory as dense rows in L1, and back, converting the element type on the way: what lets one kernel
// serve every layout.
#pragma once

#include <cstdint>

#include "tenor/dtype.h"

namespace tenor::cpu {

/// dst[r * cols + c] = src[r * row_stride + c * col_stride] for r < rows, c < cols; strides in elements.
using GatherFn = void (*)(const void* src, int64_t row_stride, int64_t col_stride, int64_t rows, int64_t cols, void* dst);
/// dst[r * row_stride + c * col_stride] = src[r * cols + c].
using ScatterFn = void (*)(const void* src, int64_t rows, int64_t cols, void* dst, int64_t row_stride, int64_t col_stride);

/// `to` is `from` itself, or float32, float64, int64 or uint64, with the conversions of core/numeric.h.
/// Not for 8-bit floats (nullptr), nor from an integer to uint64 (take int64: the bits are the same).
GatherFn gather_function(DType from, DType to);
/// `from` is `to` itself; or float32 or float64 to a narrower float (one rounding), or int64 to an integer (wraps). Else nullptr.
ScatterFn scatter_function(DType from, DType to);

}  // namespace tenor::cpu
