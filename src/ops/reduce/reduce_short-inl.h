// Rows of at most kReductionLanes elements: each element has a lane of its own, so a row is the lanes' tree alone. As
// many rows as a vector has lanes go through the tree together, in registers.
#if defined(TENOR_REDUCE_SHORT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENOR_REDUCE_SHORT_INL_H_
#undef TENOR_REDUCE_SHORT_INL_H_
#else
#define TENOR_REDUCE_SHORT_INL_H_
#endif

#include <algorithm>

#include "src/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::reduce::HWY_NAMESPACE {
using namespace tenor::cpu::HWY_NAMESPACE;  // load, store
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR
/// The first (kUpper: second) halves of the rows of kLanes lanes that a and b hold, at most a vector long. Which half
/// of the result is whose depends on kLanes alone.
template <int kLanes, bool kUpper, class D, class V>
HWY_INLINE V halves(D d, V a, V b) {
  constexpr size_t kVector = hn::MaxLanes(D()) * sizeof(hn::TFromD<D>), kHalf = kLanes * sizeof(hn::TFromD<D>) / 2;
  if constexpr (kHalf == 4) {
    return kUpper ? hn::OddEven(b, hn::DupOdd(a)) : hn::OddEven(hn::DupEven(b), a);
  } else if constexpr (kHalf == 8) {
    const hn::Repartition<double, D> pairs;
    const auto p = hn::BitCast(pairs, a), q = hn::BitCast(pairs, b);
    return hn::BitCast(d, kUpper ? hn::InterleaveUpper(pairs, p, q) : hn::InterleaveLower(pairs, p, q));
  } else if constexpr (2 * kHalf == kVector) {
    return kUpper ? hn::ConcatUpperUpper(d, b, a) : hn::ConcatLowerLower(d, b, a);
  } else {
    static_assert(kHalf == 16);
    return kUpper ? hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a)) : hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a);
  }
}

/// v[0] = the trees of as many rows as a vector has lanes, from kLanes vectors that hold them in order, kLanes lanes
/// each. Where a row's result lies follows from kLanes.
template <int kLanes, class D, class V, class Combine>
HWY_INLINE void fold_rows(D d, V* v, Combine combine) {
  constexpr int kVector = static_cast<int>(hn::MaxLanes(D()));
  if constexpr (kLanes > kVector) {
    constexpr int kRow = kLanes / kVector;  // vectors
    for (int q = 0; q < kVector; ++q)
      for (int j = 0; j < kRow / 2; ++j) v[q * kRow / 2 + j] = combine(d, v[q * kRow + j], v[q * kRow + j + kRow / 2]);
  } else {
    for (int i = 0; i < kLanes / 2; ++i)
      v[i] =
          combine(d, halves<kLanes, false>(d, v[2 * i], v[2 * i + 1]), halves<kLanes, true>(d, v[2 * i], v[2 * i + 1]));
  }
  if constexpr (kLanes > 2) fold_rows<kLanes / 2>(d, v, combine);
}

/// The lane of each row's result.
template <int kLanes, class D>
HWY_INLINE auto row_places(D d) {
  using C = hn::TFromD<D>;
  using I = hwy::MakeSigned<C>;
  constexpr int kVector = static_cast<int>(hn::MaxLanes(D()));
  C rows[kVector * kLanes];
  for (int i = 0; i < kVector * kLanes; ++i) rows[i] = static_cast<C>(i / kLanes);
  hn::Vec<D> v[kLanes];
  for (int i = 0; i < kLanes; ++i) v[i] = hn::LoadU(d, rows + i * kVector);
  fold_rows<kLanes>(d, v, [](D, hn::Vec<D> a, hn::Vec<D>) HWY_ATTR { return a; });
  hn::StoreU(v[0], d, rows);
  HWY_ALIGN I places[kVector];
  for (int lane = 0; lane < kVector; ++lane) places[static_cast<int>(rows[lane])] = static_cast<I>(lane);
  return hn::SetTableIndices(d, places);
}

/// results[r] = the reduction of the n elements at x + r * stride, n <= kLanes <= 2 n, stride >= n. `map` takes an
/// element, `combine` as in reduce_block.
template <int kLanes, class T, class Map, class Combine>
void short_rows(const T* HWY_RESTRICT x, int64_t stride, int64_t rows, int64_t n, core::Compute<T> identity, Map map,
                Combine combine, core::Compute<T>* HWY_RESTRICT results) {
  const ComputeTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int64_t kVector = static_cast<int64_t>(hn::MaxLanes(ComputeTag<T>()));
  const auto places = row_places<kLanes>(d);
  const V start = hn::Set(d, identity);
  const bool dense = n == kLanes && stride == n;
  HWY_ALIGN T padded[kVector * kLanes] = {};
  // By vector of a row, or of several: the lanes that hold an element.
  constexpr int kMasks = kLanes > kVector ? static_cast<int>(kLanes / kVector) : 1;
  hn::Mask<decltype(d)> valid[kMasks];
  for (int m = 0; m < kMasks; ++m) {
    core::Compute<T> place[kVector];
    for (int64_t e = 0; e < kVector; ++e) place[e] = static_cast<core::Compute<T>>((m * kVector + e) % kLanes);
    valid[m] = hn::Lt(hn::LoadU(d, place), hn::Set(d, static_cast<core::Compute<T>>(n)));
  }
  for (int64_t r = 0; r < rows; r += kVector) {
    const int64_t here = std::min(kVector, rows - r);
    const T* from = x + r * stride;
    if (!dense || here < kVector) {
      // Whole sets of lanes are copied, beyond the row into the next one: what is not the row's is masked. The last row
      // ends.
      for (int64_t q = 0; q < here; ++q)
        std::memcpy(padded + q * kLanes, from + q * stride,
                    static_cast<size_t>(r + q + 1 < rows ? kLanes : n) * sizeof(T));
      from = padded;
    }
    V v[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      const V element = map(d, load(d, from + i * kVector));
      v[i] = combine(d, start, dense ? element : hn::IfThenElse(valid[i % kMasks], element, start));
    }
    fold_rows<kLanes>(d, v, combine);
    const V ordered = hn::TableLookupLanes(v[0], places);
    if (here == kVector)
      hn::StoreU(ordered, d, results + r);
    else
      store_n(d, ordered, results + r, static_cast<size_t>(here));
  }
}
#endif

}  // namespace tenor::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TENOR_REDUCE_SHORT_INL_H_
