// The implicit GEMM of float32: a GatherProduct as chains of fused multiply-adds, taps outside of channels, both
// ascending. A block computes 128 pixels by 64 channels, a thread 8 by 8 of them; steps of 16 products come by cp.async
// through three stages, zeros on padding.
#pragma once

#include "src/cuda/ptx/async_copy.cuh"
#include "src/ops/conv/conv_rows.cuh"

namespace tenor::conv {

namespace ptx = tenor::cuda::ptx;

inline constexpr int kFloatRows = 128, kFloatColumns = 64, kFloatStep = 16, kFloatThreads = 128, kFloatStages = 3;
inline constexpr int kFloatLine =
    kFloatStep + 4;                  ///< floats; pieces of eight neighbouring lines lie in different banks
inline constexpr int kFloatOwn = 8;  ///< rows and columns of a thread
inline constexpr int kFloatPieces = kFloatStep / 4;               ///< of a line
inline constexpr int kFloatLines = kFloatThreads / kFloatPieces;  ///< that all threads load at once

struct FloatShape {
  RowShape rows;
  int channels, columns;  ///< of a group
  int weight_first, weight_step[3], weight_taps;
  const float *source, *weight, *bias;
  float* result;
  int64_t result_channel, bias_stride;
};

struct FloatShared {
  float a[kFloatStages][kFloatRows * kFloatLine + kFloatRows], b[kFloatStages][kFloatColumns * kFloatLine];
};

/// Where a row begins; a thread's rows are four neighbours at two places, and those of four threads must not meet.
__device__ __forceinline__ int float_row(int row) { return row * kFloatLine + row / 4 * 4; }
/// A thread's i-th row.
__device__ __forceinline__ int float_own_row(int i) { return threadIdx.x / 8 * 4 + i % 4 + i / 4 * (kFloatRows / 2); }

/// One piece of four channels of every step: its tap, and the channel within it.
struct FloatPiece {
  TapWalk walk;
  int channel, left;  ///< taps, this one included
  __device__ __forceinline__ void settle(const FloatShape& s) {
    for (; channel >= s.channels && left > 0; channel -= s.channels, --left) walk.next(s.rows);
  }
};

/// A thread's part of the loads of a block.
struct FloatLoader {
  SourceRow rows[kFloatRows / kFloatLines];
  FloatPiece at;
  const float *source, *weight;
  int64_t weight_line;
  int column, line, piece;

