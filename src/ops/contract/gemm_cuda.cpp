// The CUDA candidates: what each takes, and the problem in the form that its kernel reads.
#include "src/ops/contract/gemm_cuda.h"

#include "src/core/backend.h"
#include "src/core/output.h"
#include "src/ops/contract/gemm_kernels.h"

namespace tenor::contract {
namespace {

DeviceMatrix device_matrix(const Matrix& x) { return {x.data, x.dtype, x.row, x.col}; }

DeviceGemm device_gemm(const GemmProblem& p) {
  DeviceGemm out;
  out.m = p.m, out.n = p.n, out.k = p.k;
  out.a = device_matrix(p.a), out.b = device_matrix(p.b), out.c = device_matrix(p.c);
  out.batch = cuda::collapse("matmul", p.batch, {p.a.batch, p.b.batch, p.c.batch}, -1);
  out.compute = p.compute;
  out.bias = p.bias, out.bias_dtype = p.bias_dtype, out.bias_row = p.bias_row, out.bias_col = p.bias_col;
  out.device = p.device;
  return out;
}

constexpr int64_t kLeastInner = 256;  // of "rows", whose blocks split k over their warps

/// With the few rows as a.
GemmProblem with_few_rows(const GemmProblem& p) { return p.m <= p.n ? p : transposed(p); }

Tensor tensor_of(const Matrix& x, const Dims& batch, int64_t rows, int64_t cols, Device device) {
  Dims shape = batch, strides = x.batch;
  shape.push_back(rows), shape.push_back(cols), strides.push_back(x.row), strides.push_back(x.col);
  return Tensor::wrap(x.data, device, x.dtype, shape, strides);
}

}  // namespace

bool rows_aligned(const Matrix& x, int64_t rows, int64_t cols) {
  const int64_t unit = 16 / static_cast<int64_t>(item_size(x.dtype));
  bool aligned =
      (x.col == 1 || cols == 1) && reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && (rows == 1 || x.row % unit == 0);
  for (int64_t step : x.batch) aligned = aligned && step % unit == 0;
  return aligned;
}

Tensor align_rows(Matrix& x, const Dims& batch, int64_t rows, int64_t cols, Device device) {
  const int64_t unit = 16 / static_cast<int64_t>(item_size(x.dtype));
  Dims own;
  for (size_t d = 0; d < batch.size(); ++d) own.push_back(x.batch[d] == 0 ? 1 : batch[d]);  // shared matrices once
  Dims padded = own, filled = own;
  padded.push_back(rows), padded.push_back((cols + unit - 1) / unit * unit);
  filled.push_back(rows), filled.push_back(cols);
  const Tensor copy = Tensor::empty(padded, x.dtype, device);
  core::copy_into(tensor_of(x, own, rows, cols, device), copy.with_layout(filled, copy.strides(), 0));
  x.data = static_cast<char*>(copy.raw()), x.row = padded.back(), x.col = 1;
  for (size_t d = 0; d < own.size(); ++d) x.batch[d] = own[d] == 1 ? 0 : copy.stride(static_cast<int>(d));
  return copy;
}

std::string cuda_rows_why_not(const GemmProblem& problem) {
  if (problem.batch_invariant) return "its order over k is not that of many rows";
  if (problem.compute != DType::kFloat32) return "takes float32, bfloat16 and float16";
  if (problem.a.dtype != problem.b.dtype) return "the operands' dtypes differ";
  const GemmProblem p = with_few_rows(problem);
  const int64_t most = p.a.dtype != DType::kFloat32 ? kFewRowsTensor : p.b.row == 1 ? kFewRowsFloatDots : kFewRowsFloatSums;
  if (p.m > most) return "takes at most 16 rows or columns, of float32 4 or 8";
  if (p.k < kLeastInner) return "k is below 256: too short a sum to be split";
  return p.b.row == 1 || p.b.col == 1 ? "" : "the matrix has no dim of unit stride";
}

void cuda_rows_run(const GemmProblem& problem) {
  for_each_part(with_few_rows(problem), cuda::kMaxDims, [](const GemmProblem& part) {
    // The kernel reads a's rows 16 bytes at a time, and past k up to a multiple of them.
    GemmProblem p = part;
    const bool lies_well = rows_aligned(p.a, p.m, p.k) && p.k % (16 / static_cast<int64_t>(item_size(p.a.dtype))) == 0;
    const Tensor copy = lies_well ? Tensor() : align_rows(p.a, p.batch, p.m, p.k, p.device);
    few_rows_cuda(device_gemm(p));
  });
}

void cuda_simple_run(const GemmProblem& problem) {
  for_each_part(problem, cuda::kMaxDims, [](const GemmProblem& part) { simple_gemm_cuda(device_gemm(part)); });
}

}  // namespace tenor::contract
