// AMX: the matrix unit of x86 (Sapphire Rapids and later). Eight tiles of 16 rows of 64 bytes; TDPBF16PS adds the
// product of bfloat16 pairs to float32 sums.
#pragma once

#include <cstdint>

namespace tenor::cpu {

/// Whether this process may use tiles with bfloat16. The first call asks the kernel for permission.
bool has_amx();

/// What LDTILECFG reads: all eight tiles at their full size.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// FLOPs of `rounds` rounds of tile products in registers: what device_limits() times. Only with has_amx().
int64_t amx_products(int64_t rounds);

}  // namespace tenor::cpu
