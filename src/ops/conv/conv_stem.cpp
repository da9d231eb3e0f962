#include "src/ops/conv/conv_stem.h"

#include <algorithm>
#include <cstdint>

#include "src/core/device_traits.h"
#include "src/ops/conv/conv_cuda.h"

namespace tenor::conv {
namespace {

constexpr int64_t kMost = 1 << 28, kMostGradChannels = 128, kMostChannels = 4;

/// floor(x / 2)
int half(int64_t x) { return static_cast<int>(x >> 1); }

/// Whether TMA loads 64 of its channels at a time.
bool lies_for_boxes(const Image& x, const ConvProblem& p) {
  const auto pieces = [](int64_t stride, int64_t size) { return size == 1 || (stride > 0 && stride % 8 == 0); };
  return x.channel == 1 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && pieces(x.batch, p.batch) &&
         pieces(x.spatial[1], p.window[1].output) && pieces(x.spatial[2], p.window[2].output);
}

bool dim_fits(const core::WindowDim& w) {
  return w.stride == 2 && w.dilation == 1 && w.kernel <= kStemKernel && w.before < w.kernel && w.input <= kMost &&
         w.output <= kMost;
}

}  // namespace

StemDim stem_dim(const core::WindowDim& w) {
  // Residue r meets positions from ceil((r + before - kernel + 1) / 2) to floor((r + before) / 2).
  const int64_t first = w.before - w.kernel + 2;
  const int lowest = std::min(half(first), half(first + 1)), last = std::max(half(w.before), half(w.before + 1));
  return {static_cast<int>(w.kernel), static_cast<int>(w.before), lowest, last - lowest + 1};
}

bool stem_takes(const ConvProblem& p) {
  const core::WindowDim &D = p.window[0], &H = p.window[1], &W = p.window[2];
  if (p.groups != 1 || (p.direction == Direction::kForward && p.out_channels % 8 != 0)) return false;
  if (p.dtype != DType::kBFloat16 && p.dtype != DType::kFloat16) return false;
  if (D.input != 1 || D.kernel != 1 || D.before != 0 || D.output != 1 || !dim_fits(H) || !dim_fits(W)) return false;
  if (p.channels > kMostChannels || p.out_channels > kMostGradChannels) return false;
  if (p.batch * H.output * W.output > kMost || p.batch * H.input * W.input > kMost) return false;
  // Pairs of columns from the one of the first tap to that of the last.
  if (half(W.kernel - 1 - W.before) - half(-W.before) + 1 > kStemLines) return false;
  return lies_for_boxes(p.output, p) && core::device_traits(p.device).capability == kHopper;
}

}  // namespace tenor::conv
