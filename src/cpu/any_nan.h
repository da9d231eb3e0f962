// Whether there is a NaN in dense memory.
#pragma once

#include <cstdint>

#include "tenor/dtype.h"

namespace tenor::cpu {

/// Of n elements of a float dtype, at the memory's speed, in parallel.
bool any_nan(DType dtype, const void* data, int64_t n);

}  // namespace tenor::cpu
