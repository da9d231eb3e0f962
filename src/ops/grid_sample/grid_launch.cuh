// What the launches of grid sampling share.
#pragma once

#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/ops/grid_sample/grid_sampling.h"
#include "src/ops/grid_sample/grid_taps_cuda.cuh"

namespace tenor::cuda {

[[maybe_unused]] static SampledImage image_of(const Tensor& x) {
  return {x.raw(), x.stride(0), x.stride(1), x.stride(2), x.stride(3), x.stride(4)};
}

[[maybe_unused]] static GridSampleProblem problem_of(const GridSampling& s) {
  GridSampleProblem p{};
  p.x = image_of(s.x);
  p.y = image_of(s.y);
  p.grid = {s.grid.raw(), s.grid.stride(0), s.grid.stride(4), s.grid.stride(1), s.grid.stride(2), s.grid.stride(3)};
  const auto axes = s.axes();
  for (size_t d = 0; d < 3; ++d) p.axes[d] = sampled_axis(axes[d]);
  p.batch = s.x.shape(0);
  p.channels = s.x.shape(1);
  p.depth = s.grid.shape(1), p.height = s.grid.shape(2), p.width = s.grid.shape(3);
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

/// Whether a place's channels can be accessed in pieces of `width`.
[[maybe_unused]] static bool fits_channels(const Tensor& x, int width) {
  const size_t item = item_size(x.dtype());
  const int bytes = width * static_cast<int>(item);
  if (x.stride(1) != 1 || x.shape(1) % width != 0 || !is_aligned(x.raw(), 0, item, bytes)) return false;
  for (int d : {0, 2, 3, 4})
    if (x.shape(d) > 1 && !is_aligned(nullptr, x.stride(d), item, bytes)) return false;
  return true;
}

}  // namespace tenor::cuda
