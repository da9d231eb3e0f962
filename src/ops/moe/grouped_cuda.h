// The grouped products on CUDA.
#pragma once

#include "tenor/tensor.h"

namespace tenor::cuda {

/// y[i,:] = x[i,:] weight[g]^T for the rows of group g, in the compute dtype of x's, y of x's dtype or that one. Rows
/// of no group are left alone.
void grouped_scalar(const char* op, const Tensor& x, const Tensor& weight, const Tensor& offsets, const Tensor& y);
/// y[i,:] = x[i,:] weight[g]^T for the rows of group g; with `up`, silu(x weight^T) * (x up^T). Rows, and matrices
/// along what is summed, have unit strides; offsets are int64.
struct GroupedTensors {
  const Tensor &x, &weight, &offsets, &y;
  const Tensor& up;  ///< may be undefined
};
/// grouped_mma_cuda.cu: float16 and bfloat16, any size and alignment.
void grouped_mma(const char* op, const GroupedTensors& t);

/// out = silu(gate) * up, rounded; all dense.
void gated_elements(const char* op, const Tensor& gate, const Tensor& up, const Tensor& out);
/// The offsets as int64, rising and at most `rows`: each is the greatest up to it. Raises the stream's flag where that
/// is another number than given.
Tensor clean_offsets(const char* op, const Tensor& offsets, int64_t rows);

}  // namespace tenor::cuda
