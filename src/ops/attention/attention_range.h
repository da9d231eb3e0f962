// Options of attention as numbers that scores can be computed with.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/core/text.h"
#include "tenor/attention.h"
#include "tenor/error.h"

namespace tenor::attn {

/// A scale as scores of that dtype take it: one that float32 does not hold would make them 0 or infinite.
inline double scale_within(DType dtype, double scale) {
  return dtype == float64 ? scale : std::clamp(scale, 1e-37, 1e30);
}
/// The same of a softcap, which divides: beyond this one c * tanh(s / c) is s.
inline double softcap_within(DType dtype, double softcap) {
  return dtype == float64 || softcap == 0 ? softcap : std::clamp(softcap, 1e-37, 1e18);
}

/// One side of a window; one beyond any sequence is unlimited, so that the others are small enough to add to a
/// position. @throws ValueError for an entry below -1
inline int64_t checked_window(const char* op, const Window& window, int64_t side) {
  constexpr int64_t kUnlimited = int64_t{1} << 48;
  if (window.left < -1 || window.right < -1)
    core::fail<ValueError>("{}: window must be (left, right) with entries >= -1, got ({}, {})", op, window.left,
                           window.right);
  return side >= kUnlimited ? -1 : side;
}

}  // namespace tenor::attn
