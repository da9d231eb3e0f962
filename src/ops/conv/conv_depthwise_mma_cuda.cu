// Launches of the depthwise weight gradient on tensor cores.
#include "src/ops/conv/conv_depthwise_launch.cuh"
#include "src/ops/conv/conv_depthwise_mma.cuh"

namespace tenor::conv {
namespace {

constexpr const char* kOp = "conv_weight_backward";
constexpr int kSumBlocks = 396;   ///< ranges of rows and slices of channels, that fill any device
constexpr int kMostColumns = 32;  ///< of a tile

MmaShape shape_of(const ConvProblem& p) {
  const core::WindowDim &H = p.window[1], &W = p.window[2];
  MmaShape s{};
  s.channels = narrow(p.channels), s.size = narrow(H.kernel);
  s.top = narrow(H.before), s.left = narrow(W.before);
  s.height = narrow(H.input), s.out_height = narrow(H.output);
  s.columns = div_up(div_up(W.output, div_up(W.output, kMostColumns)), 16) * 16;
  s.across = div_up(W.output, s.columns), s.rows = narrow(p.batch * s.across * H.output);
  s.rows_per_block = div_up(s.rows, std::max(kSumBlocks / div_up(p.channels, kMmaChannels), 1));
  return s;
}

/// `columns` pixels of one row, 64 channels each, swizzled.
bool pieces_map(CUtensorMap* map, const ConvProblem& p, const Image& x, int64_t height, int64_t width, int columns) {
  const cuda::MapTensor lines{
      x.data, p.dtype == DType::kBFloat16, {p.channels, width, height, p.batch}, {x.spatial[2], x.spatial[1], x.batch}};
  return cuda::make_line_map(map, lines, {{columns, 1}});
}

template <class T>
bool run_typed(const ConvProblem& p) {
  const core::WindowDim &H = p.window[1], &W = p.window[2];
  MmaShape s = shape_of(p);
  CUtensorMap source, grad;
  if (!pieces_map(&source, p, p.input, H.input, W.input, s.columns + kMmaTaps)) return false;
  if (!pieces_map(&grad, p, p.output, H.output, W.output, s.columns)) return false;
  const int blocks = div_up(s.rows, s.rows_per_block), slices = div_up(p.channels, kMmaChannels);
  const int64_t count = p.taps() * p.channels;
  const Tensor sums = Tensor::empty({blocks, count}, float32, p.device);
  s.sums = sums.data<float>();
  const cuda::Grid grid{dim3(slices, blocks), kMmaThreads, MmaRings(s).shared_bytes()};
  cuda::launch(kOp, mma_weight<T>, grid, p.device, source, grad, s);
  launch_block_sums<T>(p, s.sums, count, blocks, DepthwiseTaps(p));
  return true;
}

}  // namespace

bool depthwise_mma_run(const ConvProblem& p) {
  constexpr int64_t kLeast = 7;  // taps of a dim: with fewer, multiply-adds by themselves are as fast
  if (p.direction != Direction::kWeightBackward || p.window[1].kernel < kLeast || p.channels % 8 != 0) return false;
  if (p.dtype == DType::kBFloat16) return run_typed<BFloat16>(p);
  return p.dtype == DType::kFloat16 && run_typed<Float16>(p);
}

}  // namespace tenor::conv
