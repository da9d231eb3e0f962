// mbarrier: the shared-memory barriers that count thread arrivals and the bytes of asynchronous copies.
// PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".
#pragma once

#include <cstdint>

#include "src/cuda/ptx/target.cuh"

namespace tenor::cuda::ptx {

/// The 32-bit shared-memory address of a pointer into shared memory.
__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void mbarrier_init(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}

/// Makes barrier initialisation visible to the copy engine and to the other blocks of the cluster.
__device__ __forceinline__ void mbarrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

/// Arrives, and adds `bytes` that copies will deliver before the phase ends.
__device__ __forceinline__ void mbarrier_arrive_expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

/// Arrives at a barrier of this block.
__device__ __forceinline__ void mbarrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

/// Arrives at the barrier at the same address in block `rank` of the cluster. It orders nothing but this block's own
/// accesses (an explicit .release.cluster costs a full memory barrier each time): enough to say "I have read this stage",
/// since what follows in the other block is a write by the copy engine into this block's own memory.
__device__ __forceinline__ void mbarrier_arrive_cluster(uint64_t* barrier, uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}

/// Waits until the phase of that parity has completed.
__device__ __forceinline__ void mbarrier_wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "WAIT:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra DONE;\n"
      "bra WAIT;\n"
      "DONE:\n}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

/// All threads of all blocks of the cluster meet.
__device__ __forceinline__ void cluster_sync() {
  if constexpr (kHasClusters)
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  else
    __syncthreads();
}

/// The float at the address of `local` in block `rank` of the cluster.
__device__ __forceinline__ float cluster_load(const float* local, uint32_t rank) {
  float value = *local;
  if constexpr (kHasClusters)
    asm volatile(
        "{\n.reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %1, %2;\n"
        "ld.shared::cluster.f32 %0, [remote];\n}"
        : "=f"(value)
        : "r"(shared_address(local)), "r"(rank)
        : "memory");
  return value;
}

/// This block's place in its cluster.
__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank = 0;
  if constexpr (kHasClusters) asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

}  // namespace tenor::cuda::ptx
