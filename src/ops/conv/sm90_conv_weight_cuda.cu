#include <algorithm>

#include "src/cuda/tensor_map.h"
#include "src/ops/conv/sm90_conv.h"
#include "src/ops/conv/sm90_conv_weight.cuh"

namespace tenor::conv {
namespace {

struct WeightMaps {
  CUtensorMap image, grad;
};

template <class Config>
void launch_config(const WeightMaps& maps, const ConvWeightShape& s, const LaunchPlace& place) {
  const dim3 blocks(s.row_tiles * s.column_tiles * s.groups, s.splits);
  cuda::launch(place.op, sm90_conv_weight_kernel<Config>, {blocks, kThreads, sizeof(ConvWeightShared<Config>)},
               place.device, maps.image, maps.grad, s);
}

template <class T, int kColumns>
void launch_columns(bool image, const WeightMaps& maps, const ConvWeightShape& s, const LaunchPlace& place) {
  image ? launch_config<ConvWeightConfig<T, kColumns, false>>(maps, s, place)
        : launch_config<ConvWeightConfig<T, kColumns, true>>(maps, s, place);
}

template <class T>
void launch_weight(const ConvWeightPlan& plan, const WeightMaps& maps, const ConvWeightShape& s, const GatherSums& sums,
                   const LaunchPlace& place) {
  switch (plan.columns) {
    case 64:
      launch_columns<T, 64>(plan.image, maps, s, place);
      break;
    case 128:
      launch_columns<T, 128>(plan.image, maps, s, place);
      break;
    default:
      launch_columns<T, 256>(plan.image, maps, s, place);
  }
  launch_add_splits<T>(s, sums, place);
}

ConvWeightShape shape_of(const GatherSums& sums, const ConvWeightPlan& plan) {
  const GatherProduct& p = sums.gather;
  ConvWeightShape s{};
  make_row_shape(p, s.rows);
  s.channels = p.channels, s.columns = p.columns, s.groups = p.groups;
  s.lines = div_up(taps_of(s.rows) * p.channels, 64) * 64;
  s.row_tiles = div_up(s.lines, kTileM), s.column_tiles = div_up(p.columns, plan.columns);
  const int steps = div_up(s.rows.pixels, kTileK);
  s.steps_per_split = div_up(steps, plan.splits);
  s.splits = div_up(steps, s.steps_per_split);
  s.source = p.source, s.grad = sums.grad;
  for (int d = 0; d < 3; ++d) s.lowest[d] = lowest_of(p.dim[d]);
  s.three_dims = !has_two_dims(p);
  return s;
}

}  // namespace

bool sm90_conv_weight_takes_image(const GatherSums& p) {
  CUtensorMap map;
  return p.gather.channels % 64 == 0 && map_image(&map, p.gather, kTileK);
}

ConvWeightPlan sm90_conv_weight_choice(const GatherSums& p, Device device) {
  const int count = cuda::multiprocessors(device);
  ConvWeightPlan best;
  double least = 0;
  for (const int columns : {256, 128, 64}) {
    const ConvWeightShape s = shape_of(p, {columns, 1});
    const int64_t tiles = int64_t{s.row_tiles} * s.column_tiles * s.groups;
    const double cycles = 4.0 * (kTileM + columns);  // lines of 128 bytes, four cycles each
    const double bytes = 4.0 * s.lines * s.columns * s.groups;
    for (int splits = 1; splits <= std::min({s.steps_per_split, most_splits(s), 256}); ++splits) {
      const double waves = static_cast<double>((tiles * splits + count - 1) / count);
      // What is written and read again passes through L2 at about 1000 bytes a cycle.
      const double time = waves * (div_up(s.steps_per_split, splits) * cycles + 2000) + bytes * (splits + 1) / 1000;
      if (least == 0 || time < least) least = time, best = {columns, splits};
    }
  }
  best.image = sm90_conv_weight_takes_image(p);
  return best;
}

size_t sm90_conv_weight_workspace(const GatherSums& p, const ConvWeightPlan& plan) {
  return workspace_of(shape_of(p, plan));
}

void sm90_conv_weight(const GatherSums& sums, const ConvWeightPlan& plan, void* workspace, const LaunchPlace& place) {
  const GatherProduct& p = sums.gather;
  ConvWeightShape s = shape_of(sums, plan);
  s.sums = static_cast<float*>(workspace);
  const int64_t line = int64_t{p.columns} * p.groups;
  const cuda::MapTensor x{sums.grad, p.bfloat16, {p.columns, p.groups, s.rows.pixels, 1}, {p.columns, line, 0}};
  WeightMaps maps{};
  check_takes(cuda::make_line_map(&maps.grad, x, {{1, kTileK}}), place);
  if (plan.image) check_takes(map_image(&maps.image, p, kTileK), place);
  p.bfloat16 ? launch_weight<__nv_bfloat16>(plan, maps, s, sums, place)
             : launch_weight<__half>(plan, maps, s, sums, place);
}

}  // namespace tenor::conv
