// Whole rows moved between named places of one tensor and consecutive places of another: index_select, embedding,
// index_get, index_put, index_add.
#pragma once

#include "src/ops/index/index_cuda.h"
#include "tenor/scalar.h"
#include "tenor/tensor.h"

namespace tenor::index {

/// A table [*outer, places, *inner] beside a dense [*outer, count, *inner]: row p of the dense side belongs to the
/// table's row at element offset places[p] * place_stride. Strides count elements; both sides have one element size.
struct RowMove {
  Dims outer = {}, inner = {};
  void* table = nullptr;
  Dims table_outer = {}, table_inner = {};
  const int64_t* places = nullptr;
  int64_t place_stride = 1;
  void* dense = nullptr;
  Dims dense_outer = {}, dense_inner = {};
  int64_t dense_stride = 0;
  int64_t count = 0;
};

/// The element offset of flat position `at` of a shape.
inline int64_t offset_at(int64_t at, const Dims& shape, const Dims& strides) {
  int64_t offset = 0;
  for (size_t d = shape.size(); d-- > 0; at /= shape[d]) offset += at % shape[d] * strides[d];
  return offset;
}

/// dense row p = table row p.
void gather_rows(const RowMove& move, DType dtype);
/// table row p = dense row p, in the order of p.
void scatter_rows(const RowMove& move, DType dtype);
/// table row p += alpha * dense row p, in the order of p; dtype is one that operators compute in.
void add_rows(const RowMove& move, DType dtype, const Scalar& alpha);

/// The same for float32, and for 16-bit floats, summed in float32 and rounded once, without a float32 copy of the
/// table. False, and nothing done, for other dtypes and where the rows are not dense on both sides or too short to be
/// worth grouping by place.
bool add_rows_grouped(const RowMove& move, DType dtype, const Scalar& alpha);
/// out = x at `places` (dense int64 in range) along x's dim d; out's dims from d to d + rank stand for them, row-major
/// when there are several.
/// On CUDA the places may be any integer array that checked_indices() gave; `at` names them.
void select_rows(Argument at, const Tensor& x, size_t d, const Tensor& places, const Tensor& out, size_t rank);
/// dst = src, element by element; src's strides may also be negative or 0.
void copy_strided(const void* src, const Dims& src_strides, void* dst, const Dims& dst_strides, const Dims& shape,
                  DType dtype);

}  // namespace tenor::index
