// The windows and bins of pooling: what an output reads of each dim, and what reads an input. Both directions of every
// kernel, on both devices, and the checks of the contract go by these.
#pragma once

#include "src/core/window.h"

namespace tenor::pool {

using core::WindowDim;
using core::WindowRange;

/// One spatial dim: a sliding window, or the bins of adaptive pooling (only the sizes of the window count then; the
/// product of both is below 2^62).
struct PoolDim : WindowDim {
  bool bins = false;

  /// The inputs that an output reads.
  TENOR_HOST_DEVICE WindowRange inputs(int64_t out) const {
    if (bins) return {out * input / output, ((out + 1) * input + output - 1) / output, 1};
    if (dilation == 1) {  // the most common case, without a division
      const int64_t first = start(out), last = first + kernel;
      return {first < 0 ? 0 : first, last < input ? last : input, 1};
    }
    const WindowRange read = taps(out);
    if (read.empty()) return {0, 0, 1};
    return {position(out, read.first), position(out, read.last - 1) + 1, dilation};
  }

  /// The outputs among which are those that read input `in`; `reads` tells which, where there is a dilation.
  TENOR_HOST_DEVICE WindowRange readers(int64_t in) const {
    if (bins) return {in * output / input, ((in + 1) * output + input - 1) / input, 1};
    return covering(in);
  }
  TENOR_HOST_DEVICE bool reads(int64_t out, int64_t in) const {
    return bins || dilation == 1 || (in - start(out)) % dilation == 0;
  }

  /// How many elements of this dim an average divides by: those in the image, or in the padded image.
  TENOR_HOST_DEVICE int64_t count(int64_t out, bool padding_too) const {
    if (bins || !padding_too) return inputs(out).count();
    const int64_t room = input + after - start(out);
    return room < kernel ? room : kernel;
  }
};

/// The three spatial dims D, H, W of every problem (those that a 1-d or 2-d one lacks have size 1).
struct PoolSpace {
  PoolDim dim[3];
};

/// What an average divides a window's sum by.
struct PoolDivisor {
  bool padding_too = true;
  int64_t fixed = 0;  ///< divisor_override, where it is not 0

  TENOR_HOST_DEVICE bool is_fixed() const { return fixed != 0; }
};

/// A tensor as [N, C, D, H, W]: its strides in elements.
struct PoolGrid {
  int64_t size[5] = {1, 1, 1, 1, 1};
  int64_t stride[5] = {0, 0, 0, 0, 0};

  TENOR_HOST_DEVICE int64_t at(int64_t n, int64_t c, int64_t d, int64_t h, int64_t w) const {
    return n * stride[0] + c * stride[1] + d * stride[2] + h * stride[3] + w * stride[4];
  }
  TENOR_HOST_DEVICE int64_t plane() const { return size[2] * size[3] * size[4]; }
  TENOR_HOST_DEVICE int64_t planes() const { return size[0] * size[1]; }
  /// The flat index of a place in its plane.
  TENOR_HOST_DEVICE int64_t flat(int64_t d, int64_t h, int64_t w) const { return (d * size[3] + h) * size[4] + w; }
};

/// A gathering kernel's problem: each target element combines a box of sources. Forwards the targets are windows and
/// the sources inputs; the gradient of an average has them exchanged.
struct Gather {
  PoolSpace space;
  PoolGrid source, target;
  PoolDivisor divisor;
  double uniform = 0;  ///< the divisor of every window, where there is one; in three dims 64 bits may not hold it

  /// What a window's divisor takes of its place in one dim.
  TENOR_HOST_DEVICE int64_t count(int dim, int64_t window) const {
    return space.dim[dim].count(window, divisor.padding_too);
  }
};
/// `image` and `windows` are the tensors' layouts; back: inputs read windows.
Gather gather_of(const PoolSpace& space, const PoolGrid& image, const PoolGrid& windows, const PoolDivisor& divisor,
                 bool back);

/// The sources of one dim that a target reads.
template <bool Back>
TENOR_HOST_DEVICE inline WindowRange reach(const PoolDim& dim, int64_t target) {
  if constexpr (Back) return dim.readers(target);
  return dim.inputs(target);
}

}  // namespace tenor::pool
