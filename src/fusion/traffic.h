// Bytes of tensors as they lie: what reading or writing them moves.
#pragma once

#include <vector>

#include "tenor/tensor.h"

namespace tenor::fusion {

/// Elements of a layout that have an address of their own: an expanded dim counts once, overlapping windows share.
int64_t distinct_elements(const Dims& shape, const Dims& strides);
inline int64_t distinct_elements(const Tensor& x) { return distinct_elements(x.shape(), x.strides()); }
inline int64_t distinct_bytes(const Tensor& x) {
  return distinct_elements(x) * static_cast<int64_t>(item_size(x.dtype()));
}

/// Offset, sizes and strides without the order of the dims: equal for x and x.T, which are the same elements.
std::vector<int64_t> elements_key(const Tensor& x);

}  // namespace tenor::fusion
