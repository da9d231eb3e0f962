// Few rows by FMAs: the kernels of the "rows" candidate on CUDA that add in the operands' own precision.
//
// What they wait for is the memory, and that is fastest where the blocks at work at a time read one stretch of it:
// blocks are small, many and dealt in the order in which the matrix lies, and a block asks for all of its bytes, or for
// 64 KB of them, before it computes.
#pragma once

#include "src/cuda/convert.cuh"
#include "src/cuda/reduce.cuh"
#include "src/ops/contract/gemm_rows_cuda.cuh"

namespace tenor::contract {

/// Blocks of vector_dots_kernel that a multiprocessor is to hold. Of one float32 row all the warps that there is room
/// for: three blocks (36 registers a thread) took 68 us for 4096 x 14336, four (32 registers) had taken 62.
template <class T, int kRows, bool kAligned>
inline constexpr int kDotsBlocks = !kAligned       ? 1
                                   : kRows > 1     ? 2
                                   : sizeof(T) > 2 ? 4
                                                   : 3;

/// The matrix's columns contiguous: 2^split.warp_bits warps run side by side over k of kCols columns, so that a block
/// reads its columns from end to end.
template <class T, int kRows, int kCols, int kWarps, bool kAligned>
__global__ void __launch_bounds__(32 * kWarps, kDotsBlocks<T, kRows, kAligned>)
    vector_dots_kernel(const __grid_constant__ DeviceGemm p, const __grid_constant__ RowsSplit split) {
  using A = core::Compute<T>;
  using Parts = DenseParts<kRows, kCols>;
  constexpr int kVec = cuda::kVector<T>;
  __shared__ A parts[kWarps * Parts::kSize];
  int64_t at[3];
  if (!find_matrix(p, at)) return;
  const uint64_t policy = cuda::ptx::read_policy(split.read_once);
  const int width = 32 << split.warp_bits, group = threadIdx.x >> (5 + split.warp_bits);
  const Range range(p.k, split);
  const int strip = first_column(split, kWarps * kCols >> split.warp_bits), first = strip + group * kCols,
            end = static_cast<int>(p.n) - 1;
  const T *a = static_cast<const T*>(p.a.data) + at[0], *b = static_cast<const T*>(p.b.data) + at[1];
  A sums[kRows][kCols] = {};
  const T* columns[kCols];  // those past the end are read as the last one, and not stored
#pragma unroll
  for (int c = 0; c < kCols; ++c) columns[c] = b + min(first + c, end) * p.b.col;
  for (int64_t k = range.first + (threadIdx.x & (width - 1)) * kVec; k < range.last; k += width * kVec) {
    cuda::Pack<T, kVec> w[kCols];
#pragma unroll
    for (int c = 0; c < kCols; ++c) w[c] = load_matrix<kAligned>(columns[c] + k, range.last - k, policy);
    A v[kCols][kVec];
#pragma unroll
    for (int c = 0; c < kCols; ++c) cuda::widen_pack(w[c], v[c]);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      A x[kVec];
      cuda::widen_pack(load_row<kAligned>(row_or_last(a, p, r) + k, range.last - k), x);
#pragma unroll
      for (int c = 0; c < kCols; ++c)
#pragma unroll
        for (int i = 0; i < kVec; ++i) sums[r][c] = multiply_add(x[i], v[c][i], sums[r][c]);
    }
  }
#pragma unroll
  for (int o = 0; o < Parts::kSize; ++o) {
    const A sum = cuda::warp_reduce(sums[o / kCols][o % kCols], [](A u, A v) { return u + v; });
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32 * Parts::kSize + o] = sum;
  }
  finish<kWarps, Parts>(p, parts, strip, at[2], split);
}

inline constexpr int kLeanThreads = 512;  ///< of a block at most

