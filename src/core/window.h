// Sliding windows: which inputs an output of a convolution or a pooling reads, and which outputs read an input.
//
// In each spatial dim, tap k of output o lies on input o * stride + k * dilation - before; positions outside 0..input-1
// are padding. Everything is 64-bit and every size is checked, so that no option of a caller overflows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/core/numeric.h"
#include "tenor/dims.h"

namespace tenor::core {

/// Indices first, first + step, ... below last.
struct WindowRange {
  int64_t first = 0, last = 0, step = 1;
  TENOR_HOST_DEVICE bool empty() const { return first >= last; }
  TENOR_HOST_DEVICE int64_t count() const { return empty() ? 0 : (last - first + step - 1) / step; }
};

/// One spatial dim. `before` and `after` are the padding on each side (>= 0); kernel, stride, dilation are > 0.
struct WindowDim {
  int64_t input = 1, kernel = 1, stride = 1, dilation = 1, before = 0, after = 0, output = 1;

  /// Inputs from a window's first tap to its last: (kernel - 1) * dilation + 1.
  TENOR_HOST_DEVICE int64_t span() const { return (kernel - 1) * dilation + 1; }
  /// Where the window of an output begins, in the padding where negative.
  TENOR_HOST_DEVICE int64_t start(int64_t out) const { return out * stride - before; }
  TENOR_HOST_DEVICE int64_t position(int64_t out, int64_t tap) const { return start(out) + tap * dilation; }

  /// The taps of an output that lie on inputs, not on padding.
  TENOR_HOST_DEVICE WindowRange taps(int64_t out) const {
    const int64_t begin = start(out);
    const int64_t first = begin < 0 ? (-begin + dilation - 1) / dilation : 0;
    const int64_t last = begin < input ? (input - begin - 1) / dilation + 1 : 0;
    return {first, last < kernel ? last : kernel, 1};
  }

  /// The outputs whose tap `tap` lies on an input.
  TENOR_HOST_DEVICE WindowRange outputs(int64_t tap) const {
    const int64_t shift = before - tap * dilation;  // output o reads input o * stride - shift
    const int64_t first = shift > 0 ? (shift + stride - 1) / stride : 0;
    const int64_t last = input + shift > 0 ? (input + shift - 1) / stride + 1 : 0;
    return {first, last < output ? last : output, 1};
  }

  /// The output that reads input `in` through tap `tap`, or -1.
  TENOR_HOST_DEVICE int64_t output_at(int64_t in, int64_t tap) const {
    const int64_t reach = in + before - tap * dilation;
    const int64_t out = reach / stride;
    return reach >= 0 && reach % stride == 0 && out < output ? out : -1;
  }

  /// The outputs whose window covers input `in` by its span; with dilation, output_at says for which tap, if any.
  TENOR_HOST_DEVICE WindowRange covering(int64_t in) const {
    const int64_t reach = in + before, behind = reach - span() + 1;
    const int64_t first = behind > 0 ? (behind + stride - 1) / stride : 0;
    const int64_t last = reach / stride + 1;
    return {first, last < output ? last : output, 1};
  }
};

/// How many windows fit: floor((input + before + after - span) / stride) + 1, or with the division rounded up, where a
/// last window that would begin in the padding after the input is dropped. A dim whose padded input is shorter than the
/// window gives 0, or a negative number; the caller says which argument is at fault.
int64_t window_outputs(const WindowDim& dim, bool ceil_mode = false);

/// An option given once for all spatial dims or once for each, as one value a dim. @throws ValueError naming operator
/// and argument for another count, and for a value below `least` or so large that sizes would overflow.
Dims values_per_dim(const char* op, const char* argument, const Dims& given, int dims, int64_t least);

/// @throws ValueError where a window's span (kernel - 1) * dilation + 1 exceeds 2^31: no memory holds such an input's
/// image in two dims, and every product of positions then fits 64 bits.
void check_span(const char* op, const char* argument, int64_t kernel, int64_t dilation);

}  // namespace tenor::core
