#include <algorithm>
#include <cstdlib>

#include "src/cuda/tensor_map.h"
#include "src/ops/conv/sm90_conv_launch.cuh"

namespace tenor::conv {
namespace {

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

namespace {

/// What a product costs in tiles of `columns`: the tiles, and cycles of each.
struct ConvCost {
  int64_t tiles;
  double cycles;
};
ConvCost cost_of(const GatherProduct& p, int columns, bool flat, bool image) {
  const int64_t taps = int64_t{p.dim[0].taps} * p.dim[1].taps * p.dim[2].taps;
  const int64_t steps =
      std::max<int64_t>(flat ? div_up(p.channels * taps, kTileK) : div_up(p.channels, kTileK) * taps, 1);
  int64_t pixels = p.batch;
  for (const GatherDim& d : p.dim) pixels *= d.outputs;
  const int64_t tiles = int64_t{div_up(pixels, kTileM * kConvCluster)} * div_up(p.columns, columns) * p.groups;
  // The tensor cores, or the pixels' 128 lines: either way of loading them is slower than L2.
  const double cycles = std::max(4.0 * columns, (image ? 600.0 : 800.0) + columns), ends = 600 + 8.0 * columns;
  return {tiles, static_cast<double>(steps) * cycles + ends};
}

/// The tile that takes the least time for all of them, one after the other.
int columns_for(const GatherProduct* products, int count, bool flat, bool image, Device device) {
  const int clusters = cuda::multiprocessors(device) / kConvCluster;
  int best = 128;
  double least = 0;
  for (const int columns : {256, 128, 64, 32}) {
    double time = 0;
    if (count == 1) {
      const ConvCost cost = cost_of(products[0], columns, flat, image);
      time = static_cast<double>((cost.tiles + clusters - 1) / clusters) * cost.cycles;
    } else {
      for (int i = 0; i < count; ++i) {
        const ConvCost cost = cost_of(products[i], columns, flat, image);
        time += static_cast<double>(cost.tiles) * cost.cycles / clusters;
      }
    }
    if (least == 0 || time < least) least = time, best = columns;
  }
  return best;
}

bool chunks_whole(const GatherProduct& p) {
  bool chunks = p.result_channel == 1 && reinterpret_cast<uintptr_t>(p.result) % 16 == 0 && p.result_batch % 8 == 0 &&
                p.columns % 8 == 0;
  for (const GatherDim& d : p.dim) chunks &= d.result_stride % 8 == 0;
  return chunks;
}

/// Puts a product into the launch; one without pixels is left out.
void add_product(const GatherProduct& p, const ConvPlan& plan, ConvLaunch& launch) {
  ConvShape& s = launch.batch.shape[launch.batch.count];
  check_takes(make_row_shape(p, s.rows) && (!plan.image || sm90_conv_takes_image(p)), launch.place);
  s.channels = p.channels, s.columns = p.columns, s.groups = p.groups;
  s.tiles_m = div_up(s.rows.pixels, kTileM * kConvCluster), s.tiles_n = div_up(p.columns, plan.columns);
  s.flat = !plan.image && is_flat(p);
  s.taps = weight_taps_of(p), s.weight = p.weight;
  for (int d = 0; d < 3; ++d) s.lowest[d] = lowest_of(p.dim[d]);
  s.source = p.source, s.bias = p.bias, s.bias_stride = p.bias_stride, s.result = p.result,
  s.result_channel = p.result_channel;
  s.whole_chunks = chunks_whole(p), s.three_dims = !has_two_dims(p);
  if (s.rows.pixels == 0) return;
  check_takes(map_weight(&launch.maps.weight[launch.batch.count], p, s.flat, plan.columns / kConvCluster),
              launch.place);
  if (plan.image) check_takes(map_image(&launch.maps.image[launch.batch.count], p, kTileM), launch.place);
  ++launch.batch.count;
}

/// Products that share a launch.
void run_products(const GatherProduct* products, int count, const ConvPlan& plan, const LaunchPlace& place) {
  ConvLaunch launch{};
  launch.place = place;
  for (int i = 0; i < count; ++i) add_product(products[i], plan, launch);
  if (launch.batch.count == 0) return;
  products[0].bfloat16 ? launch_conv_bfloat16(plan, launch) : launch_conv_float16(plan, launch);
}

}  // namespace

void sm90_conv_all(std::vector<GatherProduct> products, const LaunchPlace& place) {
  const bool all = std::all_of(products.begin(), products.end(),
                               [](const GatherProduct& p) { return !is_flat(p) && sm90_conv_takes_image(p); });
  const auto taps = [](const GatherProduct& p) { return int64_t{p.dim[0].taps} * p.dim[1].taps * p.dim[2].taps; };
  // The longest first, so that short tiles are what is left at the end.
  std::stable_sort(products.begin(), products.end(),
                   [&](const GatherProduct& a, const GatherProduct& b) { return taps(a) > taps(b); });
  const size_t most = all ? kMostProducts : 1;
  for (size_t first = 0; first < products.size(); first += most) {
    const GatherProduct* const p = &products[first];
    const auto count = narrow(static_cast<int64_t>(std::min(most, products.size() - first)));
    const bool flat = is_flat(*p), image = !flat && sm90_conv_takes_image(*p);
    run_products(p, count, {columns_for(p, count, flat, image, place.device), image}, place);
  }
}

}  // namespace tenor::conv
