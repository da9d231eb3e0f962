// VDPBF16PS of x86 (AVX512_BF16: Cooper Lake, Zen 4 and later): adds the products of bfloat16 pairs to float32 sums, at
// twice the rate of float32's multiply-adds. oneDNN uses it.
#pragma once

#include <cstdint>

namespace tenor::cpu {

/// Whether this processor has it.
bool has_bfloat16_dots();
/// FLOPs of `rounds` rounds of such products in registers: what device_limits() times. Only with has_bfloat16_dots().
int64_t bfloat16_dots(int64_t rounds);

}  // namespace tenor::cpu
