// A key above its index in one integer. Packed values are all different, so any correct sort or selection of them gives
// the one stable result: neither the algorithm nor the thread count shows.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "src/cpu/parallel.h"
#include "src/ops/sort/key.h"
#include "tenor/device.h"

namespace tenor::cpu {

/// Keys of up to 32 bits and indices below 2^32.
using Packed64 = uint64_t;
/// Any key and index.
__extension__ typedef unsigned __int128 Packed128;

template <class P>
inline constexpr int kIndexBits = 4 * sizeof(P);
template <class P>
inline P pack(uint64_t key, int64_t index) {
  return static_cast<P>(key) << kIndexBits<P> | static_cast<P>(index);
}
template <class P>
inline uint64_t key_of(P p) {
  return static_cast<uint64_t>(p >> kIndexBits<P>);
}
template <class P>
inline int64_t index_of(P p) {
  return static_cast<int64_t>(p & ((P(1) << kIndexBits<P>)-1));
}

/// The key bits in which some elements differ.
struct VaryingBits {
  uint64_t any = 0, all = ~uint64_t{0};
  void add(const VaryingBits& other) { any |= other.any, all &= other.all; }
  uint64_t bits() const { return any & ~all; }
};

/// put(i, key) for elements [first, first + n) of a row, block by block; returns the bits in which they differ.
template <class K, class Put>
inline VaryingBits each_key(const K* x, int64_t stride, int64_t first, int64_t n, KeyCode code, Put put) {
  K block[kKeyBlock], keys[kKeyBlock];
  K any = 0, all = static_cast<K>(~K(0));
  for (int64_t done = first; done < first + n; done += kKeyBlock) {
    const int64_t count = std::min(kKeyBlock, first + n - done);
    encode_all(side_by_side(x, stride, done, count, block), static_cast<size_t>(count), code, keys);
    for (int64_t i = 0; i < count; ++i) {
      put(done + i, keys[i]);
      any |= keys[i];
      all &= keys[i];
    }
  }
  return {any, all};
}

/// packed[i], or keys[i], for i in [first, first + n).
template <class K, class P>
inline VaryingBits load_packed(const K* x, int64_t stride, int64_t first, int64_t n, KeyCode code, P* packed) {
  return each_key(x, stride, first, n, code, [&](int64_t i, K key) { packed[i] = pack<P>(key, i); });
}
template <class K>
inline VaryingBits load_keys(const K* x, int64_t stride, int64_t first, int64_t n, KeyCode code, uint64_t* keys) {
  return each_key(x, stride, first, n, code, [&](int64_t i, K key) { keys[i] = key; });
}

/// How the varying bits are cut into digits of at most 11 bits; fewer for short rows, where tables cost more than
/// passes.
struct Digits {
  int first = 0, bits = 0, count = 0;
  Digits(uint64_t varying, int64_t n) {
    if (varying == 0) return;
    first = std::countr_zero(varying);
    const int span = 64 - std::countl_zero(varying) - first, most = n < 1024 ? 8 : 11;
    count = (span + most - 1) / most;
    bits = (span + count - 1) / count;
  }
  template <class P>
  size_t of(P p, int digit) const {
    return (key_of(p) >> (first + digit * bits)) & ((size_t{1} << bits) - 1);
  }
};
inline constexpr size_t kBuckets = size_t{1} << 11;

/// Sorts a[0, n) in rising order of the varying key bits, b being as large; returns the one that holds the result.
/// LSD radix sort: a is in index order to begin with, and every pass is stable.
template <class P>
P* radix_sort(P* a, P* b, int64_t n, uint64_t varying) {
  const Digits digits(varying, n);
  int64_t tables[2][kBuckets];
  int64_t *counts = tables[0], *next = tables[1];
  const size_t buckets = size_t{1} << digits.bits;
  std::fill_n(counts, buckets, 0);
  if (digits.count > 0)
    for (int64_t i = 0; i < n; ++i) ++counts[digits.of(a[i], 0)];
  for (int d = 0; d < digits.count; ++d) {
    int64_t start = 0;
    for (size_t k = 0; k < buckets; ++k) start += std::exchange(counts[k], start);
    std::fill_n(next, buckets, 0);
    const int following = d + 1 < digits.count ? d + 1 : d;  // the next digit is counted on the way
    for (int64_t i = 0; i < n; ++i) {
      const P p = a[i];
      ++next[digits.of(p, following)];
      b[counts[digits.of(p, d)]++] = p;
    }
    std::swap(a, b);
    std::swap(counts, next);
  }
  return a;
}

/// As radix_sort, with all threads: chunks count their digits, get their own places in every bucket, and scatter.
template <class P>
P* parallel_radix_sort(P* a, P* b, int64_t n, uint64_t varying) {
  const Digits digits(varying, n);
  const int64_t chunks = num_threads();
  const size_t buckets = size_t{1} << digits.bits;
  std::vector<int64_t> counts(static_cast<size_t>(chunks) * buckets);
  const auto each_chunk = [&](auto&& fn) {
    parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c)
        fn(counts.data() + static_cast<size_t>(c) * buckets, n * c / chunks, n * (c + 1) / chunks);
    });
  };
  for (int d = 0; d < digits.count; ++d) {
    each_chunk([&](int64_t* mine, int64_t first, int64_t last) {
      std::fill_n(mine, buckets, 0);
      for (int64_t i = first; i < last; ++i) ++mine[digits.of(a[i], d)];
    });
    int64_t start = 0;
    for (size_t k = 0; k < buckets; ++k)
      for (int64_t c = 0; c < chunks; ++c) start += std::exchange(counts[static_cast<size_t>(c) * buckets + k], start);
    each_chunk([&](int64_t* mine, int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) b[mine[digits.of(a[i], d)]++] = a[i];
    });
    std::swap(a, b);
  }
  return a;
}

}  // namespace tenor::cpu
