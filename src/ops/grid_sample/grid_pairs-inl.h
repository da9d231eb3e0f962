// The taps of a vector of places that lie in pairs, side by side: scalar copies of the pairs, which vectors then read,
// take less than a gather an element.
#if defined(TENOR_OPS_GRID_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENOR_OPS_GRID_PAIRS_INL_H_
#undef TENOR_OPS_GRID_PAIRS_INL_H_
#else
#define TENOR_OPS_GRID_PAIRS_INL_H_
#endif

#include <cstring>

#include "src/ops/grid_sample/grid_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

/// The first and second elements of the pairs from `pairs` on, as a vector of each.
#if HWY_TARGET != HWY_SCALAR
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void split_pairs(D d, const T* pairs, hn::Vec<D>& first, hn::Vec<D>& second) {
  const auto low = hn::LoadU(d, pairs), high = hn::LoadU(d, pairs + hn::Lanes(d));
  first = hn::ConcatEven(d, high, low);
  second = hn::ConcatOdd(d, high, low);
}
#endif
template <class D>
HWY_INLINE void split_pairs(D d, const BFloat16* pairs, hn::Vec<D>& first, hn::Vec<D>& second) {
  const hn::RebindToUnsigned<D> du;
  const auto both = hn::LoadU(du, reinterpret_cast<const uint32_t*>(pairs));
  first = hn::BitCast(d, hn::ShiftLeft<16>(both));
  second = hn::BitCast(d, hn::AndNot(hn::Set(du, 0xFFFFu), both));
}
template <class T>
inline constexpr bool kSplitsPairs = std::is_same_v<T, BFloat16> ||
                                     (HWY_TARGET != HWY_SCALAR &&
                                      (std::is_same_v<T, float> || std::is_same_v<T, double>));

inline constexpr size_t kPairPlaces = 64;  // at once, whole vectors: far enough from store to load

template <class T, int Dims, int K>
class TapPairs {
  using D = ComputeTag<T>;

 public:
  static constexpr bool kPairs = K % 2 == 0 && kSplitsPairs<T>;
  static constexpr int kPairCount = kPairs ? GridTile<T, Dims, K>::kCount / 2 : 1;

  /// Copies the pairs that a plane has at places [start, start + some) of a tile, of whole vectors that lie in pairs.
  HWY_INLINE void copy([[maybe_unused]] const GridTile<T, Dims, K>& tile, [[maybe_unused]] const T* plane,
                       [[maybe_unused]] size_t start, [[maybe_unused]] size_t some) {
    if constexpr (kPairs) {
      const size_t lanes = hn::Lanes(D());
      for (size_t k = 0; k + lanes <= some; k += lanes) {
        if (!tile.paired[start + k]) continue;
        for (int p = 0; p < kPairCount; ++p) {
          const auto* index = tile.index.data() + static_cast<size_t>(2 * p * kGridTile) + start + k;
          T* pair = pairs_ + 2 * (static_cast<size_t>(p) * kPairPlaces + k);
          for (size_t lane = 0; lane < lanes; ++lane, pair += 2) std::memcpy(pair, plane + index[lane], 2 * sizeof(T));
        }
      }
    }
  }
  /// Taps 2 p and 2 p + 1 of the vector at place start + k, which lies in pairs.
  HWY_INLINE void read(int p, size_t k, hn::Vec<D>& left, hn::Vec<D>& right) const {
    if constexpr (kPairs)
      split_pairs(D(), static_cast<const T*>(pairs_) + 2 * (static_cast<size_t>(p) * kPairPlaces + k), left, right);
  }

 private:
  HWY_ALIGN T pairs_[2 * kPairPlaces * kPairCount];
};

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TENOR_OPS_GRID_PAIRS_INL_H_
