// What the normalising kernels share: a row's moments, and the pass that applies them.
#if defined(TENOR_OPS_NORM_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENOR_OPS_NORM_NORM_INL_H_
#undef TENOR_OPS_NORM_NORM_INL_H_
#else
#define TENOR_OPS_NORM_NORM_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/cpu/deviations-inl.h"
#include "src/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

/// 1 / sqrt(mean_square + epsilon), from double to C in one rounding; finite, so that a row of zeros stays zero under
/// the smallest epsilon.
template <class C>
HWY_INLINE C inverse_root(double mean_square, double epsilon) {
  const double root = 1.0 / std::sqrt(mean_square + epsilon);
  return static_cast<C>(std::min(root, static_cast<double>(std::numeric_limits<C>::max())));  // NaN stays NaN
}

/// x is normalised as (x - mean - shift) * inverse.
template <class C>
struct Moments {
  C mean;     // rounded to C
  C shift;    // the mean of x - mean: what the rounding and the summation of `mean` left over
  C inverse;  // 1 / standard deviation
};

template <class C>
HWY_INLINE C mean_of(C sum, size_t n) {
  return static_cast<C>(static_cast<double>(sum) / static_cast<double>(n));
}
template <class C>
HWY_INLINE Moments<C> moments_of(C mean, C sum, C squares, size_t n, double epsilon) {
  const double count = static_cast<double>(n), rest = static_cast<double>(sum) / count;
  // The squares are about `mean`: what it left over drops out (Chan, Golub and LeVeque 1983).
  const double variance = static_cast<double>(squares) / count - rest * rest;
  return {mean, static_cast<C>(rest), inverse_root<C>(variance < 0 ? 0 : variance, epsilon)};
}

template <class T, class C = core::Compute<T>>
HWY_INLINE Moments<C> row_moments(const T* x, size_t n, double epsilon) {
  const auto itself = [](auto, auto v) HWY_ATTR { return v; };
  const C mean = mean_of(reduce_row<4>(x, n, C(0), itself, AddOp()), n);
  const Deviations<C> sums = row_deviations(x, n, mean);
  return moments_of(mean, sums.sum, sums.squares, n, epsilon);
}
/// Of kRows rows of n <= kReductionBlock elements, `stride` apart, side by side.
template <size_t kRows, class T, class C = core::Compute<T>>
HWY_INLINE void rows_moments(const T* x, int64_t stride, size_t n, double epsilon, Moments<C> (&moments)[kRows]) {
  C means[kRows], sums[kRows], squares[kRows];
  block_sums<kRows>(x, stride, n, means);
  for (C& mean : means) mean = mean_of(mean, n);
  block_deviations<kRows>(x, stride, n, means, 0, sums, squares);
  for (size_t r = 0; r < kRows; ++r) moments[r] = moments_of(means[r], sums[r], squares[r], n, epsilon);
}

/// y = (x - mean - shift) * inverse * gamma + beta, where `gamma` and `beta` are callables io, i -> vector. Each step
/// rounds on its own, so that the bits are those of the separate operators, on every instruction set. Asks for what
/// lies `ahead` elements further on.
template <class T, class Gamma, class Beta, class C = core::Compute<T>>
HWY_INLINE void apply_moments(const T* x, T* y, size_t n, const Moments<C>& moments, int64_t ahead, Gamma gamma,
                              Beta beta) {
  const ComputeTag<T> d;
  const auto mean = hn::Set(d, moments.mean), shift = hn::Set(d, moments.shift), inverse = hn::Set(d, moments.inverse);
  for_lanes(d, n, [&](size_t i, auto io) HWY_ATTR {
    hwy::Prefetch(x + i + ahead);
    const auto e = hn::Mul(hn::Sub(hn::Sub(io.load(d, x + i), mean), shift), inverse);
    io.store(d, hn::Add(hn::Mul(e, gamma(io, i)), beta(io, i)), y + i);
  });
}

/// As above with gamma and beta per element; beta may be null.
template <class T, class C = core::Compute<T>>
HWY_INLINE void apply_moments(const T* x, T* y, size_t n, const Moments<C>& moments, int64_t ahead, const C* gamma,
                              const C* beta) {
  const ComputeTag<T> d;
  const auto scale = [=](auto io, size_t i) HWY_ATTR { return io.load(d, gamma + i); };
  if (beta) {
    apply_moments(x, y, n, moments, ahead, scale, [=](auto io, size_t i) HWY_ATTR { return io.load(d, beta + i); });
  } else {
    apply_moments(x, y, n, moments, ahead, scale,
                  [=](auto, size_t) HWY_ATTR { return hn::Set(d, C(-0.0)); });  // v + -0 is v
  }
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TENOR_OPS_NORM_NORM_INL_H_
