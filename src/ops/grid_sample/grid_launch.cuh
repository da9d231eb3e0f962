// What the launches of grid sampling share.
#pragma once

#include <utility>

#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/ops/grid_sample/grid_sampling.h"
#include "src/ops/grid_sample/grid_taps_cuda.cuh"

namespace tenor::cuda {

/// A grid as an image, whose channels are the coordinates; a column of places as the row that problem_of() makes of it.
[[maybe_unused]] static StridedImage grid_image(const Tensor& grid) {
  StridedImage image{grid.raw(), grid.stride(0), grid.stride(4), grid.stride(1), grid.stride(2), grid.stride(3)};
  if (grid.shape(3) == 1) std::swap(image.h, image.w);
  return image;
}

[[maybe_unused]] static GridSampleProblem problem_of(const GridSampling& s) {
  GridSampleProblem p{};
  p.x = image_of(s.x);
  p.y = image_of(s.y);
  p.grid = grid_image(s.grid);
  const auto axes = s.axes();
  for (size_t d = 0; d < 3; ++d) p.axes[d] = sampled_axis(axes[d]);
  p.batch = s.x.shape(0);
  p.channels = s.x.shape(1);
  p.depth = s.grid.shape(1), p.height = s.grid.shape(2), p.width = s.grid.shape(3);
  if (p.width == 1) {  // a column of places is walked as a row, which fills warps; their numbers stay
    std::swap(p.height, p.width);
    std::swap(p.y.h, p.y.w);
  }
  p.samples = s.samples();
  p.float_grid = s.grid.dtype() == float32;
  p.groups = 1;
  p.pairs = p.float_grid && p.grid.c == 1 && is_aligned(p.grid.data, 0, 4, 8);
  for (const int64_t stride : {p.grid.n, p.grid.d, p.grid.h, p.grid.w}) p.pairs = p.pairs && stride % 2 == 0;
  return p;
}

/// Whether offsets within a channel's plane fit 32 bits.
[[maybe_unused]] static bool has_short_planes(const Tensor& x) {
  int64_t reach = 1;
  for (int d = 2; d < 5; ++d) reach += (x.shape(d) - 1) * x.stride(d);
  return reach < (int64_t{1} << 31);
}

/// Whether channels lie side by side, and pixels not.
[[maybe_unused]] static bool lies_by_channel(const Tensor& x) {
  return x.stride(1) == 1 && x.shape(1) > 1 && !(x.stride(4) == 1 && x.shape(4) > 1);
}

}  // namespace tenor::cuda
