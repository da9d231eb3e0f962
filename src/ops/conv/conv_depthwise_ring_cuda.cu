// Launches of the depthwise kernels whose rows come by TMA.
#include <algorithm>

#include "src/cuda/launch.h"
#include "src/cuda/tensor_map.h"
#include "src/ops/conv/conv_block_sums.cuh"
#include "src/ops/conv/conv_depthwise.cuh"
#include "src/ops/conv/conv_depthwise_ring.cuh"
#include "src/ops/conv/conv_direct_cuda.h"
#include "tenor/tensor.h"

namespace tenor::conv {
namespace {

constexpr int kSumBlocks = 264;  ///< ranges of rows and tiles of channels of a weight gradient, that fill any device

/// A pixel's channels of a warp are 128 bytes; of the 3x3 weight gradient, whose sums are few, 256.
template <class T, int kSize>
using ImageConfig = RingConfig<T, kSize, 4 / sizeof(T), 7, kSize == 3 ? 8 : 5,
                               kSize == 3   ? 4
                               : kSize == 5 ? 3
                                            : 2>;
template <class T, int kSize>
using WeightConfig = RingConfig<T, kSize, (kSize == 3 ? 8 : 4) / sizeof(T), 7, 5, 2>;

int narrow(int64_t x) { return static_cast<int>(x); }
int div_up(int64_t a, int64_t b) { return narrow((a + b - 1) / b); }

template <class Config>
RingShape shape_of(const ConvProblem& p) {
  const core::WindowDim &H = p.window[1], &W = p.window[2];
  const bool backward = p.direction == Direction::kDataBackward;
  const Image& other = backward ? p.input : p.output;
  RingShape s{};
  s.channels = narrow(p.channels);
  s.height = narrow(backward ? H.output : H.input), s.width = narrow(backward ? W.output : W.input);
  s.out_height = narrow(backward ? H.input : H.output), s.out_width = narrow(backward ? W.input : W.output);
  s.top = narrow(backward ? H.kernel - 1 - H.before : H.before);
  s.left = narrow(backward ? W.kernel - 1 - W.before : W.before);
  const int strips = div_up(s.out_width, Config::kWide);
  s.across = div_up(strips, kRingWarps), s.warps = div_up(strips, s.across);
  s.rows = narrow(p.batch * s.across * s.out_height);
  s.result = other.data, s.other_batch = other.batch, s.other_row = other.spatial[1];
  s.other_pixel = narrow(other.spatial[2]);
  s.weight = p.weight.data, s.weight_channel = p.weight.out;
  s.weight_row = p.weight.spatial[1], s.weight_column = p.weight.spatial[2], s.from_last = backward;
  s.bias = p.bias, s.bias_stride = p.bias_stride;
  return s;
}

/// Deals the rows to about `blocks` blocks, whole images where that costs little: two ranges both read kernel - 1 rows
/// at a cut.
void deal_rows(RingShape& s, int blocks, int kernel) {
  const int least = std::min(kernel, s.rows), per = std::max(div_up(s.rows, std::max(blocks, 1)), least);
  const int whole = div_up(per, s.out_height) * s.out_height;
  s.rows_per_block = whole <= per + per / 16 ? whole : per;
}

/// `columns` pixels of one row, all channels of a warp.
template <class Config>
bool line_map(CUtensorMap* map, const ConvProblem& p, const Image& x, int height, int width, int columns) {
  const cuda::MapTensor lines{x.data,
                              p.dtype == DType::kBFloat16,
                              {p.channels, width, height, p.batch},
                              {x.spatial[2], x.spatial[1], x.batch},
                              p.dtype == DType::kFloat32};
  return cuda::make_line_map(map, lines, {.lines = {columns, 1}, .columns = Config::kChannels, .swizzled = false});
}

template <class T, int kSize>
bool run_image(const ConvProblem& p) {
  using Config = ImageConfig<T, kSize>;
  RingShape s = shape_of<Config>(p);
  const Image& from = p.direction == Direction::kForward ? p.input : p.output;
  CUtensorMap source;
  if (!line_map<Config>(&source, p, from, s.height, s.width, s.warps * Config::kWide + kSize - 1)) return false;
  const int tiles = div_up(s.channels, Config::kChannels);
  deal_rows(s, cuda::multiprocessors(p.device) * Config::kBlocks * kRingWarps / s.warps / tiles, kSize);
  const cuda::Grid grid{dim3(tiles, div_up(s.rows, s.rows_per_block)), 32 * s.warps,
                        RingLayout<Config>(s, false).image_bytes()};
  const char* op = p.direction == Direction::kForward ? "conv_forward" : "conv_data_backward";
  cuda::launch(op, ring_image<Config>, grid, p.device, source, s);
  return true;
}

template <class T, int kSize>
bool run_weight(const ConvProblem& p) {
  using Config = WeightConfig<T, kSize>;
  constexpr const char* kOp = "conv_weight_backward";
  RingShape s = shape_of<Config>(p);
  CUtensorMap source, grad;
  if (!line_map<Config>(&source, p, p.input, s.height, s.width, s.warps * Config::kWide + kSize - 1)) return false;
  if (!line_map<Config>(&grad, p, p.output, s.out_height, s.out_width, s.warps * Config::kWide)) return false;
  const int tiles = div_up(s.channels, Config::kChannels);
  deal_rows(s, kSumBlocks * kRingWarps / s.warps / tiles, kSize);
  const int blocks = div_up(s.rows, s.rows_per_block);
  const int64_t count = int64_t{Config::kTaps} * s.channels;
  const Tensor sums = Tensor::empty({blocks, count}, float32, p.device);
  s.sums = sums.data<float>();
  const cuda::Grid grid{dim3(tiles, blocks), 32 * s.warps, RingLayout<Config>(s, true).weight_bytes(s.warps)};
  cuda::launch(kOp, ring_weight<Config>, grid, p.device, source, grad, s);
  launch_block_sums(kOp, p.device, s.sums, count, blocks, depthwise_store<T>(p));
  return true;
}

template <class T>
bool run_typed(const ConvProblem& p) {
  const bool weight = p.direction == Direction::kWeightBackward;
  switch (p.window[1].kernel) {
    case 3:
      return weight ? run_weight<T, 3>(p) : run_image<T, 3>(p);
    case 5:
      return weight ? run_weight<T, 5>(p) : run_image<T, 5>(p);
    default:
      return weight ? run_weight<T, 7>(p) : run_image<T, 7>(p);
  }
}

}  // namespace

bool depthwise_ring_run(const ConvProblem& p) {
  if (!cuda::capability(p.device).clusters) return false;
  constexpr int64_t kMostBlocks = 65535, kMostRows = 1 << 30;
  const int64_t rows =
      p.batch * std::max(p.window[1].output * p.window[2].output, p.window[1].input * p.window[2].input);
  if (rows > kMostRows || p.batch > kMostBlocks) return false;
  if (p.dtype == DType::kBFloat16) return run_typed<BFloat16>(p);
  if (p.dtype == DType::kFloat16) return run_typed<Float16>(p);
  return run_typed<float>(p);
}

}  // namespace tenor::conv
