// Entry points of the CUDA kernels of this family. Arguments are checked; tensors lie on one device.
#pragma once

#include "tenor/tensor.h"

namespace tenor::cuda {

/// out = silu(gate) * up, and so on; one shape, any strides.
void silu_mul(const char* op, const Tensor& gate, const Tensor& up, const Tensor& out);
void gelu_mul(const char* op, const Tensor& gate, const Tensor& up, const Tensor& out);
void gelu_tanh_mul(const char* op, const Tensor& gate, const Tensor& up, const Tensor& out);

}  // namespace tenor::cuda
