// Launches of the depthwise kernels whose rows come by TMA, stride 1.
#include "src/ops/conv/conv_depthwise_launch.cuh"

namespace tenor::conv {
namespace {

/// What was fastest: a thread has two 16-bit channels where registers hold the weight and the sums of both.
template <class T, int kSize>
using OfImage = RingConfig<T, kSize, kSize == 3 ? 4 / sizeof(T) : 1, 7, kSize == 7 ? 5 : 4, kSize == 7 ? 3 : 4>;
template <class T, int kSize>
using OfWeight = RingConfig<T, kSize, kSize == 7 ? 1 : 4 / sizeof(T), 7, kSize == 3 ? 4 : 5, kSize == 3 ? 4 : 3>;

template <class Config>
RingShape shape_of(const ConvProblem& p) {
  const core::WindowDim &H = p.window[1], &W = p.window[2];
  const bool backward = p.direction == Direction::kDataBackward;
  RingShape s{};
  place_operands(s, p, backward ? p.input : p.output);
  s.height = narrow(backward ? H.output : H.input), s.width = narrow(backward ? W.output : W.input);
  s.out_height = narrow(backward ? H.input : H.output), s.out_width = narrow(backward ? W.input : W.output);
  s.top = narrow(backward ? H.kernel - 1 - H.before : H.before);
  s.left = narrow(backward ? W.kernel - 1 - W.before : W.before);
  s.from_last = backward;
  cut_columns<Config>(s, p.batch);
  return s;
}

template <class T, int kSize>
bool run_image(const ConvProblem& p) {
  using Config = OfImage<T, kSize>;
  RingShape s = shape_of<Config>(p);
  CUtensorMap source;
  if (!source_map<Config>(&source, p, s, p.direction == Direction::kForward ? p.input : p.output)) return false;
  deal_rows(s, image_blocks<Config>(p, s), kSize);
  const cuda::Grid grid{dim3(div_up(s.channels, Config::kChannels), div_up(s.rows, s.rows_per_block)), 32 * s.warps,
                        RingLayout<Config>(s, false).image_bytes()};
  cuda::launch(image_op(p), ring_image<Config>, grid, p.device, source, s, p);
  return true;
}

template <class T, int kSize>
bool run_sized(const ConvProblem& p) {
  if (p.direction != Direction::kWeightBackward) return run_image<T, kSize>(p);
  using Config = OfWeight<T, kSize>;
  return run_ring_sums<T, Config>(p, shape_of<Config>(p), ring_weight<Config>);
}

template <class T>
bool run_typed(const ConvProblem& p) {
  switch (p.window[1].kernel) {
    case 3:
      return run_sized<T, 3>(p);
    case 5:
      return run_sized<T, 5>(p);
    default:
      return run_sized<T, 7>(p);
  }
}

}  // namespace

bool depthwise_ring_run(const ConvProblem& p) {
  if (!ring_takes(p)) return false;
  if (depthwise_mma_run(p)) return true;
  if (p.dtype == DType::kBFloat16) return run_typed<BFloat16>(p);
  if (p.dtype == DType::kFloat16) return run_typed<Float16>(p);
  return run_typed<float>(p);
}

}  // namespace tenor::conv
