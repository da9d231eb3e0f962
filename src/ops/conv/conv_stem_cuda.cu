// Launches of the stem's kernels.
#include <algorithm>

#include "src/cuda/launch.h"
#include "src/cuda/tensor_map.h"
#include "src/ops/conv/conv_block_sums.cuh"
#include "src/ops/conv/conv_sizes.h"
#include "src/ops/conv/conv_stem.h"
#include "src/ops/conv/conv_stem_data.cuh"
#include "src/ops/conv/conv_stem_forward.cuh"
#include "src/ops/conv/conv_stem_weight.cuh"
#include "tenor/tensor.h"

namespace tenor::conv {
namespace {

constexpr const char *kForward = "conv_forward", *kData = "conv_data_backward", *kWeight = "conv_weight_backward";
constexpr int kMostColumns = 32, kMostRows = 64;  ///< of a tile of the data direction
constexpr int kMostGradColumns = 128;             ///< of a tile of the weight's
constexpr int kSumBlocks = 264;                   ///< ranges of rows, at most: two blocks a multiprocessor

/// The output's gradient, 64 channels of rows x columns pixels at once.
CUtensorMap grad_map(const ConvProblem& p, int rows, int columns, const char* op) {
  const Image& y = p.output;
  CUtensorMap map;
  const cuda::MapTensor x{y.data,
                          p.dtype == DType::kBFloat16,
                          {p.out_channels, p.window[2].output, p.window[1].output, p.batch},
                          {y.spatial[2], y.spatial[1], y.batch}};
  cuda::check(cuda::make_line_map(&map, x, {{columns, rows}}) ? cudaSuccess : cudaErrorInvalidValue, op);
  return map;
}

/// Even strides and start: two elements are one access at every even place.
bool even(const Image& x) {
  return reinterpret_cast<uintptr_t>(x.data) % 4 == 0 && x.batch % 2 == 0 && x.spatial[1] % 2 == 0;
}

StemDataShape data_shape(const ConvProblem& p) {
  const core::WindowDim &H = p.window[1], &W = p.window[2];
  const Image& x = p.input;
  StemDataShape s{};
  s.row = stem_dim(H), s.column = stem_dim(W);
  s.channels = narrow(p.channels), s.grad_channels = narrow(p.out_channels);
  s.chunks = div_up(p.out_channels, kStemChannels);
  s.height = narrow(H.input), s.width = narrow(W.input);
  const int down = div_up(H.input, 2), across = div_up(W.input, 2);
  s.across = div_up(across, kMostColumns), s.tile_columns = div_up(across, s.across);
  s.down = div_up(down, std::min(kStemPixels / s.tile_columns, kMostRows)), s.tile_rows = div_up(down, s.down);
  s.tiles = narrow(p.batch * s.down * s.across);
  s.weight = p.weight.data, s.weight_out = p.weight.out, s.weight_in = p.weight.in;
  s.weight_row = p.weight.spatial[1], s.weight_column = p.weight.spatial[2];
  s.image = x.data, s.image_batch = x.batch, s.image_row = x.spatial[1], s.image_pixel = x.spatial[2];
  s.image_channel = x.channel;
  s.pairs = even(x) && (x.channel == 1 || p.channels == 1) && x.spatial[2] == p.channels;
  s.bias = p.bias, s.bias_stride = p.bias_stride;
  return s;
}

template <class T>
void run_data(const ConvProblem& p) {
  const StemDataShape s = data_shape(p);
  const CUtensorMap grad = grad_map(p, s.tile_rows + s.row.offsets - 1, s.tile_columns + s.column.offsets - 1, kData);
  const cuda::Grid grid{cuda::blocks_for(s.tiles, 1, p.device, 1), kStemThreads, s.shared_bytes()};
  cuda::launch(kData, stem_data<T>, grid, p.device, grad, s, p);
}

StemImage image_of(const ConvProblem& p) {
  const Image& x = p.input;
  StemImage s{};
  s.channels = narrow(p.channels), s.height = narrow(p.window[1].input), s.width = narrow(p.window[2].input);
  s.batch = x.batch, s.row = x.spatial[1], s.pixel = x.spatial[2], s.channel = x.channel;
  s.triples = even(x) && p.channels == 3 && x.channel == 1 && x.spatial[2] == 3 && s.width % 2 == 0;
  s.data = x.data;
  return s;
}

/// The windows of outputs that walk along a row by lines; `Shape` is StemSumShape or StemForwardShape.
template <class Shape>
Shape window_shape(const ConvProblem& p) {
  const core::WindowDim &H = p.window[1], &W = p.window[2];
  Shape s{};
  s.image = image_of(p);
  s.kernel_height = narrow(H.kernel), s.kernel_width = narrow(W.kernel), s.top = narrow(H.before);
  s.lowest = narrow(-W.before >> 1);
  s.first_column = narrow(2 * s.lowest + W.before);
  s.out_channels = narrow(p.out_channels), s.out_height = narrow(H.output), s.out_width = narrow(W.output);
  return s;
}

StemForwardShape forward_shape(const ConvProblem& p) {
  StemForwardShape s = window_shape<StemForwardShape>(p);
  s.tile_columns = div_up(div_up(s.out_width, div_up(s.out_width, kStemForwardColumns)), 16) * 16;
  s.across = div_up(s.out_width, s.tile_columns);
  s.tile_rows = std::min(kStemForwardRows, s.out_height), s.down = div_up(s.out_height, s.tile_rows);
  s.tiles = narrow(p.batch * s.down * s.across);
  const Filter& w = p.weight;
  s.weight = w.data, s.weight_out = w.out, s.weight_in = w.in;
  s.weight_row = w.spatial[1], s.weight_column = w.spatial[2];
  s.result = p.output.data, s.result_batch = p.output.batch, s.result_row = p.output.spatial[1];
  s.result_pixel = p.output.spatial[2];
  s.bias = p.bias, s.bias_stride = p.bias_stride;
  return s;
}

template <class T>
void run_forward(const ConvProblem& p) {
  const StemForwardShape s = forward_shape(p);
  const int slices = div_up(p.out_channels, kStemSlice);
  const int blocks = std::clamp(cuda::multiprocessors(p.device) * kStemForwardBlocks / slices, 1, s.tiles);
  cuda::launch(kForward, stem_forward<T>, {dim3(blocks, slices), kStemForwardThreads, s.shared_bytes()}, p.device, s,
               p);
}

StemSumShape sum_shape(const ConvProblem& p) {
  const core::WindowDim &H = p.window[1], &W = p.window[2];
  StemSumShape s = window_shape<StemSumShape>(p);
  s.tile_columns = div_up(div_up(W.output, div_up(W.output, kMostGradColumns)), 16) * 16;
  s.across = div_up(W.output, s.tile_columns);
  s.rows = narrow(p.batch * s.across * H.output);
  s.rows_per_block = div_up(s.rows, kSumBlocks / div_up(p.out_channels, kStemOuts));
  return s;
}

/// Which element of the gradient one of a block's sums is.
struct StemTaps {
  StemSumShape s;
  __device__ __forceinline__ WeightPlace operator()(int64_t i) const {
    const int at = static_cast<int>(i % kStemFloats), place = at % 8, channel = place % 4;
    const int line = at / 8 / kStemOuts % kStemLines, tap_row = at / 8 / kStemOuts / kStemLines;
    const int output = static_cast<int>(i / kStemFloats) * kStemOuts + at / 8 % kStemOuts;
    const int tap = s.first_column + 2 * line + place / 4;
    const bool exists = output < s.out_channels && tap_row < s.kernel_height && tap >= 0 && tap < s.kernel_width &&
                        channel < s.image.channels;
    return {exists ? output : -1, channel, {0, tap_row, tap}};
  }
};

template <class T>
void run_weight(const ConvProblem& p) {
  StemSumShape s = sum_shape(p);
  const int blocks = div_up(s.rows, s.rows_per_block), slices = div_up(p.out_channels, kStemOuts);
  const int64_t count = int64_t{slices} * kStemFloats;
  const Tensor sums = Tensor::empty({blocks, count}, float32, p.device);
  s.sums = sums.data<float>();
  const CUtensorMap grad = grad_map(p, 1, s.tile_columns, kWeight);
  cuda::launch(kWeight, stem_sums<T>, {dim3(blocks, slices), kStemSumThreads, s.shared_bytes()}, p.device, grad, s);
  launch_block_sums<T>(p, s.sums, count, blocks, StemTaps{s});
}

template <class T>
void run_typed(const ConvProblem& p) {
  if (p.direction == Direction::kForward) return run_forward<T>(p);
  if (p.direction == Direction::kDataBackward) return run_data<T>(p);
  run_weight<T>(p);
}

}  // namespace

void stem_run(const ConvProblem& p) {
  if (p.dtype == DType::kBFloat16) return run_typed<BFloat16>(p);
  run_typed<Float16>(p);
}

}  // namespace tenor::conv
