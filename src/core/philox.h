// Random numbers by counting: a block of bits is a function of a key and a counter, so any of them can be had at any
// time, in any order, on any device.
#pragma once

#include <cstdint>

#include "src/core/numeric.h"

namespace tenor::core {

/// A 128-bit counter in, 128 random bits out.
struct PhiloxBlock {
  uint32_t word[4];
};

inline constexpr uint32_t kPhiloxMultiply0 = 0xD2511F53, kPhiloxMultiply1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxStep0 = 0x9E3779B9, kPhiloxStep1 = 0xBB67AE85;
inline constexpr int kPhiloxRounds = 10;

/// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
TENOR_HOST_DEVICE inline PhiloxBlock philox(PhiloxBlock c, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t a = uint64_t{kPhiloxMultiply0} * c.word[0], b = uint64_t{kPhiloxMultiply1} * c.word[2];
    c = {{static_cast<uint32_t>(b >> 32) ^ c.word[1] ^ k0, static_cast<uint32_t>(b),
          static_cast<uint32_t>(a >> 32) ^ c.word[3] ^ k1, static_cast<uint32_t>(a)}};
    k0 += kPhiloxStep0;
    k1 += kPhiloxStep1;
  }
  return c;
}

}  // namespace tenor::core
