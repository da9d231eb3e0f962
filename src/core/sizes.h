// How sizes are shared out.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace tenor::core {

/// a / b rounded up, of a >= 0 and b > 0.
constexpr int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
/// log2 of the least power of two that is not below n.
constexpr int log_above(int64_t n) { return std::bit_width(static_cast<uint64_t>(std::max<int64_t>(n, 1) - 1)); }

}  // namespace tenor::core
