// Vector loads and stores: N neighbouring elements as one access of up to 16 bytes.
#pragma once

#include <cstdint>
#include <type_traits>

namespace tenor::cuda {

inline constexpr int kVectorBytes = 16;

/// Elements of T in one access.
template <class T>
inline constexpr int kVector = kVectorBytes / static_cast<int>(sizeof(T));

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};

template <int Bytes>
using Word = std::conditional_t<
    Bytes == 16, uint4,
    std::conditional_t<Bytes == 8, uint2,
                       std::conditional_t<Bytes == 4, uint32_t, std::conditional_t<Bytes == 2, uint16_t, uint8_t>>>>;

/// N elements at p, which is aligned to N * sizeof(T) <= 16 bytes.
template <int N, class T>
__device__ __forceinline__ Pack<T, N> load_pack(const T* p) {
  using W = Word<sizeof(T) * N>;
  Pack<T, N> out;
  *reinterpret_cast<W*>(&out) = *reinterpret_cast<const W*>(p);
  return out;
}
/// Likewise, for data that is read once: it leaves the caches first.
template <int N, class T>
__device__ __forceinline__ Pack<T, N> load_once(const T* p) {
  using W = Word<sizeof(T) * N>;
  Pack<T, N> out;
  *reinterpret_cast<W*>(&out) = __ldcs(reinterpret_cast<const W*>(p));
  return out;
}
/// For data that no other thread of the multiprocessor reads: 16 bytes do not pass through its L1 cache.
template <int N, class T>
__device__ __forceinline__ Pack<T, N> load_past_l1(const T* p) {
  if constexpr (sizeof(T) * N != kVectorBytes) return load_pack<N>(p);
  Pack<T, N> out;
  uint4 words;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(p));
  *reinterpret_cast<uint4*>(&out) = words;
  return out;
}
template <int N, class T>
__device__ __forceinline__ void store_pack(T* p, const Pack<T, N>& x) {
  using W = Word<sizeof(T) * N>;
  *reinterpret_cast<W*>(p) = *reinterpret_cast<const W*>(&x);
}
/// Likewise to global memory, and certainly as one access: the compiler takes some of 16 bytes apart.
template <int N, class T>
__device__ __forceinline__ void store_whole(T* p, const Pack<T, N>& x) {
  if constexpr (sizeof(T) * N == kVectorBytes) {
    const uint4 words = *reinterpret_cast<const uint4*>(&x);
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(words.x), "r"(words.y), "r"(words.z),
                 "r"(words.w)
                 : "memory");
  } else {
    store_pack(p, x);
  }
}
/// For results that no kernel reads soon.
template <int N, class T>
__device__ __forceinline__ void store_once(T* p, const Pack<T, N>& x) {
  using W = Word<sizeof(T) * N>;
  __stcs(reinterpret_cast<W*>(p), *reinterpret_cast<const W*>(&x));
}

/// Whether `bytes`-wide accesses at p, and at every multiple of `stride` elements of `item` bytes from it, are aligned.
inline bool is_aligned(const void* p, int64_t stride, size_t item, int bytes = kVectorBytes) {
  return reinterpret_cast<uintptr_t>(p) % bytes == 0 && stride * static_cast<int64_t>(item) % bytes == 0;
}

}  // namespace tenor::cuda
