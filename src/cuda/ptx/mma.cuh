// mma.sync: a warp's matrix products with every operand in registers, and ldmatrix, which brings operands there. PTX ISA, "Matrix multiply-accumulate: mma".
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "src/cuda/ptx/mbarrier.cuh"
#include "tenor/dtype.h"

namespace tenor::cuda::ptx {

/// d[16 x 8] += a[16 x 16] * b[16 x 8], float32 sums of bfloat16 or float16 products. Of lane 4g + t: a0 holds row g,
/// columns 2t and 2t + 1; a1 row g + 8; a2, a3 the same eight columns on; b0 holds column g, rows 2t and 2t + 1, b1
/// eight rows on; d[0], d[1] are row g, columns 2t and 2t + 1, d[2], d[3] row g + 8. T is a 16-bit float, the library's
/// or the toolkit's.
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                             uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, __nv_bfloat16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    static_assert(std::is_same_v<T, Float16> || std::is_same_v<T, __half>);
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

/// d[16 x 8] += a[16 x 8] * b[8 x 8], float32 sums of products of TF32 numbers, which are float32 ones whose last 13
/// bits do not count. Of lane 4g + t: a0 holds row g, column t; a1 row g + 8; a2, a3 the same four columns on; b0 holds
/// column g, row t, b1 four rows on; d as above.
__device__ __forceinline__ void mma_m16n8k8(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Four 8 x 8 matrices of two-byte elements from shared memory: lane l gives the address of row l % 8 of matrix l / 8.
/// Of matrix i, r[i] then holds row g, columns 2t and 2t + 1, or of the transposed form column g, rows 2t and 2t + 1.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

}  // namespace tenor::cuda::ptx
