// TMA: bulk tensor copies between global and shared memory, described by a tensor map.
// PTX ISA, "cp.async.bulk.tensor". Coordinates are innermost first.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "src/cuda/ptx/mbarrier.cuh"

namespace tenor::cuda::ptx {

__device__ __forceinline__ void tma_prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// `bytes` bytes as they lie, a multiple of 16 like both addresses; `barrier` counts them.
__device__ __forceinline__ void bulk_load(void* dst, const void* src, uint32_t bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(dst)), "l"(src),
               "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}

/// A 2-D box at (x, y) into this block's shared memory; `barrier` counts its bytes. Out-of-range elements arrive as zeros.
__device__ __forceinline__ void tma_load_2d(void* dst, const CUtensorMap* map, int x, int y, uint64_t* barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                   shared_address(dst)),
               "l"(map), "r"(x), "r"(y), "r"(shared_address(barrier))
               : "memory");
}

/// The same box to the same address in every block of the cluster named in `blocks`, each block's barrier counting it.
__device__ __forceinline__ void tma_load_2d_multicast(void* dst, const CUtensorMap* map, int x, int y, uint64_t* barrier, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(
          shared_address(dst)),
      "l"(map), "r"(x), "r"(y), "r"(shared_address(barrier)), "h"(blocks)
      : "memory");
}

/// A 4-D box at (x, y, z, w), likewise, and to every block of the cluster named in `blocks`.
__device__ __forceinline__ void tma_load_4d(void* dst, const CUtensorMap* map, int x, int y, int z, int w, uint64_t* barrier) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(
                   shared_address(dst)),
               "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(shared_address(barrier))
               : "memory");
}
/// Likewise, under a cache policy.
__device__ __forceinline__ void tma_load_4d_hinted(void* dst, const CUtensorMap* map, int x, int y, int z, int w, uint64_t* barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(
          shared_address(dst)),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}
/// The policy of what is read once: L2 gives it up before all else.
__device__ __forceinline__ uint64_t evict_first_policy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ void tma_load_4d_multicast(void* dst, const CUtensorMap* map, int x, int y, int z, int w, uint64_t* barrier, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(
          shared_address(dst)),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(shared_address(barrier)), "h"(blocks)
      : "memory");
}

/// Lines of an im2col map (tensor_map.h): its pixels from image n's base position (w, h) on, each moved by the offsets of
/// a tap, from channel c; what lies outside of the image arrives as zeros.
__device__ __forceinline__ void tma_load_image_4d(void* dst, const CUtensorMap* map, int c, int w, int h, int n, uint16_t tap_w,
                                                  uint16_t tap_h, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};" ::"r"(
          shared_address(dst)),
      "l"(map), "r"(c), "r"(w), "r"(h), "r"(n), "r"(shared_address(barrier)), "h"(tap_w), "h"(tap_h)
      : "memory");
}
/// Likewise with three spatial dims.
__device__ __forceinline__ void tma_load_image_5d(void* dst, const CUtensorMap* map, int c, int w, int h, int d, int n, uint16_t tap_w,
                                                  uint16_t tap_h, uint16_t tap_d, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5, %6}], [%7], {%8, %9, %10};" ::"r"(
          shared_address(dst)),
      "l"(map), "r"(c), "r"(w), "r"(h), "r"(d), "r"(n), "r"(shared_address(barrier)), "h"(tap_w), "h"(tap_h), "h"(tap_d)
      : "memory");
}

/// `bytes` bytes from shared memory as they lie, a multiple of 16 like both addresses.
__device__ __forceinline__ void bulk_store(void* dst, const void* src, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(shared_address(src)), "r"(bytes) : "memory");
}
/// A 2-D box from shared memory to (x, y); out-of-range elements are not written.
__device__ __forceinline__ void tma_store_2d(const CUtensorMap* map, const void* src, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(x), "r"(y),
               "r"(shared_address(src))
               : "memory");
}
__device__ __forceinline__ void tma_store_4d(const CUtensorMap* map, const void* src, int x, int y, int z, int w) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(map), "r"(x), "r"(y), "r"(z), "r"(w),
               "r"(shared_address(src))
               : "memory");
}
__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Until at most N of this thread's committed stores have yet to read their shared memory.
template <int N>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

/// Orders ordinary shared-memory writes before what the copy engine or the tensor cores read next.
__device__ __forceinline__ void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace tenor::cuda::ptx
