// The portable weight gradient: GatherSums of two-byte operands by mma.sync, a product whose summed dim is the pixels.
//
// A block sums 128 lines of taps x channels by 128 or 64 channels of grad over a range of pixels, 64 a step. Both
// operands lie with the summed dim outermost, which ldmatrix turns. Where the pixels of a step lie in the source,
// threads find out for all a step ahead. A range's float32 sums go to a workspace, which add_splits adds up in
// ascending order.
#include <algorithm>

#include "src/ops/conv/conv_mma.cuh"
#include "src/ops/conv/conv_mma.h"
#include "src/ops/conv/conv_splits.cuh"

namespace tenor::conv {
namespace {

using namespace mma;  // what both portable kernels share

template <class T, int kColumns>
struct alignas(128) MmaWeightShared {
  T a[kStages][kStep * kRows], b[kStages][kStep * kColumns];
  SourceRow rows[2][kStep];
};

/// What a block computes.
struct SumsTile {
  int line, column, group, first, steps;
  template <int kColumns>
  __device__ __forceinline__ static SumsTile of(const ConvWeightShape& s) {
    int rest = blockIdx.x;
    const int line = rest % s.row_tiles * kRows;
    rest /= s.row_tiles;
    const int all = (s.rows.pixels + kStep - 1) / kStep, first = blockIdx.y * s.steps_per_split;
    return {line, rest % s.column_tiles * kColumns, rest / s.column_tiles, first, min(s.steps_per_split, all - first)};
  }
};

/// A thread's pieces of both tiles, whose lines are pixels: eight lines of one tap, the same every step, and eight
/// channels of grad.
template <class T, int kColumns>
struct SumsLoader {
  static constexpr int kChunksA = kRows / 8, kLinesA = kThreads / kChunksA, kChunksB = kColumns / 8,
                       kLinesB = kThreads / kChunksB;
  const ConvWeightShape& s;
  int chunk_a, line_a, chunk_b, line_b;
  bool tap_exists, column_exists;
  uint32_t bits;
  const T *source, *grad;
  int64_t grad_line;

