// The implicit GEMM of float32: a GatherProduct as chains of fused multiply-adds, taps outside of channels, both
// ascending. A thread computes 8 (or 4) pixels by 8 channels, a warp four times as many pixels by 64 channels; steps of
// 16 products come by cp.async through three stages, zeros on padding.
#pragma once

#include "src/cuda/ptx/async_copy.cuh"
#include "src/ops/conv/conv_rows.cuh"

namespace tenor::conv {

namespace ptx = tenor::cuda::ptx;

inline constexpr int kFloatStep = 16, kFloatThreads = 128, kFloatStages = 3;
inline constexpr int kFloatLine =
    kFloatStep + 4;                  ///< floats; pieces of eight neighbouring lines lie in different banks
inline constexpr int kFloatOwn = 8;  ///< columns of a thread
inline constexpr int kFloatPieces = kFloatStep / 4;               ///< of a line
inline constexpr int kFloatLines = kFloatThreads / kFloatPieces;  ///< that all threads load at once

/// A block's tile: Own pixels a thread, 4 Own a warp, Wide warps side by side and the others above one another. Whole:
/// the channels are a whole number of steps, so that all threads are at the same tap.
template <int Own, int Wide, bool Whole>
struct FloatTile {
  static constexpr int kOwn = Own, kWide = Wide;
  static constexpr bool kWhole = Whole;
  static constexpr int kRows = 4 / Wide * 4 * Own, kColumns = Wide * 8 * kFloatOwn;
  static constexpr int kBlocks = Own == 8 ? 3 : 5;  ///< a multiprocessor
};

struct FloatShape {
  RowShape rows;
  int channels, columns;  ///< of a group
  int weight_first, weight_step[3], weight_taps;
  const float *source, *weight, *bias;
  float* result;
  int64_t result_channel, bias_stride;
};

template <class Tile>
struct FloatShared {
  float a[kFloatStages][Tile::kRows * kFloatLine + Tile::kRows], b[kFloatStages][Tile::kColumns * kFloatLine];
};

/// Where a row begins; a thread's rows are neighbours by fours, and those of four threads must not meet.
__device__ __forceinline__ int float_row(int row) { return row * kFloatLine + row / 4 * 4; }

/// A thread's place in its warp's four by eight: neighbours by the lowest bit share columns and by the next one rows,
/// by which a load of 16 bytes a thread takes two passes over shared memory and not four.
__device__ __forceinline__ int float_down() { return (threadIdx.x & 1) | (threadIdx.x >> 3 & 2); }
__device__ __forceinline__ int float_across() { return threadIdx.x >> 1 & 7; }
/// A thread's i-th row and j-th column.
template <class Tile>
__device__ __forceinline__ int float_own_row(int i) {
  return threadIdx.x / 32 / Tile::kWide * (4 * Tile::kOwn) + float_down() * 4 + i % 4 + i / 4 * 16;
}
template <class Tile>
__device__ __forceinline__ int float_own_column(int j) {
  return threadIdx.x / 32 % Tile::kWide * 64 + float_across() + 8 * j;
}

/// A thread's part of the loads of a block: of every step one piece of four channels of one tap, for several rows and
/// columns. All that can be is worked out once, or once a tap.
template <class Tile>
struct FloatLoader {
  static constexpr int kRowsOwn = Tile::kRows / kFloatLines, kColumnsOwn = Tile::kColumns / kFloatLines;
  const char* rows[kRowsOwn];  ///< at tap 0
  uint32_t masks[kRowsOwn];
  const char* columns[kColumnsOwn];
  uint32_t columns_inside;
  TapWalk walk;
  int channel, left;       ///< taps, this one included
  int64_t offset, weight;  ///< of the tap and the channel, bytes
  uint32_t bits;
  int a_place, b_place;

