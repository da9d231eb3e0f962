// Entry points of the CUDA kernels of this family.
#pragma once

#include "src/ops/grid_sample/grid_sampling.h"

namespace tenor::cuda {

void grid_sample(const GridSampling& s);
/// s.y is the result's gradient.
void grid_sample_backward(const GridSampling& s, const Tensor& grad_x, const Tensor& grad_grid);
/// grid [N, D, H, W, dims].
void affine_grid(const Tensor& theta, const Tensor& grid, bool align_corners);

}  // namespace tenor::cuda
