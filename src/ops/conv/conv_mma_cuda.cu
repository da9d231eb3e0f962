// The portable implicit GEMM: a GatherProduct of two-byte operands by mma.sync, for GPUs that have no wgmma.
//
// A block computes 128 pixels by 128 or 64 channels; a step is 64 of all taps' channels, taps outside, both ascending,
// for any number of channels in whole pieces of eight. Eight warps load by cp.async, zeros on padding, through three
// stages, and multiply 32 pixels by half of the channels each.
#include "src/ops/conv/conv_mma.cuh"
#include "src/ops/conv/conv_mma.h"
#include "src/ops/conv/conv_window_sum.cuh"

namespace tenor::conv {
namespace {

using namespace mma;  // what both portable kernels share

struct MmaShape {
  RowShape rows;
  WeightTaps taps;
  int channels, columns;  ///< of a group
  int tiles_n;
  const void *source, *weight, *bias;
  void* result;
  int64_t result_channel, bias_stride;
  bool pairs;  ///< the result is written two channels at a time
};

template <class T, int kColumns>
struct alignas(128) MmaShared {
  T a[kStages][kRows * kStep], b[kStages][kColumns * kStep];
};

/// One piece of eight channels of every step: its tap, which changes as steps pass its channels, and its place.
struct Piece {
  TapWalk walk;
  int channel, left;  ///< taps, this one included
  int64_t offset;
  uint32_t bits;
  int tap;
  __device__ __forceinline__ void find(const MmaShape& s) {
    offset = walk.offset(s.rows), bits = walk.bits(s.rows);
    tap = s.taps.first + walk.j[0] * s.taps.step[0] + walk.j[1] * s.taps.step[1] + walk.j[2] * s.taps.step[2];
  }
  __device__ __forceinline__ void settle(const MmaShape& s) {
    if (channel < s.channels || left == 0) return;
    for (; channel >= s.channels && left > 0; channel -= s.channels, --left) walk.next(s.rows);
    find(s);
  }
};

/// Stores a warp's sums with the bias, rounded.
template <class T, int kColumns>
__device__ __forceinline__ void store(const MmaShape& s, Sums<kColumns>& sums, int group, int first_row,
                                      int first_column) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int64_t base = int64_t{group} * s.columns;
  T* const result = static_cast<T*>(s.result);
  const T* const bias = static_cast<const T*>(s.bias);
#pragma unroll
  for (int i = 0; i < kOwnRows / 16; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int m = first_row + 16 * i + 8 * half + g;
      if (m >= s.rows.pixels) continue;
      T* const row = result + result_row(s.rows, m);
#pragma unroll
      for (int j = 0; j < Sums<kColumns>::kAcross; ++j) {
        const int column = first_column + 8 * j + 2 * t;
        if (column >= s.columns) continue;
        float* const x = sums.d[i][j] + 2 * half;
        const bool more = column + 1 < s.columns;
        if (bias) {
          x[0] += static_cast<float>(bias[(base + column) * s.bias_stride]);
          if (more) x[1] += static_cast<float>(bias[(base + column + 1) * s.bias_stride]);
        }
        T* const to = row + (base + column) * s.result_channel;
        if (s.pairs) {
          struct alignas(4) Pair {
            T left, right;
          };
          *reinterpret_cast<Pair*>(to) = {static_cast<T>(x[0]), static_cast<T>(x[1])};
        } else {
          to[0] = static_cast<T>(x[0]);
          if (more) to[s.result_channel] = static_cast<T>(x[1]);
        }
      }
    }
}

/// A call, so that the registers of what hardly ever runs are not those of every warp.
template <class T>
__device__ __noinline__ void mend_warp(const MmaShape& s, int group, int first_column, int columns, int m) {
  mend_pixels<T>(s, group, first_column, columns, m, kOwnRows);
}

/// A thread's pieces of both tiles, step after step.
template <class T, int kColumns>
struct Loader {
  static constexpr int kLines = kThreads / 8;  ///< that all threads load at once
  const MmaShape& s;
  int line, chunk, left_columns;
  const T *source, *weight;
  int64_t weight_line;
  SourceRow rows[kRows / kLines];
  Piece at;

