// A loop over dense elements that reads and writes several rows at once, tail included.
#if defined(TENOR_CPU_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENOR_CPU_LANES_INL_H_
#undef TENOR_CPU_LANES_INL_H_
#else
#define TENOR_CPU_LANES_INL_H_
#endif

#include "src/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

/// Access to a full vector of elements.
struct WholeVector {
  template <class D, class T>
  HWY_INLINE hn::Vec<D> load(D d, const T* p) const {
    return HWY_NAMESPACE::load(d, p);
  }
  template <class D, class T>
  HWY_INLINE void store(D d, hn::Vec<D> v, T* p) const {
    HWY_NAMESPACE::store(d, v, p);
  }
};
/// Access to the first n lanes of one: the end of a row.
struct PartVector {
  size_t n;
  template <class D, class T>
  HWY_INLINE hn::Vec<D> load(D d, const T* p) const {
    return load_n(d, p, n);
  }
  template <class D, class T>
  HWY_INLINE void store(D d, hn::Vec<D> v, T* p) const {
    store_n(d, v, p, n);
  }
};

/// body(i, io) for i = 0, Lanes(d), ... below n, where io.load(d, p + i) and io.store(d, v, p + i) stay within n
/// elements:
///
///     for_lanes(d, n, [&](size_t i, auto io) HWY_ATTR { io.store(d, hn::Add(io.load(d, x + i), io.load(d, b + i)), y +
///     i); });
template <class D, class Body>
HWY_INLINE void for_lanes(D d, size_t n, Body body) {
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) body(i, WholeVector{});
  if (i < n) body(i, PartVector{n - i});
}

/// out = formula(i, io) vector by vector, where io is how it loads its operands: whole vectors, at the end what is left
/// of one. A long result in place of an array that does not begin at a cache line (NumPy's seldom do) begins with a
/// part: stores that cross lines cost a tenth of the time.
template <class T, class Formula>
HWY_INLINE void for_vectors(T* out, size_t n, Formula formula) {
  const ComputeTag<T> d;
  const size_t lanes = hn::Lanes(d);
  const auto part = [&](size_t i, size_t count) HWY_ATTR { store_n(d, formula(i, PartVector{count}), out + i, count); };
  size_t i = 0;
  const size_t past = reinterpret_cast<uintptr_t>(out) % (lanes * sizeof(T)) / sizeof(T);
  if (past != 0 && n >= 32 * lanes) part(i, lanes - past), i = lanes - past;
  if constexpr (std::is_same_v<T, BFloat16>)
    for (; i + 2 * lanes <= n; i += 2 * lanes)
      store_pair(d, formula(i, WholeVector{}), formula(i + lanes, WholeVector{}), out + i);
  for (; i + lanes <= n; i += lanes) store(d, formula(i, WholeVector{}), out + i);
  if (i < n) part(i, n - i);
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TENOR_CPU_LANES_INL_H_
