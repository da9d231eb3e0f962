// What the CPU kernels of the two forms share.
#if defined(TENOR_OPS_GATED_DELTA_GATED_DELTA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENOR_OPS_GATED_DELTA_GATED_DELTA_INL_H_
#undef TENOR_OPS_GATED_DELTA_GATED_DELTA_INL_H_
#else
#define TENOR_OPS_GATED_DELTA_GATED_DELTA_INL_H_
#endif

#include "src/cpu/lanes-inl.h"
#include "src/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

template <class C>
HWY_INLINE C dot(const C* x, const C* y, int64_t n) {
  const ComputeTag<C> d;
  auto sum = hn::Zero(d);
  for_lanes(d, static_cast<size_t>(n),
            [&](size_t i, auto io) HWY_ATTR { sum = hn::MulAdd(io.load(d, x + i), io.load(d, y + i), sum); });
  return hn::GetLane(combine_halves(d, sum, AddOp()));
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TENOR_OPS_GATED_DELTA_GATED_DELTA_INL_H_