  __device__ __forceinline__ explicit FloatLoader(const FloatShape& s) {
    const int piece = threadIdx.x % kFloatPieces * 4, line = threadIdx.x / kFloatPieces;
    a_place = float_row(line) + piece, b_place = line * kFloatLine + piece;
    const float* const source = s.source + int64_t{blockIdx.z} * s.channels + (Tile::kWhole ? piece : 0);
#pragma unroll
    for (int i = 0; i < kRowsOwn; ++i) {
      const SourceRow row = source_row(s.rows, blockIdx.x * Tile::kRows + line + i * kFloatLines);
      rows[i] = reinterpret_cast<const char*>(source + row.offset), masks[i] = row.mask;
    }
    const int64_t weight_line = int64_t{s.channels} * s.weight_taps;
    const int column = blockIdx.y * Tile::kColumns + line;
    columns_inside = 0;
#pragma unroll
    for (int i = 0; i < kColumnsOwn; ++i) {
      const bool inside = column + i * kFloatLines < s.columns;
      columns[i] = reinterpret_cast<const char*>(
          s.weight + (int64_t{blockIdx.z} * s.columns + (inside ? column + i * kFloatLines : 0)) * weight_line +
          (Tile::kWhole ? piece : 0));
      columns_inside |= inside ? 1u << i : 0u;
    }
    channel = Tile::kWhole ? 0 : piece, left = taps_of(s.rows);
    settle(s);
    find(s);
  }
  /// Whether the piece lies on another tap than before.
  __device__ __forceinline__ bool settle(const FloatShape& s) {
    bool moved = false;
    for (; channel >= s.channels && left > 0; channel -= s.channels, --left) walk.next(s.rows), moved = true;
    return moved;
  }
  /// Where the tap is.
  __device__ __forceinline__ void find(const FloatShape& s) {
    offset = 4 * (walk.offset(s.rows) + channel);
    bits = walk.bits(s.rows);
    const int tap =
        s.weight_first + walk.j[0] * s.weight_step[0] + walk.j[1] * s.weight_step[1] + walk.j[2] * s.weight_step[2];
    weight = 4 * (int64_t{tap} * s.channels + channel);
  }
  /// The next step's pieces.
  __device__ __forceinline__ void load(const FloatShape& s, float* a, float* b) {
    const bool some = Tile::kWhole || left > 0;
#pragma unroll
    for (int i = 0; i < kRowsOwn; ++i)
      ptx::async_copy_16(a + a_place + i * float_row(kFloatLines), rows[i] + offset, some && (masks[i] & bits) == bits);
#pragma unroll
    for (int i = 0; i < kColumnsOwn; ++i)
      ptx::async_copy_16(b + b_place + i * kFloatLines * kFloatLine, columns[i] + weight,
                         some && (columns_inside >> i & 1) != 0);
    channel += kFloatStep;
    offset += 4 * kFloatStep;
    weight += 4 * kFloatStep;
    if (channel >= s.channels && settle(s)) find(s);
  }
};

/// A step's products.
template <class Tile>
__device__ __forceinline__ void multiply_floats(float (&sum)[Tile::kOwn][kFloatOwn], const float* a, const float* b) {
  const float* const left = a + float_row(float_own_row<Tile>(0));
  const float* const right = b + float_own_column<Tile>(0) * kFloatLine;
#pragma unroll
  for (int k = 0; k < kFloatStep; k += 4) {
    float y[kFloatOwn][4];
#pragma unroll
    for (int j = 0; j < kFloatOwn; ++j)
      *reinterpret_cast<float4*>(y[j]) = *reinterpret_cast<const float4*>(right + 8 * j * kFloatLine + k);
#pragma unroll
    for (int i = 0; i < Tile::kOwn; ++i) {
      float x[4];
      *reinterpret_cast<float4*>(x) =
          *reinterpret_cast<const float4*>(left + i % 4 * kFloatLine + i / 4 * float_row(16) + k);
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int j = 0; j < kFloatOwn; ++j) sum[i][j] = fmaf(x[e], y[j][e], sum[i][j]);
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

template <class Tile>
__device__ __forceinline__ void store_floats(const FloatShape& s, const float (&sum)[Tile::kOwn][kFloatOwn]) {
#pragma unroll
  for (int four = 0; four < Tile::kOwn; four += 4) {
    const int m = blockIdx.x * Tile::kRows + float_own_row<Tile>(four), count = s.rows.pixels - m;
    int64_t place[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) place[i] = i < count ? result_row(s.rows, m + i) : 0;
#pragma unroll
    for (int j = 0; j < kFloatOwn; ++j) {
      const int own = blockIdx.y * Tile::kColumns + float_own_column<Tile>(j);
      if (own >= s.columns) continue;
      const int64_t channel = int64_t{blockIdx.z} * s.columns + own;
      const float bias = s.bias ? s.bias[channel * s.bias_stride] : 0.f;
      float x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = s.bias ? sum[four + i][j] + bias : sum[four + i][j];
      store_four(s.result + channel * s.result_channel, place, x, count);
    }
  }
}

template <class Tile>
__global__ void __launch_bounds__(kFloatThreads, Tile::kBlocks) float_kernel(const __grid_constant__ FloatShape s) {
  extern __shared__ __align__(16) unsigned char raw[];
  auto& shared = *reinterpret_cast<FloatShared<Tile>*>(raw);
  FloatLoader<Tile> loader(s);
  const int steps = (taps_of(s.rows) * s.channels + kFloatStep - 1) / kFloatStep;
  const auto load = [&](int step) {
    if (step < steps) loader.load(s, shared.a[step % kFloatStages], shared.b[step % kFloatStages]);
    ptx::async_copy_commit();
  };
#pragma unroll
  for (int step = 0; step < kFloatStages - 1; ++step) load(step);
  float sum[Tile::kOwn][kFloatOwn] = {};
  for (int step = 0; step < steps; ++step) {
    ptx::async_copy_wait<kFloatStages - 2>();
    __syncthreads();
    load(step + kFloatStages - 1);
    multiply_floats<Tile>(sum, shared.a[step % kFloatStages], shared.b[step % kFloatStages]);
  }
  store_floats<Tile>(s, sum);
}

}  // namespace tenor::conv
