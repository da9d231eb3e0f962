// Gathers of a fused kernel on the CPU: elements of a table that an index names, put side by side for one block.
#pragma once

#include "tenor/tensor.h"

namespace tenor::fusion {

/// One block of a gather. Strides count elements, one a dim of `shape`; dim by dim the table moves with the result
/// and the index with its entries.
struct PickBlock {
  Dims shape = {}, table_strides = {}, index_strides = {}, to_strides = {};
  const char* table = nullptr;
  const int64_t* index = nullptr;  ///< entries 0..places-1
  char* to = nullptr;
  int64_t place_stride = 0;
  size_t item = 1;  ///< bytes of an element
};

/// Runs it on all threads, or on the caller's within a parallel region.
void pick(const PickBlock& block);

}  // namespace tenor::fusion
