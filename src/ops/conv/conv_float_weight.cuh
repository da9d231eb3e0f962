// The weight gradient of float32: GatherSums as chains of fused multiply-adds over ranges of pixels, which
// conv_splits.cuh adds up. A block sums 128 lines, of all taps' source channels in turn, by 64 channels of grad, a
// thread 8 by 8 of them; both operands come by cp.async with the pixels outermost, 16 pixels a step, zeros on padding.
#pragma once

#include "src/cuda/ptx/async_copy.cuh"
#include "src/ops/conv/conv_splits.cuh"

namespace tenor::conv {

namespace ptx = tenor::cuda::ptx;

inline constexpr int kFloatSumLines = 128, kFloatSumColumns = 64, kFloatSumThreads = 128, kFloatSumStages = 4;
inline constexpr int kFloatPixels = 16;               ///< of a step
inline constexpr int kFloatTable = kFloatSumThreads;  ///< pixels whose rows are found at once
inline constexpr int kFloatTableSteps = kFloatTable / kFloatPixels;

struct FloatSumShared {
  float a[kFloatSumStages][kFloatPixels * kFloatSumLines], b[kFloatSumStages][kFloatPixels * kFloatSumColumns];
  SourceRow rows[2][kFloatTable];
};

/// A thread's part of the loads: four channels of one tap, of every fourth pixel; four channels of grad, of every
/// eighth.
struct FloatSumLoader {
  const float *source, *grad;
  int64_t grad_line;
  WeightRows own;
  int piece, first_pixel, grad_piece, grad_pixel;
  bool inside;

  __device__ __forceinline__ FloatSumLoader(const ConvWeightShape& s, int lines, int column, int group)
      : source(static_cast<const float*>(s.source)),
        grad(static_cast<const float*>(s.grad)),
        grad_line(int64_t{s.columns} * s.groups),
        own(weight_rows(s, lines + static_cast<int>(threadIdx.x) % 32 * 4)),
        piece(threadIdx.x % 32 * 4),
        first_pixel(threadIdx.x / 32),
        grad_piece(threadIdx.x % 16 * 4),
        grad_pixel(threadIdx.x / 16) {
    own.offset += group * s.channels;
    inside = column + grad_piece < s.columns;
    grad += int64_t{group} * s.columns + column + grad_piece;
  }
  __device__ __forceinline__ void load(const ConvWeightShape& s, FloatSumShared& shared, int stage, int pixel,
                                       const SourceRow* rows) const {
#pragma unroll
    for (int i = 0; i < kFloatPixels / 4; ++i) {
      const SourceRow row = rows[first_pixel + 4 * i];
      const bool valid = own.inside && (row.mask & own.bits) == own.bits;
      ptx::async_copy_16(shared.a[stage] + (first_pixel + 4 * i) * kFloatSumLines + piece,
                         valid ? source + row.offset + own.offset : source, valid);
    }
#pragma unroll
    for (int i = 0; i < kFloatPixels / 8; ++i) {
      const int at = pixel + grad_pixel + 8 * i;
      const bool valid = inside && at < s.rows.pixels;
      ptx::async_copy_16(shared.b[stage] + (grad_pixel + 8 * i) * kFloatSumColumns + grad_piece,
                         valid ? grad + at * grad_line : source, valid);
    }
  }
};

/// A step's products: thread (tx, ty) has lines ty * 4 and 64 + ty * 4 on, columns tx * 4 and 32 + tx * 4 on.
__device__ __forceinline__ void multiply_pixels(float (&sum)[8][8], const float* a, const float* b) {
  const float *left = a + threadIdx.x / 8 * 4, *right = b + threadIdx.x % 8 * 4;
#pragma unroll
  for (int k = 0; k < kFloatPixels; ++k) {
    float x[8], y[8];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      *reinterpret_cast<float4*>(x + 4 * half) =
          *reinterpret_cast<const float4*>(left + k * kFloatSumLines + half * kFloatSumLines / 2);
      *reinterpret_cast<float4*>(y + 4 * half) =
          *reinterpret_cast<const float4*>(right + k * kFloatSumColumns + half * kFloatSumColumns / 2);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j) sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
  }
}

__global__ void __launch_bounds__(kFloatSumThreads, 4) float_sums(const __grid_constant__ ConvWeightShape s) {
  extern __shared__ __align__(16) unsigned char raw[];
  auto& shared = *reinterpret_cast<FloatSumShared*>(raw);
  const int line_tile = blockIdx.x % s.row_tiles, rest = blockIdx.x / s.row_tiles;
  const int lines = line_tile * kFloatSumLines, column = rest % s.column_tiles * kFloatSumColumns,
            group = rest / s.column_tiles;
  const int first = blockIdx.y * s.steps_per_split;
  const int steps = min(s.steps_per_split, (s.rows.pixels + kFloatPixels - 1) / kFloatPixels - first);
  const FloatSumLoader loader(s, lines, column, group);
  const auto load = [&](int step) {
    if (step < steps) {
      const int turn = step / kFloatTableSteps & 1, within = step % kFloatTableSteps;
      if (within == 0) {
        shared.rows[turn][threadIdx.x] = source_row(s.rows, (first + step) * kFloatPixels + threadIdx.x);
        __syncthreads();
      }
      loader.load(s, shared, step % kFloatSumStages, (first + step) * kFloatPixels,
                  shared.rows[turn] + within * kFloatPixels);
    }
    ptx::async_copy_commit();
  };
#pragma unroll
  for (int step = 0; step < kFloatSumStages - 1; ++step) load(step);
  float sum[8][8] = {};
  for (int step = 0; step < steps; ++step) {
    ptx::async_copy_wait<kFloatSumStages - 2>();
    __syncthreads();
    load(step + kFloatSumStages - 1);
    multiply_pixels(sum, shared.a[step % kFloatSumStages], shared.b[step % kFloatSumStages]);
  }
  float* const sums = s.sums + (int64_t{blockIdx.y} * s.groups + group) * s.lines * s.columns;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int line = lines + threadIdx.x / 8 * 4 + i % 4 + i / 4 * kFloatSumLines / 2;
    if (line >= s.lines) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int own = column + threadIdx.x % 8 * 4 + half * kFloatSumColumns / 2;
      if (own < s.columns)  // a multiple of 8
        *reinterpret_cast<float4*>(sums + int64_t{line} * s.columns + own) = {
            sum[i][4 * half], sum[i][4 * half + 1], sum[i][4 * half + 2], sum[i][4 * half + 3]};
    }
  }
}

}  // namespace tenor::conv