  __device__ __forceinline__ explicit FloatLoader(const FloatShape& s)
      : at{{}, static_cast<int>(threadIdx.x) % kFloatPieces * 4, taps_of(s.rows)},
        source(s.source + int64_t{blockIdx.z} * s.channels),
        weight_line(int64_t{s.channels} * s.weight_taps),
        line(threadIdx.x / kFloatPieces),
        piece(at.channel) {
    column = blockIdx.y * kFloatColumns + line;
    weight = s.weight + (int64_t{blockIdx.z} * s.columns + column) * weight_line;
#pragma unroll
    for (int i = 0; i < kFloatRows / kFloatLines; ++i)
      rows[i] = source_row(s.rows, blockIdx.x * kFloatRows + line + i * kFloatLines);
    at.settle(s);
  }
  /// The next step's pieces.
  __device__ __forceinline__ void load(const FloatShape& s, float* a, float* b) {
    const int64_t offset = at.walk.offset(s.rows) + at.channel;
    const uint32_t bits = at.walk.bits(s.rows);
#pragma unroll
    for (int i = 0; i < kFloatRows / kFloatLines; ++i) {
      const bool valid = at.left > 0 && (rows[i].mask & bits) == bits;
      ptx::async_copy_16(a + float_row(line + i * kFloatLines) + piece,
                         valid ? source + rows[i].offset + offset : s.source, valid);
    }
    const int tap = s.weight_first + at.walk.j[0] * s.weight_step[0] + at.walk.j[1] * s.weight_step[1] +
                    at.walk.j[2] * s.weight_step[2];
    const float* const from = weight + int64_t{tap} * s.channels + at.channel;
#pragma unroll
    for (int i = 0; i < kFloatColumns / kFloatLines; ++i) {
      const bool valid = at.left > 0 && column + i * kFloatLines < s.columns;
      ptx::async_copy_16(b + (line + i * kFloatLines) * kFloatLine + piece,
                         valid ? from + i * kFloatLines * weight_line : s.weight, valid);
    }
    at.channel += kFloatStep;
    at.settle(s);
  }
};

/// A step's products: thread (tx, ty) has columns tx + 8 j.
__device__ __forceinline__ void multiply_floats(float (&sum)[kFloatOwn][kFloatOwn], const float* a, const float* b) {
  const float* const left = a + float_row(float_own_row(0));
  const float* const right = b + threadIdx.x % 8 * kFloatLine;
#pragma unroll
  for (int k = 0; k < kFloatStep; k += 2) {
    float2 y[kFloatOwn];
#pragma unroll
    for (int j = 0; j < kFloatOwn; ++j) y[j] = *reinterpret_cast<const float2*>(right + 8 * j * kFloatLine + k);
#pragma unroll
    for (int i = 0; i < kFloatOwn; ++i) {
      constexpr int kHalf = kFloatRows / 2 * kFloatLine + kFloatRows / 2;
      const float2 x = *reinterpret_cast<const float2*>(left + i % 4 * kFloatLine + i / 4 * kHalf + k);
#pragma unroll
      for (int j = 0; j < kFloatOwn; ++j) sum[i][j] = fmaf(x.y, y[j].y, fmaf(x.x, y[j].x, sum[i][j]));
    }
  }
}

/// Four neighbouring pixels of one channel; as one access where they lie so.
__device__ __forceinline__ void store_four(float* to, const int64_t (&place)[4], const float (&x)[4], int count) {
  const bool row = count >= 4 && place[1] == place[0] + 1 && place[2] == place[0] + 2 && place[3] == place[0] + 3;
  if (row && reinterpret_cast<uintptr_t>(to + place[0]) % 16 == 0) {  // pixels of one row of a plane
    *reinterpret_cast<float4*>(to + place[0]) = {x[0], x[1], x[2], x[3]};
    return;
  }
#pragma unroll
  for (int k = 0; k < 4; ++k)
    if (k < count) to[place[k]] = x[k];
}

__device__ __forceinline__ void store_floats(const FloatShape& s, const float (&sum)[kFloatOwn][kFloatOwn]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int m = blockIdx.x * kFloatRows + float_own_row(half * 4), count = s.rows.pixels - m;
    int64_t place[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) place[i] = i < count ? result_row(s.rows, m + i) : 0;
#pragma unroll
    for (int j = 0; j < kFloatOwn; ++j) {
      const int own = blockIdx.y * kFloatColumns + threadIdx.x % 8 + 8 * j;
      if (own >= s.columns) continue;
      const int64_t channel = int64_t{blockIdx.z} * s.columns + own;
      const float bias = s.bias ? s.bias[channel * s.bias_stride] : 0.f;
      float four[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) four[i] = s.bias ? sum[half * 4 + i][j] + bias : sum[half * 4 + i][j];
      store_four(s.result + channel * s.result_channel, place, four, count);
    }
  }
}

__global__ void __launch_bounds__(kFloatThreads, 3) float_kernel(const __grid_constant__ FloatShape s) {
  extern __shared__ __align__(16) unsigned char raw[];
  auto& shared = *reinterpret_cast<FloatShared*>(raw);
  FloatLoader loader(s);
  const int steps = (taps_of(s.rows) * s.channels + kFloatStep - 1) / kFloatStep;
  const auto load = [&](int step) {
    if (step < steps) loader.load(s, shared.a[step % kFloatStages], shared.b[step % kFloatStages]);
    ptx::async_copy_commit();
  };
#pragma unroll
  for (int step = 0; step < kFloatStages - 1; ++step) load(step);
  float sum[kFloatOwn][kFloatOwn] = {};
  for (int step = 0; step < steps; ++step) {
    ptx::async_copy_wait<kFloatStages - 2>();
    __syncthreads();
    load(step + kFloatStages - 1);
    multiply_floats(sum, shared.a[step % kFloatStages], shared.b[step % kFloatStages]);
  }
  store_floats(s, sum);
}

}  // namespace tenor::conv
