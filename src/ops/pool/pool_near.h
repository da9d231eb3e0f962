// max_pool's gradient where indices are what pooling gives: an output's place lies in its window or within one element
// of it. Which window that was the gradient is not told; the sizes say about where it lies.
#pragma once

#include <algorithm>

#include "src/cuda/content_error.cuh"
#include "src/cuda/layout.h"
#include "src/ops/pool/pool_kernels.h"

namespace tenor::cuda {

/// One dim. Of a stride of 2 and more that fits the sizes, output o is expected on inputs o * stride - 1 to
/// o * stride + stride; else on its bin of adaptive pooling and one element on either side. Both cover the windows of
/// any stride above 1 that do not reach more than one element into their neighbours.
struct NearDim {
  int64_t input = 1, output = 1, stride = 0;  ///< stride 0: bins

  static NearDim of(int64_t input, int64_t output) {
    const int64_t stride = (input + output / 2) / output, off = input - stride * output;
    return {input, output, stride >= 2 && off >= -1 && off <= 1 ? stride : 0};
  }
  /// The outputs that may have their place at an input.
  TENOR_HOST_DEVICE pool::WindowRange candidates(int64_t in) const {
    const int64_t first = in > 0 ? in - 1 : 0;
    const auto below = [](int64_t a, int64_t b) { return a < b ? a : b; };
    if (stride > 0) return {first / stride, below((in + 1) / stride + 1, output), 1};
    return {first * output / input, below(((in + 2) * output + input - 1) / input, output), 1};
  }
  TENOR_HOST_DEVICE bool near(int64_t out, int64_t in) const {
    if (stride > 0) return in >= out * stride - 1 && in <= out * stride + stride;
    return in >= out * input / output - 1 && in <= ((out + 1) * input + output - 1) / output;
  }
  /// An input that has the output among its candidates, the same for all of them.
  TENOR_HOST_DEVICE int64_t own(int64_t out) const { return stride > 0 ? out * stride : out * input / output; }
};

/// How an output's place that is not near is told, and one that is not in the plane at all.
struct StrayReport {
  int* stray;  ///< set to 1
  ContentError* flag;
  int op;
};

/// Gives every element of dx what near places bring it; of others the report's `stray` is set. False: not served, as
/// everything is with `any`.
bool max_pool_near(const pool::Problem& p, const Tensor& grad, const Tensor& indices, const Tensor& dx,
                   const StrayReport& report, bool any);

}  // namespace tenor::cuda
