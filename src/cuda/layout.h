// Collapsed layouts: the fewest dims that describe how one or two tensors walk through memory together.
#pragma once

#include <cstdint>

#include "tenor/tensor.h"

namespace tenor::cuda {

inline constexpr int kMaxDims = 12;  // after merging; more is refused by collapse()

/// Two tensors' strides over one shape, outermost first, dims of size 1 dropped and dense neighbours merged.
struct PairLayout {
  int ndim = 0;
  int64_t size[kMaxDims];
  int64_t a[kMaxDims], b[kMaxDims];
  int64_t count = 1;
};

/// @throws UnsupportedError when more than kMaxDims remain.
PairLayout collapse(const Dims& shape, const Dims& strides_a, const Dims& strides_b);

}  // namespace tenor::cuda
