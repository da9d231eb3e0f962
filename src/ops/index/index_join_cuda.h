// cat and stack on CUDA in one launch.
#pragma once

#include <vector>

#include "tenor/tensor.h"

namespace tenor::index {

/// Joins pieces along d when the target and each piece are runs of bytes: one dtype, the target dense in the order of
/// its strides, every piece dense from d on in that order and walked by one stride before it, and few enough. False,
/// and nothing done, otherwise.
bool join_on_device(const char* op, const std::vector<Tensor>& pieces, const Tensor& target, int d);

}  // namespace tenor::index
