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

/// Of one block, n <= kReductionBlock.
template <class T, class C = core::Compute<T>>
HWY_INLINE Deviations<C> block_deviations(const T* HWY_RESTRICT x, size_t n, C shift) {
  using D = ComputeTag<T>;
  using V = hn::Vec<D>;
  constexpr size_t kAll = core::kReductionLanes, kVectors = kAll / hn::MaxLanes(D());
  const D d;
  const size_t lanes = hn::Lanes(d);
  const V s = hn::Set(d, shift);
  V sum[kVectors], squares[kVectors];
  for (size_t v = 0; v < kVectors; ++v) sum[v] = squares[v] = hn::Zero(d);
  const auto take = [&](size_t v, V deviation) HWY_ATTR {
    sum[v] = hn::Add(sum[v], deviation);
    squares[v] = hn::Add(squares[v], hn::Mul(deviation, deviation));
  };
  size_t i = 0;
  for (; i + kAll <= n; i += kAll)
    for (size_t v = 0; v < kVectors; ++v) take(v, hn::Sub(load(d, x + i + v * lanes), s));
  for (size_t v = 0; v < kVectors && i < n; ++v, i += lanes) {
    if (i + lanes <= n) {
      take(v, hn::Sub(load(d, x + i), s));
    } else {  // a lane that takes nothing takes a zero, which changes no sum that began with one
      take(v, hn::IfThenElseZero(hn::FirstN(d, n - i), hn::Sub(load_n(d, x + i, n - i), s)));
    }
  }
  const auto meet = [&](V* v) HWY_ATTR {
    for (size_t half = kVectors / 2; half > 0; half /= 2)
      for (size_t k = 0; k < half; ++k) v[k] = hn::Add(v[k], v[k + half]);
    return hn::GetLane(combine_halves(d, v[0], AddOp()));
  };
  return {meet(sum), meet(squares)};
}

/// Of a whole row.
template <class T, class C = core::Compute<T>>
HWY_INLINE Deviations<C> row_deviations(const T* HWY_RESTRICT x, size_t n, C shift) {
  constexpr size_t kBlock = core::kReductionBlock;
  if (n <= kBlock) return block_deviations(x, n, shift);
  const auto add = [](C a, C b) { return a + b; };
  core::BlockCounter<C> sums, squares;
  for (size_t i = 0; i < n; i += kBlock) {
    const Deviations<C> block = block_deviations(x + i, n - i < kBlock ? n - i : kBlock, shift);
    sums.push(block.sum, add);
    squares.push(block.squares, add);
  }
  return {sums.finish(C(0), add), squares.finish(C(0), add)};
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TENOR_CPU_DEVIATIONS_INL_H_
