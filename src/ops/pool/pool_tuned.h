// Kernels for the problems that models have; each says whether it served.
#pragma once

#include "src/ops/pool/pool_kernels.h"

namespace tenor::cuda {

using pool::Gather;

/// Windows of up to 3 x 3 without dilation, of 16-bit floats and float32.
bool small_max_pool(const pool::Problem& p, const Gather& g, const Tensor& x, const Tensor& y);
bool small_avg_pool(const pool::Problem& p, const Gather& g, const Tensor& x, const Tensor& y);
/// `g` is that of the gradient, which reads windows. Rows together only.
bool small_avg_pool_backward(const pool::Problem& p, const Gather& g, const Tensor& grad, const Tensor& dx);

}  // namespace tenor::cuda
