// The forward direction of a stem, a convolution of stride 2 whose image has at most four channels (Hopper, 16-bit
// floats, results channels last). The image lies in shared memory as conv_stem_lines.cuh says: a row of taps is two
// steps of sixteen products, two lines each, whose addresses are those of neighbouring pixels. A warp has 32 channels
// of 64, whose weight stays in registers, and every second 32 pixels of a tile.
//
// The window's last column may be a tap that the weight does not have, and counts as zero: what is not finite in the
// image or the weight makes results NaN that do not read it, which are summed again (conv_mend.cuh).
#pragma once

#include "src/cuda/ptx/async_copy.cuh"
#include "src/cuda/ptx/mma.cuh"
#include "src/ops/conv/conv_mend.cuh"
#include "src/ops/conv/conv_stem_lines.cuh"

namespace tenor::conv {

namespace ptx = tenor::cuda::ptx;

inline constexpr int kStemSlice = 64, kStemOwn = 32;                 ///< channels of a block, and of a warp
inline constexpr int kStemForwardWarps = 4, kStemForwardBlocks = 2;  ///< of a block; of a multiprocessor
inline constexpr int kStemForwardThreads = 32 * kStemForwardWarps;
inline constexpr int kStemForwardRows = 4, kStemForwardColumns = 128;  ///< of a tile, at most

struct StemForwardShape {
  StemImage image;
  int kernel_height, kernel_width, top;
  int lowest, first_column;  ///< the line that output 0 meets first, and the tap, or -1, of its first column
  int out_channels, out_height, out_width;
  int tile_rows, tile_columns, down, across, tiles;  ///< columns a multiple of 16
  int64_t weight_out, weight_in, weight_row, weight_column;
  int64_t result_batch, result_row, result_pixel, bias_stride;
  const void *weight, *bias;
  void* result;
  __host__ __device__ int row_lines() const { return tile_columns + kStemLines; }
  __host__ __device__ int image_rows() const { return 2 * (tile_rows - 1) + kernel_height; }
  size_t shared_bytes() const { return size_t{16} * row_lines() * image_rows(); }
};

/// The weight's part of a warp as mma takes it: [rows of taps, steps, 8 channels of each thread's]. Thread lane % 4 has
/// the results of channels lane % 4 * 8 and on, which are columns lane % 4 * 2 and the next of four products.
struct StemWeight {
  uint32_t at[kStemKernel][kStemLines / 2][kStemOwn / 8][2];
};

/// Returns whether what this thread brought is finite. `first`: the warp's channel.
template <class T>
__device__ __forceinline__ bool load_stem_weight(StemWeight& to, const StemForwardShape& s, int first) {
  const int lane = threadIdx.x % 32, column = lane / 4;
  const uint16_t* const weight = static_cast<const uint16_t*>(s.weight);
  bool finite = true;
#pragma unroll
  for (int y = 0; y < kStemKernel; ++y)
#pragma unroll
    for (int step = 0; step < kStemLines / 2; ++step)
#pragma unroll
      for (int n = 0; n < kStemOwn / 8; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int place = lane % 4 * 2, tap = s.first_column + 2 * (2 * step + half) + place / 4, c = place % 4;
          const int out = first + column / 2 * 8 + n * 2 + column % 2;
          uint32_t pair = 0;
          if (y < s.kernel_height && tap >= 0 && tap < s.kernel_width && out < s.out_channels) {
            const uint16_t* const w = weight + out * s.weight_out + y * s.weight_row + tap * s.weight_column;
            if (c < s.image.channels) pair = w[c * s.weight_in];
            if (c + 1 < s.image.channels) pair |= static_cast<uint32_t>(w[(c + 1) * s.weight_in]) << 16;
          }
          to.at[y][step][n][half] = pair;
          finite &= is_finite_pair<T>(pair);
        }
  return finite;
}

struct StemForwardTile {
  int n, row, column;
};
__device__ __forceinline__ StemForwardTile stem_forward_tile(const StemForwardShape& s, int i) {
  return {i / s.across / s.down, i / s.across % s.down * s.tile_rows, i % s.across * s.tile_columns};
}

/// Brings the tile's lines; returns whether this thread's are finite.
template <class T, bool kTriples>
__device__ __forceinline__ bool load_stem_lines(uint4* lines, const StemForwardShape& s, const StemForwardTile& tile) {
  const int count = s.row_lines(), all = count * s.image_rows();
  bool finite = true;
#pragma unroll 4
  for (int i = threadIdx.x; i < all; i += kStemForwardThreads) {
    const int row = i / count, line = i - row * count;
    const uint4 x =
        stem_line_of<kTriples>(s.image, tile.n, 2 * tile.row - s.top + row, 2 * (tile.column + s.lowest + line));
    finite &= is_finite_pair<T>(x.x) && is_finite_pair<T>(x.y) && is_finite_pair<T>(x.z) && is_finite_pair<T>(x.w);
    lines[i] = x;
  }
  return finite;
}

/// Rounds and stores 16 pixels of the tile, which lie in one row.
template <class T>
__device__ __forceinline__ void store_stem_pixels(const float (&sum)[kStemOwn / 8][4], const float (&bias)[8],
                                                  const StemForwardShape& s, const StemForwardTile& tile, int row,
                                                  int column, int channel) {
  const int h = tile.row + row;
  if (h >= s.out_height || channel >= s.out_channels) return;
  T* const result = static_cast<T*>(s.result) + tile.n * s.result_batch + h * s.result_row + channel;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int w = tile.column + column + half * 8 + static_cast<int>(threadIdx.x) % 32 / 4;
    if (w >= s.out_width) continue;
    float own[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) own[i] = sum[i / 2][2 * half + i % 2] + bias[i];
    cuda::store_pack(result + w * s.result_pixel, cuda::convert_pack<T>(own));
  }
}

