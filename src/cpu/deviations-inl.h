// What a variance is made of, in one reading of a row: the sums of x - shift and of its square, each in the reduction
// order.
#if defined(TENOR_CPU_DEVIATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENOR_CPU_DEVIATIONS_INL_H_
#undef TENOR_CPU_DEVIATIONS_INL_H_
#else
#define TENOR_CPU_DEVIATIONS_INL_H_
#endif

#include "src/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

template <class C>
struct Deviations {
  C sum, squares;
};

/// Rows whose sums are formed at once, as many as registers hold: one row's few chains of additions would wait for each
/// other.
template <class T>
inline constexpr size_t kRowsAtOnce = HWY_TARGET <= HWY_AVX3 ? 8 * hn::MaxLanes(ComputeTag<T>()) / core::kReductionLanes
                                                             : 1;

/// Whether rows of n elements go side by side: longer ones have additions enough, and lie a page apart, where the
/// nearest cache has little room for several.
template <class T>
HWY_INLINE bool side_by_side(int64_t n) {
  return kRowsAtOnce<T> > 1 && n * static_cast<int64_t>(sizeof(T)) <= 2048;
}

/// The vectors that hold each row's lanes of one block, from zero.
template <class T, size_t kRows>
struct RowLanes {
  using D = ComputeTag<T>;
  static constexpr size_t kVectors = core::kReductionLanes / hn::MaxLanes(D());
  hn::Vec<D> v[kRows][kVectors];

  HWY_INLINE RowLanes() {
    for (auto& row : v)
      for (auto& lanes : row) lanes = hn::Zero(D());
  }
  /// Each row's tree of halves.
  HWY_INLINE void meet(core::Compute<T>* results) {
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t half = kVectors / 2; half > 0; half /= 2)
        for (size_t k = 0; k < half; ++k) v[r][k] = hn::Add(v[r][k], v[r][k + half]);
      results[r] = hn::GetLane(combine_halves(D(), v[r][0], AddOp()));
    }
  }
};

/// The sums of kRows rows of n <= kReductionBlock elements, `stride` apart.
template <size_t kRows, class T, class C = core::Compute<T>>
HWY_INLINE void block_sums(const T* HWY_RESTRICT x, int64_t stride, size_t n, C* sums) {
  const ComputeTag<T> d;
  constexpr size_t kVectors = RowLanes<T, kRows>::kVectors;
  const size_t lanes = hn::Lanes(d);
  RowLanes<T, kRows> sum;
  size_t i = 0;
  for (; i + core::kReductionLanes <= n; i += core::kReductionLanes)
    for (size_t v = 0; v < kVectors; ++v)
      for (size_t r = 0; r < kRows; ++r) sum.v[r][v] = hn::Add(sum.v[r][v], load(d, x + r * stride + i + v * lanes));
  for (size_t v = 0; v < kVectors && i < n; ++v, i += lanes)
    for (size_t r = 0; r < kRows; ++r)
      sum.v[r][v] =
          hn::Add(sum.v[r][v], i + lanes <= n ? load(d, x + r * stride + i) : load_n(d, x + r * stride + i, n - i));
  sum.meet(sums);
}

/// Both sums of kRows rows of n <= kReductionBlock elements, `stride` apart, about a shift each. Asks for what lies
/// `ahead` elements further on, where that is not 0.
template <size_t kRows, class T, class C = core::Compute<T>>
HWY_INLINE void block_deviations(const T* HWY_RESTRICT x, int64_t stride, size_t n, const C* shifts, int64_t ahead,
                                 C* sums, C* squares) {
  using V = hn::Vec<ComputeTag<T>>;
  const ComputeTag<T> d;
  constexpr size_t kVectors = RowLanes<T, kRows>::kVectors;
  const size_t lanes = hn::Lanes(d);
  RowLanes<T, kRows> sum, square;
  V shift[kRows];
  for (size_t r = 0; r < kRows; ++r) shift[r] = hn::Set(d, shifts[r]);
  size_t i = 0;
  for (; i + core::kReductionLanes <= n; i += core::kReductionLanes) {
    for (size_t r = 0; ahead != 0 && r < kRows; ++r)
      for (size_t at = 0; at < core::kReductionLanes * sizeof(T); at += 64)
        hwy::Prefetch(reinterpret_cast<const char*>(x + r * stride + i + ahead) + at);
    for (size_t v = 0; v < kVectors; ++v)
      for (size_t r = 0; r < kRows; ++r) {
        const V deviation = hn::Sub(load(d, x + r * stride + i + v * lanes), shift[r]);
        sum.v[r][v] = hn::Add(sum.v[r][v], deviation);
        square.v[r][v] = hn::Add(square.v[r][v], hn::Mul(deviation, deviation));
      }
  }
  for (size_t v = 0; v < kVectors && i < n; ++v, i += lanes)
    for (size_t r = 0; r < kRows;
         ++r) {  // a lane that takes nothing takes a zero, which changes no sum that began with one
      const V deviation = i + lanes <= n ? hn::Sub(load(d, x + r * stride + i), shift[r])
                                         : hn::IfThenElseZero(hn::FirstN(d, n - i),
                                                              hn::Sub(load_n(d, x + r * stride + i, n - i), shift[r]));
      sum.v[r][v] = hn::Add(sum.v[r][v], deviation);
      square.v[r][v] = hn::Add(square.v[r][v], hn::Mul(deviation, deviation));
    }
  sum.meet(sums);
  square.meet(squares);
}

/// Of a whole row.
template <class T, class C = core::Compute<T>>
HWY_INLINE Deviations<C> row_deviations(const T* HWY_RESTRICT x, size_t n, C shift) {
  constexpr size_t kBlock = core::kReductionBlock;
  const auto block = [shift](const T* from, size_t count) HWY_ATTR {
    Deviations<C> found;
    block_deviations<1>(from, 0, count, &shift, 0, &found.sum, &found.squares);
    return found;
  };
  if (n <= kBlock) return block(x, n);
  const auto add = [](C a, C b) { return a + b; };
  core::BlockCounter<C> sums, squares;
  for (size_t i = 0; i < n; i += kBlock) {
    const Deviations<C> found = block(x + i, n - i < kBlock ? n - i : kBlock);
    sums.push(found.sum, add);
    squares.push(found.squares, add);
  }
  return {sums.finish(C(0), add), squares.finish(C(0), add)};
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TENOR_CPU_DEVIATIONS_INL_H_
