// Loads of what no other thread of the multiprocessor reads, under an L2 policy. PTX ISA, "ld.global.nc" and
// "createpolicy".
#pragma once

#include <cstdint>

namespace tenor::cuda::ptx {

/// A policy of load_16: what is read leaves L2 first, so that it takes the place of what was read before it and does
/// not push out, nor have written back, what else lies there; or the usual one.
__device__ __forceinline__ uint64_t read_policy(bool once) {
  uint64_t first, normal;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(normal));
  return once ? first : normal;
}

/// 16 bytes at a multiple of 16, past L1, that nothing writes while the kernel runs.
__device__ __forceinline__ uint4 load_16(const void* p, uint64_t policy) {
  uint4 x;
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(p), "l"(policy));
  return x;
}
/// Likewise, or zeros unless `valid`; without a branch, so that a run of loads stays one.
__device__ __forceinline__ uint4 load_16(const void* p, uint64_t policy, bool valid) {
  uint4 x{};
  asm volatile(
      "{\n.reg .pred valid;\n"
      "setp.ne.s32 valid, %6, 0;\n"
      "@valid ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;\n}"
      : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w)
      : "l"(p), "l"(policy), "r"(static_cast<int>(valid)));
  return x;
}

}  // namespace tenor::cuda::ptx
