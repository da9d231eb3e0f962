// Keys by vectors: an element's bits to its key, the scans for keys in a range that selections spend their time in, and
// the sort of short rows by rank.
#include "src/ops/sort/key.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/sort/sort_simd.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace {

/// core's scalar encode(), a vector at a time. The kind is a template argument: it does not change within a row.
template <KeyKind Kind, class D, class K = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> encode_vector(D d, hn::Vec<D> bits, hn::Vec<D> infinity, hn::Vec<D> flip) {
  const auto sign = hn::Set(d, static_cast<K>(K(1) << (8 * sizeof(K) - 1)));
  auto key = bits;
  if constexpr (Kind == KeyKind::kSigned) key = hn::Xor(bits, sign);
  if constexpr (Kind == KeyKind::kFloat) {
    const hn::RebindToSigned<D> ds;
    const auto magnitude = hn::AndNot(sign, bits);
    const auto negative = hn::RebindMask(d, hn::Lt(hn::BitCast(ds, bits), hn::Zero(ds)));
    key = hn::IfThenElse(negative, hn::Not(bits), hn::Or(bits, sign));
    key = hn::IfThenElse(hn::Eq(magnitude, hn::Zero(d)), sign, key);
    // Magnitudes have no sign bit, so the signed comparison, which every instruction set has, is right.
    const auto nan = hn::RebindMask(d, hn::Gt(hn::BitCast(ds, magnitude), hn::BitCast(ds, infinity)));
    key = hn::IfThenElse(nan, hn::Set(d, static_cast<K>(~K(0))), key);
  }
  return hn::Xor(key, flip);
}

template <KeyKind Kind, class K>
void encode_kind(const K* bits, size_t n, KeyCode code, K* keys) {
  const hn::ScalableTag<K> d;
  const size_t lanes = hn::Lanes(d);
  const auto infinity = hn::Set(d, static_cast<K>(code.infinity));
  const auto flip = hn::Set(d, static_cast<K>(code.descending ? ~K(0) : K(0)));
  size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(encode_vector<Kind>(d, hn::LoadU(d, bits + i), infinity, flip), d, keys + i);
  for (; i < n; ++i) keys[i] = encode(bits[i], code);
}

/// Appends the lanes of `found` to places and keys.
template <class D, class K = hn::TFromD<D>>
HWY_INLINE size_t append_lanes(D d, hn::Mask<D> found, const K* bits, size_t first, KeyCode code, uint32_t* places,
                               K* keys) {
  uint8_t bytes[8] = {};
  hn::StoreMaskBits(d, found, bytes);
  uint64_t mask;
  std::memcpy(&mask, bytes, sizeof mask);
  size_t count = 0;
  for (; mask != 0; mask &= mask - 1) {
    const size_t i = first + hwy::Num0BitsBelowLS1Bit_Nonzero64(mask);
    places[count] = static_cast<uint32_t>(i);
    keys[count++] = encode(bits[i], code);
  }
  return count;
}

/// Lanes whose key is < the bound.
template <KeyKind Kind, class K>
size_t find_below_kind(const K* bits, size_t n, KeyCode code, K limit, uint32_t* places, K* keys) {
  const hn::ScalableTag<K> d;
  const size_t lanes = hn::Lanes(d);
  const auto infinity = hn::Set(d, static_cast<K>(code.infinity)), bound = hn::Set(d, limit);
  const auto flip = hn::Set(d, static_cast<K>(code.descending ? ~K(0) : K(0)));
  const auto below = [&](size_t i) HWY_ATTR {
    return hn::Lt(encode_vector<Kind>(d, hn::LoadU(d, bits + i), infinity, flip), bound);
  };
  size_t count = 0, i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const auto a = below(i), b = below(i + lanes), c = below(i + 2 * lanes), e = below(i + 3 * lanes);
    if (HWY_LIKELY(hn::AllFalse(d, hn::Or(hn::Or(a, b), hn::Or(c, e))))) continue;
    count += append_lanes(d, a, bits, i, code, places + count, keys + count);
    count += append_lanes(d, b, bits, i + lanes, code, places + count, keys + count);
    count += append_lanes(d, c, bits, i + 2 * lanes, code, places + count, keys + count);
    count += append_lanes(d, e, bits, i + 3 * lanes, code, places + count, keys + count);
  }
  for (; i < n; ++i) {
    const K key = encode(bits[i], code);
    if (key < limit) places[count] = static_cast<uint32_t>(i), keys[count++] = key;
  }
  return count;
}

template <KeyKind Kind, class K>
size_t find_between_kind(const K* bits, size_t n, KeyCode code, K low, K high, uint32_t* places, K* keys,
                         size_t* lower) {
  const hn::ScalableTag<K> d;
  const size_t lanes = hn::Lanes(d);
  const auto infinity = hn::Set(d, static_cast<K>(code.infinity)), least = hn::Set(d, low), most = hn::Set(d, high);
  const auto flip = hn::Set(d, static_cast<K>(code.descending ? ~K(0) : K(0)));
  size_t count = 0, i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto key = encode_vector<Kind>(d, hn::LoadU(d, bits + i), infinity, flip);
    const auto below = hn::Lt(key, least), outside = hn::Or(below, hn::Lt(most, key));
    *lower += hn::CountTrue(d, below);
    if (!hn::AllTrue(d, outside))
      count += append_lanes(d, hn::Not(outside), bits, i, code, places + count, keys + count);
  }
  for (; i < n; ++i) {
    const K key = encode(bits[i], code);
    *lower += key < low;
    if (key >= low && key <= high) places[count] = static_cast<uint32_t>(i), keys[count++] = key;
  }
  return count;
}

