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

using mma::kRows;
using mma::kStages;
using mma::kStep;
using mma::kThreads;
namespace ptx = tenor::cuda::ptx;

template <class T, int kColumns>
struct alignas(128) MmaWeightShared {
  T a[kStages][kStep * kRows], b[kStages][kStep * kColumns];
  SourceRow rows[2][kStep];
};

template <class T, int kColumns>
__global__ void __launch_bounds__(kThreads, 2) conv_mma_weight_kernel(const __grid_constant__ ConvWeightShape s) {
  extern __shared__ __align__(128) unsigned char raw[];
  auto& shared = *reinterpret_cast<MmaWeightShared<T, kColumns>*>(raw);
  int rest = blockIdx.x;
  const int first_line = rest % s.row_tiles * kRows;
  rest /= s.row_tiles;
  const int first_column = rest % s.column_tiles * kColumns, group = rest / s.column_tiles;
  const int all_steps = (s.rows.pixels + kStep - 1) / kStep, first = blockIdx.y * s.steps_per_split,
            steps = min(s.steps_per_split, all_steps - first);
  // This thread's eight lines: one tap's channels, the same every step.
  constexpr int kChunksA = kRows / 8, kLinesA = kThreads / kChunksA, kChunksB = kColumns / 8,
                kLinesB = kThreads / kChunksB;
  const int chunk_a = threadIdx.x % kChunksA, line_a = threadIdx.x / kChunksA;
  const int chunk_b = threadIdx.x % kChunksB, line_b = threadIdx.x / kChunksB;
  const int row = first_line + chunk_a * 8, tap = row / s.channels;
  const bool exists = tap < taps_of(s.rows);
  const TapWalk walk = tap_walk(s.rows, exists ? tap : 0);
  const uint32_t bits = walk.bits(s.rows);
  const T* const source =
      static_cast<const T*>(s.source) + int64_t{group} * s.channels + walk.offset(s.rows) + row - tap * s.channels;
  const int column = first_column + chunk_b * 8;
  const int64_t grad_line = int64_t{s.columns} * s.groups;
  const T* const grad = static_cast<const T*>(s.grad) + int64_t{group} * s.columns + column;
  const auto find_rows = [&](int step) {
    if (threadIdx.x < kStep)
      shared.rows[step % 2][threadIdx.x] = source_row(s.rows, (first + step) * kStep + threadIdx.x);
  };
  const auto load = [&](int step) {
    if (step < steps) {
      auto *const a = reinterpret_cast<unsigned char*>(shared.a[step % kStages]), *const b =
                                                                                      reinterpret_cast<unsigned char*>(
                                                                                          shared.b[step % kStages]);
#pragma unroll
      for (int i = 0; i < kStep / kLinesA; ++i) {
        const SourceRow pixel = shared.rows[step % 2][line_a + i * kLinesA];
        const bool valid = exists && (pixel.mask & bits) == bits;
        ptx::async_copy_16(a + ptx::swizzled_tile<kStep * 128>(line_a + i * kLinesA, chunk_a),
                           valid ? source + pixel.offset : s.source, valid);
      }
#pragma unroll
      for (int i = 0; i < kStep / kLinesB; ++i) {
        const int pixel = (first + step) * kStep + line_b + i * kLinesB;
        const bool valid = column < s.columns && pixel < s.rows.pixels;
        ptx::async_copy_16(b + ptx::swizzled_tile<kStep * 128>(line_b + i * kLinesB, chunk_b),
                           valid ? static_cast<const void*>(grad + pixel * grad_line) : s.grad, valid);
      }
    }
    ptx::async_copy_commit();
  };
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) {
    find_rows(step);
    __syncthreads();
    load(step);
  }
  mma::Sums<kColumns> sums;
  for (int step = 0; step < steps; ++step) {
    find_rows(step + kStages - 1);  // its place was read two steps ago
    ptx::async_copy_wait<kStages - 2>();
    __syncthreads();
    load(step + kStages - 1);
    mma::add_step<T, kColumns, true>(sums, shared.a[step % kStages], shared.b[step % kStages]);
  }
  const mma::WarpPlace own = mma::warp_place<kColumns>();
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  float* const to = s.sums + (int64_t{blockIdx.y} * s.groups + group) * s.lines * s.columns;
#pragma unroll
  for (int i = 0; i < mma::kOwnRows / 16; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int line = first_line + own.row + 16 * i + 8 * half + g;
      if (line >= s.lines) continue;
#pragma unroll
      for (int j = 0; j < mma::Sums<kColumns>::kAcross; ++j) {
        const int at = first_column + own.column + 8 * j + 2 * t;
        if (at < s.columns)  // a multiple of 8
          *reinterpret_cast<float2*>(to + int64_t{line} * s.columns + at) = {sums.d[i][j][2 * half],
                                                                             sums.d[i][j][2 * half + 1]};
      }
    }
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
  return static_cast<int>(
      std::clamp<int64_t>(2 * cuda::multiprocessors(device) / tiles, 1, std::max(s.steps_per_split / 8, 1)));
}

size_t mma_conv_weight_workspace(const GatherSums& p, int splits) {
  const ConvWeightShape s = shape_of(p, splits);
  return size_t{4} * s.splits * s.groups * s.lines * s.columns;
}

void mma_conv_weight(const GatherSums& sums, int splits, void* workspace, const LaunchPlace& place) {
  ConvWeightShape s = shape_of(sums, splits);
  s.sums = static_cast<float*>(workspace);
  sums.gather.bfloat16 ? launch_columns<__nv_bfloat16>(s, sums, place) : launch_columns<__half>(s, sums, place);
}

}  // namespace tenor::conv
