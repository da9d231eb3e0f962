#include <algorithm>
#include <cstdlib>

#include "src/cuda/tensor_map.h"
#include "src/ops/conv/sm90_conv_launch.cuh"

namespace tenor::conv {
namespace {

int div_up(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

/// The images as im2col TMA walks them for this product.
cuda::MapImage image_of(const GatherProduct& p, int pixels) {
  cuda::MapImage x{};
  x.data = p.source, x.bfloat16 = p.bfloat16;
  x.dims = has_two_dims(p) ? 2 : 3;
  x.channels = int64_t{p.channels} * p.groups, x.batch = p.batch, x.batch_stride = p.source_batch, x.pixels = pixels;
  for (int i = 0; i < x.dims; ++i) {
    const GatherDim& d = p.dim[2 - i];
    x.size[i] = d.size, x.stride[i] = d.source_stride, x.step[i] = d.outputs == 1 ? 1 : d.stride;
    x.lower[i] = lowest_of(d);
    x.upper[i] = x.lower[i] + (d.outputs - 1) * x.step[i] + 1 - d.size;
  }
  return x;
}

/// Whether steps run over taps * channels: fewer of them, where the weight's taps lie as they are walked.
bool is_flat(const GatherProduct& p) {
  int taps = 1;
  for (int d = 2; d >= 0; --d) {
    if (p.dim[d].taps > 1 && p.dim[d].weight_step != taps) return false;
    taps *= p.dim[d].taps;
  }
  return p.channels % kTileK != 0 && taps == p.weight_taps &&
         div_up(int64_t{taps} * p.channels, kTileK) * 8 <= kTapEntries;
}

/// The weight in boxes of one tap, 64 channels and `lines` columns, or of 64 of taps * channels.
bool map_weight(CUtensorMap* map, const GatherProduct& p, bool flat, int lines) {
  const int64_t line = int64_t{p.channels} * p.weight_taps;
  const cuda::MapTensor x{p.weight,
                          p.bfloat16,
                          {flat ? line : p.channels, flat ? 1 : p.weight_taps, p.columns, p.groups},
                          {p.channels, line, line * p.columns}};
  return cuda::make_line_map(map, x, {{1, lines}});
}

int multiprocessors() {
  int device = 0, count = 132;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

}  // namespace

bool map_image(CUtensorMap* map, const GatherProduct& p, int pixels) {
  const int most = has_two_dims(p) ? 255 : 31;  // of a tap's offset
  for (const GatherDim& d : p.dim) {
    if (d.taps < 1 || d.outputs < 1 || (d.taps - 1) * std::abs(d.step) > most) return false;
    if (d.source_stride <= 0 && d.size > 1) return false;
  }
  return cuda::make_image_map(map, image_of(p, pixels));
}

bool sm90_conv_takes_image(const GatherProduct& p) {
  if (p.groups > 1 && p.channels % kTileK) return false;  // a box would reach into the next group
  CUtensorMap map;
  return map_image(&map, p, kTileM);
}

ConvPlan sm90_conv_choice(const GatherProduct& p) {
  const int64_t taps = int64_t{p.dim[0].taps} * p.dim[1].taps * p.dim[2].taps;
  const bool flat = is_flat(p), image = !flat && sm90_conv_takes_image(p);
  const int64_t steps =
      std::max<int64_t>(flat ? div_up(p.channels * taps, kTileK) : div_up(p.channels, kTileK) * taps, 1);
  int64_t pixels = p.batch;
  for (const GatherDim& d : p.dim) pixels *= d.outputs;
  const int clusters = multiprocessors() / kConvCluster;
  ConvPlan best{128, image};
  double least = 0;
  for (const int columns : {256, 128, 64, 32}) {
    const int64_t tiles = int64_t{div_up(pixels, kTileM * kConvCluster)} * div_up(p.columns, columns) * p.groups;
    // The tensor cores, or the pixels' 128 lines: either way of loading them is slower than L2.
    const double cycles = std::max(4.0 * columns, (image ? 600.0 : 800.0) + columns), ends = 600 + 8.0 * columns;
    const double time = static_cast<double>((tiles + clusters - 1) / clusters) * (steps * cycles + ends);
    if (least == 0 || time < least) least = time, best.columns = columns;
  }
  return best;
}

cudaError_t sm90_conv(const GatherProduct& p, const ConvPlan& plan, cudaStream_t stream) {
  ConvLaunch launch{};
  ConvShape& s = launch.shape;
  if (!make_row_shape(p, s.rows) || (plan.image && !sm90_conv_takes_image(p))) return cudaErrorInvalidValue;
  s.channels = p.channels, s.columns = p.columns, s.groups = p.groups;
  s.tiles_m = div_up(s.rows.pixels, kTileM * kConvCluster), s.tiles_n = div_up(p.columns, plan.columns);
  s.flat = !plan.image && is_flat(p);
  s.taps = weight_taps_of(p), s.weight = p.weight;
  for (int d = 0; d < 3; ++d) s.lowest[d] = lowest_of(p.dim[d]);
  s.source = p.source, s.bias = p.bias, s.bias_stride = p.bias_stride, s.result = p.result,
  s.result_channel = p.result_channel;
  bool chunks = p.result_channel == 1 && reinterpret_cast<uintptr_t>(p.result) % 16 == 0 && p.result_batch % 8 == 0 &&
                p.columns % 8 == 0;
  for (const GatherDim& d : p.dim) chunks &= d.result_stride % 8 == 0;
  s.whole_chunks = chunks;
  if (s.rows.pixels == 0) return cudaSuccess;
  if (!map_weight(&launch.weight, p, s.flat, plan.columns / kConvCluster)) return cudaErrorInvalidValue;
  if (plan.image) {
    s.three_dims = !has_two_dims(p);
    if (!map_image(&launch.image, p, kTileM)) return cudaErrorInvalidValue;
  }
  launch.stream = stream;
  return p.bfloat16 ? launch_conv_bfloat16(plan, launch) : launch_conv_float16(plan, launch);
}

}  // namespace tenor::conv
