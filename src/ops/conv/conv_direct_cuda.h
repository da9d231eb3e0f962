// The kernels of "direct" on CUDA that take a part of what the plain ones take.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "src/ops/conv/conv_problem.h"
#include "src/ops/conv/conv_sizes.h"

namespace tenor::conv {

/// Whether images have one depth and the window is a square of one of those sizes, of that stride, without dilation.
inline bool has_square_window(const ConvProblem& p, std::initializer_list<int64_t> sizes, int64_t stride) {
  const core::WindowDim &D = p.window[0], &H = p.window[1], &W = p.window[2];
  return D.input == 1 && D.kernel == 1 && D.before == 0 && D.output == 1 && H.kernel == W.kernel &&
         std::find(sizes.begin(), sizes.end(), H.kernel) != sizes.end() && H.stride == stride && W.stride == stride &&
         H.dilation == 1 && W.dilation == 1;
}

inline constexpr int64_t kMostPixels = 1 << 29, kMostDirectChannels = 1 << 21;

/// Whether the kernels' 32-bit counts hold the sizes.
inline bool fits_direct(const ConvProblem& p) {
  const core::WindowDim &H = p.window[1], &W = p.window[2];
  const int64_t most = std::max({p.batch, H.input + H.before, W.input + W.before, H.output, W.output});
  return most <= kMostPixels && p.channels <= kMostDirectChannels &&
         std::max(p.batch * H.output * W.output, p.batch * H.input * W.input) <= kMostPixels;
}

/// The sizes of what is read with taps and of what is written, or of grad, and where they meet: row r of the source
/// meets rows r + top - i. Output o reads input o + tap - before; input i is read through tap by output i + before -
/// tap, so that going down the gradient's rows meets the taps from the last.
template <class Shape>
void place_windows(Shape& s, const ConvProblem& p) {
  const core::WindowDim &H = p.window[1], &W = p.window[2];
  const bool backward = p.direction == Direction::kDataBackward;
  s.height = narrow(backward ? H.output : H.input), s.width = narrow(backward ? W.output : W.input);
  s.out_height = narrow(backward ? H.input : H.output), s.out_width = narrow(backward ? W.input : W.output);
  s.top = narrow(backward ? H.kernel - 1 - H.before : H.before);
  s.left = narrow(backward ? W.kernel - 1 - W.before : W.before);
}

/// fn<T>() of the float types but float64.
template <class F>
decltype(auto) visit_narrow_float(DType dtype, F&& fn) {
  if (dtype == DType::kBFloat16) return fn.template operator()<BFloat16>();
  if (dtype == DType::kFloat16) return fn.template operator()<Float16>();
  return fn.template operator()<float>();
}
/// fn<kSize>() of a window of 3, 5 or 7.
template <class F>
decltype(auto) visit_window(int64_t kernel, F&& fn) {
  if (kernel == 3) return fn.template operator()<3>();
  if (kernel == 5) return fn.template operator()<5>();
  return fn.template operator()<7>();
}

/// Depthwise over channels-last images, windows of 3, 5 or 7, stride and dilation 1 (conv_depthwise.cuh).
bool depthwise_takes(const ConvProblem& p);
void depthwise_run(const ConvProblem& p);
/// Those by TMA (conv_depthwise_ring.cuh); false, and nothing done, where the device or the layout does not allow it.
bool depthwise_ring_run(const ConvProblem& p);
/// Likewise windows of 3 and 5 of stride 2 (conv_depthwise_stride.cuh), of which depthwise_takes says nothing.
bool depthwise_stride_run(const ConvProblem& p);
/// Likewise weight gradients of large windows on tensor cores (conv_depthwise_mma.cuh).
bool depthwise_mma_run(const ConvProblem& p);

/// Groups of eight channels on both sides over channels-last images of 16-bit floats, windows of 3 or 5, stride and
/// dilation 1 (conv_grouped.cuh).
bool grouped_takes(const ConvProblem& p);
void grouped_run(const ConvProblem& p);

}  // namespace tenor::conv
