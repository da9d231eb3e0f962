// A stem, a convolution of stride 2 whose image has at most four channels: kernels of its own on Hopper.
#pragma once

#include "src/core/numeric.h"
#include "src/ops/conv/conv_problem.h"

namespace tenor::conv {

inline constexpr int kStemKernel = 7;  ///< taps of a dim, at most
inline constexpr int kStemLines = 4;   ///< pairs of columns that a row of taps meets, at most

/// One spatial dim: input 2u + r reads gradient u + lowest + y, y < offsets, through tap `tap(r, y)`, if that is one.
struct StemDim {
  int kernel, before, lowest, offsets;
  TENOR_HOST_DEVICE int tap(int residue, int y) const { return residue + before - 2 * (lowest + y); }
  TENOR_HOST_DEVICE bool meets(int residue, int y) const { return tap(residue, y) >= 0 && tap(residue, y) < kernel; }
};
StemDim stem_dim(const core::WindowDim& w);

/// Whether the kernels take the problem, on a Hopper device: 16-bit floats, stride 2, dilation 1, one group, at most 4
/// channels by 128 (forward a multiple of 8), the output, or its gradient, channels last.
bool stem_takes(const ConvProblem& p);
void stem_run(const ConvProblem& p);

}  // namespace tenor::conv
