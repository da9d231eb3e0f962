// Writing along a dim whose places lie rows apart in the table: a block keeps a few neighbouring columns in shared
// memory, so that neither a sort nor a pass over the table's memory is needed to order the writes.
#pragma once

#include "src/ops/index/index_cuda.h"

namespace tenor::index {

/// scatter_on_device and combine_on_device for such moves. False, and nothing done, when a column does not fit, the
/// columns are too few to fill the device, or far longer than their entries.
bool scatter_columns_on_device(const DeviceMove& move, DType dtype);
bool combine_columns_on_device(const DeviceMove& move, DType dtype, const CombineRule& rule);

}  // namespace tenor::index