template <class T>
__global__ void __launch_bounds__(kStemForwardThreads, kStemForwardBlocks)
    stem_forward(const __grid_constant__ StemForwardShape s, const __grid_constant__ ConvProblem p) {
  extern __shared__ __align__(128) uint4 lines[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int first = blockIdx.y * kStemSlice + warp % 2 * kStemOwn, channel = first + lane % 4 * 8;
  StemWeight weight;
  const bool finite_weight = load_stem_weight<T>(weight, s, first);
  float bias[8] = {};
  if (s.bias && channel < s.out_channels)
#pragma unroll
    for (int i = 0; i < 8; ++i) bias[i] = cuda::widen(static_cast<const T*>(s.bias)[(channel + i) * s.bias_stride]);
  const uint32_t own = ptx::shared_address(lines) + (lane % 16 + lane / 16) * 16;
  const int across = s.tile_columns / 16, count = across * s.tile_rows;
  for (int at = blockIdx.x; at < s.tiles; at += gridDim.x) {
    const StemForwardTile tile = stem_forward_tile(s, at);
    __syncthreads();  // all have read the tile before
    const bool finite_lines =
        s.image.triples ? load_stem_lines<T, true>(lines, s, tile) : load_stem_lines<T, false>(lines, s, tile);
    const bool finite = __syncthreads_and(finite_lines && finite_weight);
    for (int i = warp / 2 * 2; i < count; i += kStemForwardWarps) {  // two times 16 pixels; the last may come twice
      int row[2], column[2];
      uint32_t from[2];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const int pixels = min(i + m, count - 1);
        row[m] = pixels / across, column[m] = (pixels - row[m] * across) * 16;
        from[m] = own + (2 * row[m] * s.row_lines() + column[m]) * 16;
      }
      float sum[2][kStemOwn / 8][4] = {};
#pragma unroll
      for (int y = 0; y < kStemKernel; ++y) {
        if (y >= s.kernel_height) break;
#pragma unroll
        for (int step = 0; step < kStemLines / 2; ++step) {
          uint32_t x[2][4];
#pragma unroll
          for (int m = 0; m < 2; ++m) ptx::ldmatrix_x4(x[m], from[m] + (y * s.row_lines() + 2 * step) * 16);
#pragma unroll
          for (int m = 0; m < 2; ++m)
#pragma unroll
            for (int n = 0; n < kStemOwn / 8; ++n)
              ptx::mma_m16n8k16<T>(sum[m][n], x[m][0], x[m][1], x[m][2], x[m][3], weight.at[y][step][n][0],
                                   weight.at[y][step][n][1]);
        }
      }
#pragma unroll
      for (int m = 0; m < 2; ++m)
        if (i + m < count) store_stem_pixels<T>(sum[m], bias, s, tile, row[m], column[m], channel);
    }
    if (finite) continue;
    __syncthreads();
    mend_box<T>(p,
                {tile.n, tile.row, s.tile_rows, tile.column, s.tile_columns, static_cast<int>(blockIdx.y) * kStemSlice,
                 kStemSlice},
                threadIdx.x, kStemForwardThreads, true);
  }
}

}  // namespace tenor::conv
