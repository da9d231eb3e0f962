// The vector loops of CTC: sums and products of probabilities kept as a mantissa and an exponent (ctc_scaled.h).
#include "src/core/visit.h"
#include "src/ops/ctc/ctc_kernels.h"
#include "src/ops/ctc/ctc_scaled.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/ctc/ctc_simd.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace {

/// m * 2^e lane by lane; zero is (0, -inf).
template <class V>
struct Pair {
  V m, e;
};

template <class D, class V>
HWY_INLINE V greater(D, V a, V b) {  // b where a is NaN
  return hn::IfThenElse(hn::Gt(a, b), a, b);
}

/// ctc::power_of_two.
template <class D, class V>
HWY_INLINE V power_of_two(D d, V x) {
  using B = ctc::Bits<hn::TFromD<D>>;
  const hn::RebindToUnsigned<D> du;
  const V field = hn::Add(greater(d, x, hn::Set(d, -B::kBias)), hn::Set(d, B::kRound + B::kBias));
  return hn::BitCast(d, hn::ShiftLeft<B::kMantissa>(hn::BitCast(du, field)));
}

template <class D, class V>
HWY_INLINE Pair<V> zero(D d) {
  return {hn::Zero(d), hn::Neg(math::infinity(d))};
}

template <class D, class V>
HWY_INLINE Pair<V> normalized(D d, Pair<V> a) {
  using C = hn::TFromD<D>;
  using B = ctc::Bits<C>;
  const hn::RebindToUnsigned<D> du;
  using Word = hn::TFromD<decltype(du)>;
  const auto bits = hn::BitCast(du, a.m);
  const auto shifted = hn::Add(hn::ShiftRight<B::kMantissa>(bits), hn::BitCast(du, hn::Set(d, B::kRound)));
  const V whole = hn::Sub(hn::BitCast(d, shifted), hn::Set(d, B::kRound + B::kBias));
  const auto rest = hn::And(bits, hn::Set(du, static_cast<Word>((Word{1} << B::kMantissa) - 1)));
  const V m = hn::BitCast(d, hn::Or(rest, hn::BitCast(du, hn::Set(d, C(1)))));
  const auto proper = hn::And(hn::Gt(a.m, hn::Zero(d)), hn::Lt(a.m, math::infinity(d)));
  const auto gone = hn::And(proper, hn::Eq(a.e, hn::Neg(math::infinity(d))));  // less than any exponent tells
  return {hn::IfThenZeroElse(gone, hn::IfThenElse(proper, m, a.m)), hn::IfThenElse(proper, hn::Add(a.e, whole), a.e)};
}

/// ctc::exponential.
template <class D, class V>
HWY_INLINE Pair<V> exponential(D d, V x) {
  using C = hn::TFromD<D>;
  const V most = hn::Set(d, std::numeric_limits<C>::max() / 2), x_finite = hn::Min(hn::Max(x, hn::Neg(most)), most);
  const V n = hn::Round(hn::Mul(x_finite, hn::Set(d, ctc::kLog2e<C>)));
  V f = hn::MulAdd(x_finite, hn::Set(d, ctc::kLog2e<C>), hn::Neg(n));
  f = hn::MulAdd(x_finite, hn::Set(d, ctc::kLog2eRest<C>), f);
  f = hn::Min(hn::Max(f, hn::Set(d, C(-0.5625))), hn::Set(d, C(0.5625)));
  const V y = hn::Mul(f, hn::Set(d, C(0.6931471805599453)));
  V p;
  if constexpr (sizeof(C) == 4)
    p = math::polynomial(d, y, 1.0, 1.0, 1. / 2, 1. / 6, 1. / 24, 1. / 120, 1. / 720, 1. / 5040);
  else
    p = math::polynomial(d, y, 1.0, 1.0, 1. / 2, 1. / 6, 1. / 24, 1. / 120, 1. / 720, 1. / 5040, 1. / 40320,
                         1. / 362880, 1. / 3628800, 1. / 39916800, 1. / 479001600, 1. / 6227020800);
  const auto finite = hn::Lt(hn::Abs(x), math::infinity(d));
  const auto none = hn::Eq(x, hn::Neg(math::infinity(d)));
  return {hn::IfThenElse(finite, p, hn::IfThenElse(none, hn::Zero(d), x)),  // +inf and NaN stay
          hn::IfThenElse(finite, n, hn::IfThenElse(none, x, hn::Zero(d)))};
}

template <class D, class C = hn::TFromD<D>>
HWY_INLINE Pair<hn::Vec<D>> load_pair(D d, const C* m, const C* e, int64_t i) {
  return {hn::LoadU(d, m + i), hn::LoadU(d, e + i)};
}
template <class D, class V, class C = hn::TFromD<D>>
HWY_INLINE void store_pair(D d, Pair<V> x, C* m, C* e, int64_t i) {
  hn::StoreU(x.m, d, m + i);
  hn::StoreU(x.e, d, e + i);
}

