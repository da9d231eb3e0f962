// The data gradient of a stem, a convolution of stride 2 whose image has at most four channels (Hopper, 16-bit floats,
// channels last). Inputs (2u + a, 2v + b) read the gradient at (u + y, v + x), y and x counted from a lowest offset on:
// one window for the four residues (a, b), whose channels are side by side the columns of one product. A block brings
// the window of a tile of (u, v) by TMA and multiplies it as it lies, a warp 32 of its pixels.
//
// Columns whose residue does not meet an offset would add products with zero, and a gradient that is not a number would
// reach inputs beside its window: offsets at the window's left and right end, which one of b = 0, 1 meets, have
// accumulators of their own, of which only the columns that meet them are read.
#pragma once

#include "src/cuda/convert.cuh"
#include "src/cuda/ptx/async_copy.cuh"
#include "src/cuda/ptx/mbarrier.cuh"
#include "src/cuda/ptx/mma.cuh"
#include "src/cuda/ptx/tma.cuh"
#include "src/ops/conv/conv_mend.cuh"
#include "src/ops/conv/conv_stem.h"

namespace tenor::conv {

namespace ptx = tenor::cuda::ptx;

inline constexpr int kStemWarps = 8, kStemThreads = 32 * kStemWarps, kStemStages = 2;
inline constexpr int kStemTiles = 2, kStemPixels = kStemWarps * 16 * kStemTiles;  ///< of a block's tile, at most
inline constexpr int kStemChannels = 64;                                          ///< of the gradient, at a time

struct StemDataShape {
  StemDim row, column;
  int channels, grad_channels, chunks;        ///< chunks of 64 of the gradient's channels
  int height, width;                          ///< of the image
  int tile_rows, tile_columns, down, across;  ///< tiles of (u, v)
  int tiles;                                  ///< of all images
  int64_t weight_out, weight_in, weight_row, weight_column;
  int64_t image_batch, image_row, image_pixel, image_channel;
  bool pairs;  ///< a pixel's channels follow the one's before, and lines start at multiples of two elements
  const void *weight, *bias;
  int64_t bias_stride;
  void* image;
  __host__ __device__ int lines() const { return (tile_rows + row.offsets - 1) * (tile_columns + column.offsets - 1); }
  __host__ __device__ int stage_bytes() const { return (lines() * 128 + 1023) / 1024 * 1024; }
  /// Of the weight as the tensor cores take it: 4 steps of 16 channels for each chunk, offset and a.
  __host__ __device__ int weight_pieces() const { return chunks * row.offsets * column.offsets * 2 * 4; }
  size_t shared_bytes() const { return size_t{kStemStages} * stage_bytes() + size_t{256} * weight_pieces() + 64; }
};

/// Piece [chunk, y, x, a, step]: of 16 channels of the gradient by 8 columns, b * channels + c, what a lane holds.
/// Returns whether what this thread brought is finite.
template <class T>
__device__ __forceinline__ bool arrange_stem_weight(uint2* to, const StemDataShape& s) {
  const uint16_t* const weight = static_cast<const uint16_t*>(s.weight);
  bool finite = true;
  for (int i = threadIdx.x; i < s.weight_pieces() * 32; i += kStemThreads) {
    const int lane = i % 32, step = i / 32 % 4, a = i / 128 % 2, at = i / 256;
    const int x = at % s.column.offsets, y = at / s.column.offsets % s.row.offsets,
              chunk = at / s.column.offsets / s.row.offsets;
    const int column = lane / 4, b = column / s.channels, c = column - b * s.channels;
    const int first = chunk * kStemChannels + step * 16 + lane % 4 * 2;
    uint32_t two[2] = {0, 0};
    if (b < 2 && s.row.meets(a, y) && s.column.meets(b, x)) {
      const int64_t tap = c * s.weight_in + s.row.tap(a, y) * s.weight_row + s.column.tap(b, x) * s.weight_column;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int out = first + k / 2 * 8 + k % 2;
        if (out < s.grad_channels)
          two[k / 2] |= static_cast<uint32_t>(weight[out * s.weight_out + tap]) << 16 * (k % 2);
      }
    }
    to[i] = {two[0], two[1]};
    finite &= is_finite_pair<T>(two[0]) && is_finite_pair<T>(two[1]);
  }
  return finite;
}

