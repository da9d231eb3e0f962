// The arithmetic that device_limits() times.
#pragma once

#include <cstdint>

namespace tenor::cpu {

/// Runs `rounds` rounds of float32 fused multiply-adds in registers and returns their FLOPs.
int64_t multiply_adds(int64_t rounds);

}  // namespace tenor::cpu
