// Groups of eight channels as conv_grouped.cuh multiplies them, on devices with TMA: the windows of a tile of pixels
// and 64 channels come by it, the next one while a block multiplies, and no thread computes where a line lies.
#pragma once

#include "src/cuda/ptx/mbarrier.cuh"
#include "src/cuda/ptx/tma.cuh"
#include "src/ops/conv/conv_grouped.cuh"

namespace tenor::conv {

inline constexpr int kWindowStages = 2, kWindowPixels = 128;  ///< of a tile, at most

/// What a stage of shared memory holds: whole blocks of eight lines, as their swizzle asks.
struct WindowLayout {
  int lines;  ///< of the source
  int grads;  ///< of grad, or 0
  __host__ __device__ int first_grad() const { return (lines + 7) / 8 * 8; }
  __host__ __device__ int stage_lines() const { return first_grad() + (grads + 7) / 8 * 8; }
  __host__ __device__ int zeros() const { return kWindowStages * stage_lines(); }  ///< a line of them
  size_t shared_bytes() const { return size_t{128} * (zeros() + 1) + 64; }
};
__host__ __device__ inline WindowLayout window_layout(const GroupedShape& s, int size, bool grads) {
  return {(s.tile_rows + size - 1) * (s.tile_columns + size - 1), grads ? s.tile_rows * s.tile_columns : 0};
}

/// Walks a tile's pixels in steps: where one lies in the tile, and its line in the window.
struct PixelWalk {
  int pixel, row, column;
  __device__ __forceinline__ PixelWalk(int first, int columns)
      : pixel(first), row(first / columns), column(first - row * columns) {}
  __device__ __forceinline__ void advance(int columns) {
    pixel += 16, column += 16;
    while (column >= columns) column -= columns, ++row;
  }
};

/// The lines of a pair's taps, counted from a pixel's first, for the matrices that a lane's address is of; the last
/// pair has one tap only.
template <int kSize>
struct TapLines {
  int at[(kSize * kSize + 1) / 2];
  bool last;  ///< whether this lane's tap of the last pair is none
  __device__ __forceinline__ TapLines(bool second, int columns) : last(second) {
#pragma unroll
    for (int pair = 0; pair < (kSize * kSize + 1) / 2; ++pair) {
      const int low = 2 * pair, high = min(2 * pair + 1, kSize * kSize - 1);
      at[pair] = second ? high / kSize * columns + high % kSize : low / kSize * columns + low % kSize;
    }
  }
};

/// The block's ring of windows.
struct Windows {
  unsigned char* raw;
  uint64_t* full;
  WindowLayout layout;

  __device__ __forceinline__ Windows(unsigned char* memory, const WindowLayout& l)
      : raw(memory), full(reinterpret_cast<uint64_t*>(memory + size_t{128} * (l.zeros() + 1))), layout(l) {
    if (threadIdx.x < 8) *reinterpret_cast<uint4*>(raw + l.zeros() * 128 + threadIdx.x * 16) = {0, 0, 0, 0};
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < kWindowStages; ++stage) ptx::mbarrier_init(&full[stage], 1);
      ptx::mbarrier_init_fence();
    }
    __syncthreads();
  }
  /// Starts the loads of this block's i-th tile, by one thread.
  __device__ __forceinline__ void load(int i, int tiles, const GroupedShape& s, const CUtensorMap& source,
                                       const CUtensorMap* grad) const {
    const int at = blockIdx.x + i * gridDim.x, stage = i % kWindowStages, channel = blockIdx.y * 64;
    if (threadIdx.x != 0 || at >= tiles) return;
    const auto [n, row, column] = grouped_tile(s, at);
    unsigned char* const to = raw + stage * layout.stage_lines() * 128;
    ptx::mbarrier_arrive_expect(&full[stage], (layout.lines + layout.grads) * 128);
    ptx::tma_load_4d(to, &source, channel, column - s.left, row - s.top, n, &full[stage]);
    if (grad) ptx::tma_load_4d(to + layout.first_grad() * 128, grad, channel, column, row, n, &full[stage]);
  }
  __device__ __forceinline__ uint32_t wait(int i) const {
    const int stage = i % kWindowStages;
    ptx::mbarrier_wait(&full[stage], i / kWindowStages & 1);
    return ptx::shared_address(raw + stage * layout.stage_lines() * 128);
  }
  __device__ __forceinline__ uint32_t zeros() const { return ptx::shared_address(raw + layout.zeros() * 128); }
};

