// Highway behind a few names. A kernel file includes this after foreach_target.h and is compiled once per instruction
// set (baseline, AVX2, AVX-512; NEON and SVE on Arm); see src/ops/norm/norm_cpu.cpp for the pattern. Kernels are
// single-threaded functions over a chunk: parallel_for stays outside of them.
#if defined(TENOR_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENOR_CPU_SIMD_INL_H_
#undef TENOR_CPU_SIMD_INL_H_
#else
#define TENOR_CPU_SIMD_INL_H_
#endif

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/core/numeric.h"
#include "src/core/reduction_order.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The tag of a full vector of the compute type of T: float for float, Float16 and BFloat16; double for double.
template <class T>
using ComputeTag = hn::ScalableTag<core::Compute<T>>;

#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4
inline constexpr bool kVectorFloat16 =
    false;  // without F16C Highway emulates the conversion, neither to nearest even nor with infinities
#else
inline constexpr bool kVectorFloat16 = true;
#endif

/// v, which the compiler shall load once: it reads memory anew for every use of a vector that it can name as an
/// operand, and where p is not aligned each of these reads crosses a cache line.
template <class V>
HWY_INLINE V in_register(V v) {
#if defined(__GNUC__) && HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
  asm("" : "+v"(v.raw));
#endif
  return v;
}

// load(d, p): Lanes(d) elements, widened to d's type. p need not be aligned.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load(D d, const T* HWY_RESTRICT p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const BFloat16* HWY_RESTRICT p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const Float16* HWY_RESTRICT p) {
  if constexpr (kVectorFloat16) {
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
  } else {
    float wide[HWY_MAX_BYTES / sizeof(float)];
    for (size_t i = 0; i < hn::Lanes(d); ++i) wide[i] = core::widen(p[i]);
    return hn::LoadU(d, wide);
  }
}

// store(d, v, p): Lanes(d) elements, rounded to nearest even to the type of p.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void store(D d, hn::Vec<D> v, T* HWY_RESTRICT p) {
  hn::StoreU(v, d, p);
}
/// v rounded to bfloat16, in the upper halves of its lanes; what the lower halves hold means nothing.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> round_to_upper_half(D, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> du;
  v = in_register(v);
  const auto bits = hn::BitCast(du, v);
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));  // rounding would carry a NaN into infinity
  const auto nan = hn::RebindMask(du, hn::IsNaN(v));
#if HWY_TARGET <= HWY_AVX3  // additions under a mask cost as much as additions
  const auto half = hn::Add(bits, hn::Set(du, 0x7FFFu));
  const auto rounded = hn::IfThenElse(hn::TestBit(bits, hn::Set(du, 0x10000u)), hn::Add(half, hn::Set(du, 1u)), half);
#else
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu)));
#endif
  return hn::IfThenElse(nan, quiet, rounded);
}
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, BFloat16* HWY_RESTRICT p) {
  const hn::Rebind<uint16_t, D> d16;
  hn::StoreU(hn::TruncateTo(d16, hn::ShiftRight<16>(round_to_upper_half(d, v))), d16, reinterpret_cast<uint16_t*>(p));
}
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, Float16* HWY_RESTRICT p) {
  if constexpr (kVectorFloat16) {
    const hn::Rebind<hwy::float16_t, D> d16;
    hn::StoreU(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(p));
  } else {
    float wide[HWY_MAX_BYTES / sizeof(float)];
    hn::StoreU(v, d, wide);
    for (size_t i = 0; i < hn::Lanes(d); ++i) p[i] = core::cast<Float16>(wide[i]);
  }
}

/// Two vectors one behind the other: 16-bit floats of both go into one vector of their own.
template <class D, class T>
HWY_INLINE void store_pair(D d, hn::Vec<D> a, hn::Vec<D> b, T* HWY_RESTRICT p) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (std::is_same_v<T, BFloat16>) {
    const hn::Repartition<uint16_t, D> d16;
    hn::StoreU(
        hn::ConcatOdd(d16, hn::BitCast(d16, round_to_upper_half(d, b)), hn::BitCast(d16, round_to_upper_half(d, a))),
        d16, reinterpret_cast<uint16_t*>(p));
    return;
  }
#endif
  store(d, a, p);
  store(d, b, p + hn::Lanes(d));
}

#if HWY_TARGET <= HWY_AVX3
inline constexpr bool kMaskedMemory = true;  // masked loads and stores touch nothing outside of their mask
#else
inline constexpr bool kMaskedMemory = false;
#endif

