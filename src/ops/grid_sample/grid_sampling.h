// One sampling as the kernels see it.
#pragma once

#include <array>

#include "src/core/grid_map.h"
#include "tenor/tensor.h"

namespace tenor {

/// Images as [N, C, D, H, W] and the grid as [N, Do, Ho, Wo, dims]; images of two dims have depth 1.
struct GridSampling {
  const char* op;
  Tensor x, grid;
  Tensor y;  ///< the result, or its gradient
  int dims;  ///< spatial, 2 or 3
  core::GridMode mode;
  core::GridPadding padding;
  bool align_corners;

  std::array<core::GridAxis, 3> axes() const {
    return {core::GridAxis{x.shape(2), padding, align_corners},
            {x.shape(3), padding, align_corners},
            {x.shape(4), padding, align_corners}};
  }
  /// Places an image.
  int64_t samples() const { return grid.shape(1) * grid.shape(2) * grid.shape(3); }
};

/// fn.operator()<Dims, K>() with K taps a dim.
template <class F>
void visit_sampling(const GridSampling& s, F&& fn) {
  if (s.dims == 3)
    return s.mode == core::GridMode::kNearest ? fn.template operator()<3, 1>() : fn.template operator()<3, 2>();
  if (s.mode == core::GridMode::kNearest) return fn.template operator()<2, 1>();
  if (s.mode == core::GridMode::kBilinear) return fn.template operator()<2, 2>();
  fn.template operator()<2, 4>();
}

}  // namespace tenor
