// A checked scan, as the contract hands it to the drivers of the CPU and of CUDA.
#pragma once

#include "src/ops/scan/scan_kernels.h"
#include "tenor/tensor.h"

namespace tenor::scan {

struct Problem {
  Op op;
  Tensor x, out;
  int dim;
  DType accumulator;  ///< what the scan runs in: float32, float64, int64 or uint64
  Tensor indices;     ///< of kMax and kMin, with out's strides
};
void run_cpu(const Problem& problem);
void run_cuda(const Problem& problem);

}  // namespace tenor::scan
