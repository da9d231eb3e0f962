// The weight gradient of a stem, a convolution of stride 2 whose image has at most four channels (Hopper, 16-bit
// floats, channels last). The image lies in shared memory as conv_stem_lines.cuh says, so that a row of taps is a
// product of 64 channels of grad by eight columns a line, summed over a row's pixels, both operands lying with them
// outermost. A warp has a row of taps; a block walks down a range of rows of grad, which come by TMA, and brings the
// two next rows of the image meanwhile.
#pragma once

#include "src/cuda/ptx/async_copy.cuh"
#include "src/cuda/ptx/dependent_launch.cuh"
#include "src/cuda/ptx/mbarrier.cuh"
#include "src/cuda/ptx/mma.cuh"
#include "src/cuda/ptx/tma.cuh"
#include "src/ops/conv/conv_stem_lines.cuh"

namespace tenor::conv {

namespace ptx = tenor::cuda::ptx;

inline constexpr int kStemTaps = kStemKernel + 1;  ///< warps, a row of taps each
inline constexpr int kStemSumThreads = 32 * kStemTaps, kStemOuts = 64, kStemGrads = 3;
inline constexpr int kStemFloats = kStemTaps * kStemLines * kStemOuts * 8;  ///< of a block's sums

struct StemSumShape {
  int kernel_height, kernel_width, top;
  int lowest, first_column;  ///< the line that output 0 meets first, and the tap, or -1, of its first column
  StemImage image;
  int out_channels, out_height, out_width;
  int tile_columns, across;  ///< columns of grad at a time, a multiple of 16, and tiles of a row
  int rows, rows_per_block;  ///< batch * across * out_height in all
  float* sums;               ///< [blocks, slices of 64 channels, rows of taps, lines, 64, 8]
  __host__ __device__ int row_lines() const { return tile_columns + kStemLines; }
  __host__ __device__ int image_rows() const { return kernel_height + 2; }  ///< in shared memory
  __host__ __device__ int grad_bytes() const { return tile_columns * 128; }
  size_t shared_bytes() const {
    return size_t{kStemGrads} * grad_bytes() + size_t{16} * row_lines() * image_rows() + 64;
  }
};

/// A range of a tile's rows of grad.
struct StemRange {
  int n, column, first, last;
};
__device__ __forceinline__ StemRange stem_range(const StemSumShape& s, int next, int end) {
  const int item = next / s.out_height, first = next - item * s.out_height;
  return {item / s.across, item % s.across * s.tile_columns, first, min(s.out_height, first + end - next)};
}

/// Adds one row of grad times the image's row of this warp's taps.
template <class T>
__device__ __forceinline__ void add_stem_row(float (&sum)[4][kStemLines][4], uint32_t grads, uint32_t lines,
                                             int columns, int left) {
  const int lane = threadIdx.x % 32;
  const int pixel = lane / 16 * 8 + lane % 8, along = lane / 8 % 2 * 8 + lane % 8;
  for (int k = 0; k < columns; k += 16) {
    uint32_t x[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) ptx::ldmatrix_x4_transposed(x[i], lines + (k + along + 2 * i + lane / 16) * 16);
    if (left - k < 16) {  // what lies past the row's last pixel counts as zeros
      const int own = lane % 4 * 2;
      const uint32_t low = (own < left - k ? 0xffffu : 0) | (own + 1 < left - k ? 0xffff0000u : 0);
      const uint32_t high = (own + 8 < left - k ? 0xffffu : 0) | (own + 9 < left - k ? 0xffff0000u : 0);
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i / 2][i % 2 * 2] &= low, x[i / 2][i % 2 * 2 + 1] &= high;
    }
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      const int line = k + pixel, chunk = m * 2 + lane / 8 % 2;
      uint32_t g[4];
      ptx::ldmatrix_x4_transposed(g, grads + line * 128 + ((chunk ^ (line & 7)) << 4));
#pragma unroll
      for (int i = 0; i < kStemLines; ++i)
        ptx::mma_m16n8k16<T>(sum[m][i], g[0], g[1], g[2], g[3], x[i / 2][i % 2 * 2], x[i / 2][i % 2 * 2 + 1]);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kStemSumThreads, 2)
    stem_sums(const __grid_constant__ CUtensorMap grad, const __grid_constant__ StemSumShape s) {
  if constexpr (!ptx::kHasClusters) return;  // without TMA it is never launched
  extern __shared__ __align__(1024) unsigned char raw[];
  uint4* const lines = reinterpret_cast<uint4*>(raw + kStemGrads * s.grad_bytes());
  uint64_t* const full = reinterpret_cast<uint64_t*>(lines + s.row_lines() * s.image_rows());
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, slice = blockIdx.y * kStemOuts;
  const int begin = blockIdx.x * s.rows_per_block, end = min(begin + s.rows_per_block, s.rows);
  const auto load_grad = [&](int i) {  // the block's i-th row
    if (threadIdx.x != 0 || begin + i >= end) return;
    const StemRange range = stem_range(s, begin + i, end);
    ptx::mbarrier_arrive_expect(&full[i % kStemGrads], s.grad_bytes());
    ptx::tma_load_4d(raw + i % kStemGrads * s.grad_bytes(), &grad, slice, range.column, range.first, range.n,
                     &full[i % kStemGrads]);
  };
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStemGrads; ++stage) ptx::mbarrier_init(&full[stage], 1);
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  for (int i = 0; i < kStemGrads - 1; ++i) load_grad(i);
  float sum[4][kStemLines][4] = {};
  int i = 0;
  for (int next = begin; next < end;) {
    const StemRange range = stem_range(s, next, end);
    next += range.last - range.first;
    const auto fetch = [&](int row, int line) {
      return stem_line(s.image, range.n, row, 2 * (range.column + s.lowest + line));
    };
    const auto place = [&](int row) {  // of the row, counted from the range's first
      return lines + row % s.image_rows() * s.row_lines();
    };
    const int first = 2 * range.first - s.top, count = s.row_lines();
    for (int x = threadIdx.x; x < s.kernel_height * count; x += kStemSumThreads)
      place(x / count)[x % count] = fetch(first + x / count, x % count);
    for (int h = range.first; h < range.last; ++h, ++i) {
      const int row = 2 * (h - range.first), fresh = row + s.kernel_height;
      __syncthreads();  // the image's rows are there, and all are past the row before
      load_grad(i + kStemGrads - 1);
      // Two rows more for the next step, on their way during this one's products.
      const int own = threadIdx.x / count, line = threadIdx.x - own * count;
      const bool fetches = own < 2 && h + 1 < range.last;
      uint4 ahead;
      if (fetches) ahead = fetch(first + fresh + own, line);
      ptx::mbarrier_wait(&full[i % kStemGrads], i / kStemGrads & 1);
      if (warp < s.kernel_height)
        add_stem_row<T>(sum, ptx::shared_address(raw + i % kStemGrads * s.grad_bytes()),
                        ptx::shared_address(place(row + warp)), s.tile_columns, s.out_width - range.column);
      if (fetches) place(fresh + own)[line] = ahead;
      if (h + 1 < range.last)
        for (int x = threadIdx.x + kStemSumThreads; x < 2 * count; x += kStemSumThreads)
          place(fresh + x / count)[x % count] = fetch(first + fresh + x / count, x % count);
    }
    __syncthreads();
  }
  if (warp >= s.kernel_height) return;
  float* const sums =
      s.sums + ((int64_t{blockIdx.x} * gridDim.y + blockIdx.y) * kStemTaps + warp) * kStemLines * kStemOuts * 8;
#pragma unroll
  for (int x = 0; x < kStemLines; ++x)
#pragma unroll
    for (int m = 0; m < 4; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<float2*>(sums + (x * kStemOuts + m * 16 + half * 8 + lane / 4) * 8 + lane % 4 * 2) = {
            sum[m][x][2 * half], sum[m][x][2 * half + 1]};
}

}  // namespace tenor::conv
