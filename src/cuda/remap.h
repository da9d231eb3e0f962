// Copies whose source coordinates follow a rule a dim: roll, flip, tile, repeat, pad.
#pragma once

#include <vector>

#include "tenor/tensor.h"

namespace tenor::cuda {

/// The coordinate of x that coordinate i of the result shows.
struct CoordinateRule {
  enum Kind : uint8_t {
    kForward,   ///< i + shift
    kBackward,  ///< shift - i
    kWrap,      ///< (i + shift) mod size, 0 <= shift
    kRepeat,    ///< i / shift
    kClamp,     ///< i - shift, held within 0..size-1
    kReflect,   ///< i - shift, reflected at 0 and size-1
    kInside,    ///< i - shift, or the fill value where that is not within 0..size-1
  } kind = kForward;
  int64_t shift = 0;
  int64_t size = 0;  ///< of x's dim
};

/// out[i, j, ...] = x[rules[0](i), rules[1](j), ...]; x and out share rank, dtype and device. `value` points to one
/// element in host memory, for kInside. Every coordinate the rules give lies within x.
void remap(const char* op, const Tensor& x, const std::vector<CoordinateRule>& rules, const Tensor& out,
           const void* value = nullptr);

}  // namespace tenor::cuda
