// The parts of max_pool on CUDA, a file each: templates of a dtype are what takes long to compile.
#pragma once

#include "src/ops/pool/pool_kernels.h"

namespace tenor::cuda {

using pool::Gather;

void max_pool_integers(const pool::Problem& p, const Gather& g, const Tensor& x, const Tensor& values);
/// values and indices; x is of any number type.
void max_pool_places(const pool::Problem& p, const Gather& g, const Tensor& x, const Tensor& values,
                     const Tensor& indices);

}  // namespace tenor::cuda
