// Where elements lie in the tiles that TMA writes with its 128-byte swizzle: lines of 128 bytes, 64 two-byte columns,
// whose 16-byte chunks change places by the line's number. CUDA driver API, CU_TENSOR_MAP_SWIZZLE_128B.
#pragma once

#include <cstdint>

namespace tenor::cuda::ptx {

/// The offset of chunk `chunk` of a line.
__device__ __forceinline__ uint32_t swizzled_line(int line, int chunk) {
  return line * 128 + ((chunk ^ (line & 7)) << 4);
}
/// The same where a line's further columns lie in further tiles of kTile bytes.
template <int kTile>
__device__ __forceinline__ uint32_t swizzled_tile(int line, int chunk) {
  return (chunk >> 3) * kTile + swizzled_line(line, chunk & 7);
}

}  // namespace tenor::cuda::ptx