  __device__ __forceinline__ Loader(const MmaShape& shape, int group, int first_row, int first_column)
      : s(shape),
        line(threadIdx.x / 8),
        chunk(threadIdx.x % 8),
        left_columns(shape.columns - first_column - line),
        source(static_cast<const T*>(shape.source) + int64_t{group} * shape.channels),
        weight_line(int64_t{shape.channels} * shape.taps.count),
        at{{}, chunk * 8, taps_of(shape.rows)} {
    weight = static_cast<const T*>(s.weight) + (int64_t{group} * s.columns + first_column + line) * weight_line;
#pragma unroll
    for (int i = 0; i < kRows / kLines; ++i) rows[i] = source_row(s.rows, first_row + line + i * kLines);
    at.find(s);
    at.settle(s);
  }
  __device__ __forceinline__ void load(T* to_source, T* to_weight) {
    auto *const a = reinterpret_cast<unsigned char*>(to_source), *const b = reinterpret_cast<unsigned char*>(to_weight);
#pragma unroll
    for (int i = 0; i < kRows / kLines; ++i) {
      const bool valid = at.left > 0 && (rows[i].mask & at.bits) == at.bits;
      ptx::async_copy_16(a + ptx::swizzled_line(line + i * kLines, chunk),
                         valid ? source + rows[i].offset + at.offset + at.channel : s.source, valid);
    }
#pragma unroll
    for (int i = 0; i < kColumns / kLines; ++i) {
      const bool valid = at.left > 0 && i * kLines < left_columns;
      ptx::async_copy_16(
          b + ptx::swizzled_line(line + i * kLines, chunk),
          valid ? weight + i * kLines * weight_line + int64_t{at.tap} * s.channels + at.channel : s.weight, valid);
    }
    at.channel += kStep;
    at.settle(s);
  }
};

template <class T, int kColumns>
__global__ void __launch_bounds__(kThreads) conv_mma_kernel(const __grid_constant__ MmaShape s) {
  extern __shared__ __align__(128) unsigned char raw[];
  auto& shared = *reinterpret_cast<MmaShared<T, kColumns>*>(raw);
  const int group = blockIdx.y, first_row = blockIdx.x / s.tiles_n * kRows,
            first_column = blockIdx.x % s.tiles_n * kColumns;
  const int steps = (taps_of(s.rows) * s.channels + kStep - 1) / kStep;
  Loader<T, kColumns> loader(s, group, first_row, first_column);
  const auto load = [&](int step) {
    if (step < steps) loader.load(shared.a[step % kStages], shared.b[step % kStages]);
    ptx::async_copy_commit();
  };
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) load(step);
  Sums<kColumns> sums;
  for (int step = 0; step < steps; ++step) {
    ptx::async_copy_wait<kStages - 2>();
    __syncthreads();
    load(step + kStages - 1);
    add_step<T, kColumns, false>(sums, shared.a[step % kStages], shared.b[step % kStages]);
  }
  bool odd = false;
  if (has_padding(s.rows)) {
#pragma unroll
    for (auto& row : sums.d)
#pragma unroll
      for (auto& tile : row) odd |= not_finite(tile);
  }
  const WarpPlace own = warp_place<kColumns>();
  store<T>(s, sums, group, first_row + own.row, first_column + own.column);
  if (odd) mend_warp<T>(s, group, first_column + own.column, kColumns / 2, first_row + own.row);
}

template <class T, int kColumns>
void launch(MmaShape s, int groups, const LaunchPlace& place) {
  s.tiles_n = div_up(s.columns, kColumns);
  const unsigned tiles = static_cast<unsigned>(div_up(s.rows.pixels, kRows)) * s.tiles_n;
  cuda::launch(place.op, conv_mma_kernel<T, kColumns>, {dim3(tiles, groups), kThreads, sizeof(MmaShared<T, kColumns>)},
               place.device, s);
}

template <class T>
void launch_columns(const MmaShape& s, int groups, const LaunchPlace& place) {
  s.columns <= 64 ? launch<T, 64>(s, groups, place) : launch<T, 128>(s, groups, place);
}

}  // namespace

void mma_conv(const GatherProduct& p, const LaunchPlace& place) {
  MmaShape s{};
  check_takes(make_row_shape(p, s.rows), place);
  if (s.rows.pixels == 0) return;
  s.taps = weight_taps_of(p), s.channels = p.channels, s.columns = p.columns;
  s.source = p.source, s.weight = p.weight, s.bias = p.bias, s.bias_stride = p.bias_stride, s.result = p.result,
  s.result_channel = p.result_channel;
  bool pairs = p.result_channel == 1 && reinterpret_cast<uintptr_t>(p.result) % 4 == 0 && p.result_batch % 2 == 0 &&
               p.columns % 2 == 0;
  for (const GatherDim& d : p.dim) pairs &= d.result_stride % 2 == 0 || d.outputs == 1;
  s.pairs = pairs;
  p.bfloat16 ? launch_columns<__nv_bfloat16>(s, p.groups, place) : launch_columns<__half>(s, p.groups, place);
}

}  // namespace tenor::conv
