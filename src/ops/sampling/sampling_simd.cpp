// The vector loops of sampling: a row's top, weights, random numbers and the scores of the race.
#include "src/core/visit.h"
#include "src/ops/sampling/sampling_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/sampling/sampling_simd.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace {

template <class T, class C = core::Compute<T>>
RowTop top_of(const T* x, size_t n, RowKind kind) {
  const ComputeTag<T> d;
  const size_t lanes = hn::Lanes(d);
  constexpr C kInfinity = std::numeric_limits<C>::infinity();
  auto top = hn::Set(d, -kInfinity), low = hn::Set(d, kInfinity);
  auto number = hn::Eq(top, top);
  const auto add = [&](auto v) HWY_ATTR {
    top = hn::Max(top, v);
    low = hn::Min(low, v);
    number = hn::And(number, hn::Eq(v, v));
  };
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) add(load(d, x + i));
  if (i < n) add(load_n(d, x + i, n - i, core::widen(x[0])));
  const C highest = hn::GetLane(combine_halves(d, top, [](auto, auto a, auto b) HWY_ATTR { return hn::Max(a, b); }));
  const C lowest = hn::GetLane(combine_halves(d, low, [](auto, auto a, auto b) HWY_ATTR { return hn::Min(a, b); }));
  return {static_cast<double>(highest), hn::AllTrue(d, number) && !(kind == RowKind::kProbs && lowest < 0)};
}

template <class C>
RowTop top(const void* x, size_t n, DType dtype, RowKind kind) {
  RowTop result;
  core::visit_float(dtype, [&]<class T>() { result = top_of(static_cast<const T*>(x), n, kind); });
  return result;
}

template <class C>
void weigh(const void* x, size_t n, DType dtype, RowKind kind, C top, C temperature, C* e) {
  core::visit_float(dtype, [&]<class T>() HWY_ATTR {
    if constexpr (std::is_same_v<core::Compute<T>, C>) {
      const ComputeTag<T> d;
      const auto most = hn::Set(d, top), t = hn::Set(d, temperature);
      const T* from = static_cast<const T*>(x);
      if (kind == RowKind::kProbs) {
        map_row(from, e, n, [&](auto, auto v) HWY_ATTR { return hn::Div(v, most); });
      } else if (temperature == 1) {
        map_row(from, e, n, [&](auto, auto v) HWY_ATTR { return math::exp(d, hn::Sub(v, most)); });
      } else {
        map_row(from, e, n, [&](auto, auto v) HWY_ATTR { return math::exp(d, hn::Div(hn::Sub(v, most), t)); });
      }
    }
  });
}

template <class C>
void subtract(const void* p, const void* q, size_t n, DType dtype, C* e) {
  core::visit_float(dtype, [&]<class T>() HWY_ATTR {
    if constexpr (std::is_same_v<core::Compute<T>, C>) {
      const ComputeTag<T> d;
      const size_t lanes = hn::Lanes(d);
      const T *mine = static_cast<const T*>(p), *other = static_cast<const T*>(q);
      const auto positive = [&](auto v) HWY_ATTR { return hn::IfThenElseZero(hn::Gt(v, hn::Zero(d)), v); };
      size_t i = 0;
      for (; i + lanes <= n; i += lanes) {
        const auto v = load(d, mine + i);
        store(d, positive(other ? hn::Sub(v, load(d, other + i)) : v), e + i);
      }
      if (i == n) return;
      const auto v = load_n(d, mine + i, n - i);
      store_n(d, positive(other ? hn::Sub(v, load_n(d, other + i, n - i)) : v), e + i, n - i);
    }
  });
}

#if HWY_TARGET != HWY_SCALAR
/// a * b: the low halves, and the high ones.
template <class D, class V>
HWY_INLINE void multiply(D d, V a, V b, V& low, V& high) {
  const hn::Repartition<uint64_t, D> wide;
  const auto even = hn::MulEven(a, b);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a))),
                               hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, b))));
  low = hn::Mul(a, b);
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
}

