// The implicit GEMM of float32: a GatherProduct as chains of fused multiply-adds, taps outside of channels, both
// ascending. A block computes 128 pixels by 64 channels, a thread 8 by 4 of them; steps of 32 products come by cp.async
// through three stages, zeros on padding.
#include "src/cuda/ptx/async_copy.cuh"
#include "src/ops/conv/conv_float_cuda.h"
#include "src/ops/conv/conv_rows.cuh"

namespace tenor::conv {
namespace {

namespace ptx = tenor::cuda::ptx;

constexpr int kRows = 128, kColumns = 64, kStep = 32, kThreads = 256, kStages = 3;
constexpr int kLine = kStep + 4;  // floats; the pieces of eight neighbouring lines lie in different banks
constexpr int kOwnRows = 8, kOwnColumns = 4;
constexpr int kPieces = kStep / 4, kLines = kThreads / kPieces;  ///< of a line; that all threads load at once

struct FloatShape {
  RowShape rows;
  int channels, columns;  ///< of a group
  int weight_first, weight_step[3], weight_taps;
  const float *source, *weight, *bias;
  float* result;
  int64_t result_channel, bias_stride;
};

struct FloatShared {
  float a[kStages][kRows * kLine], b[kStages][kColumns * kLine];
};

/// One piece of four channels of every step: its tap, and the channel within it.
struct Piece {
  TapWalk walk;
  int channel, left;  ///< taps, this one included
  __device__ __forceinline__ void settle(const FloatShape& s) {
    for (; channel >= s.channels && left > 0; channel -= s.channels, --left) walk.next(s.rows);
  }
};

__global__ void __launch_bounds__(kThreads, 2) float_kernel(const __grid_constant__ FloatShape s) {
  extern __shared__ __align__(16) unsigned char raw[];
  auto& shared = *reinterpret_cast<FloatShared*>(raw);
  const int group = blockIdx.z, first_row = blockIdx.x * kRows, first_column = blockIdx.y * kColumns;
  const int line = threadIdx.x / kPieces, piece = threadIdx.x % kPieces * 4;
  SourceRow rows[kRows / kLines];
#pragma unroll
  for (int i = 0; i < kRows / kLines; ++i) rows[i] = source_row(s.rows, first_row + line + i * kLines);
  const float* const source = s.source + int64_t{group} * s.channels;
  const int64_t weight_line = int64_t{s.channels} * s.weight_taps;
  const int column = first_column + line;
  const float* const weight = s.weight + (int64_t{group} * s.columns + column) * weight_line;
  const int taps = taps_of(s.rows), steps = (taps * s.channels + kStep - 1) / kStep;
  Piece at{{}, piece, taps};
  at.settle(s);
  const auto load = [&](int step) {
    if (step < steps) {
      const int stage = step % kStages;
      const int64_t offset = at.walk.offset(s.rows) + at.channel;
      const uint32_t bits = at.walk.bits(s.rows);
#pragma unroll
      for (int i = 0; i < kRows / kLines; ++i) {
        const bool valid = at.left > 0 && (rows[i].mask & bits) == bits;
        ptx::async_copy_16(shared.a[stage] + (line + i * kLines) * kLine + piece,
                           valid ? source + rows[i].offset + offset : s.source, valid);
      }
      const int tap = s.weight_first + at.walk.j[0] * s.weight_step[0] + at.walk.j[1] * s.weight_step[1] +
                      at.walk.j[2] * s.weight_step[2];
#pragma unroll
      for (int i = 0; i < kColumns / kLines; ++i) {
        const bool valid = at.left > 0 && column + i * kLines < s.columns;
        ptx::async_copy_16(
            shared.b[stage] + (line + i * kLines) * kLine + piece,
            valid ? weight + i * kLines * weight_line + int64_t{tap} * s.channels + at.channel : s.weight, valid);
      }
      at.channel += kStep;
      at.settle(s);
    }
    ptx::async_copy_commit();
  };
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) load(step);
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float sum[kOwnRows][kOwnColumns] = {};
  for (int step = 0; step < steps; ++step) {
    ptx::async_copy_wait<kStages - 2>();
    __syncthreads();
    load(step + kStages - 1);
    const float *const a = shared.a[step % kStages] + ty * kOwnRows * kLine, *const b =
                                                                                 shared.b[step % kStages] + tx * kLine;
#pragma unroll
    for (int k = 0; k < kStep; k += 4) {
      float4 right[kOwnColumns];
#pragma unroll
      for (int j = 0; j < kOwnColumns; ++j) right[j] = *reinterpret_cast<const float4*>(b + 16 * j * kLine + k);
#pragma unroll
      for (int i = 0; i < kOwnRows; ++i) {
        const float4 left = *reinterpret_cast<const float4*>(a + i * kLine + k);
#pragma unroll
        for (int j = 0; j < kOwnColumns; ++j)
          sum[i][j] = fmaf(left.w, right[j].w,
                           fmaf(left.z, right[j].z, fmaf(left.y, right[j].y, fmaf(left.x, right[j].x, sum[i][j]))));
      }
    }
  }
  const int m = first_row + ty * kOwnRows, count = s.rows.pixels - m;
  int64_t place[kOwnRows];
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) place[i] = i < count ? result_row(s.rows, m + i) : 0;
#pragma unroll
  for (int j = 0; j < kOwnColumns; ++j) {
    const int own = first_column + tx + 16 * j;
    if (own >= s.columns) continue;
    const int64_t channel = int64_t{group} * s.columns + own;
    if (s.bias) {
      const float bias = s.bias[channel * s.bias_stride];
#pragma unroll
      for (int i = 0; i < kOwnRows; ++i) sum[i][j] += bias;
    }
#pragma unroll
    for (int i = 0; i < kOwnRows; i += 4) {
      float* const to = s.result + channel * s.result_channel;
      if (i + 3 < count && place[i + 1] == place[i] + 1 && place[i + 2] == place[i] + 2 &&
          place[i + 3] == place[i] + 3 &&
          reinterpret_cast<uintptr_t>(to + place[i]) % 16 == 0) {  // pixels of one row of a plane
        *reinterpret_cast<float4*>(to + place[i]) = {sum[i][j], sum[i + 1][j], sum[i + 2][j], sum[i + 3][j]};
        continue;
      }
#pragma unroll
      for (int k = 0; k < 4; ++k)
        if (i + k < count) to[place[i + k]] = sum[i + k][j];
    }
  }
}

}  // namespace

cudaError_t float_conv(const GatherProduct& p, cudaStream_t stream) {
  FloatShape s{};
  if (!make_row_shape(p, s.rows)) return cudaErrorInvalidValue;
  if (s.rows.pixels == 0) return cudaSuccess;
  s.channels = p.channels, s.columns = p.columns;
  s.weight_first = p.weight_first, s.weight_taps = p.weight_taps;
  for (int d = 0; d < 3; ++d) s.weight_step[d] = p.dim[d].weight_step;
  s.source = static_cast<const float*>(p.source), s.weight = static_cast<const float*>(p.weight);
  s.bias = static_cast<const float*>(p.bias), s.bias_stride = p.bias_stride;
  s.result = static_cast<float*>(p.result), s.result_channel = p.result_channel;
  constexpr int kShared = sizeof(FloatShared);
  if (cudaError_t e = cudaFuncSetAttribute(float_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
      e != cudaSuccess)
    return e;
  const dim3 grid((s.rows.pixels + kRows - 1) / kRows, (s.columns + kColumns - 1) / kColumns, p.groups);
  float_kernel<<<grid, kThreads, kShared, stream>>>(s);
  return cudaGetLastError();
}

}  // namespace tenor::conv