  __device__ __forceinline__ SumsLoader(const ConvWeightShape& shape, const SumsTile& tile)
      : s(shape),
        chunk_a(threadIdx.x % kChunksA),
        line_a(threadIdx.x / kChunksA),
        chunk_b(threadIdx.x % kChunksB),
        line_b(threadIdx.x / kChunksB) {
    const int row = tile.line + chunk_a * 8, tap = row / s.channels, column = tile.column + chunk_b * 8;
    tap_exists = tap < taps_of(s.rows), column_exists = column < s.columns;
    const TapWalk walk = tap_walk(s.rows, tap_exists ? tap : 0);
    bits = walk.bits(s.rows);
    source = static_cast<const T*>(s.source) + int64_t{tile.group} * s.channels + walk.offset(s.rows) + row -
             tap * s.channels;
    grad_line = int64_t{s.columns} * s.groups;
    grad = static_cast<const T*>(s.grad) + int64_t{tile.group} * s.columns + column;
  }
  /// The pixels from `first` on, which lie in the source at `rows`.
  __device__ __forceinline__ void load(T* to_source, T* to_grad, const SourceRow* rows, int first) const {
    auto *const a = reinterpret_cast<unsigned char*>(to_source), *const b = reinterpret_cast<unsigned char*>(to_grad);
#pragma unroll
    for (int i = 0; i < kStep / kLinesA; ++i) {
      const SourceRow pixel = rows[line_a + i * kLinesA];
      const bool valid = tap_exists && (pixel.mask & bits) == bits;
      ptx::async_copy_16(a + ptx::swizzled_tile<kStep * 128>(line_a + i * kLinesA, chunk_a),
                         valid ? source + pixel.offset : s.source, valid);
    }
#pragma unroll
    for (int i = 0; i < kStep / kLinesB; ++i) {
      const int pixel = first + line_b + i * kLinesB;
      const bool valid = column_exists && pixel < s.rows.pixels;
      ptx::async_copy_16(b + ptx::swizzled_tile<kStep * 128>(line_b + i * kLinesB, chunk_b),
                         valid ? static_cast<const void*>(grad + pixel * grad_line) : s.grad, valid);
    }
  }
};

/// A warp's sums to the workspace.
template <int kColumns>
__device__ __forceinline__ void store_range(const Sums<kColumns>& sums, const ConvWeightShape& s,
                                            const SumsTile& tile) {
  const WarpPlace own = warp_place<kColumns>();
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  float* const to = s.sums + (int64_t{blockIdx.y} * s.groups + tile.group) * s.lines * s.columns;
#pragma unroll
  for (int i = 0; i < kOwnRows / 16; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int line = tile.line + own.row + 16 * i + 8 * half + g;
      if (line >= s.lines) continue;
#pragma unroll
      for (int j = 0; j < Sums<kColumns>::kAcross; ++j) {
        const int at = tile.column + own.column + 8 * j + 2 * t;
        if (at < s.columns)  // a multiple of 8
          *reinterpret_cast<float2*>(to + int64_t{line} * s.columns + at) = {sums.d[i][j][2 * half],
                                                                             sums.d[i][j][2 * half + 1]};
      }
    }
}

template <class T, int kColumns>
__global__ void __launch_bounds__(kThreads, 2) conv_mma_weight_kernel(const __grid_constant__ ConvWeightShape s) {
  extern __shared__ __align__(128) unsigned char raw[];
  auto& shared = *reinterpret_cast<MmaWeightShared<T, kColumns>*>(raw);
  const SumsTile tile = SumsTile::of<kColumns>(s);
  const SumsLoader<T, kColumns> loader(s, tile);
  const auto find_rows = [&](int step) {
    if (threadIdx.x < kStep)
      shared.rows[step % 2][threadIdx.x] = source_row(s.rows, (tile.first + step) * kStep + threadIdx.x);
  };
  const auto load = [&](int step) {
    if (step < tile.steps)
      loader.load(shared.a[step % kStages], shared.b[step % kStages], shared.rows[step % 2],
                  (tile.first + step) * kStep);
    ptx::async_copy_commit();
  };
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) {
    find_rows(step);
    __syncthreads();
    load(step);
  }
  Sums<kColumns> sums;
  for (int step = 0; step < tile.steps; ++step) {
    find_rows(step + kStages - 1);  // its place was read two steps ago
    ptx::async_copy_wait<kStages - 2>();
    __syncthreads();
    load(step + kStages - 1);
    add_step<T, kColumns, true>(sums, shared.a[step % kStages], shared.b[step % kStages]);
  }
  store_range<kColumns>(sums, s, tile);
}

int columns_of(const GatherProduct& p) { return p.columns <= 64 ? 64 : 128; }

ConvWeightShape shape_of(const GatherSums& sums, int splits) {
  const GatherProduct& p = sums.gather;
  ConvWeightShape s{};
  make_row_shape(p, s.rows);
  s.channels = p.channels, s.columns = p.columns, s.groups = p.groups;
  s.lines = div_up(taps_of(s.rows) * int64_t{p.channels}, 64) * 64;
  s.row_tiles = div_up(s.lines, kRows), s.column_tiles = div_up(p.columns, columns_of(p));
  const int steps = div_up(s.rows.pixels, kStep);
  s.steps_per_split = div_up(steps, splits), s.splits = div_up(steps, s.steps_per_split);
  s.source = p.source, s.grad = sums.grad;
  return s;
}

template <class T, int kColumns>
void launch(const ConvWeightShape& s, const GatherSums& sums, const LaunchPlace& place) {
  const dim3 blocks(s.row_tiles * s.column_tiles * s.groups, s.splits);
  cuda::launch(place.op, conv_mma_weight_kernel<T, kColumns>, {blocks, kThreads, sizeof(MmaWeightShared<T, kColumns>)},
               place.device, s);
  launch_add_splits<T>(s, sums, place);
}

template <class T>
void launch_columns(const ConvWeightShape& s, const GatherSums& sums, const LaunchPlace& place) {
  columns_of(sums.gather) == 64 ? launch<T, 64>(s, sums, place) : launch<T, 128>(s, sums, place);
}

}  // namespace

int mma_conv_weight_splits(const GatherSums& p, Device device) {
  const ConvWeightShape s = shape_of(p, 1);
  const int64_t tiles = int64_t{s.row_tiles} * s.column_tiles * s.groups;
  // Two blocks a multiprocessor, of eight steps at least.
  return static_cast<int>(std::clamp<int64_t>(2 * cuda::multiprocessors(device) / tiles, 1,
                                              std::clamp(s.steps_per_split / 8, 1, most_splits(s))));
}

size_t mma_conv_weight_workspace(const GatherSums& p, int splits) { return workspace_of(shape_of(p, splits)); }

void mma_conv_weight(const GatherSums& sums, int splits, void* workspace, const LaunchPlace& place) {
  ConvWeightShape s = shape_of(sums, splits);
  s.sums = static_cast<float*>(workspace);
  sums.gather.bfloat16 ? launch_columns<__nv_bfloat16>(s, sums, place) : launch_columns<__half>(s, sums, place);
}

}  // namespace tenor::conv