/// The first n (< Lanes(d)) elements, `fill` in the other lanes; reads no element past n.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_n(D d, const T* HWY_RESTRICT p, size_t n, hn::TFromD<D> fill = 0) {
  if constexpr (kMaskedMemory && std::is_same_v<T, hn::TFromD<D>>) {
    const auto mask = hn::FirstN(d, n);
    return hn::IfThenElse(mask, hn::MaskedLoad(mask, d, p), hn::Set(d, fill));
  } else if constexpr (kMaskedMemory && (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>)) {
    const hn::Rebind<uint16_t, D> d16;
    HWY_ALIGN T part[HWY_MAX_BYTES / sizeof(T)];
    hn::StoreU(hn::MaskedLoad(hn::FirstN(d16, n), d16, reinterpret_cast<const uint16_t*>(p)), d16,
               reinterpret_cast<uint16_t*>(part));
    const auto v = load(d, static_cast<const T*>(part));
    return hn::IfThenElse(hn::FirstN(d, n), v, hn::Set(d, fill));
  } else {
    T part[HWY_MAX_BYTES / sizeof(T)];
    const T filler = core::cast<T>(fill);
    for (size_t i = 0; i < hn::Lanes(d); ++i) part[i] = filler;
    std::memcpy(part, p, n * sizeof(T));
    return load(d, part);
  }
}
/// Stores the first n (< Lanes(d)) elements only.
template <class D, class T>
HWY_INLINE void store_n(D d, hn::Vec<D> v, T* HWY_RESTRICT p, size_t n) {
  HWY_ALIGN T part[HWY_MAX_BYTES / sizeof(T)];
  if constexpr (kMaskedMemory && std::is_same_v<T, hn::TFromD<D>>) {
    hn::BlendedStore(v, hn::FirstN(d, n), d, p);
  } else if constexpr (kMaskedMemory && (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>)) {
    const hn::Rebind<uint16_t, D> d16;
    store(d, v, part);
    hn::BlendedStore(hn::LoadU(d16, reinterpret_cast<const uint16_t*>(part)), hn::FirstN(d16, n), d16,
                     reinterpret_cast<uint16_t*>(p));
  } else {
    store(d, v, part);
    std::memcpy(p, part, n * sizeof(T));
  }
}

/// dst[i] = fn(d, src[i]) for i < n, vector by vector; the tail runs through the same vector function, so that an
/// element's bits do not depend on its place.
template <class From, class To, class Fn>
HWY_INLINE void map_row(const From* HWY_RESTRICT src, To* HWY_RESTRICT dst, size_t n, Fn fn) {
  const ComputeTag<From> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  if constexpr (std::is_same_v<To, BFloat16>)
    for (; i + 2 * lanes <= n; i += 2 * lanes)
      store_pair(d, fn(d, load(d, src + i)), fn(d, load(d, src + i + lanes)), dst + i);
  for (; i + lanes <= n; i += lanes) store(d, fn(d, load(d, src + i)), dst + i);
  if (i < n) store_n(d, fn(d, load_n(d, src + i, n - i)), dst + i, n - i);
}

/// The tree of halves within one vector of 32- or 64-bit lanes, in registers; the result is in lane 0.
template <class D, class V, class Combine>
HWY_INLINE V combine_halves([[maybe_unused]] D d, V v, [[maybe_unused]] Combine combine) {
  using C = hn::TFromD<D>;
  static_assert(sizeof(C) == 4 || sizeof(C) == 8);
  constexpr size_t kBytes = hn::MaxLanes(D()) * sizeof(C);
  static_assert(kBytes <= 64);
#if HWY_TARGET != HWY_SCALAR  // which has one lane and no shuffles
  if constexpr (kBytes == 64) v = combine(d, v, hn::ConcatLowerUpper(d, v, v));
  if constexpr (kBytes >= 32) v = combine(d, v, hn::SwapAdjacentBlocks(v));
  if constexpr (kBytes >= 16 && sizeof(C) == 8) v = combine(d, v, hn::Shuffle01(v));
  if constexpr (kBytes >= 16 && sizeof(C) == 4) v = combine(d, v, hn::Shuffle1032(v));
  if constexpr (kBytes >= 16 && sizeof(C) == 4) v = combine(d, v, hn::Shuffle2301(v));
#endif
  return v;
}

