// What several index arrays and masks name in a tensor: what index_get and index_put begin with.
#pragma once

#include <optional>
#include <vector>

#include "tenor/tensor.h"

namespace tenor::index {

/// What the arrays name, whatever the memory of x.
struct Plan {
  Dims before, after;          ///< dims of x in front of and behind the indexed ones, in the result's order
  Dims indexed;                ///< dims that the arrays index
  std::vector<Tensor> arrays;  ///< their entries, 0..n-1; on CUDA as they were given
  std::vector<bool> resolved;  ///< by array: 0..n-1, or -1 for an entry to drop
  Dims place_shape;            ///< their broadcast shape

  Dims shape_for(const Dims& sizes) const {
    Dims out;
    for (int64_t d : before) out.push_back(sizes[d]);
    for (int64_t n : place_shape) out.push_back(n);
    for (int64_t d : after) out.push_back(sizes[d]);
    return out;
  }
};

/// Of entries that are index arrays, masks or undefined, one a dim of x (a mask as many as it has dims). `writes`: on
/// CUDA how many places a mask has is not asked for; `mask_count` are taken, or without it as many as the mask has
/// elements.
/// @throws IndexError, DTypeError, ShapeError, DeviceError; UnsupportedError where the size of a read depends on data
Plan make_plan(const char* op, const Tensor& x, const std::vector<Tensor>& indices, bool writes = false,
               std::optional<int64_t> mask_count = {});

}  // namespace tenor::index
