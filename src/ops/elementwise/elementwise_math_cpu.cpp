#include "src/core/visit.h"
#include "src/ops/elementwise/elementwise_ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/elementwise/elementwise_math_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/math_short-inl.h"
#include "src/ops/elementwise/elementwise_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace {

using elementwise::Op;

/// What bfloat16 computes by functions as short as its rounding allows; null for the rest.
StepFn short_math(Op op) {
  if (op == Op::kSigmoid)
    return vector1<BFloat16>([](auto d, auto v)
                                 HWY_ATTR { return hn::IfThenElse(hn::IsNaN(v), v, math_short::sigmoid(d, v)); });
  if (op == Op::kTanh) return vector1<BFloat16>([](auto d, auto v) HWY_ATTR { return math_short::tanh(d, v); });
  if (op == Op::kErf) return vector1<BFloat16>([](auto d, auto v) HWY_ATTR { return math_short::erf(d, v); });
  return nullptr;
}

template <class T>
StepFn float_math(Op op) {
  switch (op) {
    case Op::kExp:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return math::exp(d, v); });
    case Op::kExp2:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return math::exp2(d, v); });
    case Op::kExpm1:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return math::expm1(d, v); });
    case Op::kLog:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return math::log(d, v); });
    case Op::kLog2:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return math::log2(d, v); });
    case Op::kLog10:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return math::log10(d, v); });
    case Op::kLog1p:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return math::log1p(d, v); });
    case Op::kSqrt:
      return vector1<T>([](auto, auto v) HWY_ATTR { return hn::Sqrt(v); });
    case Op::kRsqrt:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return hn::Div(math::constant(d, 1), hn::Sqrt(v)); });
    case Op::kReciprocal:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return hn::Div(math::constant(d, 1), v); });
    case Op::kErf:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return math::erf(d, v); });
    case Op::kTanh:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return math::tanh(d, v); });
    case Op::kSigmoid:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return math::sigmoid(d, v); });
    default:
      return nullptr;
  }
}

StepFn math_kernel(Op op, DType compute) {
  if (compute == DType::kBFloat16)
    if (const StepFn fn = short_math(op)) return fn;
  return by_stored_float(compute, [&]<class T>() { return float_math<T>(op); });
}

}  // namespace
}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {
namespace {
HWY_EXPORT(math_kernel);
StepFn chosen(elementwise::Op op, DType compute) { return HWY_DYNAMIC_DISPATCH(math_kernel)(op, compute); }
}  // namespace
}  // namespace tenor::cpu

tenor::cpu::StepFn tenor::elementwise::find_math(Op op, DType compute) { return cpu::chosen(op, compute); }
#endif