template <class C>
void step(const CtcRow<C>& s, const C* p, const C* skips, int64_t labels, const CtcRow<C>* reach) {
  const hn::CappedTag<C, kCtcPad> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Pair<V> blank_p = exponential(d, hn::Set(d, p[0]));
  // From the last pair down, so that the label below is still the frame before's.
  for (int64_t i = labels / lanes * lanes; i >= 0; i -= lanes) {
    const Pair<V> blank = load_pair(d, s.blank_m, s.blank_e, i), label = load_pair(d, s.label_m, s.label_e, i),
                  under = load_pair(d, s.label_m, s.label_e, i - 1);
    const auto skip = hn::Gt(hn::LoadU(d, skips + i), hn::Zero(d));
    const V under_m = hn::IfThenElseZero(skip, under.m);
    const V under_e = hn::IfThenElse(skip, under.e, hn::Neg(math::infinity(d)));
    const V be = greater(d, blank.e, under.e), le = greater(d, greater(d, label.e, blank.e), under_e);
    const Pair<V> blank_reach{hn::MulAdd(blank.m, power_of_two(d, hn::Sub(blank.e, be)),
                                         hn::Mul(under.m, power_of_two(d, hn::Sub(under.e, be)))),
                              be};
    const V two = hn::MulAdd(label.m, power_of_two(d, hn::Sub(label.e, le)),
                             hn::Mul(blank.m, power_of_two(d, hn::Sub(blank.e, le))));
    const Pair<V> label_reach{hn::MulAdd(under_m, power_of_two(d, hn::Sub(under_e, le)), two), le};
    if (reach) {
      store_pair(d, blank_reach, reach->blank_m, reach->blank_e, i);
      store_pair(d, label_reach, reach->label_m, reach->label_e, i);
    }
    const Pair<V> label_p = exponential(d, hn::LoadU(d, p + 1 + i));
    store_pair(d, Pair<V>{hn::Mul(blank_reach.m, blank_p.m), hn::Add(blank_reach.e, blank_p.e)}, s.blank_m, s.blank_e,
               i);
    store_pair(d, Pair<V>{hn::Mul(label_reach.m, label_p.m), hn::Add(label_reach.e, label_p.e)}, s.label_m, s.label_e,
               i);
  }
}

template <class C>
void normalize(const CtcRow<C>& s, int64_t labels) {
  const hn::CappedTag<C, kCtcPad> d;
  for (int64_t i = 0; i <= labels; i += static_cast<int64_t>(hn::Lanes(d))) {
    store_pair(d, normalized(d, load_pair(d, s.blank_m, s.blank_e, i)), s.blank_m, s.blank_e, i);
    store_pair(d, normalized(d, load_pair(d, s.label_m, s.label_e, i)), s.label_m, s.label_e, i);
  }
}

/// scale * a[i] * b[last - i] for i and the lanes behind it; 0 in lanes past `last`.
template <class D, class C = hn::TFromD<D>, class V = hn::Vec<D>>
HWY_INLINE V posterior(D d, const C* am, const C* ae, const C* bm, const C* be, int64_t i, int64_t last,
                       Pair<V> scale) {
  const int64_t from = last - i - static_cast<int64_t>(hn::Lanes(d)) + 1;  // within the pad before the first
  const Pair<V> a = load_pair(d, am, ae, i),
                b{hn::Reverse(d, hn::LoadU(d, bm + from)), hn::Reverse(d, hn::LoadU(d, be + from))};
  const V m = hn::Mul(hn::Mul(a.m, b.m), scale.m), e = hn::Add(hn::Add(a.e, b.e), scale.e);
  const V value = hn::Mul(m, power_of_two(d, hn::Min(e, hn::Set(d, C(30)))));
  const int64_t left = last - i + 1;
  return hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(left)), value);
}

template <class C>
C posteriors(const CtcRow<C>& a, const CtcRow<C>& b, int64_t labels, C scale_m, C scale_e, C* posts) {
  const hn::CappedTag<C, kCtcPad> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Pair<V> scale{hn::Set(d, scale_m), hn::Set(d, scale_e)};
  V sum = hn::Zero(d);
  for (int64_t i = 0; i <= labels; i += lanes)
    sum = hn::Add(sum, posterior(d, a.blank_m, a.blank_e, b.blank_m, b.blank_e, i, labels, scale));
  for (int64_t i = 0; i < labels; i += lanes)
    hn::StoreU(posterior(d, a.label_m, a.label_e, b.label_m, b.label_e, i, labels - 1, scale), d, posts + i);
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

template <class C>
void exponentials(const void* x, DType dtype, int64_t n, C* out) {
  core::visit_float(dtype, [&]<class T>() HWY_ATTR {
    if constexpr (std::is_same_v<core::Compute<T>, C>)
      map_row(static_cast<const T*>(x), out, static_cast<size_t>(n),
              [](auto d, auto v) HWY_ATTR { return math::exp(d, v); });
  });
}

template <class C>
void weigh(const C* x, C weight, int64_t n, DType dtype, void* out) {
  core::visit_float(dtype, [&]<class T>() HWY_ATTR {
    if constexpr (std::is_same_v<core::Compute<T>, C>)
      map_row(x, static_cast<T*>(out), static_cast<size_t>(n),
              [&](auto d, auto v) HWY_ATTR { return hn::Mul(v, hn::Set(d, weight)); });
  });
}

template <class C>
constexpr CtcVectorLoops<C> kLoops = {step<C>, normalize<C>, posteriors<C>, exponentials<C>, weigh<C>};

}  // namespace

const CtcVectorLoops<float>& ctc_loops32() { return kLoops<float>; }
const CtcVectorLoops<double>& ctc_loops64() { return kLoops<double>; }

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {

HWY_EXPORT(ctc_loops32);
HWY_EXPORT(ctc_loops64);

template <>
const CtcVectorLoops<float>& ctc_loops() {
  return HWY_DYNAMIC_DISPATCH(ctc_loops32)();
}
template <>
const CtcVectorLoops<double>& ctc_loops() {
  return HWY_DYNAMIC_DISPATCH(ctc_loops64)();
}

}  // namespace tenor::cpu
#endif  // HWY_ONCE