/// core::philox, as many groups at a time as a vector has lanes. words has room for kTokens.
void draw_words(const sampling::Stream& s, uint64_t first_group, size_t groups, uint32_t* words) {
  const hn::ScalableTag<uint32_t> d;
  const auto set = [&](uint64_t v) HWY_ATTR { return hn::Set(d, static_cast<uint32_t>(v)); };
  const auto m0 = set(core::kPhiloxMultiply0), m1 = set(core::kPhiloxMultiply1);
  for (size_t g = 0; g < groups; g += hn::Lanes(d)) {
    auto c0 = hn::Iota(d, static_cast<uint32_t>(first_group + g)), c1 = set(s.position), c2 = set(s.position >> 32),
         c3 = set(static_cast<uint32_t>(s.tag));
    uint32_t k0 = static_cast<uint32_t>(s.seed), k1 = static_cast<uint32_t>(s.seed >> 32);
    for (int round = 0; round < core::kPhiloxRounds; ++round) {
      auto low0 = c0, high0 = c0, low1 = c2, high1 = c2;
      multiply(d, m0, c0, low0, high0);
      multiply(d, m1, c2, low1, high1);
      c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(d, k0));
      c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(d, k1));
      c1 = low1;
      c3 = low0;
      k0 += core::kPhiloxStep0;
      k1 += core::kPhiloxStep1;
    }
    hn::StoreInterleaved4(c0, c1, c2, c3, d, words + 4 * g);
  }
}
#else
void draw_words(const sampling::Stream& s, uint64_t first_group, size_t groups, uint32_t* words) {
  for (size_t g = 0; g < groups; ++g) {
    const core::PhiloxBlock block = s.block(first_group + g);
    std::memcpy(words + 4 * g, block.word, sizeof block.word);
  }
}
#endif

template <class C>
void draw(const sampling::Stream& stream, uint64_t first, size_t n, C* u) {
  uint32_t words[kTokens], least = ~0u;
  draw_words(stream, first / 4, (n + 3) / 4, words);
  for (size_t i = 0; i < n; ++i) {
    u[i] = sampling::uniform_of<C>(words[i]);
    least = std::min(least, words[i]);
  }
  if (least >= sampling::kFewDigits) return;
  for (size_t i = 0; i < n; ++i)
    if (words[i] < sampling::kFewDigits) u[i] = sampling::small_uniform_of<C>(words[i], stream.word(first + i, true));
}

template <class C>
C score(const C* e, const C* u, size_t n, C* scores) {
  const hn::ScalableTag<C> d;
  const size_t lanes = hn::Lanes(d);
  auto best = hn::Zero(d);
  const auto of = [&](auto weight, auto number) HWY_ATTR {
    const auto s = hn::Div(weight, hn::Neg(math::log1p(d, hn::Neg(number))));
    best = hn::Max(best, s);
    return s;
  };
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(of(hn::LoadU(d, e + i), hn::LoadU(d, u + i)), d, scores + i);
  if (i < n) store_n(d, of(load_n(d, e + i, n - i), load_n(d, u + i, n - i, C(0.5))), scores + i, n - i);
  return hn::GetLane(combine_halves(d, best, [](auto, auto a, auto b) HWY_ATTR { return hn::Max(a, b); }));
}

template <class C>
constexpr SampleKernels<C> kKernels = {top<C>, weigh<C>, subtract<C>, draw<C>, score<C>};

}  // namespace

const SampleKernels<float>& sample_kernels32() { return kKernels<float>; }
const SampleKernels<double>& sample_kernels64() { return kKernels<double>; }

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {

HWY_EXPORT(sample_kernels32);
HWY_EXPORT(sample_kernels64);

template <>
const SampleKernels<float>& sample_kernels() {
  return HWY_DYNAMIC_DISPATCH(sample_kernels32)();
}
template <>
const SampleKernels<double>& sample_kernels() {
  return HWY_DYNAMIC_DISPATCH(sample_kernels64)();
}

}  // namespace tenor::cpu
#endif  // HWY_ONCE
