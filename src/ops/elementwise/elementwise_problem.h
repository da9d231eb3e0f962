// An elementwise call with everything decided: what the CPU's tiles and the CUDA kernels start from.
#pragma once

#include <array>

#include "src/ops/elementwise/elementwise_ops.h"
#include "tenor/tensor.h"

namespace tenor::elementwise {

/// Operands as memory: a tensor, or one element for all places.
struct Input {
  const Tensor* tensor = nullptr;
  alignas(8) char element[8];
  const void* data;
  DType dtype, compute;
  bool single;  // one element for the whole result
};

struct Problem {
  const OpRow& row;
  cpu::StepFn fn;
  const double* params;
  std::array<Input, 3> inputs;
  int arity;
  DType computed;
};

/// Runs it on the result's CUDA device.
void compute_cuda(const Problem& p, const Tensor& out);

}  // namespace tenor::elementwise
