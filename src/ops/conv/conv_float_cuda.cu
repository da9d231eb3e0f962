// Launches of the implicit GEMM of float32.
#include <algorithm>

#include "src/ops/conv/conv_float.cuh"
#include "src/ops/conv/conv_float_cuda.h"
#include "src/ops/conv/conv_float_weight.cuh"

namespace tenor::conv {
namespace {

constexpr int kSumBlocks = 528;  ///< that fill any device

/// Tiles, and ranges of pixels as the sizes alone say.
bool weight_shape(const GatherSums& sums, ConvWeightShape& s) {
  const GatherProduct& p = sums.gather;
  if (!make_row_shape(p, s.rows)) return false;
  s.channels = p.channels, s.columns = p.columns, s.groups = p.groups;
  s.source = p.source, s.grad = sums.grad;
  s.lines = div_up(int64_t{taps_of(s.rows)} * p.channels, kSumLines) * kSumLines;
  s.row_tiles = div_up(s.lines, kFloatSumLines), s.column_tiles = div_up(p.columns, kFloatSumColumns);
  const int64_t tiles = int64_t{s.row_tiles} * s.column_tiles * s.groups;
  const int steps = div_up(s.rows.pixels, kFloatPixels);
  s.steps_per_split = std::max(div_up(steps, std::max<int64_t>(kSumBlocks / tiles, 1)), 1);
  s.splits = div_up(steps, s.steps_per_split);
  return true;
}

}  // namespace

void float_conv(const GatherProduct& p, const LaunchPlace& place) {
  FloatShape s{};
  check_takes(make_row_shape(p, s.rows), place);
  if (s.rows.pixels == 0) return;
  s.channels = p.channels, s.columns = p.columns;
  s.weight_first = p.weight_first, s.weight_taps = p.weight_taps;
  for (int d = 0; d < 3; ++d) s.weight_step[d] = p.dim[d].weight_step;
  s.source = static_cast<const float*>(p.source), s.weight = static_cast<const float*>(p.weight);
  s.bias = static_cast<const float*>(p.bias), s.bias_stride = p.bias_stride;
  s.result = static_cast<float*>(p.result), s.result_channel = p.result_channel;
  const dim3 blocks(div_up(s.rows.pixels, kFloatRows), div_up(s.columns, kFloatColumns), p.groups);
  cuda::launch(place.op, float_kernel, {blocks, kFloatThreads, sizeof(FloatShared)}, place.device, s);
}

size_t float_weight_workspace(const GatherSums& sums) {
  ConvWeightShape s{};
  if (!weight_shape(sums, s)) return 0;
  return size_t{4} * s.splits * s.groups * s.lines * s.columns;
}

void float_conv_weight(const GatherSums& sums, void* workspace, const LaunchPlace& place) {
  ConvWeightShape s{};
  check_takes(weight_shape(sums, s), place);
  s.sums = static_cast<float*>(workspace);
  const dim3 blocks(s.row_tiles * s.column_tiles * s.groups, s.splits);
  cuda::launch(place.op, float_sums, {blocks, kFloatSumThreads, sizeof(FloatSumShared)}, place.device, s);
  launch_add_splits<float>(s, sums, place);
}

}  // namespace tenor::conv
