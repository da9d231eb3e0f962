#include "src/core/visit.h"
#include "src/ops/elementwise/elementwise_ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/elementwise/elementwise_arithmetic_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/ops/elementwise/elementwise_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace {

using elementwise::Op;

// NaN propagates: a NaN in a is returned as a, one in b makes the comparison false.
template <class D, class V>
HWY_INLINE V maximum(D, V a, V b) {
  return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::Gt(a, b)), a, b);
}
template <class D, class V>
HWY_INLINE V minimum(D, V a, V b) {
  return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::Lt(a, b)), a, b);
}

/// What Round keeps as it is: values too large to have a fraction, infinities, NaN.
template <class D, class V, class R>
HWY_INLINE V keep_sign(D d, V x, R rounded) {
  return hn::Or(rounded, hn::And(hn::SignBit(d), x));
}

template <class T>
StepFn float_kernel(Op op) {
  switch (op) {
    case Op::kAdd:
      return vector2<T>([](auto, auto a, auto b) HWY_ATTR { return hn::Add(a, b); });
    case Op::kSub:
      return vector2<T>([](auto, auto a, auto b) HWY_ATTR { return hn::Sub(a, b); });
    case Op::kMul:
      return vector2<T>([](auto, auto a, auto b) HWY_ATTR { return hn::Mul(a, b); });
    case Op::kDiv:
      return vector2<T>([](auto, auto a, auto b) HWY_ATTR { return hn::Div(a, b); });
    case Op::kTruncDivide:
      return vector2<T>([](auto, auto a, auto b) HWY_ATTR { return hn::Trunc(hn::Div(a, b)); });
    case Op::kMaximum:
    case Op::kClampMin:
      return vector2<T>([](auto d, auto a, auto b) HWY_ATTR { return maximum(d, a, b); });
    case Op::kMinimum:
    case Op::kClampMax:
      return vector2<T>([](auto d, auto a, auto b) HWY_ATTR { return minimum(d, a, b); });
    case Op::kClamp:
      return vector3<T>([](auto d, auto v, auto low, auto high)
                            HWY_ATTR { return minimum(d, maximum(d, v, low), high); });
    // The end nearer to weight 1 is reached from b, so that weight 1 gives b exactly.
    case Op::kLerp:
      return vector3<T>([](auto d, auto a, auto b, auto w) HWY_ATTR {
        const auto span = hn::Sub(b, a), from_a = hn::Add(a, hn::Mul(w, span));
        const auto from_b = hn::Sub(b, hn::Mul(span, hn::Sub(math::constant(d, 1), w)));
        return hn::IfThenElse(hn::Lt(hn::Abs(w), math::constant(d, 0.5)), from_a, from_b);
      });
    case Op::kNeg:
      return vector1<T>([](auto, auto v) HWY_ATTR { return hn::Neg(v); });
    case Op::kAbs:
      return vector1<T>([](auto, auto v) HWY_ATTR { return hn::Abs(v); });
    case Op::kSign:
      return vector1<T>([](auto d, auto v) HWY_ATTR {
        const auto zero = hn::Zero(d), one = math::constant(d, 1);
        return hn::IfThenElse(hn::Gt(v, zero), one, hn::IfThenElse(hn::Lt(v, zero), hn::Neg(one), v));
      });
    case Op::kRelu:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return hn::IfThenElse(hn::Le(v, hn::Zero(d)), hn::Zero(d), v); });
    case Op::kFloor:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return keep_sign(d, v, hn::Floor(v)); });
    case Op::kCeil:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return keep_sign(d, v, hn::Ceil(v)); });
    case Op::kRound:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return keep_sign(d, v, hn::Round(v)); });
    case Op::kTrunc:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return keep_sign(d, v, hn::Trunc(v)); });
    default:
      return nullptr;
  }
}

StepFn arithmetic_kernel(Op op, DType compute) {
  return by_stored_float(compute, [&]<class T>() { return float_kernel<T>(op); });
}

}  // namespace
}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {
namespace {
HWY_EXPORT(arithmetic_kernel);
StepFn chosen(elementwise::Op op, DType compute) { return HWY_DYNAMIC_DISPATCH(arithmetic_kernel)(op, compute); }
}  // namespace
}  // namespace tenor::cpu

tenor::cpu::StepFn tenor::elementwise::find_arithmetic(Op op, DType compute) {
  return is_float(compute) ? cpu::chosen(op, compute) : find_integer(op, compute);
}
#endif
