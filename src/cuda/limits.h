// What a CUDA device can do at most, measured.
#pragma once

#include "tenor/limits.h"

namespace tenor::cuda {

/// One attempt: copying and reading 1 GiB, multiply-adds in registers, products of random bfloat16 matrices of up to
/// 8192 x 8192. Takes 2.5 GiB for a moment.
DeviceLimits measure_limits(Device device);

}  // namespace tenor::cuda
