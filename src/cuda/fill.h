// Values from the host in a tensor on a CUDA device, which travel with the launch: nothing is copied from the host, so
// a graph may capture it.
#pragma once

#include <span>

#include "tenor/tensor.h"

namespace tenor::cuda {

/// target = the element at `element` (host memory, of target's dtype), on the current stream.
void fill(const Tensor& target, const void* element);

/// A new int64 tensor [values.size()] of them, on the current stream; one launch for each 500.
Tensor list_on(Device device, std::span<const int64_t> values);

}  // namespace tenor::cuda
