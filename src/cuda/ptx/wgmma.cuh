// wgmma: the warpgroup's asynchronous matrix products, D += A * B with both operands in shared memory.
// PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "src/cuda/ptx/mbarrier.cuh"

namespace tenor::cuda::ptx {

/// How a tile of one operand lies in shared memory; both as TMA writes it with its 128-byte swizzle, from a multiple of
/// 1024 bytes on.
enum class TileLayout {
  kInner,  ///< rows of 64 elements of k: groups of eight rows lie 1024 bytes apart
  kOuter,  ///< blocks of 64 rows or columns: in each, a line of 128 bytes for each k, 64 of them unless said otherwise
};

/// The descriptor of such a tile; kLines are the lines of a block of kOuter.
template <TileLayout kLayout = TileLayout::kInner, int kLines = 64>
__device__ __forceinline__ uint64_t wgmma_descriptor(const void* tile) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kGroup = 1024 >> 4, kBlock = kLines * 128 >> 4;
  constexpr uint64_t kStrides = kGroup << 32 | (kLayout == TileLayout::kInner ? 1 : kBlock) << 16;
  return ((shared_address(tile) & 0x3FFFF) >> 4) | kStrides | kSwizzle128;
}
/// Descriptor units (16 bytes) of a step of 16 two-byte elements along k.
template <TileLayout kLayout = TileLayout::kInner>
inline constexpr uint64_t kWgmmaStepK = kLayout == TileLayout::kInner ? 2 : 16 * 128 >> 4;

/// Orders register and shared-memory accesses of the warpgroup before its next wgmma.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Until at most N committed groups are running.
template <int N>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/// Keeps the compiler from moving what it does with accumulators past this point, into the run of a wgmma.
template <int kCount>
__device__ __forceinline__ void wgmma_pin(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

/// d[64 x N] (+)= a[64 x 16] * b[N x 16]^T, float32 accumulators spread over the 128 threads: thread t holds, for each
/// group j of 8 columns, d[4j], d[4j+1] in row 16*(t/32) + (t%32)/4, columns 8j + 2*(t%4) and the next, and d[4j+2],
/// d[4j+3] eight rows below. `accumulate` false starts from zero. T is __nv_bfloat16 or __half; kB is how b lies, a is kInner.
template <class T, int N, TileLayout kB>
__device__ __forceinline__ void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, bool accumulate);

/// The same with a in registers, as mma_m16n8k16 takes it: of thread t, a0 holds row 16*(t/32) + (t%32)/4, columns
/// 2*(t%4) and the next; a1 eight rows below; a2, a3 the same eight columns on.
template <class T, int N, TileLayout kB>
__device__ __forceinline__ void wgmma(float (&d)[N / 2], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b,
                                      bool accumulate);

// The instruction names each register: of each shape, its operands' numbers as text and the registers.
#define TENOR_EIGHT(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define TENOR_REGISTERS_8 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define TENOR_REGISTERS_16 TENOR_EIGHT(0)
#define TENOR_REGISTERS_32 TENOR_EIGHT(0), TENOR_EIGHT(8)
#define TENOR_REGISTERS_64 TENOR_EIGHT(0), TENOR_EIGHT(8), TENOR_EIGHT(16), TENOR_EIGHT(24)
#define TENOR_REGISTERS_80 TENOR_REGISTERS_64, TENOR_EIGHT(32)
#define TENOR_REGISTERS_88 TENOR_REGISTERS_80, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43])
#define TENOR_REGISTERS_96 TENOR_REGISTERS_80, TENOR_EIGHT(40)
#define TENOR_REGISTERS_112 TENOR_REGISTERS_96, TENOR_EIGHT(48)
#define TENOR_REGISTERS_128 TENOR_REGISTERS_112, TENOR_EIGHT(56)
#define TENOR_REGISTERS_160 TENOR_REGISTERS_128, TENOR_EIGHT(64), TENOR_EIGHT(72)
#define TENOR_REGISTERS_176 TENOR_REGISTERS_160, TENOR_EIGHT(80)
#define TENOR_REGISTERS_192 TENOR_REGISTERS_176, TENOR_EIGHT(88)
#define TENOR_REGISTERS_208 TENOR_REGISTERS_192, TENOR_EIGHT(96)
#define TENOR_REGISTERS_224 TENOR_REGISTERS_208, TENOR_EIGHT(104)
#define TENOR_REGISTERS_256 TENOR_REGISTERS_224, TENOR_EIGHT(112), TENOR_EIGHT(120)
#define TENOR_NUMBERS_8 "%0, %1, %2, %3"
#define TENOR_NUMBERS_16 TENOR_NUMBERS_8 ", %4, %5, %6, %7"
#define TENOR_NUMBERS_32 TENOR_NUMBERS_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define TENOR_NUMBERS_64 TENOR_NUMBERS_32 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TENOR_NUMBERS_80 TENOR_NUMBERS_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define TENOR_NUMBERS_88 TENOR_NUMBERS_80 ", %40, %41, %42, %43"
#define TENOR_NUMBERS_96 TENOR_NUMBERS_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define TENOR_NUMBERS_112 TENOR_NUMBERS_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define TENOR_NUMBERS_128 TENOR_NUMBERS_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define TENOR_NUMBERS_160 TENOR_NUMBERS_128 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define TENOR_NUMBERS_176 TENOR_NUMBERS_160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define TENOR_NUMBERS_192 TENOR_NUMBERS_176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define TENOR_NUMBERS_208 TENOR_NUMBERS_192 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define TENOR_NUMBERS_224 TENOR_NUMBERS_208 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define TENOR_NUMBERS_256 TENOR_NUMBERS_224 ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define TENOR_WGMMA_CASE(type, name, shape, layout, transposed, a_at, b_at, p_at)                                                    \
  template <>                                                                                                                        \
  __device__ __forceinline__ void wgmma<type, shape, TileLayout::layout>(float (&d)[shape / 2], uint64_t a, uint64_t b, bool accumulate) { \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p_at ", 0;\n"                                                                  \
                 "wgmma.mma_async.sync.aligned.m64n" #shape "k16.f32." name "." name " {" TENOR_NUMBERS_##shape "}, " a_at ", " b_at \
                 ", p, 1, 1, 0, " transposed ";\n}"                                                                                  \
                 : TENOR_REGISTERS_##shape                                                                                           \
                 : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));                                                               \
  }