/// The kinds of a column offset: both residues meet it, or one.
enum StemKind { kStemBoth, kStemLeft, kStemRight, kStemKinds };

struct StemSums {
  float d[2][kStemKinds][kStemTiles][4];  ///< [a, kind, 16 pixels]
};

/// Adds the products of one offset: `line` says where each tile's pixels lie.
template <class T, int kKind>
__device__ __forceinline__ void add_stem_offset(StemSums& sums, const uint32_t (&line)[kStemTiles], uint32_t base,
                                                int delta, const uint2* weight, bool first, bool second) {
  const int lane = threadIdx.x % 32;
  uint32_t address[kStemTiles];
#pragma unroll
  for (int m = 0; m < kStemTiles; ++m) {
    const uint32_t at = line[m] + delta;
    address[m] = base + at * 128 + ((lane / 16 ^ (at & 7)) << 4);
  }
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    uint32_t x[kStemTiles][4];
#pragma unroll
    for (int m = 0; m < kStemTiles; ++m) ptx::ldmatrix_x4(x[m], address[m] ^ step << 5);
#pragma unroll
    for (int a = 0; a < 2; ++a) {
      if (!(a == 0 ? first : second)) continue;
      const uint2 w = weight[(a * 4 + step) * 32 + lane];
#pragma unroll
      for (int m = 0; m < kStemTiles; ++m)
        ptx::mma_m16n8k16<T>(sums.d[a][kKind][m], x[m][0], x[m][1], x[m][2], x[m][3], w.x, w.y);
    }
  }
}

/// All offsets of one chunk of channels.
template <class T>
__device__ __forceinline__ void add_stem_window(StemSums& sums, const StemDataShape& s,
                                                const uint32_t (&line)[kStemTiles], uint32_t base,
                                                const uint2* weight) {
  const int columns = s.tile_columns + s.column.offsets - 1, last = s.column.offsets - 1;
  const bool left = !s.column.meets(1, 0), right = !s.column.meets(0, last);
  for (int y = 0; y < s.row.offsets; ++y) {
    const bool first = s.row.meets(0, y), second = s.row.meets(1, y);
    const uint2* const own = weight + y * s.column.offsets * 256;
    if (left) add_stem_offset<T, kStemLeft>(sums, line, base, y * columns, own, first, second);
    for (int x = left; x <= last - right; ++x)
      add_stem_offset<T, kStemBoth>(sums, line, base, y * columns + x, own + x * 256, first, second);
    if (right) add_stem_offset<T, kStemRight>(sums, line, base, y * columns + last, own + last * 256, first, second);
  }
}

struct StemTile {
  int n, u, v;
};
__device__ __forceinline__ StemTile stem_tile(const StemDataShape& s, int i) {
  return {i / s.across / s.down, i / s.across % s.down * s.tile_rows, i % s.across * s.tile_columns};
}

/// Rounds and stores a warp's pixels.
template <class T>
__device__ __forceinline__ void store_stem(const StemSums& sums, const StemDataShape& s, const StemTile& tile,
                                           int first) {
  const int lane = threadIdx.x % 32, column = lane % 4 * 2;
  if (column >= 2 * s.channels) return;
  float bias[2] = {0, 0};
  bool odd[2];  // which of the residues b each column is
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    odd[i] = column + i >= s.channels;
    if (s.bias && column + i < 2 * s.channels)
      bias[i] = cuda::widen(static_cast<const T*>(s.bias)[(column + i) % s.channels * s.bias_stride]);
  }
