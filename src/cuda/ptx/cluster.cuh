// Blocks of a cluster reach into one another's shared memory. PTX ISA, "mapa" and "barrier.cluster" (the barrier and
// the rank are in mbarrier.cuh). In code for devices without clusters every block is one of its own.
#pragma once

#include <cstdint>

#include "src/cuda/ptx/mbarrier.cuh"

namespace tenor::cuda::ptx {

/// The blocks of this cluster.
__device__ __forceinline__ uint32_t cluster_size() {
  uint32_t size = 1;
  if constexpr (kHasClusters) asm volatile("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size));
  return size;
}

/// What lies at this place of shared memory in block `rank`, readable, writable and open to atomics.
template <class T>
__device__ __forceinline__ T* in_block(T* shared, uint32_t rank) {
  if constexpr (!kHasClusters) return shared;
  uint64_t remote = 0;
  if constexpr (kHasClusters) asm volatile("mapa.u64 %0, %1, %2;" : "=l"(remote) : "l"(shared), "r"(rank));
  return reinterpret_cast<T*>(remote);
}

/// cluster_sync in two halves: a block that has nothing to wait for arrives and leaves; what others may still read of
/// it, it keeps by waiting.
__device__ __forceinline__ void cluster_arrive() {
  if constexpr (kHasClusters) asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  if constexpr (kHasClusters)
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  else
    __syncthreads();
}

/// Stores to the place in block `rank` of the cluster that `p` is in this block's shared memory.
__device__ __forceinline__ void store_remote(float* p, uint32_t rank, float value) {
  if constexpr (!kHasClusters) *p = value;
  if constexpr (kHasClusters)
    asm volatile(
        "{\n.reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "st.shared::cluster.f32 [remote], %2;\n}" ::"r"(shared_address(p)),
        "r"(rank), "f"(value)
        : "memory");
}
__device__ __forceinline__ void store_remote(double* p, uint32_t rank, double value) {
  if constexpr (!kHasClusters) *p = value;
  if constexpr (kHasClusters)
    asm volatile(
        "{\n.reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "st.shared::cluster.f64 [remote], %2;\n}" ::"r"(shared_address(p)),
        "r"(rank), "d"(value)
        : "memory");
}

/// Likewise, asynchronously: block `rank`'s barrier counts the bytes. Unlike a barrier of the cluster it does not wait for
/// what this block wrote to memory before. PTX ISA, "st.async".
template <class T>
__device__ __forceinline__ void store_remote_async(T* p, uint32_t rank, T value, uint64_t* barrier) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  if constexpr (!kHasClusters) *p = value;
  if constexpr (kHasClusters && sizeof(T) == 4)
    asm volatile(
        "{\n.reg .b32 remote, counter;\n"
        "mapa.shared::cluster.u32 remote, %0, %2;\n"
        "mapa.shared::cluster.u32 counter, %1, %2;\n"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [remote], %3, [counter];\n}" ::"r"(shared_address(p)),
        "r"(shared_address(barrier)), "r"(rank), "r"(__float_as_uint(value))
        : "memory");
  if constexpr (kHasClusters && sizeof(T) == 8)
    asm volatile(
        "{\n.reg .b32 remote, counter;\n"
        "mapa.shared::cluster.u32 remote, %0, %2;\n"
        "mapa.shared::cluster.u32 counter, %1, %2;\n"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [remote], %3, [counter];\n}" ::"r"(shared_address(p)),
        "r"(shared_address(barrier)), "r"(rank), "l"(__double_as_longlong(value))
        : "memory");
}

}  // namespace tenor::cuda::ptx
