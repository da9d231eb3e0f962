// What the launches of the depthwise ring kernels share.
#pragma once

#include <algorithm>

#include "src/cuda/launch.h"
#include "src/cuda/tensor_map.h"
#include "src/ops/conv/conv_block_sums.cuh"
#include "src/ops/conv/conv_depthwise.cuh"
#include "src/ops/conv/conv_depthwise_ring.cuh"
#include "src/ops/conv/conv_direct_cuda.h"
#include "src/ops/conv/conv_sizes.h"
#include "tenor/tensor.h"

namespace tenor::conv {

/// Blocks of columns and strips of them, for results of out_height x out_width.
template <class Config>
void cut_columns(RingShape& s, int64_t batch) {
  const int strips = div_up(s.out_width, Config::kWide);
  s.across = div_up(strips, kRingWarps), s.warps = div_up(strips, s.across);
  s.rows = narrow(batch * s.across * s.out_height);
}

/// What is written, or grad, and the weight.
inline void place_operands(RingShape& s, const ConvProblem& p, const Image& other) {
  s.channels = narrow(p.channels);
  s.result = other.data, s.other_batch = other.batch, s.other_row = other.spatial[1];
  s.other_pixel = narrow(other.spatial[2]);
  s.weight = p.weight.data, s.weight_channel = p.weight.out;
  s.weight_row = p.weight.spatial[1], s.weight_column = p.weight.spatial[2];
  s.weight_pieces = s.weight_column == 1 && s.weight_row == p.window[2].kernel && s.weight_channel == p.taps() &&
                    reinterpret_cast<uintptr_t>(s.weight) % 16 == 0;
  s.bias = p.bias, s.bias_stride = p.bias_stride;
}

/// Deals the rows to about `blocks` blocks, whole images where that costs little: two ranges both read kernel - 1 rows
/// at a cut.
inline void deal_rows(RingShape& s, int blocks, int kernel) {
  const int least = std::min(kernel, s.rows), per = std::max(div_up(s.rows, std::max(blocks, 1)), least);
  const int whole = div_up(per, s.out_height) * s.out_height;
  s.rows_per_block = whole <= per + per / 16 ? whole : per;
}

/// rows x columns pixels at once, all channels of a warp.
template <class Config>
bool line_map(CUtensorMap* map, const ConvProblem& p, const Image& x, int64_t height, int64_t width, int rows,
              int columns) {
  const cuda::MapTensor lines{x.data,
                              p.dtype == DType::kBFloat16,
                              {p.channels, width, height, p.batch},
                              {x.spatial[2], x.spatial[1], x.batch},
                              p.dtype == DType::kFloat32};
  return cuda::make_line_map(map, lines, {.lines = {columns, rows}, .columns = Config::kChannels, .swizzled = false});
}
/// The rows of a step of the source.
template <class Config>
bool source_map(CUtensorMap* map, const ConvProblem& p, const RingShape& s, const Image& x) {
  return line_map<Config>(map, p, x, s.height, s.width, Config::kStride,
                          (s.warps * Config::kWide - 1) * Config::kStride + Config::kSize);
}

inline const char* image_op(const ConvProblem& p) {
  return p.direction == Direction::kForward ? "conv_forward" : "conv_data_backward";
}

/// Blocks of strips that a device holds at once, for each tile of channels.
template <class Config>
int image_blocks(const ConvProblem& p, const RingShape& s) {
  return cuda::multiprocessors(p.device) * Config::kBlocks * kRingWarps / s.warps /
         div_up(s.channels, Config::kChannels);
}

/// An image direction over `from` by `kernel`, whose blocks keep a weight of that many taps, and which takes what
/// `more` there is; false, and nothing done, where TMA does not load the source.
template <class Config, class Kernel, class... More>
bool run_ring_image(const ConvProblem& p, RingShape s, const Image& from, int taps, int kernel_size, Kernel kernel,
                    const More&... more) {
  CUtensorMap source;
  if (!source_map<Config>(&source, p, s, from)) return false;
  deal_rows(s, image_blocks<Config>(p, s), kernel_size);
  const RingLayout<Config> layout(s, false);
  const size_t weight = div_up<size_t>(int64_t{taps} * RingLayout<Config>::kPixel, 128) * 128;
  const cuda::Grid grid{dim3(div_up(s.channels, Config::kChannels), div_up(s.rows, s.rows_per_block)), 32 * s.warps,
                        weight + layout.ring() + layout.kBarriers};
  cuda::launch(image_op(p), kernel, grid, p.device, source, s, more..., p);
  return true;
}

/// A weight gradient: `kernel` sums ranges of rows, which are added up.
template <class T, class Config>
bool run_ring_sums(const ConvProblem& p, RingShape s, void (*kernel)(CUtensorMap, CUtensorMap, RingShape)) {
  constexpr const char* kOp = "conv_weight_backward";
  constexpr int kSumBlocks = 132 * Config::kBlocks;  // that fill any device
  CUtensorMap source, grad;
  if (!source_map<Config>(&source, p, s, p.input)) return false;
  if (!line_map<Config>(&grad, p, p.output, s.out_height, s.out_width, 1, s.warps * Config::kWide)) return false;
  const int tiles = div_up(s.channels, Config::kChannels);
  deal_rows(s, kSumBlocks * kRingWarps / s.warps / tiles, Config::kSize);
  const int blocks = div_up(s.rows, s.rows_per_block);
  const int64_t count = int64_t{Config::kTaps} * s.channels;
  const Tensor sums = Tensor::empty({blocks, count}, float32, p.device);
  s.sums = sums.data<float>();
  const cuda::Grid grid{dim3(tiles, blocks), 32 * s.warps, RingLayout<Config>(s, true).weight_bytes(s.warps)};
  cuda::launch(kOp, kernel, grid, p.device, source, grad, s);
  launch_block_sums<T>(p, s.sums, count, blocks, DepthwiseTaps(p));
  return true;
}

/// Whether every pixel starts at a multiple of 16 bytes, if the image does.
inline bool steps_by_pieces(const Image& x, DType dtype) {
  const auto pieces = [&](int64_t stride) { return stride * static_cast<int64_t>(item_size(dtype)) % 16 == 0; };
  return pieces(x.batch) && pieces(x.spatial[1]) && pieces(x.spatial[2]);
}

/// Whether the kernels' counts hold the sizes, and the device has TMA.
inline bool ring_takes(const ConvProblem& p) {
  constexpr int64_t kMostRows = 1 << 29;
  const core::WindowDim &H = p.window[1], &W = p.window[2];
  return cuda::capability(p.device).clusters &&
         p.batch * std::max((H.output + H.kernel) * W.output, (H.input + H.kernel) * (W.input + W.kernel)) <= kMostRows;
}

}  // namespace tenor::conv
