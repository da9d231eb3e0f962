// Host side of the Hopper GEMM (sm90_gemm.cuh): what it takes and its launch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

namespace tenor::cuda::gemm {

/// C[m,n] = A[m,k] * B[n,k]^T. Strides count elements between rows; k and n are contiguous. K = 0 is the caller's.
struct GemmProblem {
  const void* a;
  const void* b;
  void* c;
  int m, n, k;
  int64_t stride_a, stride_b, stride_c;
  bool bfloat16;  ///< else float16
};

/// Why the kernel cannot take the problem; empty when it can. TMA asks for 16-byte aligned bases and row strides.
std::string sm90_gemm_why_not(const GemmProblem& problem);

/// Launches it on the stream. The bits of an element depend on its two rows and k alone.
cudaError_t sm90_gemm(const GemmProblem& problem, cudaStream_t stream);

}  // namespace tenor::cuda::gemm
