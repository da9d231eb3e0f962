// A key above its index in one value: all different, so that every correct sort or selection gives the one stable
// result.
#pragma once

#include <cstdint>
#include <type_traits>

namespace tenor::cuda {

/// Of 64-bit keys.
struct WideKey {
  uint64_t key;
  uint32_t index;
};
__device__ __forceinline__ bool operator<(const WideKey& a, const WideKey& b) {
  return a.key != b.key ? a.key < b.key : a.index < b.index;
}

/// What holds a key of type K and an index.
template <class K>
using Packed = std::conditional_t<sizeof(K) == 8, WideKey, uint64_t>;

template <class K>
__device__ __forceinline__ Packed<K> pack(K key, uint32_t index) {
  if constexpr (sizeof(K) == 8) {
    return {key, index};
  } else {
    return uint64_t{key} << 32 | index;
  }
}
template <class K>
__device__ __forceinline__ K key_of(const Packed<K>& p) {
  if constexpr (sizeof(K) == 8) {
    return p.key;
  } else {
    return static_cast<K>(p >> 32);
  }
}
__device__ __forceinline__ uint32_t index_of(const WideKey& p) { return p.index; }
__device__ __forceinline__ uint32_t index_of(uint64_t p) { return static_cast<uint32_t>(p); }
/// Comes after every element: no row has 2^32 of them.
template <class K>
__device__ __forceinline__ Packed<K> last_packed() {
  return pack<K>(static_cast<K>(~K(0)), ~0u);
}

}  // namespace tenor::cuda
