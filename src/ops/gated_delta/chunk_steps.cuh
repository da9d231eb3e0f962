// A warp's columns over the steps of a chunk, in registers: as accumulators, as left factors, and without what is no
// number.
#pragma once

#include "src/ops/gated_delta/chunk_tiles.cuh"

namespace tenor::delta {

/// Tiles of 8 steps, transposed: of lane 4g + t, [n][0..1] is column g, steps 8n + 2t and 8n + 2t + 1, [n][2..3] column
/// g + 8.

using Steps = float[kChunk / 8][4];
/// The same rounded, as left factors: sixteen steps each.
using StepFactor = uint32_t[kChunk / 16][4];

__device__ __forceinline__ void round_steps(const Steps& x, StepFactor& to) {
#pragma unroll
  for (int k = 0; k < kChunk / 16; ++k) {
    to[k][0] = pack_bf16(x[2 * k][0], x[2 * k][1]), to[k][1] = pack_bf16(x[2 * k][2], x[2 * k][3]);
    to[k][2] = pack_bf16(x[2 * k + 1][0], x[2 * k + 1][1]), to[k][3] = pack_bf16(x[2 * k + 1][2], x[2 * k + 1][3]);
  }
}

/// What rounding left of x, rounded.
__device__ __forceinline__ void round_rest(const Steps& x, const StepFactor& rounded, StepFactor& to) {
#pragma unroll
  for (int k = 0; k < kChunk / 16; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* from = &x[2 * k + i / 2][i % 2 * 2];
      to[k][i] = pack_bf16(from[0] - __uint_as_float(rounded[k][i] << 16),
                           from[1] - __uint_as_float(rounded[k][i] & 0xffff0000u));
    }
}

/// x * weights, rounded.
__device__ __forceinline__ void round_weighed_steps(const Steps& x, const float* weights, StepFactor& to) {
#pragma unroll
  for (int n = 0; n < kChunk / 8; ++n) {
    const float2 w = *reinterpret_cast<const float2*>(weights + 8 * n + threadIdx.x % 4 * 2);
    to[n / 2][n % 2 * 2] = pack_bf16(x[n][0] * w.x, x[n][1] * w.y);
    to[n / 2][n % 2 * 2 + 1] = pack_bf16(x[n][2] * w.x, x[n][3] * w.y);
  }
}

/// x[:, i] *= weights[i].
__device__ __forceinline__ void weigh_steps(Steps& x, const float* weights) {
#pragma unroll
  for (int n = 0; n < kChunk / 8; ++n) {
    const float2 w = *reinterpret_cast<const float2*>(weights + 8 * n + threadIdx.x % 4 * 2);
    x[n][0] *= w.x, x[n][1] *= w.y, x[n][2] *= w.x, x[n][3] *= w.y;
  }
}

/// The first step of a column of R that is no number, kChunk where all are.
__device__ __forceinline__ int first_bad_step(const StepFactor& x, int half) {
  const auto is_bad = [](uint32_t bits) { return (bits & 0x7f80u) == 0x7f80u; };
  int first = kChunk;
#pragma unroll
  for (int at = kChunk / 8 - 1; at >= 0; --at) {
    const uint32_t two = x[at / 2][at % 2 * 2 + half];
    const int step = 8 * at + threadIdx.x % 4 * 2;
    first = is_bad(two) ? step : is_bad(two >> 16) ? step + 1 : first;
  }
#pragma unroll
  for (int mask = 1; mask < 4; mask *= 2) first = min(first, __shfl_xor_sync(~0u, first, mask));
  return first;
}
__device__ __forceinline__ void clear_steps(StepFactor& x, int half, int first) {
#pragma unroll
  for (int at = 0; at < kChunk / 8; ++at) {
    const int step = 8 * at + threadIdx.x % 4 * 2;
    x[at / 2][at % 2 * 2 + half] &= (step < first ? 0xffffu : 0u) | (step + 1 < first ? 0xffff0000u : 0u);
  }
}

/// to += x * m^T for block n of a lower triangle's rows, as wgmma adds it up.
__device__ __forceinline__ void multiply_rows(float (&to)[2][4], const StepFactor& x, uint32_t m, int n) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < kChunk / 16; ++k) {
    if (k > n) continue;
    uint32_t b[4];
    ptx::ldmatrix_x4(b, m + tile_offset(16 * n + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
    ptx::mma_m16n8k16<BFloat16>(to[0], x[k][0], x[k][1], x[k][2], x[k][3], b[0], b[1]);
    ptx::mma_m16n8k16<BFloat16>(to[1], x[k][0], x[k][1], x[k][2], x[k][3], b[2], b[3]);
  }
}

/// What a step that is no number must not do: reach the steps before it, whose weights for it are zeros. From the first
/// one on a column is NaN: first_bad says where, and error becomes that of the steps before.
__device__ __forceinline__ void mend(Steps& error, StepFactor& rest, StepFactor& fine, const unsigned char* solve,
                                     int (&first_bad)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    first_bad[half] = first_bad_step(rest, half);
    clear_steps(rest, half, first_bad[half]), clear_steps(fine, half, first_bad[half]);
  }
#pragma unroll
  for (int n = 0; n < kChunk / 16; ++n) {
    float block[2][4] = {};
    multiply_rows(block, fine, ptx::shared_address(solve), n);
    multiply_rows(block, rest, ptx::shared_address(solve), n);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int step = 16 * n + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
      error[2 * n + i / 4][i % 4] = step < first_bad[i % 4 / 2] ? block[i / 4][i % 4] : 0.0f;
    }
  }
}

/// NaN in the columns' elements from `first` on, of tiles of eight.
template <int kTiles>
__device__ __forceinline__ void poison(float (&x)[kTiles][4], const int (&first)[2]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int c = 0; c < 4; ++c)
      if (8 * n + threadIdx.x % 4 * 2 + c % 2 >= first[c / 2]) x[n][c] = NAN;
}

}  // namespace tenor::delta
