// Sizes as launches count them.
#pragma once

#include <cstdint>

namespace tenor::conv {

/// A size that is known to fit.
inline int narrow(int64_t x) { return static_cast<int>(x); }

/// a / b rounded up.
template <class T = int>
constexpr T div_up(int64_t a, int64_t b) {
  return static_cast<T>((a + b - 1) / b);
}

}  // namespace tenor::conv