#pragma unroll
  for (int m = 0; m < kStemTiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int pixel = first + m * 16 + half * 8 + lane / 4, u = pixel / s.tile_columns,
                v = tile.v + pixel - u * s.tile_columns;
      if (u >= s.tile_rows) continue;
#pragma unroll
      for (int a = 0; a < 2; ++a) {
        const int h = 2 * (tile.u + u) + a;
        if (h >= s.height) continue;
        T* const row = static_cast<T*>(s.image) + tile.n * s.image_batch + h * s.image_row;
        float whole[2];
        bool inside[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int at = 2 * half + i;
          const float alone = odd[i] ? sums.d[a][kStemRight][m][at] : sums.d[a][kStemLeft][m][at];
          whole[i] = sums.d[a][kStemBoth][m][at] + alone + bias[i];
          inside[i] = column + i < 2 * s.channels && 2 * v + odd[i] < s.width;
        }
        if (s.pairs && inside[1]) {
          cuda::store_pack(row + int64_t{2 * v} * s.channels + column, cuda::convert_pack<T>(whole));
          continue;
        }
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (inside[i])
            row[(2 * v + odd[i]) * s.image_pixel + (column + i - (odd[i] ? s.channels : 0)) * s.image_channel] =
                cuda::convert<T>(whole[i]);
      }
    }
}

/// A block's tiles, one chunk of one tile a stage.
template <class T>
__global__ void __launch_bounds__(kStemThreads)
    stem_data(const __grid_constant__ CUtensorMap grad, const __grid_constant__ StemDataShape s,
              const __grid_constant__ ConvProblem p) {
  if constexpr (!ptx::kHasClusters) return;  // without TMA it is never launched
  extern __shared__ __align__(1024) unsigned char raw[];
  uint2* const weight = reinterpret_cast<uint2*>(raw + kStemStages * s.stage_bytes());
  uint64_t* const full = reinterpret_cast<uint64_t*>(weight + s.weight_pieces() * 32);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = warp * 16 * kStemTiles;
  const int columns = s.tile_columns + s.column.offsets - 1;
  const auto load = [&](int i) {
    const int at = blockIdx.x + i / s.chunks * gridDim.x, stage = i % kStemStages;
    if (threadIdx.x != 0 || at >= s.tiles) return;
    const StemTile tile = stem_tile(s, at);
    ptx::mbarrier_arrive_expect(&full[stage], s.lines() * 128);
    ptx::tma_load_4d(raw + stage * s.stage_bytes(), &grad, i % s.chunks * kStemChannels, tile.v + s.column.lowest,
                     tile.u + s.row.lowest, tile.n, &full[stage]);
  };
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStemStages; ++stage) ptx::mbarrier_init(&full[stage], 1);
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  for (int i = 0; i < kStemStages; ++i) load(i);
  const bool finite = __syncthreads_and(arrange_stem_weight<T>(weight, s));
  uint32_t line[kStemTiles];
#pragma unroll
  for (int m = 0; m < kStemTiles; ++m) {
    const int own = min(first + m * 16 + lane % 16, s.tile_rows * s.tile_columns - 1);
    line[m] = own / s.tile_columns * columns + own % s.tile_columns;
  }
  for (int i = 0, at = blockIdx.x; at < s.tiles; at += gridDim.x) {
    StemSums sums = {};
    for (int chunk = 0; chunk < s.chunks; ++chunk, ++i) {
      const int stage = i % kStemStages;
      ptx::mbarrier_wait(&full[stage], i / kStemStages & 1);
      add_stem_window<T>(sums, s, line, ptx::shared_address(raw + stage * s.stage_bytes()),
                         weight + chunk * s.row.offsets * s.column.offsets * 256);
      __syncthreads();
      load(i + kStemStages);
    }
    store_stem<T>(sums, s, stem_tile(s, at), first);
  }
  if (finite) return;
  __syncthreads();
  for (int at = blockIdx.x; at < s.tiles; at += gridDim.x) {
    const StemTile tile = stem_tile(s, at);
    mend_box<T>(p, {tile.n, 2 * tile.u, 2 * s.tile_rows, 2 * tile.v, 2 * s.tile_columns, 0, s.channels}, threadIdx.x,
                kStemThreads);
  }
}

}  // namespace tenor::conv
