// What the family's kernel files share: vectors, and rows of a strided operand.
#if defined(TENOR_OPS_ATTENTION_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENOR_OPS_ATTENTION_ROWS_INL_H_
#undef TENOR_OPS_ATTENTION_ROWS_INL_H_
#else
#define TENOR_OPS_ATTENTION_ROWS_INL_H_
#endif

#include <type_traits>

#include "src/cpu/simd-inl.h"
#include "src/ops/attention/attention_problem.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::attn::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using cpu::HWY_NAMESPACE::load;
using cpu::HWY_NAMESPACE::map_row;

template <class C>
using Tag = hn::ScalableTag<C>;

template <class T>
const T* element(const Plane& x, int64_t offset, int64_t head, int64_t row) {
  return static_cast<const T*>(x.data) + offset + head * x.head + row * x.row;
}

/// One row as C, contiguous.
template <class T, class C>
HWY_INLINE void load_row(const T* HWY_RESTRICT from, int64_t stride, int64_t n, C* HWY_RESTRICT to) {
  if constexpr (std::is_same_v<core::Compute<T>, C>) {
    if (stride == 1) return map_row(from, to, static_cast<size_t>(n), [](auto, auto v) HWY_ATTR { return v; });
  }
  for (int64_t i = 0; i < n; ++i) to[i] = core::cast<C>(core::widen(from[i * stride]));
}

}  // namespace tenor::attn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TENOR_OPS_ATTENTION_ROWS_INL_H_
