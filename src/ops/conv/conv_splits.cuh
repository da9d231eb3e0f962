// A weight gradient's sums over ranges of pixels, and their sum in ascending order.
#pragma once

#include <algorithm>

#include "src/cuda/ptx/dependent_launch.cuh"
#include "src/ops/conv/conv_launch.h"
#include "src/ops/conv/conv_window_sum.cuh"

namespace tenor::conv {

/// A weight gradient as ranges of pixels, each summed by blocks of its own.
struct ConvWeightShape {
  RowShape rows;
  int channels, columns, groups;  ///< of a group
  int lines;                      ///< taps * channels, in a whole number of kSumLines at least
  int row_tiles, column_tiles;
  int splits, steps_per_split;
  int lowest[3];  ///< as in ConvShape
  bool three_dims;
  const void *source, *grad;
  float* sums;  ///< [splits, groups, lines, columns]
};

/// Bytes of the workspace that the ranges' sums take.
inline size_t workspace_of(const ConvWeightShape& s) { return size_t{4} * s.splits * s.groups * s.lines * s.columns; }

/// The most ranges whose sums the workspace holds within its bound; one at least.
inline int most_splits(const ConvWeightShape& s) {
  const int64_t one = int64_t{4} * s.groups * s.lines * s.columns;
  return static_cast<int>(std::clamp<int64_t>(kMostWorkspace / std::max<int64_t>(one, 1), 1, 65535));
}

/// Neighbouring rows of one tap: its channels from one on.
struct WeightRows {
  int64_t offset;  ///< of the tap and the channel
  uint32_t bits;
  bool inside;
};

__device__ __forceinline__ WeightRows weight_rows(const ConvWeightShape& s, int row) {
  const int tap = row / s.channels, channel = row - tap * s.channels;
  const bool inside = tap < taps_of(s.rows);
  const TapWalk walk = tap_walk(s.rows, tap);
  return {walk.offset(s.rows) + channel, walk.bits(s.rows), inside};
}

/// Where the gradient lies.
struct GradientPlace {
  void* data;
  int64_t group, column, channel, tap[3];
  int channels, columns;
};

/// One element of the gradient over the pixels whose tap lies on an input alone: where the product is NaN, it may be so
/// because of the zeros on padding (conv_plain.h).
template <class T>
__device__ __noinline__ float pixel_sum(const ConvWeightShape& s, int group, int tap, int channel, int column) {
  const TapWalk walk = tap_walk(s.rows, tap);
  const uint32_t bits = walk.bits(s.rows);
  const T* const source = static_cast<const T*>(s.source) + int64_t{group} * s.channels + channel + walk.offset(s.rows);
  const T* const grad = static_cast<const T*>(s.grad) + int64_t{group} * s.columns + column;
  float sum = 0;
  for (int m = 0; m < s.rows.pixels && sum == sum; ++m) {
    const SourceRow row = source_row(s.rows, m);
    if ((row.mask & bits) == bits)
      sum = fmaf(static_cast<float>(source[row.offset]), static_cast<float>(grad[m * (int64_t{s.columns} * s.groups)]),
                 sum);
  }
  return sum;
}

inline constexpr int kSumLines = 16, kSumColumns = 32;

/// gradient = the sum over splits, in ascending order, of 16 lines of 32 columns; read along columns, written along
/// lines.
template <class T>
__global__ void __launch_bounds__(256, 8)
    add_splits(const __grid_constant__ ConvWeightShape s, const __grid_constant__ GradientPlace to) {
  cuda::ptx::wait_for_previous();
  __shared__ float sums[kSumLines][kSumColumns + 1];
  const int first_line = blockIdx.x * kSumLines, first_column = blockIdx.y * kSumColumns, group = blockIdx.z;
  const int64_t stride = int64_t{s.groups} * s.lines * s.columns;
  const int own = threadIdx.x % kSumColumns;
#pragma unroll
  for (int i = threadIdx.x / kSumColumns; i < kSumLines; i += 256 / kSumColumns) {
    if (first_column + own >= to.columns) break;
    const float* from = s.sums + (int64_t{group} * s.lines + first_line + i) * s.columns + first_column + own;
    float sum = 0;
#pragma unroll 8
    for (int k = 0; k < s.splits; ++k) sum += from[k * stride];
    sums[i][own] = sum;
  }
  __syncthreads();
  const int line = first_line + threadIdx.x % kSumLines;
  const int own_tap = line / s.channels;
  int tap = own_tap;
  const int channel = line - tap * s.channels;
  if (channel >= to.channels || tap >= taps_of(s.rows)) return;
  int64_t at = group * to.group + channel * to.channel;
#pragma unroll
  for (int d = 2; d >= 0; --d) {
    at += tap % s.rows.taps[d] * to.tap[d];
    tap /= s.rows.taps[d];
  }
  const bool padded = has_padding(s.rows);
#pragma unroll
  for (int i = threadIdx.x / kSumLines; i < kSumColumns; i += 256 / kSumLines)
    if (first_column + i < to.columns) {
      float sum = sums[threadIdx.x % kSumLines][i];
      if (sum != sum && padded) sum = pixel_sum<T>(s, group, own_tap, channel, first_column + i);
      static_cast<T*>(to.data)[at + (first_column + i) * to.column] = static_cast<T>(sum);
    }
}

/// Adds the ranges of one type of gradient.
template <class T>
void launch_add_splits(const ConvWeightShape& s, const GatherSums& sums, const LaunchPlace& place) {
  const GradientPlace to{sums.gradient,
                         sums.gradient_group,
                         sums.gradient_column,
                         sums.gradient_channel,
                         {sums.gradient_tap[0], sums.gradient_tap[1], sums.gradient_tap[2]},
                         sums.written_channels,
                         sums.written_columns};
  cuda::Grid grid{dim3(s.lines / kSumLines, div_up(s.columns, kSumColumns), s.groups), 256};
  grid.early = true;
  cuda::launch(place.op, add_splits<T>, grid, place.device, s, to);
}

}  // namespace tenor::conv
