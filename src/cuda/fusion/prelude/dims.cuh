// In place of tenor/dims.h: host code alone uses it.
#pragma once

namespace tenor {
struct Dims {};
}  // namespace tenor