template <KeyKind Kind, class K>
void lower_minima_kind(const K* bits, size_t n, KeyCode code, K* minima, size_t groups) {
  const hn::ScalableTag<K> d;
  const size_t lanes = hn::Lanes(d);
  const auto infinity = hn::Set(d, static_cast<K>(code.infinity));
  const auto flip = hn::Set(d, static_cast<K>(code.descending ? ~K(0) : K(0)));
  size_t i = 0;
  for (; i + groups <= n; i += groups) {
    for (size_t g = 0; g < groups; g += lanes) {
      const auto key = encode_vector<Kind>(d, hn::LoadU(d, bits + i + g), infinity, flip);
      hn::StoreU(hn::Min(hn::LoadU(d, minima + g), key), d, minima + g);
    }
  }
  for (size_t g = 0; i < n; ++i, ++g) minima[g] = HWY_MIN(minima[g], encode(bits[i], code));
}

/// An element's rank is the number of keys that come before it: smaller ones, and equal ones of lower index.
template <class K>
void rank_any(const K* keys, size_t n, uint32_t* order) {
  const hn::ScalableTag<K> d;
  const size_t lanes = hn::Lanes(d);
  const auto one = hn::Set(d, K(1)), lane = hn::Iota(d, K(0));
  HWY_ALIGN K ranks[kRanked];
  for (size_t first = 0; first < n; first += lanes) {
    const auto key = hn::LoadU(d, keys + first);
    auto rank = hn::Zero(d);
    const auto add_if = [&](auto mask) HWY_ATTR { rank = hn::IfThenElse(mask, hn::Add(rank, one), rank); };
    const size_t own_end = HWY_MIN(first + lanes, n);
    for (size_t j = 0; j < first; ++j) add_if(hn::Not(hn::Lt(key, hn::Set(d, keys[j]))));
    for (size_t j = first; j < own_end; ++j) {
      const auto other = hn::Set(d, keys[j]);
      const auto later = hn::Gt(lane, hn::Set(d, static_cast<K>(j - first)));
      add_if(hn::Or(hn::Lt(other, key), hn::And(hn::Eq(other, key), later)));
    }
    for (size_t j = own_end; j < n; ++j) add_if(hn::Lt(hn::Set(d, keys[j]), key));
    hn::Store(rank, d, ranks + first);
  }
  for (size_t i = 0; i < n; ++i) order[ranks[i]] = static_cast<uint32_t>(i);
}

template <class K, KeyKind Kind>
constexpr KeyKernels<K> kernels_of() {
  return {encode_kind<Kind, K>, find_below_kind<Kind, K>, find_between_kind<Kind, K>, lower_minima_kind<Kind, K>};
}
template <class K>
const KeyKernels<K>& kernels(KeyKind kind) {
  static constexpr KeyKernels<K> kAll[] = {kernels_of<K, KeyKind::kUnsigned>(), kernels_of<K, KeyKind::kSigned>(),
                                           kernels_of<K, KeyKind::kFloat>()};
  return kAll[static_cast<int>(kind)];
}

}  // namespace

// Plain functions, since a dispatch table holds no templates.
const KeyKernels<uint8_t>& kernels8(KeyKind kind) { return kernels<uint8_t>(kind); }
const KeyKernels<uint16_t>& kernels16(KeyKind kind) { return kernels<uint16_t>(kind); }
const KeyKernels<uint32_t>& kernels32(KeyKind kind) { return kernels<uint32_t>(kind); }
const KeyKernels<uint64_t>& kernels64(KeyKind kind) { return kernels<uint64_t>(kind); }
void rank32(const uint32_t* keys, size_t n, uint32_t* order) { rank_any(keys, n, order); }
void rank64(const uint64_t* keys, size_t n, uint32_t* order) { rank_any(keys, n, order); }

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {

HWY_EXPORT(kernels8);
HWY_EXPORT(kernels16);
HWY_EXPORT(kernels32);
HWY_EXPORT(kernels64);
HWY_EXPORT(rank32);
HWY_EXPORT(rank64);

template <>
const KeyKernels<uint8_t>& key_kernels(KeyKind kind) {
  return HWY_DYNAMIC_DISPATCH(kernels8)(kind);
}
template <>
const KeyKernels<uint16_t>& key_kernels(KeyKind kind) {
  return HWY_DYNAMIC_DISPATCH(kernels16)(kind);
}
template <>
const KeyKernels<uint32_t>& key_kernels(KeyKind kind) {
  return HWY_DYNAMIC_DISPATCH(kernels32)(kind);
}
template <>
const KeyKernels<uint64_t>& key_kernels(KeyKind kind) {
  return HWY_DYNAMIC_DISPATCH(kernels64)(kind);
}

void rank_all(const uint32_t* keys, size_t n, uint32_t* order) { HWY_DYNAMIC_DISPATCH(rank32)(keys, n, order); }
void rank_all(const uint64_t* keys, size_t n, uint32_t* order) { HWY_DYNAMIC_DISPATCH(rank64)(keys, n, order); }

}  // namespace tenor::cpu
#endif
