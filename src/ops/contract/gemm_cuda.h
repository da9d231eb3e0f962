// The CUDA kernels of contractions, as plain functions for nvcc's sake. gemm_cuda.cpp decides which of them runs.
#pragma once

#include "src/cuda/layout.h"
#include "tenor/dtype.h"
#include "tenor/tensor.h"

namespace tenor::contract {

/// One matrix (the first of its batch): element (i, j) at data + i * row + j * col.
struct DeviceMatrix {
  void* data = nullptr;  ///< written only through `c`
  DType dtype = DType::kFloat32;
  int64_t row = 0, col = 0;
};

/// c[b] = a[b] @ b[b] + bias, rounded once to c's dtype: a GemmProblem with what a kernel needs of its batch.
struct DeviceGemm {
  int64_t m = 0, n = 0, k = 0;
  DeviceMatrix a, b, c;
  cuda::Layout<3> batch;  ///< offsets of a, b and c
  DType compute = DType::kFloat32;
  const void* bias = nullptr;  ///< element (i, j) gets bias[i * bias_row + j * bias_col]
  DType bias_dtype = DType::kFloat32;
  int64_t bias_row = 0, bias_col = 0;
  Device device;
};

/// gemm_simple_cuda.cu: any dtype and strides, k = 0 too; every output one chain of multiply-adds over k.
void simple_gemm_cuda(const DeviceGemm& p);

/// Most rows that the kernels for few rows take where the matrix's columns are contiguous, and where its rows are. Of
/// 16-bit operands the kernel of "tiles" that streams few rows takes more of the former.
struct FewRows {
  int64_t dots, sums;
};
inline FewRows few_rows_of(DType dtype) {
  if (item_size(dtype) == 2) return {8, 16};
  return dtype == DType::kFloat32 ? FewRows{4, 8} : FewRows{1, 1};
}
inline constexpr int64_t kMostStreamed = 16;
/// gemm_rows_cuda.cu: m <= the above; a dense and aligned (rows of k); b of one unit stride.
void few_rows_cuda(const DeviceGemm& p);

/// product_cuda.cu: c = a * b over one shape; a and b of one dtype, c of theirs or of the compute dtype.
void multiply_cuda(const Tensor& a, const Tensor& b, const Tensor& c);
/// Writes 1 to a 0-d tensor.
void fill_one_cuda(const Tensor& x);

}  // namespace tenor::contract
