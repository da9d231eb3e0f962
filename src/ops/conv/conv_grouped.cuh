// Groups of eight channels on both sides, channels last, stride and dilation 1, 16-bit floats: a block brings the
// window of a tile of pixels and 64 channels into shared memory, a warp a group. Eight channels of a pixel are one row
// of an 8 x 8 matrix as ldmatrix reads it, so that two taps make the sixteen products of an mma instruction, whatever
// the taps.
#pragma once

#include "src/cuda/ptx/async_copy.cuh"
#include "src/cuda/ptx/mma.cuh"
#include "src/ops/conv/conv_depthwise.cuh"

namespace tenor::conv {

namespace ptx = tenor::cuda::ptx;

inline constexpr int kGroupChannels = 8, kGroupedWarps = 8, kGroupedThreads = 32 * kGroupedWarps;
inline constexpr int kTilePixels = 256;  ///< of a tile, at most

struct GroupedShape {
  int batch, groups;
  int height, width, out_height, out_width;   ///< of what is read with taps; of what is written, or of grad
  int top, left;                              ///< row r of the source meets rows r + top - i
  int tile_rows, tile_columns, down, across;  ///< tiles of an image
  int64_t source_batch, source_row, source_pixel, other_batch, other_row, other_pixel;
  int64_t weight_group, weight_out, weight_in, weight_row, weight_column;  ///< out: the written channel
  bool from_last;                                                          ///< taps in the weight from the last on
  const void *source, *grad, *weight, *bias;
  void* result;
  int64_t bias_stride;
  float* sums;  ///< weight backward: [blocks, groups, pairs of taps, 16, 8]
  int tiles() const { return batch * down * across; }
};

struct GroupedTile {
  int n, row, column;
};
__device__ __forceinline__ GroupedTile grouped_tile(const GroupedShape& s, int i) {
  return {i / s.across / s.down, i / s.across % s.down * s.tile_rows, i % s.across * s.tile_columns};
}

/// Where piece `group` of line `pixel` lies; the pieces of neighbouring lines lie in different banks.
__device__ __forceinline__ uint32_t piece_at(uint32_t lines, int pixel, int group) {
  return lines + pixel * 128 + ((group ^ (pixel & 7)) << 4);
}

/// Lines of 64 channels of rows x columns pixels from (y, x) on, zeros outside of the image and of the groups.
template <class T>
__device__ __forceinline__ void load_lines(unsigned char* lines, const T* image, int64_t row_stride,
                                           int64_t pixel_stride, int y, int x, int rows, int columns, int height,
                                           int width, int group, int groups) {
  for (int i = threadIdx.x; i < rows * columns * 8; i += kGroupedThreads) {
    const int pixel = i / 8, piece = i % 8, h = y + pixel / columns, w = x + pixel % columns;
    const bool inside = static_cast<unsigned>(h) < static_cast<unsigned>(height) &&
                        static_cast<unsigned>(w) < static_cast<unsigned>(width) && group + piece < groups;
    const T* from = inside ? image + h * row_stride + w * pixel_stride + (group + piece) * kGroupChannels : image;
    ptx::async_copy_16(lines + pixel * 128 + ((piece ^ (pixel & 7)) << 4), from, inside);
  }
}

/// The tap's line counted from a pixel's first, or -1 past the last tap.
template <int kSize>
__device__ __forceinline__ int tap_line(int tap, int columns) {
  return tap < kSize * kSize ? tap / kSize * columns + tap % kSize : -1;
}

/// A lane's part of the weight of its warp's group: of each tap two channels read by one written. Returns whether all
/// of the group's is finite.
template <class T, int kSize>
__device__ __forceinline__ bool load_group_weight(uint32_t (&weight)[(kSize * kSize + 1) / 2][2], const GroupedShape& s,
                                                  int group) {
  const int lane = threadIdx.x % 32, out = lane / 4, in = lane % 4 * 2;
  bool finite = true;
  if (group < s.groups)
#pragma unroll
    for (int tap = 0; tap < kSize * kSize; ++tap) {
      const int at = s.from_last ? kSize * kSize - 1 - tap : tap;
      const uint16_t* w = static_cast<const uint16_t*>(s.weight) + group * s.weight_group + out * s.weight_out +
                          in * s.weight_in + at / kSize * s.weight_row + at % kSize * s.weight_column;
      const uint32_t pair = w[0] | static_cast<uint32_t>(w[s.weight_in]) << 16;
      weight[tap / 2][tap % 2] = pair;
      finite &= is_finite_pair<T>(pair);
    }
  return __all_sync(~0u, finite);
}

/// A warp's results of its group in a tile, which it has stored, where the group's weight is not finite.
template <class T>
__device__ __forceinline__ void mend_group(const ConvProblem& p, const GroupedShape& s, const GroupedTile& tile,
                                           int group) {
  __syncwarp();
  mend_box<T>(p, {tile.n, tile.row, s.tile_rows, tile.column, s.tile_columns, group * kGroupChannels, kGroupChannels},
              threadIdx.x % 32, 32);
}

template <class T, int kSize>
__global__ void __launch_bounds__(kGroupedThreads, 3)
    grouped_image(const __grid_constant__ GroupedShape s, const __grid_constant__ ConvProblem p) {
  constexpr int kPairs = (kSize * kSize + 1) / 2;
  extern __shared__ __align__(128) unsigned char lines[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.y * kGroupedWarps, group = first + warp;
  const auto [n, row, column] = grouped_tile(s, blockIdx.x);
  const int rows = s.tile_rows + kSize - 1, columns = s.tile_columns + kSize - 1, zeros = rows * columns;
  load_lines(lines, static_cast<const T*>(s.source) + n * s.source_batch, s.source_row, s.source_pixel, row - s.top,
             column - s.left, rows, columns, s.height, s.width, first, s.groups);
  if (threadIdx.x < 8) *reinterpret_cast<uint4*>(lines + zeros * 128 + threadIdx.x * 16) = {0, 0, 0, 0};
  const int in = lane % 4 * 2;
  uint32_t weight[kPairs][2] = {};
  const bool finite = load_group_weight<T, kSize>(weight, s, group);
  ptx::async_copy_commit();
  ptx::async_copy_wait<0>();
  __syncthreads();
  if (group >= s.groups) return;
  float bias[2] = {0, 0};
  if (s.bias)
#pragma unroll
    for (int i = 0; i < 2; ++i)
      bias[i] = cuda::widen(static_cast<const T*>(s.bias)[(group * kGroupChannels + in + i) * s.bias_stride]);
  const uint32_t base = ptx::shared_address(lines);
  const int pixels = s.tile_rows * s.tile_columns;
  T* const result = static_cast<T*>(s.result) + n * s.other_batch + group * kGroupChannels + in;
  for (int m = 0; m < pixels; m += 16) {
    const int own = min(m + lane / 8 % 2 * 8 + lane % 8, pixels - 1);
    const int line = own / s.tile_columns * columns + own % s.tile_columns;
    float d[4] = {0, 0, 0, 0};
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      const int low = tap_line<kSize>(2 * pair, columns), high = tap_line<kSize>(2 * pair + 1, columns);
      const int tap = lane < 16 ? low : high;
      uint32_t a[4];
      ptx::ldmatrix_x4(a, piece_at(base, tap < 0 ? zeros : line + tap, warp));
      ptx::mma_m16n8k16<T>(d, a[0], a[1], a[2], a[3], weight[pair][0], weight[pair][1]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int pixel = m + half * 8 + lane / 4, h = row + pixel / s.tile_columns, w = column + pixel % s.tile_columns;
      if (pixel >= pixels || h >= s.out_height || w >= s.out_width) continue;
      const float pairs[2] = {d[2 * half] + bias[0], d[2 * half + 1] + bias[1]};
      cuda::store_pack(result + h * s.other_row + w * s.other_pixel, cuda::convert_pack<T>(pairs));
    }
  }
  if (!finite) mend_group<T>(p, s, {n, row, column}, group);
}

/// A warp's sums of its group to the workspace.
template <int kPairs>
__device__ __forceinline__ void store_group_sums(const float (&d)[kPairs][4], const GroupedShape& s, int group) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int pair = 0; pair < kPairs; ++pair)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float* to = s.sums + (((int64_t{blockIdx.x} * s.groups + group) * kPairs + pair) * 16 + half * 8 + lane / 4) * 8;
      *reinterpret_cast<float2*>(to + lane % 4 * 2) = {d[pair][2 * half], d[pair][2 * half + 1]};
    }
}

