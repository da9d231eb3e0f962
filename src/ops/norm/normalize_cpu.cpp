// normalize over dense rows.
#include "src/core/visit.h"
#include "src/ops/norm/norm_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/norm/normalize_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/ops/norm/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

template <class C>
inline constexpr C kInfinity = std::numeric_limits<C>::infinity();

/// The greater (smaller) of two, NaN when either is.
template <bool kGreatest>
struct ExtremeOp {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    const V best = kGreatest ? hn::Max(a, b) : hn::Min(a, b);
    return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, best));
  }
};

template <class T, class C = core::Compute<T>>
HWY_INLINE C row_norm(const T* x, size_t n, double p) {
  const ComputeTag<T> d;
  const auto magnitude = [](auto, auto v) HWY_ATTR { return hn::Abs(v); };
  if (p == 2)
    return std::sqrt(reduce_row(
        x, n, C(0), [](auto, auto v) HWY_ATTR { return hn::Mul(v, v); }, AddOp()));
  if (p == 1) return reduce_row(x, n, C(0), magnitude, AddOp());
  if (p == kInfinity<double>) return reduce_row(x, n, C(0), magnitude, ExtremeOp<true>());
  if (p == -kInfinity<double>) return reduce_row(x, n, kInfinity<C>, magnitude, ExtremeOp<false>());
  if (p == 0) {
    const auto counted = [d](auto, auto v)
                             HWY_ATTR { return hn::IfThenZeroElse(hn::Eq(v, hn::Zero(d)), hn::Set(d, C(1))); };
    return reduce_row(x, n, C(0), counted, AddOp());
  }
  const auto power = [&](int64_t i) {
    return static_cast<C>(std::pow(std::abs(static_cast<double>(core::widen(x[i]))), p));
  };
  const C sum = core::ordered_reduce(static_cast<int64_t>(n), C(0), power, [](C a, C b) { return a + b; });
  return static_cast<C>(std::pow(static_cast<double>(sum), 1 / p));
}

void normalize_block(const RowBlock& block, DType dtype, double p, double epsilon) {
  core::visit_float(dtype, [&]<class T>() HWY_ATTR {
    using C = core::Compute<T>;
    const ComputeTag<T> d;
    // An epsilon below C's range still keeps a row of zeros at zero.
    const C least = epsilon > 0 ? std::max(static_cast<C>(epsilon), std::numeric_limits<C>::denorm_min()) : C(0);
    const size_t n = static_cast<size_t>(block.length);
    for (int64_t r = 0; r < block.count; ++r) {
      const T* x = block.row<const T>(0, r);
      T* y = block.row<T>(1, r);
      const C norm = row_norm(x, n, p);
      const auto divisor = hn::Set(d, norm < least ? least : norm);  // NaN stays
      for_lanes(d, n, [&](size_t i, auto io) HWY_ATTR { io.store(d, hn::Div(io.load(d, x + i), divisor), y + i); });
    }
  });
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {

HWY_EXPORT(normalize_block);
void normalize_rows(const RowBlock& block, DType dtype, double p, double epsilon) {
  HWY_DYNAMIC_DISPATCH(normalize_block)(block, dtype, p, epsilon);
}

}  // namespace tenor::cpu
#endif  // HWY_ONCE
