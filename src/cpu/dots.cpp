#include "src/cpu/dots.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace tenor::cpu {

bool has_bfloat16_dots() { return __builtin_cpu_supports("avx512bf16"); }

/// Sixteen sums in registers, as many as hide an instruction's latency on two units. Named, for compilers keep arrays
/// of them in memory; what they hold does not matter.
__attribute__((target("avx512f,avx512bf16"))) int64_t bfloat16_dots(int64_t rounds) {
  const __m512i ones = _mm512_set1_epi16(0x3f80);
  for (int64_t i = 0; i < rounds; ++i)
    asm volatile(
        "vdpbf16ps %0, %0, %%zmm16\n\tvdpbf16ps %0, %0, %%zmm17\n\tvdpbf16ps %0, %0, %%zmm18\n\t"
        "vdpbf16ps %0, %0, %%zmm19\n\tvdpbf16ps %0, %0, %%zmm20\n\tvdpbf16ps %0, %0, %%zmm21\n\t"
        "vdpbf16ps %0, %0, %%zmm22\n\tvdpbf16ps %0, %0, %%zmm23\n\tvdpbf16ps %0, %0, %%zmm24\n\t"
        "vdpbf16ps %0, %0, %%zmm25\n\tvdpbf16ps %0, %0, %%zmm26\n\tvdpbf16ps %0, %0, %%zmm27\n\t"
        "vdpbf16ps %0, %0, %%zmm28\n\tvdpbf16ps %0, %0, %%zmm29\n\tvdpbf16ps %0, %0, %%zmm30\n\t"
        "vdpbf16ps %0, %0, %%zmm31"
        :
        : "v"(ones)
        : "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27",
          "xmm28", "xmm29", "xmm30", "xmm31");
  return rounds * 16 * 2 * 32;
}

}  // namespace tenor::cpu

#else

namespace tenor::cpu {

bool has_bfloat16_dots() { return false; }
int64_t bfloat16_dots(int64_t) { return 0; }

}  // namespace tenor::cpu

#endif
