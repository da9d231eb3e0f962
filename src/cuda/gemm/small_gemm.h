// Small products of the Hopper GEMM's kind by many small blocks: C = A * B^T + bias with the GEMM's bits, for problems
// whose time is that of the launch and of one trip to memory.
#pragma once

#include "src/cuda/gemm/sm90_gemm.h"

namespace tenor::cuda::gemm {

/// Whether this kernel is the faster one: B along k, more rows than the kernel for few takes, one wave of blocks, k
/// short.
bool small_gemm_suits(const GemmProblem& problem);
/// Launches it; of an element the bits that sm90_gemm() gives. B is not outer; sm90_gemm_why_not() is empty.
cudaError_t small_gemm(const GemmProblem& problem, cudaStream_t stream);

}  // namespace tenor::cuda::gemm
