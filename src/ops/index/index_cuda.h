// The index operators on CUDA: what the contract hands to the kernels. Sources: index_*_cuda.cu.
//
// Index entries are never seen by the host. A kernel drops an entry out of range (a read gives 0 there, a write does
// nothing) and raises the flag of its stream (src/cuda/content_error.cuh).
#pragma once

#include <vector>

#include "tenor/scalar.h"
#include "tenor/tensor.h"

namespace tenor::index {

/// An operator's argument, for the flag. Both are literals.
struct Argument {
  const char* op = "";
  const char* name = "";
};

/// Positions of `shape`: the dense side's element at a position belongs to the table's element at the same position,
/// moved by the place that the index names there, times place_stride. Strides count elements.
struct DeviceMove {
  Argument at;
  Dims shape = {};
  Tensor index = {};        ///< row-major, any integer dtype; a position of it is what the flag tells
  Dims index_strides = {};  ///< over shape: 0 where positions share an entry
  int64_t size = 0;         ///< places: entries are -size..size-1
  bool resolved = false;    ///< the index comes from resolve_places(): entries are 0..size-1, or -1
  int64_t place_stride = 0;
  void* table = nullptr;
  Dims table_strides = {};
  void* dense = nullptr;
  Dims dense_strides = {};
};

/// dense = table.
void gather_on_device(const DeviceMove& move, DType dtype);
/// table = dense; of positions that meet at one place the last one of the index, row-major, wins.
void scatter_on_device(const DeviceMove& move, DType dtype);

enum class DeviceCombine : uint8_t { kAdd, kMultiply, kMaximum, kMinimum, kMean };

struct CombineRule {
  DeviceCombine combine = DeviceCombine::kAdd;
  bool include_self = true;  ///< whether what the table holds takes part
  Scalar alpha = 1;          ///< what dense is multiplied by
};
/// table = combine(table, alpha * dense), one position after the other in the index's order, in compute_dtype(dtype)
/// and rounded once.
void combine_on_device(const DeviceMove& move, DType dtype, const CombineRule& rule);

/// Entries of several index arrays, broadcast to `shape`, as one array int64: the sum of place * strides[k], or -1
/// where an entry is out of range.
struct PlaceArrays {
  Argument at;
  Dims shape;
  std::vector<Tensor> arrays;       ///< row-major, any integer dtype
  std::vector<Dims> array_strides;  ///< over shape
  std::vector<bool> resolved;       ///< entries are 0..size-1, or -1 for one to drop
  Dims sizes, strides;              ///< places and their distance, of each array
};
Tensor resolve_places(const PlaceArrays& given);

}  // namespace tenor::index
