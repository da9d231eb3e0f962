// The weight gradient of float32: GatherSums as chains of fused multiply-adds over ranges of pixels, which
// conv_splits.cuh adds up. A warp sums 32 lines, of all taps' source channels in turn, by 64 channels of grad, a thread
// 8 by 8 of them; both operands come by cp.async with the pixels outermost, 16 pixels a step, zeros on padding.
#pragma once

#include "src/cuda/ptx/async_copy.cuh"
#include "src/ops/conv/conv_float.cuh"
#include "src/ops/conv/conv_splits.cuh"

namespace tenor::conv {

inline constexpr int kFloatSumColumns = 64, kFloatSumStages = 4;
inline constexpr int kFloatPixels = 16;  ///< of a step
inline constexpr int kFloatTable = 128;  ///< pixels whose rows are found at once
inline constexpr int kFloatTableSteps = kFloatTable / kFloatPixels;

/// Warps above one another.
template <int Warps>
struct FloatSumTile {
  static constexpr int kThreads = 32 * Warps, kLines = 32 * Warps;
  static constexpr int kBlocks = 16 / Warps;  ///< a multiprocessor
};

template <class Tile>
struct FloatSumShared {
  float a[kFloatSumStages][kFloatPixels * Tile::kLines], b[kFloatSumStages][kFloatPixels * kFloatSumColumns];
  SourceRow rows[2][kFloatTable];
};

/// A thread's part of the loads: four channels of one tap, of every fourth pixel; four channels of grad, of some
/// pixels.
template <class Tile>
struct FloatSumLoader {
  static constexpr int kPieces = Tile::kLines / 4, kAtOnce = Tile::kThreads / kPieces;
  static constexpr int kGradPieces = kFloatSumColumns / 4, kGradAtOnce = Tile::kThreads / kGradPieces;
  const float *source, *grad;  ///< at the tap and the channel; at the column
  int64_t grad_line;
  WeightRows own;
  int piece, first_pixel, grad_piece, grad_pixel;
  bool inside;

  __device__ __forceinline__ FloatSumLoader(const ConvWeightShape& s, int lines, int column, int group)
      : source(static_cast<const float*>(s.source)),
        grad(static_cast<const float*>(s.grad)),
        grad_line(int64_t{s.columns} * s.groups),
        own(weight_rows(s, lines + static_cast<int>(threadIdx.x) % kPieces * 4)),
        piece(threadIdx.x % kPieces * 4),
        first_pixel(threadIdx.x / kPieces),
        grad_piece(threadIdx.x % kGradPieces * 4),
        grad_pixel(threadIdx.x / kGradPieces) {
    source += own.offset + group * s.channels;
    inside = column + grad_piece < s.columns;
    grad += int64_t{group} * s.columns + column + grad_piece;
  }
  __device__ __forceinline__ void load(const ConvWeightShape& s, FloatSumShared<Tile>& shared, int stage, int pixel,
                                       const SourceRow* rows) const {
    SourceRow some[kFloatPixels / kAtOnce];
#pragma unroll
    for (int i = 0; i < kFloatPixels / kAtOnce; ++i) some[i] = rows[first_pixel + i * kAtOnce];
#pragma unroll
    for (int i = 0; i < kFloatPixels / kAtOnce; ++i)
      ptx::async_copy_16(shared.a[stage] + (first_pixel + i * kAtOnce) * Tile::kLines + piece, source + some[i].offset,
                         own.inside && (some[i].mask & own.bits) == own.bits);
#pragma unroll
    for (int i = 0; i < kFloatPixels; i += kGradAtOnce) {
      const int at = pixel + grad_pixel + i;
      const bool valid = inside && at < s.rows.pixels;
      if (kFloatPixels % kGradAtOnce == 0 || grad_pixel + i < kFloatPixels)
        ptx::async_copy_16(shared.b[stage] + (grad_pixel + i) * kFloatSumColumns + grad_piece, grad + at * grad_line,
                           valid);
    }
  }
};

/// A thread's i-th line; its columns are threadIdx.x % 8 * 4 on, and 32 further.
__device__ __forceinline__ int float_own_line(int i) {
  return threadIdx.x / 32 * 32 + threadIdx.x % 32 / 8 * 4 + i % 4 + i / 4 * 16;
}

/// A step's products.
template <class Tile>
__device__ __forceinline__ void multiply_pixels(float (&sum)[8][8], const float* a, const float* b) {
  const float *left = a + float_own_line(0), *right = b + threadIdx.x % 8 * 4;
#pragma unroll
  for (int k = 0; k < kFloatPixels; ++k) {
    float x[8], y[8];
#pragma unroll
    for (int i = 0; i < 8; i += 4)
      *reinterpret_cast<float4*>(x + i) = *reinterpret_cast<const float4*>(left + k * Tile::kLines + i * 4);
#pragma unroll
    for (int j = 0; j < 8; j += 4)
      *reinterpret_cast<float4*>(y + j) = *reinterpret_cast<const float4*>(right + k * kFloatSumColumns + j * 8);
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j) sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
  }
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks) float_sums(const __grid_constant__ ConvWeightShape s) {
  extern __shared__ __align__(16) unsigned char raw[];
  auto& shared = *reinterpret_cast<FloatSumShared<Tile>*>(raw);
  const int line_tile = blockIdx.x % s.row_tiles, rest = blockIdx.x / s.row_tiles;
  const int lines = line_tile * Tile::kLines, column = rest % s.column_tiles * kFloatSumColumns,
            group = rest / s.column_tiles;
  const int first = blockIdx.y * s.steps_per_split;
  const int steps = min(s.steps_per_split, (s.rows.pixels + kFloatPixels - 1) / kFloatPixels - first);
  const FloatSumLoader<Tile> loader(s, lines, column, group);
  const auto load = [&](int step) {
    if (step < steps) {
      const int turn = step / kFloatTableSteps & 1, within = step % kFloatTableSteps;
      if (within == 0) {
        for (int i = threadIdx.x; i < kFloatTable; i += Tile::kThreads)
          shared.rows[turn][i] = source_row(s.rows, (first + step) * kFloatPixels + i);
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
    multiply_pixels<Tile>(sum, shared.a[step % kFloatSumStages], shared.b[step % kFloatSumStages]);
  }
  float* const sums = s.sums + (int64_t{blockIdx.y} * s.groups + group) * s.lines * s.columns;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int line = lines + float_own_line(i);
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
