// Strided, converting copies on a CUDA device.
#pragma once

#include "tenor/tensor.h"

namespace tenor::cuda {

/// Copies src to dst (same shape, same device), converting the dtype by the rules of core/numeric.h, on the current stream.
void copy_strided(const Tensor& src, const Tensor& dst);

}  // namespace tenor::cuda
