// What the kernels for few rows share: who takes which k, and how partial sums meet.
#pragma once

#include "src/cuda/ptx/mbarrier.cuh"
#include "src/ops/contract/gemm_cuda.h"
#include "src/ops/contract/gemm_element.cuh"

namespace tenor::contract {

inline constexpr int kWarps = 8, kThreads = 32 * kWarps, kMaxBlocks = 8;  // of a cluster

/// Items [first, last) of `count` that this warp takes, of all warps of the cluster.
struct Share {
  int64_t first, last;
  __device__ Share(int64_t count, int clusters) {
    const int64_t warps = int64_t{clusters} * kWarps, each = (count + warps - 1) / warps;
    first = (int64_t{blockIdx.x} % clusters * kWarps + threadIdx.x / 32) * each;
    last = min(first + each, count);
  }
};

/// Adds the warps' parts [kWarps][kRows * kCols], then the cluster's, each in order, and stores the strip from column
/// `first`.
template <int kRows, int kCols>
__device__ void finish(const DeviceGemm& p, float* parts, int64_t first, int64_t at, int clusters) {
  constexpr int kOutputs = kRows * kCols;
  __syncthreads();
  for (int o = threadIdx.x; o < kOutputs; o += kThreads) {
    float sum = parts[o];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) sum += parts[w * kOutputs + o];
    parts[o] = sum;
  }
  if (clusters > 1) cuda::ptx::cluster_sync();
  // The blocks of a cluster share the outputs.
  const int rank = clusters > 1 ? static_cast<int>(cuda::ptx::cluster_rank()) : 0;
  for (int o = rank * kThreads + threadIdx.x; o < kOutputs; o += clusters * kThreads) {
    const int64_t row = o / kCols, col = first + o % kCols;
    if (row >= p.m || col >= p.n) continue;
    float sum = 0, theirs[kMaxBlocks];
    if (clusters == 1) {
      sum = parts[o];
    } else {
#pragma unroll
      for (int r = 0; r < kMaxBlocks; ++r) theirs[r] = r < clusters ? cuda::ptx::cluster_load(parts + o, r) : 0;
      sum = theirs[0];
#pragma unroll
      for (int r = 1; r < kMaxBlocks; ++r) sum = r < clusters ? sum + theirs[r] : sum;
    }
    if (p.bias) sum += element<float>(p.bias, p.bias_dtype, row * p.bias_row + col * p.bias_col);
    set_element(p.c.data, p.c.dtype, at + row * p.c.row + col * p.c.col, sum);
  }
  if (clusters > 1) cuda::ptx::cluster_sync();  // a block's parts stay until they have been read
  __syncthreads();
}

/// Calls fn(first column, offsets) for the strips of all batches that this block takes.
template <int kCols, class F>
__device__ __forceinline__ void for_each_strip(const DeviceGemm& p, int clusters, F&& fn) {
  for (int64_t b = blockIdx.y; b < p.batch.count; b += gridDim.y) {
    int64_t at[3];
    cuda::offsets(p.batch, b, at);
    fn(int64_t{blockIdx.x} / clusters * kCols, at);
  }
}

using RowsKernel = void (*)(DeviceGemm, int);

/// A kernel, the columns of its strips and the dynamic shared memory of its blocks.
struct RowsChoice {
  RowsKernel kernel;
  int cols;
  int shared = 0;
};
/// gemm_rows_tensor_cuda.cu and gemm_rows_float_cuda.cu: `dots` where the matrix's columns are contiguous, `aligned`
/// where every run of it starts and ends at multiples of 16 bytes.
RowsChoice choose_rows_tensor(const DeviceGemm& p, bool dots, bool aligned);
RowsChoice choose_rows_float(const DeviceGemm& p, bool dots, bool aligned);

}  // namespace tenor::contract
