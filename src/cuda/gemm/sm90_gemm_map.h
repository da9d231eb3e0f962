// Tensor maps: how TMA sees a batch of matrices of two-byte elements.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace tenor::cuda::gemm {

/// A batch of row-major matrices. Strides count elements, 0 where a dim of the batch shares one matrix.
struct MapSource {
  const void* data;
  int rows, columns;
  int64_t stride;
  const int (&batch)[2];
  const int64_t (&batch_stride)[2];
};

/// Reads or writes it in boxes of box_rows x box_columns (64, or 32), swizzled by the box's line: 128 or 64 bytes.
/// L2 fetches `fetch` bytes, 128 or 256, around what is read. False where the driver declines.
bool make_map(CUtensorMap* map, const MapSource& x, bool bfloat16, int box_rows, int box_columns, int fetch = 256);

}  // namespace tenor::cuda::gemm