template <class T, int kSize>
__global__ void __launch_bounds__(kGroupedThreads, 3)
    window_image(const __grid_constant__ CUtensorMap source, const __grid_constant__ GroupedShape s, int tiles,
                 const __grid_constant__ ConvProblem p) {
  constexpr int kPairs = (kSize * kSize + 1) / 2;
  if constexpr (!ptx::kHasClusters) return;  // without TMA it is never launched
  extern __shared__ __align__(1024) unsigned char raw[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = blockIdx.y * kGroupedWarps + warp;
  const int columns = s.tile_columns + kSize - 1, pixels = s.tile_rows * s.tile_columns;
  const Windows windows(raw, window_layout(s, kSize, false));
  for (int i = 0; i < kWindowStages; ++i) windows.load(i, tiles, s, source, nullptr);
  uint32_t weight[kPairs][2] = {};
  const bool finite = load_group_weight<T, kSize>(weight, s, group);
  const int channel = group * kGroupChannels + lane % 4 * 2;
  float bias[2] = {0, 0};
  if (s.bias && group < s.groups)
#pragma unroll
    for (int i = 0; i < 2; ++i) bias[i] = cuda::widen(static_cast<const T*>(s.bias)[(channel + i) * s.bias_stride]);
  const TapLines<kSize> taps(lane >= 16, columns);
  const PixelWalk first(lane % 16, s.tile_columns), first_out(lane / 4, s.tile_columns);
  for (int i = 0, at = blockIdx.x; at < tiles; at += gridDim.x, ++i) {
    const auto [n, row, column] = grouped_tile(s, at);
    const uint32_t base = windows.wait(i);
    T* const result =
        static_cast<T*>(s.result) + n * s.other_batch + row * s.other_row + column * s.other_pixel + channel;
    const int height = min(s.tile_rows, s.out_height - row), width = s.out_width - column;
    PixelWalk own = first, out[2] = {first_out, first_out};
    out[1] = PixelWalk(lane / 4 + 8, s.tile_columns);
    if (group < s.groups)
      for (int m = 0; m < pixels; m += 16) {
        const int line = own.pixel < pixels ? own.row * columns + own.column : 0;
        float d[4] = {0, 0, 0, 0};
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair) {
          uint32_t a[4], from = piece_at(base, line + taps.at[pair], warp);
          if (pair == kPairs - 1 && taps.last) from = windows.zeros();
          ptx::ldmatrix_x4(a, from);
          ptx::mma_m16n8k16<T>(d, a[0], a[1], a[2], a[3], weight[pair][0], weight[pair][1]);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const PixelWalk& to = out[half];
          const float pairs[2] = {d[2 * half] + bias[0], d[2 * half + 1] + bias[1]};
          if (to.row < height && to.column < width)
            cuda::store_pack(result + to.row * s.other_row + to.column * s.other_pixel, cuda::convert_pack<T>(pairs));
          out[half].advance(s.tile_columns);
        }
        own.advance(s.tile_columns);
      }
    __syncthreads();
    windows.load(i + kWindowStages, tiles, s, source, nullptr);
  }
  if (!finite)
    for (int at = blockIdx.x; at < tiles; at += gridDim.x) mend_group<T>(p, s, grouped_tile(s, at), group);
}

/// A block's tiles in ascending order, in the accumulators of its warps' groups.
template <class T, int kSize>
__global__ void __launch_bounds__(kGroupedThreads, 2)
    window_weight(const __grid_constant__ CUtensorMap source, const __grid_constant__ CUtensorMap grad,
                  const __grid_constant__ GroupedShape s, int tiles) {
  constexpr int kPairs = (kSize * kSize + 1) / 2;
  if constexpr (!ptx::kHasClusters) return;  // without TMA it is never launched
  extern __shared__ __align__(1024) unsigned char raw[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = blockIdx.y * kGroupedWarps + warp;
  const int columns = s.tile_columns + kSize - 1, pixels = s.tile_rows * s.tile_columns;
  const Windows windows(raw, window_layout(s, kSize, true));
  for (int i = 0; i < kWindowStages; ++i) windows.load(i, tiles, s, source, &grad);
  // Matrices: the source's pixels 0 to 7 at the first and second tap, then pixels 8 to 15; grad's both halves.
  const TapLines<kSize> taps(lane / 8 % 2 == 1, columns);
  const PixelWalk first(lane / 16 * 8 + lane % 8, s.tile_columns);
  const int first_grad = windows.layout.first_grad() + lane / 8 % 2 * 8 + lane % 8;
  float d[kPairs][4] = {};
  for (int i = 0, at = blockIdx.x; at < tiles; at += gridDim.x, ++i) {
    const uint32_t base = windows.wait(i);
    PixelWalk own = first;
    for (int m = 0; m < pixels; m += 16) {
      const bool inside = own.pixel < pixels;
      const int line = own.row * columns + own.column, of_grad = first_grad + m;
      uint32_t b[4];
      ptx::ldmatrix_x4_transposed(
          b, of_grad - windows.layout.first_grad() < pixels ? piece_at(base, of_grad, warp) : windows.zeros());
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        uint32_t a[4], from = piece_at(base, line + taps.at[pair], warp);
        if (!inside || (pair == kPairs - 1 && taps.last)) from = windows.zeros();
        ptx::ldmatrix_x4_transposed(a, from);
        ptx::mma_m16n8k16<T>(d[pair], a[0], a[1], a[2], a[3], b[0], b[1]);
      }
      own.advance(s.tile_columns);
    }
    __syncthreads();
    windows.load(i + kWindowStages, tiles, s, source, &grad);
  }
  if (group < s.groups) store_group_sums<kPairs>(d, s, group);
}

}  // namespace tenor::conv
