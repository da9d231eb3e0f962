// Writing along one dim whose lines lie dense in the table: a block keeps a line in shared memory, so that neither a
// sort nor a pass over the table's memory is needed to order the writes.
#pragma once

#include "src/ops/index/index_cuda.h"

namespace tenor::index {

/// Shared memory that lines and columns may take of a block.
size_t most_shared(Device device);

/// scatter_on_device and combine_on_device for such moves. False, and nothing done, when a line does not fit, the lines
/// are too few to fill the device, or far longer than their entries.
bool scatter_lines_on_device(const DeviceMove& move, DType dtype);
bool combine_lines_on_device(const DeviceMove& move, DType dtype, const CombineRule& rule);

}  // namespace tenor::index