/// acc[..] takes the next kReductionLanes elements, a lane each. `ahead`: asks for those some KiB further on too.
template <class D, class T, size_t kVectors, class Fn, class Combine>
HWY_INLINE void take_lanes(D d, const T* from, hn::Vec<D> (&acc)[kVectors], bool ahead, Fn& fn, Combine& combine) {
  const char* next = reinterpret_cast<const char*>(from) + 4096;
  for (size_t at = 0; ahead && at < core::kReductionLanes * sizeof(T); at += 64) hwy::Prefetch(next + at);
  for (size_t v = 0; v < kVectors; ++v) acc[v] = combine(d, acc[v], fn(d, load(d, from + v * hn::Lanes(d))));
}

/// One block (n <= kReductionBlock) of the reduction order over fn(d, src[i]) with `combine`, an associative-looking
/// vector function whose identity is `identity` and for which combine(x, identity) == x. `kUnroll`: sets of lanes a
/// round; where memory and not fn sets the pace, four of them keep its prefetcher a tenth faster than one.
template <size_t kUnroll = 1, class T, class Fn, class Combine>
HWY_INLINE core::Compute<T> reduce_block(const T* HWY_RESTRICT src, size_t n, core::Compute<T> identity, Fn fn,
                                         Combine combine) {
  const ComputeTag<T> d;
  const size_t lanes = hn::Lanes(d);
  constexpr size_t kAll = core::kReductionLanes;
  constexpr size_t kVectors = kAll / hn::MaxLanes(ComputeTag<T>()) > 0 ? kAll / hn::MaxLanes(ComputeTag<T>()) : 1;
  static_assert(!HWY_HAVE_SCALABLE, "the lanes of a block are held in a fixed number of vectors");
  hn::Vec<decltype(d)> acc[kVectors];
  for (auto& a : acc) a = hn::Set(d, identity);
  // Vectors that cross cache lines keep the hardware's prefetcher from a memory's full rate: whole blocks ask ahead.
  const bool crosses = n == core::kReductionBlock && reinterpret_cast<uintptr_t>(src) % (lanes * sizeof(T)) != 0;
  size_t i = 0;
  if constexpr (kUnroll > 1)
    for (; i + kUnroll * kAll <= n; i += kUnroll * kAll)
      for (size_t u = 0; u < kUnroll; ++u) take_lanes(d, src + i + u * kAll, acc, crosses, fn, combine);
  for (; i + kAll <= n; i += kAll) take_lanes(d, src + i, acc, crosses, fn, combine);
  for (size_t v = 0; v < kVectors && i < n; ++v, i += lanes) {
    if (i + lanes <= n) {
      acc[v] = combine(d, acc[v], fn(d, load(d, src + i)));
    } else {
      const auto valid = hn::FirstN(d, n - i);
      acc[v] = hn::IfThenElse(valid, combine(d, acc[v], fn(d, load_n(d, src + i, n - i))), acc[v]);
    }
  }
  // The tree of halves: whole vectors first, then within one.
  for (size_t half = kVectors / 2; half > 0; half /= 2)
    for (size_t v = 0; v < half; ++v) acc[v] = combine(d, acc[v], acc[v + half]);
  acc[0] = combine_halves(d, acc[0], combine);
  return hn::GetLane(acc[0]);
}

/// A whole row in the reduction order.
template <size_t kUnroll = 1, class T, class Fn, class Combine>
HWY_INLINE core::Compute<T> reduce_row(const T* HWY_RESTRICT src, size_t n, core::Compute<T> identity, Fn fn,
                                       Combine combine) {
  using C = core::Compute<T>;
  constexpr size_t kBlock = core::kReductionBlock;
  if (n <= kBlock) return reduce_block<kUnroll>(src, n, identity, fn, combine);
  const ComputeTag<T> d;
  const auto scalar = [&](C a, C b) HWY_ATTR { return hn::GetLane(combine(d, hn::Set(d, a), hn::Set(d, b))); };
  core::BlockCounter<C> blocks;
  for (size_t i = 0; i < n; i += kBlock)
    blocks.push(reduce_block<kUnroll>(src + i, n - i < kBlock ? n - i : kBlock, identity, fn, combine), scalar);
  return blocks.finish(identity, scalar);
}

/// Adds: the `combine` of sums.
struct AddOp {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Add(a, b);
  }
};

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TENOR_CPU_SIMD_INL_H_