/// A block's tiles in ascending order, in the accumulators of its warps' groups.
template <class T, int kSize>
__global__ void __launch_bounds__(kGroupedThreads) grouped_weight(const __grid_constant__ GroupedShape s, int tiles) {
  constexpr int kPairs = (kSize * kSize + 1) / 2;
  extern __shared__ __align__(128) unsigned char lines[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.y * kGroupedWarps, group = first + warp;
  const int rows = s.tile_rows + kSize - 1, columns = s.tile_columns + kSize - 1, pixels = s.tile_rows * s.tile_columns;
  const int grads = rows * columns, zeros = grads + pixels;  // lines of the source, of grad, one of zeros
  if (threadIdx.x < 8) *reinterpret_cast<uint4*>(lines + zeros * 128 + threadIdx.x * 16) = {0, 0, 0, 0};
  const uint32_t base = ptx::shared_address(lines);
  float d[kPairs][4] = {};
  for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
    const auto [n, row, column] = grouped_tile(s, i);
    __syncthreads();
    load_lines(lines, static_cast<const T*>(s.source) + n * s.source_batch, s.source_row, s.source_pixel, row - s.top,
               column - s.left, rows, columns, s.height, s.width, first, s.groups);
    // Its pieces change places by their own line's number, which begins anew.
    load_lines(lines + grads * 128, static_cast<const T*>(s.grad) + n * s.other_batch, s.other_row, s.other_pixel, row,
               column, s.tile_rows, s.tile_columns, s.out_height, s.out_width, first, s.groups);
    ptx::async_copy_commit();
    ptx::async_copy_wait<0>();
    __syncthreads();
    for (int m = 0; m < pixels; m += 16) {
      // Matrices: the source's pixels 0 to 7 at the first and second tap, then pixels 8 to 15; grad's both halves.
      const int own = m + lane / 16 * 8 + lane % 8, of_grad = m + lane / 8 % 2 * 8 + lane % 8;
      const int line = own / s.tile_columns * columns + own % s.tile_columns;
      uint32_t b[4];
      ptx::ldmatrix_x4_transposed(
          b, of_grad < pixels ? piece_at(base + grads * 128, of_grad, warp) : piece_at(base, zeros, warp));
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        const int low = tap_line<kSize>(2 * pair, columns), high = tap_line<kSize>(2 * pair + 1, columns);
        const int tap = lane / 8 % 2 == 0 ? low : high;
        uint32_t a[4];
        ptx::ldmatrix_x4_transposed(a, piece_at(base, tap < 0 || own >= pixels ? zeros : line + tap, warp));
        ptx::mma_m16n8k16<T>(d[pair], a[0], a[1], a[2], a[3], b[0], b[1]);
      }
    }
  }
  if (group < s.groups) store_group_sums<kPairs>(d, s, group);
}

}  // namespace tenor::conv
