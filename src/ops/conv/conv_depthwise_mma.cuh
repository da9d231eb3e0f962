// The weight gradient of depthwise convolutions with large windows, stride and dilation 1, 16-bit floats, on tensor
// cores (devices with TMA). A thread's eight channels of two neighbouring pixels, a byte permutation apart, are what it
// holds of eight matrices, one a channel, with pixels along the summed dim: of each row of the source, [8 columns of
// taps, 16 pixels] times [16 pixels, 8 rows of taps], where row q of the source meets the rows q - i of grad. A warp
// has eight channels, a block 64.
#pragma once

#include <cstdint>

#include "src/cuda/ptx/mbarrier.cuh"
#include "src/cuda/ptx/mma.cuh"
#include "src/cuda/ptx/tma.cuh"

namespace tenor::conv {

namespace ptx = tenor::cuda::ptx;

inline constexpr int kMmaWarps = 8, kMmaThreads = 32 * kMmaWarps, kMmaChannels = 8 * kMmaWarps;
inline constexpr int kMmaTaps = 8;  ///< of a dim of the window, at most, as the matrices hold them

struct MmaShape {
  int channels, size, top, left;  ///< row r of the source meets rows r + top - i; columns likewise
  int height, out_height;         ///< of the source; of grad
  int columns, across;            ///< of grad at a time, a multiple of 16, and tiles of a row
  int rows, rows_per_block;       ///< batch * across * out_height in all
  float* sums;                    ///< [blocks, taps, channels]
};

/// Eight channels of two pixels as pairs of pixels, one a channel.
__device__ __forceinline__ void pair_pixels(const uint4& low, const uint4& high, uint32_t (&to)[8]) {
  const uint32_t x[4] = {low.x, low.y, low.z, low.w}, y[4] = {high.x, high.y, high.z, high.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = __byte_perm(x[i], y[i], 0x5410);
    to[2 * i + 1] = __byte_perm(x[i], y[i], 0x7632);
  }
}

/// Lines of 128 bytes from `base` on, a block of 1024 bytes: this warp's piece of one.
__device__ __forceinline__ uint4 own_piece(const unsigned char* base, int line) {
  return *reinterpret_cast<const uint4*>(base + line * 128 + ((threadIdx.x / 32 ^ (line & 7)) << 4));
}
__device__ __forceinline__ void pair_pieces(const unsigned char* base, int line, uint32_t (&to)[8]) {
  pair_pixels(own_piece(base, line), own_piece(base, line + 1), to);
}

/// The rings of a weight gradient: rows of the source, and of grad, of which kMmaTaps are met at once. Neighbouring
/// rows of grad start in banks of their own.
struct MmaRings {
  static constexpr int kSources = 4, kGrads = 12;
  int source_lines, grad_lines;
  __host__ __device__ explicit MmaRings(const MmaShape& s)
      : source_lines((s.columns + kMmaTaps + 7) / 8 * 8), grad_lines(s.columns + 1) {}
  __host__ __device__ int first_grad() const { return kSources * source_lines; }
  __host__ __device__ int zeros() const { return first_grad() + kGrads * grad_lines; }
  __host__ __device__ int barriers() const { return (zeros() + s_zeros()) * 128; }
  __host__ __device__ int s_zeros() const { return grad_lines; }
  size_t shared_bytes() const { return static_cast<size_t>(barriers()) + 2 * 8 * kSources; }
};

/// Steps through a block's rows of results, a segment of an image's tile at a time: step q brings row first - top + q
/// of the source and row first + q of grad.
struct MmaCursor {
  int next, end, n, column, first, last, q;
  __device__ __forceinline__ explicit MmaCursor(const MmaShape& s)
      : next(blockIdx.y * s.rows_per_block), end(min(next + s.rows_per_block, s.rows)) {
    segment(s);
  }
  __device__ __forceinline__ void segment(const MmaShape& s) {
    const int item = next / s.out_height;
    first = next - item * s.out_height, last = min(s.out_height, first + end - next);
    n = item / s.across, column = item % s.across * s.columns;
    q = 0, next += max(last - first, 0);
  }
  __device__ __forceinline__ bool any() const { return first < last; }
  __device__ __forceinline__ void leave(const MmaShape& s) {
    if (next < end)
      segment(s);
    else
      first = last;
  }
  __device__ __forceinline__ void advance(const MmaShape& s) {
    if (++q == last - first + s.size - 1) leave(s);
  }
};

/// A source row's products: this warp's channels, of each a matrix [columns of taps, rows of taps].
template <class T>
__device__ __forceinline__ void add_mma_row(float (&sum)[8][4], const unsigned char* source, const unsigned char* raw,
                                            int grad_line, int columns) {
  const int lane = threadIdx.x % 32, along = lane % 4 * 2, tap = lane / 4;
  for (int w = 0; w < columns; w += 16) {
    uint32_t a[2][8], b[2][8];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      pair_pieces(source, w + half * 8 + along + tap, a[half]);
      pair_pieces(raw, grad_line + w + half * 8 + along, b[half]);
    }
#pragma unroll
    for (int c = 0; c < 8; ++c) ptx::mma_m16n8k16<T>(sum[c], a[0][c], 0, a[1][c], 0, b[0][c], b[1][c]);
  }
}