/// One row of which no warp asks for more than it needs, one matrix with columns that lie contiguous: a block reads
/// kCols columns from end to end, a thread kVecs pieces of 16 bytes of each, all asked for at once. There are
/// thousands of blocks of 2 us each, so that nothing is computed before the loads which the general kernel would.
template <class T, int kCols, int kVecs>
__global__ void __launch_bounds__(kLeanThreads, kCols* kVecs <= 2 ? 4 : 2)
    lean_dots_kernel(const __grid_constant__ DeviceGemm p, const __grid_constant__ LeanShape lean) {
  using A = core::Compute<T>;
  constexpr int kVec = cuda::kVector<T>, kMostWarps = kLeanThreads / 32;
  __shared__ A parts[kMostWarps * kCols];
  const uint64_t policy = cuda::ptx::read_policy(lean.read_once);
  const int first = static_cast<int>(blockIdx.x) * kCols;
  const char *x = static_cast<const char*>(p.a.data) + threadIdx.x * 16,
             *column = static_cast<const char*>(p.b.data) + first * lean.column + threadIdx.x * 16;
  const int left = static_cast<int>(p.n) - first, step = static_cast<int>(blockDim.x);
  cuda::Pack<T, kVec> w[kCols][kVecs];
#pragma unroll
  for (int c = 0; c < kCols; ++c)
#pragma unroll
    for (int v = 0; v < kVecs; ++v) {
      const bool inside = static_cast<int>(threadIdx.x) + v * step < lean.pieces && c < left;
      const uint4 words = cuda::ptx::load_16(column + c * lean.column + v * step * 16, policy, inside);
      memcpy(&w[c][v], &words, sizeof words);
    }
  A sums[kCols] = {};
#pragma unroll
  for (int v = 0; v < kVecs; ++v) {
    uint4 words{};
    if (static_cast<int>(threadIdx.x) + v * step < lean.pieces)
      words = __ldg(reinterpret_cast<const uint4*>(x + v * step * 16));
    cuda::Pack<T, kVec> row;
    memcpy(&row, &words, sizeof words);
    A u[kVec];
    cuda::widen_pack(row, u);
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      A y[kVec];
      cuda::widen_pack(w[c][v], y);
#pragma unroll
      for (int i = 0; i < kVec; ++i) sums[c] = multiply_add(u[i], y[i], sums[c]);
    }
  }
#pragma unroll
  for (int c = 0; c < kCols; ++c) {
    const A sum = cuda::warp_reduce(sums[c], [](A u, A v) { return u + v; });
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32 * kCols + c] = sum;
  }
  __syncthreads();
  if (threadIdx.x >= kCols) return;
  A sum = parts[threadIdx.x];
#pragma unroll
  for (int warp = 1; warp < kMostWarps; ++warp)
    if (warp * 32 < step) sum += parts[warp * kCols + threadIdx.x];
  store_sum(p, 0, first + static_cast<int>(threadIdx.x), 0, sum);
}

inline constexpr int kSumsWarps = 8, kSumsLanes = 8;

/// The matrix's rows contiguous: eight lanes hold 16 bytes each of a row, a block's 32 groups of lanes rows one below
/// the other, kDepth times. Rows further apart at a time come slower: they share the memory's channels.
template <class T, int kRows, int kDepth, bool kAligned>
__global__ void __launch_bounds__(32 * kSumsWarps, 2)
    vector_sums_kernel(const __grid_constant__ DeviceGemm p, const __grid_constant__ RowsSplit split) {
  using A = core::Compute<T>;
  constexpr int kVec = cuda::kVector<T>, kGroups = 32 * kSumsWarps / kSumsLanes;
  using Parts = DenseParts<kRows, kSumsLanes * kVec>;
  __shared__ A parts[kSumsWarps * Parts::kSize];
  int64_t at[3];
  if (!find_matrix(p, at)) return;
  const uint64_t policy = cuda::ptx::read_policy(split.read_once);
  const int lane = threadIdx.x % kSumsLanes, warp = threadIdx.x / 32;
  const Range range(p.k, split);
  const int first = first_column(split, Parts::kCols), cols = static_cast<int>(p.n) - first - lane * kVec;
  const T *a = static_cast<const T*>(p.a.data) + at[0],
          *b = static_cast<const T*>(p.b.data) + at[1] + first + lane * kVec;
  A sums[kRows][kVec] = {};
  for (int64_t k = range.first + threadIdx.x / kSumsLanes; k < range.last; k += kGroups * kDepth) {
    cuda::Pack<T, kVec> w[kDepth];
    const T* from = b + k * p.b.row;
#pragma unroll
    for (int d = 0; d < kDepth; ++d, from += kGroups * p.b.row)
      w[d] = load_matrix<kAligned>(from, k + d * kGroups < range.last ? cols : 0, policy);
    A x[kRows][kDepth];
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        const int64_t row = k + d * kGroups;
        x[r][d] = row < range.last ? cuda::convert<A>(row_or_last(a, p, r)[row]) : A(0);
      }
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      A v[kVec];
      cuda::widen_pack(w[d], v);
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int c = 0; c < kVec; ++c) sums[r][c] = multiply_add(x[r][d], v[c], sums[r][c]);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int c = 0; c < kVec; ++c) {
      A sum = sums[r][c];
#pragma unroll
      for (int mask = kSumsLanes; mask < 32; mask *= 2) sum += cuda::shuffle_xor(sum, mask);
      if (threadIdx.x % 32 < kSumsLanes) parts[warp * Parts::kSize + Parts::at(r, lane * kVec + c)] = sum;
    }
  finish<kSumsWarps, Parts>(p, parts, first, at[2], split);
}

}  // namespace tenor::contract
