// Options of attention as numbers that scores can be computed with.
#pragma once

#include <algorithm>

#include "tenor/dtype.h"

namespace tenor::attn {

/// A scale as scores of that dtype take it: one that float32 does not hold would make them 0 or infinite.
inline double scale_within(DType dtype, double scale) {
  return dtype == float64 ? scale : std::clamp(scale, 1e-37, 1e30);
}
/// The same of a softcap, which divides: beyond this one c * tanh(s / c) is s.
inline double softcap_within(DType dtype, double softcap) {
  return dtype == float64 || softcap == 0 ? softcap : std::clamp(softcap, 1e-37, 1e18);
}

}  // namespace tenor::attn
