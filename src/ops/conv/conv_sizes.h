// Sizes as launches count them.
#pragma once

#include "src/core/sizes.h"

namespace tenor::conv {

/// A size that is known to fit.
inline int narrow(int64_t x) { return static_cast<int>(x); }

/// a / b rounded up, as a size that is known to fit.
template <class T = int>
constexpr T div_up(int64_t a, int64_t b) {
  return static_cast<T>(core::div_up(a, b));
}

}  // namespace tenor::conv
