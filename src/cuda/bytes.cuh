// Bytes at any address, sixteen at a time: what kernels that move rows share.
#pragma once

#include <cstdint>

#include "src/cuda/vector.cuh"

namespace tenor::cuda {

/// Bytes past .. past + 15 of two neighbouring words of 16 bytes, past < 16.
__device__ __forceinline__ uint4 shifted(const uint4& low, const uint4& high, unsigned past) {
  uint32_t a[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  if (past & 8) {
#pragma unroll
    for (int i = 0; i < 6; ++i) a[i] = a[i + 2];
  }
  if (past & 4) {
#pragma unroll
    for (int i = 0; i < 5; ++i) a[i] = a[i + 1];
  }
  const unsigned bits = (past & 3) * 8;
  return {__funnelshift_r(a[0], a[1], bits), __funnelshift_r(a[1], a[2], bits), __funnelshift_r(a[2], a[3], bits),
          __funnelshift_r(a[3], a[4], bits)};
}

/// The 16 bytes at an address of any alignment, on their way: the two aligned words around them (once the same word),
/// so that several loads are under way before the first is used. Up to 15 bytes on either side are read too.
struct UnalignedLoad {
  uint4 low, high;
  unsigned past;

  __device__ __forceinline__ void start(const char* p) {
    past = static_cast<unsigned>(reinterpret_cast<uintptr_t>(p) & 15);
    const uint4* words = reinterpret_cast<const uint4*>(p - past);
    low = words[0];
    high = words[past != 0];
  }
  __device__ __forceinline__ uint4 value() const { return shifted(low, high, past); }
};

/// Whether such a load at p stays below `end`.
__device__ __forceinline__ bool stays_below(const char* p, const char* end) {
  const auto past = reinterpret_cast<uintptr_t>(p) & 15;
  return past == 0 || p - past + 32 <= end;
}

}  // namespace tenor::cuda
