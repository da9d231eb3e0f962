// Which problems with groups of eight channels have kernels of their own, and their launches.
#include <algorithm>

#include "src/cuda/launch.h"
#include "src/cuda/tensor_map.h"
#include "src/ops/conv/conv_block_sums.cuh"
#include "src/ops/conv/conv_direct_cuda.h"
#include "src/ops/conv/conv_grouped_window.cuh"
#include "tenor/tensor.h"

namespace tenor::conv {
namespace {

constexpr int kMostBox = 256;  ///< of a dim of what TMA brings at once

/// Eight channels are one access.
bool pieces(const Image& x, int64_t rows, int64_t columns) {
  return x.channel == 1 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.batch % 8 == 0 &&
         (rows == 1 || x.spatial[1] % 8 == 0) && (columns == 1 || x.spatial[2] % 8 == 0);
}

/// Tiles of at most `most` pixels.
GroupedShape shape_of(const ConvProblem& p, int most) {
  const bool backward = p.direction == Direction::kDataBackward;
  const Image &source = backward ? p.output : p.input, &other = backward ? p.input : p.output;
  GroupedShape s{};
  s.batch = narrow(p.batch), s.groups = narrow(p.groups);
  place_windows(s, p);
  const int cuts = div_up(s.out_width, 32);
  s.tile_columns = div_up(s.out_width, cuts);
  const int rows = std::max(most / s.tile_columns, 1);
  s.down = div_up(s.out_height, rows), s.across = cuts;
  s.tile_rows = div_up(s.out_height, s.down);
  s.source = source.data, s.source_batch = source.batch, s.source_row = source.spatial[1],
  s.source_pixel = source.spatial[2];
  s.other_batch = other.batch, s.other_row = other.spatial[1], s.other_pixel = other.spatial[2];
  s.result = other.data, s.grad = p.output.data, s.weight = p.weight.data;
  s.weight_group = kGroupChannels * p.weight.out;
  s.weight_out = backward ? p.weight.in : p.weight.out, s.weight_in = backward ? p.weight.out : p.weight.in;
  s.weight_row = p.weight.spatial[1], s.weight_column = p.weight.spatial[2];
  s.from_last = backward;
  s.bias = p.bias, s.bias_stride = p.bias_stride;
  return s;
}

/// Which element of the gradient a sum of [groups, pairs of taps, 16 of two taps' channels read, 8 written] is.
struct GroupedTaps {
  int size, pairs;
  __device__ __forceinline__ WeightPlace operator()(int64_t i) const {
    const int64_t o = i % 8, c = i / 8 % 8, tap = i / 64 % (2 * pairs), g = i / 128 / pairs;
    return {tap < size * size ? g * kGroupChannels + o : -1, c, {0, tap / size, tap % size}};
  }
};

constexpr const char* kWeightOp = "conv_weight_backward";
constexpr int kRanges = 396, kWindowRanges = 264;  ///< of tiles, at most: 3 and 2 blocks a multiprocessor

/// Makes room for the sums of `ranges` blocks, has them summed, and adds them up.
template <class T, int kSize, class Sum>
void add_ranges(const ConvProblem& p, GroupedShape& s, int ranges, const Sum& sum) {
  constexpr int kPairs = (kSize * kSize + 1) / 2;
  const int64_t count = int64_t{s.groups} * kPairs * 16 * 8;
  const Tensor sums = Tensor::empty({ranges, count}, float32, p.device);
  s.sums = sums.data<float>();
  sum();
  launch_block_sums<T>(p, s.sums, count, ranges, GroupedTaps{kSize, kPairs});
}

const char* image_op(const ConvProblem& p) {
  return p.direction == Direction::kForward ? "conv_forward" : "conv_data_backward";
}

/// rows x columns pixels of 64 channels.
bool window_map(CUtensorMap* map, const ConvProblem& p, const Image& x, int height, int width, int rows, int columns) {
  const cuda::MapTensor lines{
      x.data, p.dtype == DType::kBFloat16, {p.channels, width, height, p.batch}, {x.spatial[2], x.spatial[1], x.batch}};
  return rows <= kMostBox && columns <= kMostBox && cuda::make_line_map(map, lines, {{columns, rows}});
}

/// By TMA; false, and nothing done, where the device or the layout does not allow it.
template <class T, int kSize>
bool run_windows(const ConvProblem& p) {
  if (!cuda::capability(p.device).clusters) return false;
  GroupedShape s = shape_of(p, kWindowPixels);
  const bool weight = p.direction == Direction::kWeightBackward;
  const Image& from = p.direction == Direction::kDataBackward ? p.output : p.input;
  CUtensorMap source, grad;
  if (!window_map(&source, p, from, s.height, s.width, s.tile_rows + kSize - 1, s.tile_columns + kSize - 1))
    return false;
  if (weight && !window_map(&grad, p, p.output, s.out_height, s.out_width, s.tile_rows, s.tile_columns)) return false;
  const int slices = div_up(s.groups, kGroupedWarps), tiles = s.tiles();
  const size_t shared = window_layout(s, kSize, weight).shared_bytes();
  if (!weight) {
    const auto blocks = std::clamp<int>(cuda::multiprocessors(p.device) * 3 / slices, 1, tiles);
    cuda::launch(image_op(p), window_image<T, kSize>, {dim3(blocks, slices), kGroupedThreads, shared}, p.device, source,
                 s, tiles, p);
    return true;
  }
  const int ranges = std::clamp(kWindowRanges / slices, 1, tiles);
  add_ranges<T, kSize>(p, s, ranges, [&] {
    cuda::launch(kWeightOp, window_weight<T, kSize>, {dim3(ranges, slices), kGroupedThreads, shared}, p.device, source,
                 grad, s, tiles);
  });
  return true;
}

template <class T, int kSize>
void run_sized(const ConvProblem& p) {
  if (run_windows<T, kSize>(p)) return;
  GroupedShape s = shape_of(p, kTilePixels);
  const int windows = (s.tile_rows + kSize - 1) * (s.tile_columns + kSize - 1);
  const int slices = div_up(s.groups, kGroupedWarps);
  if (p.direction != Direction::kWeightBackward) {
    const cuda::Grid grid{dim3(s.tiles(), slices), kGroupedThreads, size_t{128} * (windows + 1)};
    return cuda::launch(image_op(p), grouped_image<T, kSize>, grid, p.device, s, p);
  }
  const int ranges = std::clamp(kRanges / slices, 1, s.tiles());
  const cuda::Grid grid{dim3(ranges, slices), kGroupedThreads,
                        size_t{128} * (windows + s.tile_rows * s.tile_columns + 1)};
  add_ranges<T, kSize>(p, s, ranges,
                       [&] { cuda::launch(kWeightOp, grouped_weight<T, kSize>, grid, p.device, s, s.tiles()); });
}

template <class T>
void run_typed(const ConvProblem& p) {
  if (p.window[1].kernel == 3) return run_sized<T, 3>(p);
  run_sized<T, 5>(p);
}

}  // namespace

bool grouped_takes(const ConvProblem& p) {
  const core::WindowDim &H = p.window[1], &W = p.window[2];
  if (p.group_channels() != kGroupChannels || p.group_outputs() != kGroupChannels) return false;
  if (p.dtype != DType::kBFloat16 && p.dtype != DType::kFloat16) return false;
  if (!has_square_window(p, {3, 5}, 1) || !fits_direct(p)) return false;
  return pieces(p.input, H.input, W.input) && pieces(p.output, H.output, W.output);
}

void grouped_run(const ConvProblem& p) {
  if (p.dtype == DType::kBFloat16) return run_typed<BFloat16>(p);
  run_typed<Float16>(p);
}

}  // namespace tenor::conv
