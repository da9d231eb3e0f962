// The arithmetic that device_limits() times.
#pragma once

#include <cstdint>

#include "tenor/limits.h"

namespace tenor::cpu {

/// One attempt at the limits with the current thread count.
DeviceLimits measure_limits();

/// Runs `rounds` rounds of float32 fused multiply-adds in registers and returns their FLOPs.
int64_t multiply_adds(int64_t rounds);

/// The sum of `count` words, every one read once.
uint64_t read_words(const uint64_t* data, int64_t count);

}  // namespace tenor::cpu
