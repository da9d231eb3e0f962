// The family's random numbers: a function of the row's seed and position, the token, and a tag that tells the operators
// apart. The same on every device.
#pragma once

#include <algorithm>
#include <cmath>

#include "src/core/philox.h"

namespace tenor::sampling {

/// Which numbers: every use has its own.
enum class Tag : uint32_t { kSample = 1, kProbs, kMultinomial, kReplacement, kAccept, kResidual };

/// A row's numbers.
struct Stream {
  uint64_t seed;
  uint64_t position;
  Tag tag;

  /// The block of four words that holds those of tokens 4 * group to 4 * group + 3. `extra` names a second set.
  TENOR_HOST_DEVICE core::PhiloxBlock block(uint64_t group, bool extra = false) const {
    const uint32_t low = static_cast<uint32_t>(tag) | (extra ? 0x80000000u : 0u);
    return core::philox(
        {{static_cast<uint32_t>(group), static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), low}},
        seed);
  }
  TENOR_HOST_DEVICE uint32_t word(uint64_t token, bool extra = false) const {
    return block(token / 4, extra).word[token % 4];
  }
  /// 64 bits for item i.
  TENOR_HOST_DEVICE uint64_t wide(uint64_t i) const {
    const core::PhiloxBlock b = block(i / 2);
    return uint64_t{b.word[2 * (i % 2) + 1]} << 32 | b.word[2 * (i % 2)];
  }
};

/// Words below this are rare, and would leave too few digits of a small number.
inline constexpr uint32_t kFewDigits = 256;

/// The largest number below 1.
template <class C>
inline constexpr C kBelowOne = sizeof(C) == 4 ? C(0x1.fffffep-1) : C(0x1.fffffffffffffp-1);

/// A token's number in (0, 1) from its word, which is not below kFewDigits.
template <class C>
TENOR_HOST_DEVICE inline C uniform_of(uint32_t word) {
  const C v = (static_cast<C>(word) + C(0.5)) * C(0x1p-32);
  return v < kBelowOne<C> ? v : kBelowOne<C>;
}

/// The same from a word below kFewDigits and a second one: small numbers have all their digits as well.
template <class C>
TENOR_HOST_DEVICE inline C small_uniform_of(uint32_t word, uint32_t second) {
  return (static_cast<C>(uint64_t{word} << 32 | second) + C(0.5)) * C(0x1p-64);
}

template <class C>
TENOR_HOST_DEVICE inline C uniform(const Stream& stream, uint64_t token) {
  const uint32_t word = stream.word(token);
  return word >= kFewDigits ? uniform_of<C>(word) : small_uniform_of<C>(word, stream.word(token, true));
}

/// A number in [0, 1) with 53 bits, for accepting drafts.
TENOR_HOST_DEVICE inline double unit_interval(const Stream& stream) {
  return static_cast<double>(stream.wide(0) >> 11) * 0x1p-53;
}

/// Masses are exact integers, so their sums do not depend on the order: the number of their fraction bits leaves room
/// for the sum of `tokens` weights of at most 1 in 62 bits.
TENOR_HOST_DEVICE inline int mass_bits(int64_t tokens) {
  int bits = 0;
  for (; tokens > 0; tokens >>= 1) ++bits;
  return 62 - bits;
}
/// A weight in [0, 1] as a mass; scale is 2^mass_bits.
template <class C>
TENOR_HOST_DEVICE inline uint64_t mass_of(C weight, C scale) {
  return static_cast<uint64_t>(static_cast<int64_t>(weight * scale));
}
/// The largest mass that may lie before a kept token: top_p of the total.
TENOR_HOST_DEVICE inline uint64_t mass_limit(double top_p, uint64_t total) {
  return top_p > 0 ? static_cast<uint64_t>(top_p * static_cast<double>(total)) : 0;
}

}  // namespace tenor::sampling
