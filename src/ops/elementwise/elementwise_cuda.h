// The CUDA kernels of the elementwise table. Each group launches its rows and says false for those of others; together
// they take what the CPU's find_* functions take.
#pragma once

#include "src/cuda/pointwise.h"
#include "src/ops/elementwise/elementwise_ops.h"

namespace tenor::elementwise {

/// A row with everything decided: operands whose dtypes the kernel reads, a result whose dtype it writes.
struct CudaCall {
  Op op;
  DType compute;         ///< of the inputs' registers
  const double* params;  ///< as the CPU kernels take them
  cuda::PointwiseCall call;
};

bool arithmetic_cuda(const CudaCall& c);
bool integer_cuda(const CudaCall& c);
bool division_cuda(const CudaCall& c);
bool math_cuda(const CudaCall& c);
bool trigonometry_cuda(const CudaCall& c);
bool activation_cuda(const CudaCall& c);
bool compare_cuda(const CudaCall& c);
bool logic_cuda(const CudaCall& c);
bool select_cuda(const CudaCall& c);

/// Whether the formulas of that operator take an operand that lies across the result (transposed) as it lies.
bool takes_turned(Op op);
/// The unsigned dtype that holds an element's bits.
DType bits_dtype(DType dtype);
/// Whether the kernels of that compute dtype read (write) the storage dtype by themselves.
bool reads_on_cuda(DType compute, DType stored);

}  // namespace tenor::elementwise
