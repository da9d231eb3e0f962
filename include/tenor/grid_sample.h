// Sampling of images at places that a grid names.
#pragma once

#include <string>

#include "tenor/tensor.h"

namespace tenor {

struct GridSampleOptions {
  std::string mode = "bilinear";       ///< "bilinear" (trilinear of three dims), "nearest", "bicubic" (two dims)
  std::string padding_mode = "zeros";  ///< "zeros", "border", "reflection"
  bool align_corners = false;          ///< -1 and 1 are the centres of the outer pixels, not their edges
  Tensor out = {};
};
/// y[n, c, place] = x[n, c] at grid[n, place]: x [N, C, H, W] and grid [N, Ho, Wo, 2], or [N, C, D, H, W] and [N, Do,
/// Ho, Wo, 3], coordinates (x, y[, z]) of which -1..1 span the image. A coordinate g of a dim of n pixels is the
/// position
/// ((g + 1) n - 1) / 2 ((g + 1) (n - 1) / 2 with align_corners), read through its two neighbours, the nearest (ties to
/// even) or four by Keys' cubic kernel with A = -0.75. Beyond the image lies 0, the edge, or the image mirrored at the
/// pixels' edges (centres with align_corners) and then clipped; cubic taps are padded one by one. NaN gives NaN;
/// infinity is far outside: 0, the edge, or NaN under reflection. float16 to float64, grid of x's dtype or float32;
/// computed in float32 (float64 for float64), one rounding. The result lies in x's order of dims. Class 4.
/// @throws ValueError for mode and padding_mode, UnsupportedError for bicubic in three dims, ShapeError, DTypeError,
/// DeviceError. Source: Jaderberg et al. 2015, "Spatial transformer networks".
Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options = {});

struct GridSampleGradients {
  Tensor grad_x, grad_grid;
};
struct GridSampleBackwardOptions {
  std::string mode = "bilinear";
  std::string padding_mode = "zeros";
  bool align_corners = false;
  GridSampleGradients out = {};
};
/// The gradients of grid_sample to x and to the grid, which is 0 for "nearest", on an edge of clipping and beyond. A
/// pixel adds up what its places give in the order of the places, so that bits never depend on the threads. A place
/// whose coordinate is NaN has the gradient NaN and adds nothing to grad_x.
/// @throws as grid_sample, and ShapeError for grad_output.
GridSampleGradients grid_sample_backward(const Tensor& grad_output, const Tensor& x, const Tensor& grid,
                                         const GridSampleBackwardOptions& options = {});

struct AffineGridOptions {
  bool align_corners = false;
  Tensor out = {};
};
/// The grid of an affine map: theta [N, 2, 3] and size (N, C, H, W) give [N, H, W, 2], theta [N, 3, 4] and (N, C, D, H,
/// W) give [N, D, H, W, 3]: theta times (x, y[, z], 1) at the pixels' places, (2 i + 1) / n - 1 of a dim of n (2 i / (n
/// - 1) - 1 with align_corners, 0 for n = 1). theta's dtype, computed in float32 (float64 for float64). Class 5.
/// @throws ShapeError for theta and the length of size, ValueError for an entry below 1 (C and N may be 0), DTypeError.
Tensor affine_grid(const Tensor& theta, const Dims& size, const AffineGridOptions& options = {});

}  // namespace tenor
