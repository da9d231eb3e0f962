// cp.async: copies from global to shared memory that a thread waits for itself. PTX ISA, "Asynchronous copy: cp.async".
#pragma once

#include <cstdint>

#include "src/cuda/ptx/mbarrier.cuh"

namespace tenor::cuda::ptx {

/// 16 bytes past L1, or zeros unless `valid` (src must be readable all the same); both addresses multiples of 16.
__device__ __forceinline__ void async_copy_16_once(void* dst, const void* src, bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(dst)), "l"(src),
               "r"(valid ? 16 : 0)
               : "memory");
}
/// The first `bytes` of 16, past L1, and zeros behind them.
__device__ __forceinline__ void async_copy_16_part(void* dst, const void* src, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(dst)), "l"(src), "r"(bytes)
               : "memory");
}
/// All of them or none as above, through L1, for data that other warps read too.
__device__ __forceinline__ void async_copy_16(void* dst, const void* src, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(dst)), "l"(src), "r"(valid ? 16 : 0)
               : "memory");
}
/// 16 bytes past L1, of which the first `bytes` come from src and the rest are zeros.
__device__ __forceinline__ void async_copy_part(void* dst, const void* src, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(dst)), "l"(src), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void async_copy_8(void* dst, const void* src, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(dst)), "l"(src), "r"(valid ? 8 : 0)
               : "memory");
}
__device__ __forceinline__ void async_copy_4(void* dst, const void* src, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(dst)), "l"(src), "r"(valid ? 4 : 0)
               : "memory");
}
__device__ __forceinline__ void async_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Arrives at a barrier of this block, which counts this arrival like any other, once all copies that this thread has
/// started so far are there.
__device__ __forceinline__ void async_copy_arrive(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
/// Until at most N of this thread's committed groups are under way.
template <int N>
__device__ __forceinline__ void async_copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

}  // namespace tenor::cuda::ptx
