// The CUDA candidates: the problem in the form that each kernel reads.
#include "src/ops/contract/gemm_cuda.h"

#include "src/core/backend.h"
#include "src/core/output.h"
#include "src/ops/contract/gemm_cuda_candidates.h"
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

Tensor tensor_of(const Matrix& x, const Dims& batch, int64_t rows, int64_t cols, Device device) {
  Dims shape = batch, strides = x.batch;
  shape.push_back(rows), shape.push_back(cols), strides.push_back(x.row), strides.push_back(x.col);
  return Tensor::wrap(x.data, device, x.dtype, shape, strides);
}

}  // namespace

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

void cuda_rows_run(const GemmProblem& problem) {
  const GemmProblem few = with_few_rows(problem);
  if (few.m > 1 && cuda_tiles_streams(few)) return cuda_tiles_run(few);
  for_each_part(few, cuda::kMaxDims, [](const GemmProblem& part) {
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
