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
  const bool backward = p.direction == Direction::kDataBackward;
  RingShape s{};
  place_operands(s, p, backward ? p.input : p.output);
  place_windows(s, p);
  s.from_last = backward;
  cut_columns<Config>(s, p.batch);
  return s;
}

template <class T, int kSize>
bool run_image(const ConvProblem& p) {
  using Config = OfImage<T, kSize>;
  return run_ring_image<Config>(p, shape_of<Config>(p), p.direction == Direction::kForward ? p.input : p.output,
                                Config::kTaps, kSize, &ring_image<Config>);
}

template <class T, int kSize>
bool run_sized(const ConvProblem& p) {
  if (p.direction != Direction::kWeightBackward) return run_image<T, kSize>(p);
  using Config = OfWeight<T, kSize>;
  return run_ring_sums<T, Config>(p, shape_of<Config>(p), ring_weight<Config>);
}

}  // namespace

bool depthwise_ring_run(const ConvProblem& p) {
  if (!ring_takes(p)) return false;
  if (depthwise_mma_run(p)) return true;
  return visit_narrow_float(p.dtype, [&]<class T>() {
    return visit_window(p.window[1].kernel, [&]<int kSize>() { return run_sized<T, kSize>(p); });
  });
}

}  // namespace tenor::conv
