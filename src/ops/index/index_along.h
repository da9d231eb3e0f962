// One element a place, along one dim: gather, take_along_dim, scatter, scatter_add, scatter_reduce.
#pragma once

#include "tenor/tensor.h"

namespace tenor::index {

/// Positions of `shape` (the index's; at least one dim): the dense side's element at a position belongs to the table's
/// element at the same position but for dim, where index[position] stands. Strides count elements.
struct AlongMove {
  Dims shape;
  int dim = 0;
  int64_t size = 0;                ///< of the table along dim
  const int64_t* index = nullptr;  ///< row-major
  void* table = nullptr;
  Dims table_strides;
  void* dense = nullptr;
  Dims dense_strides;
};

enum class Combine : uint8_t { kAdd, kMultiply, kMaximum, kMinimum };

/// dense = table.
void gather_along(const AlongMove& move, DType dtype);
/// The same for an index that has not been checked: false, with dense half written, when an entry is not 0..size-1. One
/// pass over the index less, for a result that nobody has seen yet.
bool try_gather_along(const AlongMove& move, DType dtype);
/// table = dense, in the row-major order of the index.
void scatter_along(const AlongMove& move, DType dtype);
/// table = combine(table, dense), in that order; dtype is one that operators compute in.
void combine_along(const AlongMove& move, DType dtype, Combine combine);
/// The same for 16-bit floats, combined in float32 a line of the table at a time and rounded once. Only for a table and
/// a dense side whose unit stride is dim, the last one (takes_lines).
void combine_lines(const AlongMove& move, DType dtype, Combine combine);
bool takes_lines(const AlongMove& move, DType dtype);

}  // namespace tenor::index
