// One value in every element of a tensor on a CUDA device.
#pragma once

#include "tenor/tensor.h"

namespace tenor::cuda {

/// target = the element at `element` (host memory, of target's dtype), on the current stream. The value travels with
/// the launch: nothing is copied from the host, so a graph may capture it.
void fill(const Tensor& target, const void* element);

}  // namespace tenor::cuda
