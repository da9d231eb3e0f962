// What the kernels for few rows share: who takes which k, how the matrix is read, and how partial sums meet.
#pragma once

#include "src/cuda/ptx/mbarrier.cuh"
#include "src/cuda/ptx/read_once.cuh"
#include "src/ops/contract/gemm_cuda.h"
#include "src/ops/contract/gemm_element.cuh"

namespace tenor::contract {

inline constexpr int kMaxBlocks = 8;  ///< of a cluster

inline constexpr int64_t kRangeUnit = 128;  ///< blocks' shares of k are multiples of it: of every kernel's step

/// How a launch deals the matrix. Blocks are small, and what each computes before its first load counts: powers of two,
/// no division.
struct RowsSplit {
  int64_t each = 0;        ///< k of a block
  int cluster_bits = 0;    ///< 2^that blocks of a cluster split k
  int warp_bits = 0;       ///< 2^that warps split a block's k; where those are not all, groups take a strip each
  bool read_once = false;  ///< the matrix does not stay in L2
};

/// This block's k of its cluster's.
struct Range {
  int64_t first = 0, last;
  __device__ __forceinline__ Range(int64_t k, const RowsSplit& split) : last(k) {
    if (split.cluster_bits == 0) return;
    first = min((blockIdx.x & ((1 << split.cluster_bits) - 1)) * split.each, k);
    last = min(first + split.each, k);
  }
};

/// The first column of this block's strips of `cols` columns. A matrix of 2^31 columns of 256 elements would fill no
/// memory that there is.
__device__ __forceinline__ int first_column(const RowsSplit& split, int cols) {
  return static_cast<int>(blockIdx.x >> split.cluster_bits) * cols;
}
/// Whether this block has a matrix of the batch; its offsets.
__device__ __forceinline__ bool find_matrix(const DeviceGemm& p, int64_t (&at)[3]) {
  at[0] = at[1] = at[2] = 0;
  if (p.batch.ndim == 0) return true;
  const int64_t matrix = blockIdx.y + int64_t{gridDim.y} * blockIdx.z;
  if (matrix >= p.batch.count) return false;
  cuda::offsets(p.batch, matrix, at);
  return true;
}

/// 16 bytes' neighbours of the matrix, those past `valid` zero.
template <bool kAligned, class T>
__device__ __forceinline__ cuda::Pack<T, cuda::kVector<T>> load_matrix(const T* p, int64_t valid, uint64_t policy) {
  cuda::Pack<T, cuda::kVector<T>> out{};
  if constexpr (kAligned) {
    const uint4 words = cuda::ptx::load_16(p, policy, valid > 0);
    memcpy(&out, &words, sizeof words);
  } else {
#pragma unroll
    for (int i = 0; i < cuda::kVector<T>; ++i)
      if (i < valid) out.at[i] = p[i];
  }
  return out;
}

/// Neighbours of a row of a, which starts at a multiple of 16 bytes; those past `valid`, which is none or all of them
/// where kWhole, zero.
template <bool kWhole, class T>
__device__ __forceinline__ cuda::Pack<T, cuda::kVector<T>> load_row(const T* p, int64_t valid) {
  cuda::Pack<T, cuda::kVector<T>> out{};
  if constexpr (kWhole) {
    uint4 words{};
    if (valid > 0) words = __ldg(reinterpret_cast<const uint4*>(p));
    memcpy(&out, &words, sizeof words);
  } else {
    if (valid >= cuda::kVector<T>) return cuda::load_pack<cuda::kVector<T>>(p);
#pragma unroll
    for (int i = 0; i < cuda::kVector<T>; ++i)
      if (i < valid) out.at[i] = p[i];
  }
  return out;
}

/// The value at the address of `local` in block `rank` of the cluster.
__device__ __forceinline__ float cluster_value(const float* local, int rank) {
  return cuda::ptx::cluster_load(local, static_cast<uint32_t>(rank));
}
__device__ __forceinline__ double cluster_value(const double* local, int rank) {
  float halves[2];  // which only carry the bits
  for (int i = 0; i < 2; ++i) halves[i] = cluster_value(reinterpret_cast<const float*>(local) + i, rank);
  double value;
  memcpy(&value, halves, sizeof value);
  return value;
}

/// Row r of a, or the last one before it.
template <class T>
__device__ __forceinline__ const T* row_or_last(const T* a, const DeviceGemm& p, int r) {
  return r == 0 ? a : a + min(r, static_cast<int>(p.m) - 1) * p.a.row;
}

/// Where a warp leaves its sums of a strip.
template <int kTheRows, int kTheCols>
struct DenseParts {
  static constexpr int kRows = kTheRows, kCols = kTheCols, kSize = kRows * kCols;
  static __device__ __forceinline__ int at(int row, int col) { return row * kCols + col; }
};

template <class A>
__device__ __forceinline__ void store_sum(const DeviceGemm& p, int row, int col, int64_t at, A sum) {
  if (row >= static_cast<int>(p.m) || col >= static_cast<int>(p.n)) return;
  if (p.bias) sum += element<A>(p.bias, p.bias_dtype, int64_t{row} * p.bias_row + col * p.bias_col);
  set_element(p.c.data, p.c.dtype, at + int64_t{row} * p.c.row + col * p.c.col, sum);
}

/// Adds the warps' parts [kWarps][Parts::kSize], then the cluster's, each in order, and stores the strips from column
/// `first`, one a group of warps.
template <int kWarps, class Parts, class A>
__device__ void finish(const DeviceGemm& p, A* parts, int first, int64_t at, const RowsSplit& split) {
  constexpr int kThreads = 32 * kWarps, kOutputs = Parts::kRows * Parts::kCols;
  const int warps = 1 << split.warp_bits, blocks = 1 << split.cluster_bits,
            outputs = kOutputs * kWarps >> split.warp_bits;
  const auto row_of = [](int o) { return o % kOutputs / Parts::kCols; };
  const auto col_of = [&](int o) { return first + o / kOutputs * Parts::kCols + o % Parts::kCols; };
  const auto place = [&](int o) {
    return (o / kOutputs << split.warp_bits) * Parts::kSize + Parts::at(row_of(o), o % Parts::kCols);
  };
  const auto sum_of = [&](int o) {
    const A* own = parts + place(o);
    A sum = own[0];
#pragma unroll
    for (int w = 1; w < kWarps; ++w)
      if (w < warps) sum += own[w * Parts::kSize];
    return sum;
  };
  __syncthreads();
  if (blocks == 1) {
    for (int o = threadIdx.x; o < outputs; o += kThreads)
      if (row_of(o) < static_cast<int>(p.m)) store_sum(p, row_of(o), col_of(o), at, sum_of(o));
    return;
  }
  for (int o = threadIdx.x; o < outputs; o += kThreads)
    if (row_of(o) < static_cast<int>(p.m)) parts[place(o)] = sum_of(o);
  cuda::ptx::cluster_sync();
  // The blocks share the outputs.
  for (int o = cuda::ptx::cluster_rank() * kThreads + threadIdx.x; o < outputs; o += blocks * kThreads) {
    if (row_of(o) >= static_cast<int>(p.m)) continue;
    A theirs[kMaxBlocks];
#pragma unroll
    for (int r = 0; r < kMaxBlocks; ++r) theirs[r] = r < blocks ? cluster_value(parts + place(o), r) : A(0);
    A sum = theirs[0];
#pragma unroll
    for (int r = 1; r < kMaxBlocks; ++r) sum = r < blocks ? sum + theirs[r] : sum;
    store_sum(p, row_of(o), col_of(o), at, sum);
  }
  cuda::ptx::cluster_sync();  // a block's parts stay until they have been read
}

using RowsKernel = void (*)(DeviceGemm, RowsSplit);

/// A kernel and how it wants to be launched.
struct RowsChoice {
  RowsKernel kernel;
  int warps;       ///< of a block
  int cols;        ///< of the strip of a block, or of a group of warps
  int inner = 0;   ///< k that a warp takes at once, where fewer than all warps may share a strip; 0: all do
  int shared = 0;  ///< dynamic shared memory of a block
};
/// One row against long contiguous columns of one matrix: lean_dots_kernel.
struct LeanShape {
  int64_t column;          ///< bytes from one to the next
  int pieces;              ///< of 16 bytes in a column
  bool read_once = false;  ///< the matrix does not stay in L2
};
struct LeanChoice {
  void (*kernel)(DeviceGemm, LeanShape) = nullptr;  ///< null where another one serves
  int cols = 0, threads = 0;                        ///< of a block
};
/// gemm_rows_vector_cuda.cu: of `pieces` of 16 bytes a column, which start and end at multiples of 16 bytes.
LeanChoice choose_lean(const DeviceGemm& p, int64_t pieces);

/// gemm_rows_tensor_cuda.cu (two rows and more of 16-bit operands) and gemm_rows_vector_cuda.cu: `dots` where the
/// matrix's columns are contiguous, `aligned` where every run of it starts and ends at multiples of 16 bytes.
RowsChoice choose_rows_tensor(const DeviceGemm& p, bool dots, bool aligned);
RowsChoice choose_rows_vector(const DeviceGemm& p, bool dots, bool aligned);

}  // namespace tenor::contract
