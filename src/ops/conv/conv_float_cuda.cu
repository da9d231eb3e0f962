// Launches of the implicit GEMM of float32.
#include <algorithm>

#include "src/ops/conv/conv_float.cuh"
#include "src/ops/conv/conv_float_cuda.h"
#include "src/ops/conv/conv_float_weight.cuh"

namespace tenor::conv {
namespace {

constexpr int kSumWarps = 2112;  ///< that fill any device: sixteen a multiprocessor

/// By how many ranges of pixels `tiles` are summed, of which `slots` run at once: those that leave the least of them
/// idle, where each range's sums are written and read again.
int splits_of(int64_t tiles, int slots, int64_t pixels) {
  double least = 0;
  int64_t best = 1;
  for (int waves = 1; waves <= 6; ++waves) {
    const int64_t splits = std::max<int64_t>(waves * slots / tiles, 1);
    const double time = static_cast<double>(div_up(splits * tiles, slots)) / static_cast<double>(splits) +
                        0.1 * static_cast<double>(splits * tiles) / static_cast<double>(pixels);
    if (waves == 1 || time < least) least = time, best = splits;
  }
  return static_cast<int>(best);
}

/// Warps of a block: those whose tiles leave the fewest lines unused.
int warps_of(int lines) { return div_up(lines, 192) * 192 < div_up(lines, 128) * 128 ? 6 : 4; }

/// Tiles, and ranges of pixels as the sizes alone say.
bool weight_shape(const GatherSums& sums, ConvWeightShape& s) {
  const GatherProduct& p = sums.gather;
  if (!make_row_shape(p, s.rows)) return false;
  s.channels = p.channels, s.columns = p.columns, s.groups = p.groups;
  s.source = p.source, s.grad = sums.grad;
  s.lines = div_up(int64_t{taps_of(s.rows)} * p.channels, kSumLines) * kSumLines;
  const int warps = warps_of(s.lines);
  s.row_tiles = div_up(s.lines, 32 * warps), s.column_tiles = div_up(p.columns, kFloatSumColumns);
  const int64_t tiles = int64_t{s.row_tiles} * s.column_tiles * s.groups;
  const int steps = div_up(s.rows.pixels, kFloatPixels);
  const int splits = std::min(splits_of(tiles, kSumWarps / 16 * (16 / warps), s.rows.pixels), most_splits(s));
  s.steps_per_split = std::max(div_up(steps, splits), 1);
  s.splits = div_up(steps, s.steps_per_split);
  return true;
}

template <int Warps>
void launch_sums(const ConvWeightShape& s, const LaunchPlace& place) {
  using Tile = FloatSumTile<Warps>;
  const dim3 blocks(s.row_tiles * s.column_tiles * s.groups, s.splits);
  cuda::launch(place.op, float_sums<Tile>, {blocks, Tile::kThreads, sizeof(FloatSumShared<Tile>)}, place.device, s);
}

template <class Tile>
dim3 blocks_of(const FloatShape& s, int groups) {
  return dim3(div_up(s.rows.pixels, Tile::kRows), div_up(s.columns, Tile::kColumns), groups);
}
template <class Tile>
void launch_floats(const FloatShape& s, int groups, const LaunchPlace& place) {
  cuda::launch(place.op, float_kernel<Tile>, {blocks_of<Tile>(s, groups), kFloatThreads, sizeof(FloatShared<Tile>)},
               place.device, s);
}
/// The tile that leaves the fewest columns unused, else the wide one, which loads less; small tiles where others do not
/// fill the device. None of it changes a sum's order.
template <bool Whole>
void launch_floats(const FloatShape& s, int groups, const LaunchPlace& place) {
  using Tall = FloatTile<8, 1, Whole>;
  using Wide = FloatTile<8, 2, Whole>;
  const bool wide = div_up(s.columns, 128) * 128 == div_up(s.columns, 64) * 64;
  const dim3 blocks = wide ? blocks_of<Wide>(s, groups) : blocks_of<Tall>(s, groups);
  if constexpr (Whole)
    if (int64_t{blocks.x} * blocks.y * blocks.z < int64_t{9} * cuda::multiprocessors(place.device) / 4)
      return launch_floats<FloatTile<4, 1, true>>(s, groups, place);
  wide ? launch_floats<Wide>(s, groups, place) : launch_floats<Tall>(s, groups, place);
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
  s.channels % kFloatStep == 0 ? launch_floats<true>(s, p.groups, place) : launch_floats<false>(s, p.groups, place);
}

size_t float_weight_workspace(const GatherSums& sums) {
  ConvWeightShape s{};
  if (!weight_shape(sums, s)) return 0;
  return workspace_of(s);
}

void float_conv_weight(const GatherSums& sums, void* workspace, const LaunchPlace& place) {
  ConvWeightShape s{};
  check_takes(weight_shape(sums, s), place);
  s.sums = static_cast<float*>(workspace);
  warps_of(s.lines) == 6 ? launch_sums<6>(s, place) : launch_sums<4>(s, place);
  launch_add_splits<float>(s, sums, place);
}

}  // namespace tenor::conv
