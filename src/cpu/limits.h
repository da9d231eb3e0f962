// The arithmetic that device_limits() times.
#pragma once

#include <cstdint>

#include "tenor/limits.h"

namespace tenor::cpu {

/// One attempt at the limits with the current thread count.
DeviceLimits measure_limits();

/// Runs `rounds` rounds of float32 fused multiply-adds in registers and returns their FLOPs.
int64_t multiply_adds(int64_t rounds);

/// The same in float64.
int64_t multiply_adds64(int64_t rounds);

/// The sum of `count` words, every one read once.
uint64_t read_words(const uint64_t* data, int64_t count);
/// Copies `count` words by vectors, as kernels do.
void copy_words(const uint64_t* from, uint64_t* to, int64_t count);

/// What goes over a buffer in the nearest cache, `rounds` times; returns the elements.
enum class Arithmetic : uint8_t {
  kExponentials32,
  kExponentials64,
  kDivisions32,
  kDivisions64,
  kWidenFloat16,
  kWidenBFloat16,
  kRoundFloat16,
  kRoundBFloat16
};
int64_t run_arithmetic(Arithmetic what, int64_t rounds);

}  // namespace tenor::cpu
