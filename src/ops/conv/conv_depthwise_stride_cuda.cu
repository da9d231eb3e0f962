// Launches of the depthwise kernels of stride 2.
#include "src/ops/conv/conv_depthwise_launch.cuh"
#include "src/ops/conv/conv_depthwise_stride.cuh"

namespace tenor::conv {
namespace {

constexpr int kStages = 4;

template <class T, int kSize>
using Sliding = RingConfig<T, kSize, 4 / sizeof(T), 7, kStages, kSize == 3 ? 3 : 2, false, 2>;
template <class T, int kSize>
using Half = RingConfig<T, (kSize + 1) / 2, 4 / sizeof(T), 4, kStages, kSize == 3 ? 4 : 2>;

template <class Config>
RingShape shape_of(const ConvProblem& p) {
  const core::WindowDim &H = p.window[1], &W = p.window[2];
  RingShape s{};
  place_operands(s, p, p.output);
  s.height = narrow(H.input), s.width = narrow(W.input);
  s.out_height = narrow(H.output), s.out_width = narrow(W.output);
  s.top = narrow(H.before), s.left = narrow(W.before);
  cut_columns<Config>(s, p.batch);
  return s;
}

template <class T, int kSize>
bool run_forward(const ConvProblem& p) {
  using Config = Sliding<T, kSize>;
  return run_ring_image<Config>(p, shape_of<Config>(p), p.input, Config::kTaps, kSize, &stride_forward<Config>);
}

/// Pairs of a dim: the first that has an input, and how many.
struct PairsOfDim {
  int first, count;
  explicit PairsOfDim(const core::WindowDim& w)
      : first(narrow(w.before / 2)), count(narrow((w.before + w.input - 1) / 2) - first + 1) {}
};

template <class T, int kSize>
bool run_data(const ConvProblem& p) {
  using Config = Half<T, kSize>;
  const core::WindowDim &H = p.window[1], &W = p.window[2];
  const PairsOfDim rows(H), columns(W);
  RingShape s{};
  place_operands(s, p, p.input);
  s.height = narrow(H.output), s.width = narrow(W.output);
  s.out_height = rows.count, s.out_width = columns.count;
  s.top = Config::kReach - rows.first, s.left = Config::kReach - columns.first;
  cut_columns<Config>(s, p.batch);
  const StridePairs pairs{2 * rows.first - narrow(H.before), 2 * columns.first - narrow(W.before), narrow(H.input),
                          narrow(W.input)};
  return run_ring_image<Config>(p, s, p.output, kSize * kSize, kSize, &stride_data<Config, kSize>, pairs);
}

template <class T, int kSize>
bool run_sized(const ConvProblem& p) {
  if (p.direction == Direction::kForward) return run_forward<T, kSize>(p);
  if (p.direction == Direction::kDataBackward) return run_data<T, kSize>(p);
  using Config = Sliding<T, kSize>;
  return run_ring_sums<T, Config>(p, shape_of<Config>(p), stride_weight<Config>);
}

bool takes(const ConvProblem& p) {
  const core::WindowDim &H = p.window[1], &W = p.window[2];
  if (p.group_channels() != 1 || p.group_outputs() != 1 || p.dtype == DType::kFloat64) return false;
  if (!has_square_window(p, {3, 5}, 2)) return false;
  constexpr int64_t kMostPadding = 1 << 20;
  if (std::max(H.before, W.before) > kMostPadding || p.channels % 2 != 0 || !ring_takes(p)) return false;
  const auto lies = [&](const Image& x) {
    return x.channel == 1 && x.spatial[2] > 0 && x.spatial[2] < kMostPadding * 1024 &&
           reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
  };
  return lies(p.input) && lies(p.output) && steps_by_pieces(p.input, p.dtype) && steps_by_pieces(p.output, p.dtype);
}

}  // namespace

bool depthwise_stride_run(const ConvProblem& p) {
  if (!takes(p)) return false;
  return visit_narrow_float(
      p.dtype, [&]<class T>() { return p.window[1].kernel == 3 ? run_sized<T, 3>(p) : run_sized<T, 5>(p); });
}

}  // namespace tenor::conv
