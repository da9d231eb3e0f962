// Resampling of images: neighbours, linear, cubic and windowed kernels, in one to three spatial dims.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tenor/tensor.h"

namespace tenor {

/// How images [N, C, *S] are resampled; S has one to three dims. Exactly one of size and scale_factor is given.
struct InterpolateOptions {
  std::optional<Dims> size = {};                         ///< of the result, an entry a spatial dim, each at least 1
  std::optional<std::vector<double>> scale_factor = {};  ///< likewise, finite and > 0: size is floor(S * factor)
  /// "nearest", "nearest-exact", "area" (one to three dims), "linear" (one), "bilinear", "bicubic", "lanczos3" (two),
  /// "trilinear" (three).
  std::string mode = "nearest";
  bool align_corners = false;  ///< corners' centres stay where they are; linear, cubic and lanczos3 modes
  bool antialias = false;      ///< the kernel widens where the image shrinks; bilinear, bicubic and lanczos3
  Tensor out = {};
};

/// Output i of a dim of n inputs and m outputs reads the image around u = (i + 0.5) s - 0.5, where s is n / m or, given
/// a scale factor, 1 / factor (i (n - 1) / (m - 1) with align_corners, 0 where m = 1); dims one after another.
///   nearest        input floor(i s); nearest-exact floor((i + 0.5) s)
///   linear, bilinear, trilinear   u >= 0, the two neighbours by 1 - |u - j|; bicubic the four by Keys' kernel with A =
///   -0.75,
///                  neighbours beyond an edge are the edge
///   lanczos3       sinc(t) sinc(t/3) for |t| < 3; neighbours beyond an edge are left out, the weights' sum is 1
///   area           the mean of the inputs floor(i n / m) to ceil((i + 1) n / m) - 1
/// antialias widens the kernel by max(s, 1) (A = -0.5 then), leaves out what is beyond an edge and normalises. Computed
/// in float32 (float64 for float64), positions and weights made in float64, one rounding. float16 to float64; the
/// nearest modes also uint8. The result lies in x's order of dims. Class 4 for the nearest modes, else 5 (2 FLOPs an
/// input read).
/// @throws ValueError for size, scale_factor, mode or an option that the mode cannot honour; ShapeError for a mode of
/// another rank or an empty image; DTypeError. Sources: Keys 1981, "Cubic convolution interpolation"; Duchon 1979,
/// "Lanczos filtering".
Tensor interpolate(const Tensor& x, const InterpolateOptions& options = {});

/// The gradient to the input, of shape `input_shape`, where interpolate of it with the same options has the gradient
/// grad_output. Every input sums over the outputs that read it, in their order: no result depends on the threads.
/// Floats.
/// @throws ShapeError when grad_output has another shape than the result; as interpolate.
Tensor interpolate_backward(const Tensor& grad_output, const Dims& input_shape, const InterpolateOptions& options = {});

}  // namespace tenor
