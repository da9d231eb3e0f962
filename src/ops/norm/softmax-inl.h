// What softmax's kernels over rows and over columns share, so that their bits agree.
#if defined(TENOR_OPS_NORM_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENOR_OPS_NORM_SOFTMAX_INL_H_
#undef TENOR_OPS_NORM_SOFTMAX_INL_H_
#else
#define TENOR_OPS_NORM_SOFTMAX_INL_H_
#endif

#include "src/cpu/math-inl.h"
#include "src/ops/norm/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

/// Division by divisors >= 1. float: the bits of IEEE division, as the quotient by the reciprocal, corrected once by
/// its exact remainder (Markstein 1990), which holds while the remainder does not underflow: so all of it is 2^64 times
/// as large, and a quotient below the normal numbers is rounded once more, at the end. Without a look at the sizes,
/// which differ from vector to vector in probabilities of many classes. Where the quotient is rounded to 16 bits
/// anyway, by the reciprocal alone.
template <class T, class D = ComputeTag<T>>
class Divisor {
 public:
  using C = hn::TFromD<D>;
  Divisor(D d, C divisor) : Divisor(d, hn::Set(d, divisor)) {}
  Divisor(D d, hn::Vec<D> divisors) : divisor_(divisors), inverse_(hn::Div(hn::Set(d, C(1)), divisors)) {}
  template <class V>
  HWY_INLINE V divide([[maybe_unused]] D d, V v) const {
    if constexpr (sizeof(T) == 2) return hn::Mul(v, inverse_);
#if HWY_NATIVE_FMA
    if constexpr (sizeof(C) == 4) {
      const auto large = hn::Mul(v, hn::Set(d, C(0x1p64))), q = hn::Mul(large, inverse_);
      return hn::Mul(hn::MulAdd(hn::NegMulAdd(q, divisor_, large), inverse_, q), hn::Set(d, C(0x1p-64)));
    }
#endif
    return hn::Div(v, divisor_);
  }

 private:
  hn::Vec<D> divisor_, inverse_;
};

/// values[i] = log(values[i]), in double.
template <class C>
HWY_INLINE void logs_of_sums(C* values, size_t n) {
  const hn::ScalableTag<C> d;
  for_lanes(d, n, [&](size_t i, auto io) HWY_ATTR {
    const auto v = io.load(d, values + i);
    if constexpr (sizeof(C) == 4)
      io.store(d,
               math::via_double(
                   d, [](auto w, auto u) HWY_ATTR { return math::log(w, u); }, v),
               values + i);
    else
      io.store(d, math::log(d, v), values + i);
  });
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TENOR_OPS_NORM_SOFTMAX_INL_H_
