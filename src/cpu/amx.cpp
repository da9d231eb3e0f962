#include "src/cpu/amx.h"

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tenor::cpu {
namespace {

bool request_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;
  if ((d & (kBf16 | kTile)) != (kBf16 | kTile)) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool has_amx() {
  static const bool available = request_amx();
  return available;
}

__attribute__((target("amx-tile,amx-bf16"))) int64_t amx_products(int64_t rounds) {
  static constexpr TileConfig kConfig;
  _tile_loadconfig(&kConfig);
  for (int64_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return rounds * 4 * 2 * 16 * 16 * 32;
}

}  // namespace tenor::cpu

#else

namespace tenor::cpu {

bool has_amx() { return false; }
int64_t amx_products(int64_t) { return 0; }

}  // namespace tenor::cpu

#endif