#define TENOR_WGMMA(shape, a_at, b_at, p_at)                                             \
  TENOR_WGMMA_CASE(__nv_bfloat16, "bf16", shape, kInner, "0", a_at, b_at, p_at)           \
  TENOR_WGMMA_CASE(__nv_bfloat16, "bf16", shape, kOuter, "1", a_at, b_at, p_at)           \
  TENOR_WGMMA_CASE(__half, "f16", shape, kInner, "0", a_at, b_at, p_at)                   \
  TENOR_WGMMA_CASE(__half, "f16", shape, kOuter, "1", a_at, b_at, p_at)

TENOR_WGMMA(8, "%4", "%5", "%6")
TENOR_WGMMA(16, "%8", "%9", "%10")
TENOR_WGMMA(32, "%16", "%17", "%18")
TENOR_WGMMA(64, "%32", "%33", "%34")
TENOR_WGMMA(80, "%40", "%41", "%42")
TENOR_WGMMA(88, "%44", "%45", "%46")
TENOR_WGMMA(96, "%48", "%49", "%50")
TENOR_WGMMA(112, "%56", "%57", "%58")
TENOR_WGMMA(128, "%64", "%65", "%66")
TENOR_WGMMA(160, "%80", "%81", "%82")
TENOR_WGMMA(176, "%88", "%89", "%90")
TENOR_WGMMA(192, "%96", "%97", "%98")
TENOR_WGMMA(208, "%104", "%105", "%106")
TENOR_WGMMA(224, "%112", "%113", "%114")
TENOR_WGMMA(256, "%128", "%129", "%130")

#define TENOR_WGMMA_REGISTERS_CASE(type, name, shape, layout, transposed, a_at, b_at, p_at)                                          \
  template <>                                                                                                                        \
  __device__ __forceinline__ void wgmma<type, shape, TileLayout::layout>(float (&d)[shape / 2], uint32_t a0, uint32_t a1,            \
                                                                         uint32_t a2, uint32_t a3, uint64_t b, bool accumulate) {    \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p_at ", 0;\n"                                                                  \
                 "wgmma.mma_async.sync.aligned.m64n" #shape "k16.f32." name "." name " {" TENOR_NUMBERS_##shape "}, {" a_at "}, "    \
                 b_at ", p, 1, 1, " transposed ";\n}"                                                                                \
                 : TENOR_REGISTERS_##shape                                                                                           \
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(static_cast<int>(accumulate)));                                   \
  }
#define TENOR_WGMMA_REGISTERS(shape, a_at, b_at, p_at)                                         \
  TENOR_WGMMA_REGISTERS_CASE(__nv_bfloat16, "bf16", shape, kInner, "0", a_at, b_at, p_at)      \
  TENOR_WGMMA_REGISTERS_CASE(__nv_bfloat16, "bf16", shape, kOuter, "1", a_at, b_at, p_at)      \
  TENOR_WGMMA_REGISTERS_CASE(__half, "f16", shape, kOuter, "1", a_at, b_at, p_at)

