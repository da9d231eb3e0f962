// Keys (src/core/order_key.h) in vector loops.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/core/order_key.h"

namespace tenor::cpu {

using core::encode;
using core::key_code;
using core::KeyCode;
using core::KeyKind;

/// The vector loops over n elements that lie side by side (sort_simd.cpp), for this machine's instruction set.
template <class K>
struct KeyKernels {
  void (*encode)(const K* bits, size_t n, KeyCode code, K* keys);
  size_t (*find_below)(const K* bits, size_t n, KeyCode code, K limit, uint32_t* places, K* keys);
  size_t (*find_between)(const K* bits, size_t n, KeyCode code, K low, K high, uint32_t* places, K* keys,
                         size_t* lower);
  void (*lower_minima)(const K* bits, size_t n, KeyCode code, K* minima, size_t groups);
};
template <class K>
const KeyKernels<K>& key_kernels(KeyKind kind);
template <>
const KeyKernels<uint8_t>& key_kernels(KeyKind kind);
template <>
const KeyKernels<uint16_t>& key_kernels(KeyKind kind);
template <>
const KeyKernels<uint32_t>& key_kernels(KeyKind kind);
template <>
const KeyKernels<uint64_t>& key_kernels(KeyKind kind);

/// Their keys. keys may be bits.
template <class K>
inline void encode_all(const K* bits, size_t n, KeyCode code, K* keys) {
  key_kernels<K>(code.kind).encode(bits, n, code, keys);
}
/// The elements whose key is < limit: their places in [0, n) and keys, in order; returns how many. Both arrays hold n.
template <class K>
inline size_t find_below(const K* bits, size_t n, KeyCode code, K limit, uint32_t* places, K* keys) {
  return key_kernels<K>(code.kind).find_below(bits, n, code, limit, places, keys);
}
/// As find_below for low <= key <= high; adds to *lower the number of keys < low.
template <class K>
inline size_t find_between(const K* bits, size_t n, KeyCode code, K low, K high, uint32_t* places, K* keys,
                           size_t* lower) {
  return key_kernels<K>(code.kind).find_between(bits, n, code, low, high, places, keys, lower);
}

/// minima[i % groups] = min(minima[i % groups], key of element i). groups is a multiple of a vector's lanes: of
/// 64 / sizeof(K).
template <class K>
inline void lower_minima(const K* bits, size_t n, KeyCode code, K* minima, size_t groups) {
  key_kernels<K>(code.kind).lower_minima(bits, n, code, minima, groups);
}

/// The order of up to kRanked keys, stable: order[p] is the place of the key that comes p-th. Costs n^2 comparisons, by
/// vectors. `keys` has room for kRanked, whatever n is.
inline constexpr size_t kRanked = 64;
void rank_all(const uint32_t* keys, size_t n, uint32_t* order);
void rank_all(const uint64_t* keys, size_t n, uint32_t* order);

/// How many elements block-wise code handles at a time: their bits, keys and places stay in the first-level cache.
inline constexpr int64_t kKeyBlock = 512;

/// The elements x[i * stride], i in [first, first + n), side by side: where they lie, or gathered into `block`.
template <class K>
inline const K* side_by_side(const K* x, int64_t stride, int64_t first, int64_t n, K* block) {
  if (stride == 1) return x + first;
  for (int64_t i = 0; i < n; ++i) block[i] = x[(first + i) * stride];
  return block;
}

}  // namespace tenor::cpu
