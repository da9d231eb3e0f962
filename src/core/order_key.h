// One order for sorts and selections, as integers: an element's bits become an unsigned key of the same width such that
// smaller keys come first. NaN is the greatest and has one key, the largest; -0 has +0's key; a descending order
// complements the key.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/core/numeric.h"

namespace tenor::core {

enum class KeyKind : uint8_t { kUnsigned, kSigned, kFloat };

struct KeyCode {
  KeyKind kind;
  uint64_t infinity;  ///< the bits of +infinity, for floats
  bool descending;
};

inline KeyCode key_code(DType dtype, bool descending = false) {
  if (is_signed(dtype)) return {KeyKind::kSigned, 0, descending};
  switch (dtype) {
    case DType::kFloat16:
      return {KeyKind::kFloat, 0x7C00, descending};
    case DType::kBFloat16:
      return {KeyKind::kFloat, 0x7F80, descending};
    case DType::kFloat32:
      return {KeyKind::kFloat, 0x7F800000, descending};
    case DType::kFloat64:
      return {KeyKind::kFloat, 0x7FF0000000000000, descending};
    default:
      return {KeyKind::kUnsigned, 0, descending};
  }
}

/// One element's key. K is the unsigned integer of the element's width.
template <class K>
TENOR_HOST_DEVICE inline K encode(K bits, KeyCode code) {
  constexpr K kSign = static_cast<K>(K(1) << (8 * sizeof(K) - 1));
  K key = bits;
  if (code.kind == KeyKind::kSigned) {
    key = static_cast<K>(bits ^ kSign);
  } else if (code.kind == KeyKind::kFloat) {
    const K magnitude = static_cast<K>(bits & ~kSign);
    key = static_cast<K>(bits & kSign ? ~bits : bits | kSign);
    if (magnitude == 0) key = kSign;
    if (magnitude > static_cast<K>(code.infinity)) key = static_cast<K>(~K(0));
  }
  return code.descending ? static_cast<K>(~key) : key;
}

/// The bits of an element with that key: the element's own but for -0 (+0 here) and NaN (any).
template <class K>
TENOR_HOST_DEVICE inline K decode(K key, KeyCode code) {
  constexpr K kSign = static_cast<K>(K(1) << (8 * sizeof(K) - 1));
  if (code.descending) key = static_cast<K>(~key);
  if (code.kind == KeyKind::kSigned) return static_cast<K>(key ^ kSign);
  if (code.kind == KeyKind::kFloat) return static_cast<K>(key & kSign ? key ^ kSign : ~key);
  return key;
}

/// The key that every NaN has; of integers the largest key, which an element may have.
template <class K>
TENOR_HOST_DEVICE inline K nan_key(KeyCode code) {
  return code.descending ? K(0) : static_cast<K>(~K(0));
}

}  // namespace tenor::core