template <class T>
__global__ void __launch_bounds__(kMmaThreads, 2)
    mma_weight(const __grid_constant__ CUtensorMap source, const __grid_constant__ CUtensorMap grad,
               const __grid_constant__ MmaShape s) {
  if constexpr (!ptx::kHasClusters) return;  // without TMA it is never launched
  extern __shared__ __align__(1024) unsigned char raw[];
  const MmaRings rings(s);
  uint64_t* const full = reinterpret_cast<uint64_t*>(raw + rings.barriers());
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, slice = blockIdx.x * kMmaChannels;
  for (int i = threadIdx.x; i < rings.s_zeros() * 8; i += kMmaThreads)
    *reinterpret_cast<uint4*>(raw + rings.zeros() * 128 + i * 16) = {0, 0, 0, 0};
  if (threadIdx.x == 0) {
    for (int i = 0; i < MmaRings::kSources; ++i) ptx::mbarrier_init(&full[i], 1);
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  MmaCursor ahead(s);
  int filled = 0;  // steps whose loads have started
  const auto load = [&] {
    if (threadIdx.x != 0 || !ahead.any()) return;
    uint64_t* const barrier = &full[filled % MmaRings::kSources];
    const int row = ahead.first - s.top + ahead.q;
    const bool inside = static_cast<unsigned>(row) < static_cast<unsigned>(s.height);
    const bool more = ahead.q < ahead.last - ahead.first;
    const int source_bytes = (s.columns + kMmaTaps) * 128, grad_bytes = s.columns * 128;
    ptx::mbarrier_arrive_expect(barrier, (inside ? source_bytes : 0) + (more ? grad_bytes : 0));
    if (inside)
      ptx::tma_load_4d(raw + filled % MmaRings::kSources * rings.source_lines * 128, &source, slice,
                       ahead.column - s.left, row, ahead.n, barrier);
    if (more)
      ptx::tma_load_4d(raw + (rings.first_grad() + filled % MmaRings::kGrads * rings.grad_lines) * 128, &grad, slice,
                       ahead.column, ahead.first + ahead.q, ahead.n, barrier);
    ++filled;
    ahead.advance(s);
  };
  for (int i = 0; i < MmaRings::kSources - 1; ++i) load();
  float sum[8][4] = {};
  int step = 0;
  for (MmaCursor at(s); at.any(); at.leave(s)) {
    const int rows = at.last - at.first, steps = rows + s.size - 1;
    for (int q = 0; q < steps; ++q, ++step) {
      __syncthreads();  // all are past the step before, whose rows may go
      load();
      ptx::mbarrier_wait(&full[step % MmaRings::kSources], step / MmaRings::kSources & 1);
      const int row = at.first - s.top + q, of_grad = q - lane / 4;  // of the lane's row of taps
      if (static_cast<unsigned>(row) >= static_cast<unsigned>(s.height)) continue;
      const bool met = of_grad >= 0 && of_grad < rows && lane / 4 < s.size;
      const int slot = (step + MmaRings::kGrads - lane / 4) % MmaRings::kGrads;
      add_mma_row<T>(sum, raw + step % MmaRings::kSources * rings.source_lines * 128, raw,
                     met ? rings.first_grad() + slot * rings.grad_lines : rings.zeros(), s.columns);
    }
  }
  const int channel = slice + warp * 8, j = lane / 4;
  if (channel >= s.channels || j >= s.size) return;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const int i = lane % 4 * 2 + k;
    if (i >= s.size) continue;
    float* const to = s.sums + (int64_t{blockIdx.y} * s.size * s.size + i * s.size + j) * s.channels + channel;
#pragma unroll
    for (int c = 0; c < 8; c += 4)
      *reinterpret_cast<float4*>(to + c) = {sum[c][k], sum[c + 1][k], sum[c + 2][k], sum[c + 3][k]};
  }
}

}  // namespace tenor::conv
