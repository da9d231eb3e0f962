// Launches of the implicit GEMM of float32.
#include <algorithm>

#include "src/ops/conv/conv_float.cuh"
#include "src/ops/conv/conv_float_cuda.h"
#include "src/ops/conv/conv_float_weight.cuh"

namespace tenor::conv {
namespace {

constexpr int kSumBlocks = 528;  ///< that fill any device

int div_up(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

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

template <class... Params>
cudaError_t allow_shared(void (*kernel)(Params...), size_t bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

}  // namespace

cudaError_t float_conv(const GatherProduct& p, cudaStream_t stream) {
  FloatShape s{};
  if (!make_row_shape(p, s.rows)) return cudaErrorInvalidValue;
  if (s.rows.pixels == 0) return cudaSuccess;
  s.channels = p.channels, s.columns = p.columns;
  s.weight_first = p.weight_first, s.weight_taps = p.weight_taps;
  for (int d = 0; d < 3; ++d) s.weight_step[d] = p.dim[d].weight_step;
  s.source = static_cast<const float*>(p.source), s.weight = static_cast<const float*>(p.weight);
  s.bias = static_cast<const float*>(p.bias), s.bias_stride = p.bias_stride;
  s.result = static_cast<float*>(p.result), s.result_channel = p.result_channel;
  if (cudaError_t e = allow_shared(float_kernel, sizeof(FloatShared)); e != cudaSuccess) return e;
  const dim3 grid(div_up(s.rows.pixels, kFloatRows), div_up(s.columns, kFloatColumns), p.groups);
  float_kernel<<<grid, kFloatThreads, sizeof(FloatShared), stream>>>(s);
  return cudaGetLastError();
}

size_t float_weight_workspace(const GatherSums& sums) {
  ConvWeightShape s{};
  if (!weight_shape(sums, s)) return 0;
  return size_t{4} * s.splits * s.groups * s.lines * s.columns;
}

cudaError_t float_conv_weight(const GatherSums& sums, void* workspace, cudaStream_t stream) {
  ConvWeightShape s{};
  if (!weight_shape(sums, s)) return cudaErrorInvalidValue;
  s.sums = static_cast<float*>(workspace);
  if (cudaError_t e = allow_shared(float_sums, sizeof(FloatSumShared)); e != cudaSuccess) return e;
  float_sums<<<dim3(s.row_tiles * s.column_tiles * s.groups, s.splits), kFloatSumThreads, sizeof(FloatSumShared),
               stream>>>(s);
  if (cudaError_t e = cudaGetLastError(); e != cudaSuccess) return e;
  return launch_add_splits<float>(s, sums, stream);
}

}  // namespace tenor::conv
