// Loads under the L2 cache's policy for what leaves it last: for kernels that read a tensor once while they write
// another of its size. L2 then makes room by giving up what has been written, and reads run at 3 to 4 percent more
// (measured in src/ops/norm/README.md); loads that leave it first lose as much.
#pragma once

#include <cstdint>

#include "src/cuda/vector.cuh"

namespace tenor::cuda {

__device__ __forceinline__ uint64_t last_to_leave() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// 16 bytes at p, which is aligned to them.
__device__ __forceinline__ uint4 load_lasting(const uint4* p) {
  uint4 words;
  asm volatile("ld.global.L1::evict_last.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(p), "l"(last_to_leave()));
  return words;
}

}  // namespace tenor::cuda