TENOR_WGMMA_REGISTERS(64, "%32, %33, %34, %35", "%36", "%37")
TENOR_WGMMA_REGISTERS(128, "%64, %65, %66, %67", "%68", "%69")
TENOR_WGMMA_REGISTERS(256, "%128, %129, %130, %131", "%132", "%133")

/// d[64 x N] (+)= a[16 x 64]^T * b[16 x N], both kOuter: sums over what is outermost in either.
template <class T, int N>
__device__ __forceinline__ void wgmma_outer(float (&d)[N / 2], uint64_t a, uint64_t b, bool accumulate);

#define TENOR_WGMMA_OUTER_CASE(type, name, shape, a_at, b_at, p_at)                                                                  \
  template <>                                                                                                                        \
  __device__ __forceinline__ void wgmma_outer<type, shape>(float (&d)[shape / 2], uint64_t a, uint64_t b, bool accumulate) {         \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p_at ", 0;\n"                                                                  \
                 "wgmma.mma_async.sync.aligned.m64n" #shape "k16.f32." name "." name " {" TENOR_NUMBERS_##shape "}, " a_at ", " b_at \
                 ", p, 1, 1, 1, 1;\n}"                                                                                               \
                 : TENOR_REGISTERS_##shape                                                                                           \
                 : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));                                                               \
  }
#define TENOR_WGMMA_OUTER(shape, a_at, b_at, p_at)                          \
  TENOR_WGMMA_OUTER_CASE(__nv_bfloat16, "bf16", shape, a_at, b_at, p_at)     \
  TENOR_WGMMA_OUTER_CASE(__half, "f16", shape, a_at, b_at, p_at)

TENOR_WGMMA_OUTER(64, "%32", "%33", "%34")
TENOR_WGMMA_OUTER(128, "%64", "%65", "%66")
TENOR_WGMMA_OUTER(256, "%128", "%129", "%130")

#undef TENOR_WGMMA_OUTER
#undef TENOR_WGMMA_OUTER_CASE
#undef TENOR_WGMMA_REGISTERS
#undef TENOR_WGMMA_REGISTERS_CASE
#undef TENOR_WGMMA
#undef TENOR_WGMMA_CASE
#undef TENOR_NUMBERS_256
#undef TENOR_NUMBERS_224
#undef TENOR_NUMBERS_208
#undef TENOR_NUMBERS_192
#undef TENOR_NUMBERS_176
#undef TENOR_NUMBERS_160
#undef TENOR_NUMBERS_128
#undef TENOR_NUMBERS_112
#undef TENOR_NUMBERS_96
#undef TENOR_NUMBERS_80
#undef TENOR_NUMBERS_88
#undef TENOR_NUMBERS_64
#undef TENOR_NUMBERS_32
#undef TENOR_NUMBERS_16
#undef TENOR_NUMBERS_8
#undef TENOR_REGISTERS_256
#undef TENOR_REGISTERS_224
#undef TENOR_REGISTERS_208
#undef TENOR_REGISTERS_192
#undef TENOR_REGISTERS_176
#undef TENOR_REGISTERS_160
#undef TENOR_REGISTERS_128
#undef TENOR_REGISTERS_112
#undef TENOR_REGISTERS_96
#undef TENOR_REGISTERS_80
#undef TENOR_REGISTERS_88
#undef TENOR_REGISTERS_64
#undef TENOR_REGISTERS_32
#undef TENOR_REGISTERS_16
#undef TENOR_REGISTERS_8
#undef TENOR_EIGHT

/// Gives registers back to, or takes them from, the block's pool (setmaxnreg); N is a multiple of 8.
template <int N>
__device__ __forceinline__ void registers_decrease() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ __forceinline__ void registers_increase() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/// Four 8x8 matrices of two-byte elements from registers to shared memory; lane l gives the address of row l%8 of matrix l/8.
__device__ __forceinline__ void stmatrix_x4(void* row, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)), "r"(r0), "r"(r1), "r"(r2),
               "r"(r3)
               : "memory");
}

/// Two 8x8 matrices, each stored transposed: lane l < 16 gives the address of column l%8 of matrix l/8.
__device__ __forceinline__ void stmatrix_x2_turned(void* column, uint32_t r0, uint32_t r1) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(shared_address(column)), "r"(r0), "r"(r1)
               : "memory");
}

}  // namespace tenor::cuda::ptx
