// One resampling as the kernels see it.
#pragma once

#include "src/core/resample.h"
#include "tenor/tensor.h"

namespace tenor {

/// to = R from, where R resamples the last three dims of [N, C, D, H, W] each by its axis; with `transposed` to = R^T
/// from, the gradient: `from` then has the axes' output sizes. Images without depth or height have dims of size 1 with
/// the identity.
struct ResampleProblem {
  Tensor from, to;
  core::ResampleAxis axes[3];
  bool transposed = false;

  /// Whether elements are moved as they lie: a nearest kind, not transposed.
  bool moves() const {
    return !transposed && core::fixed_taps(axes[0]) == 1 && core::fixed_taps(axes[1]) == 1 &&
           core::fixed_taps(axes[2]) == 1;
  }
};

}  // namespace tenor
