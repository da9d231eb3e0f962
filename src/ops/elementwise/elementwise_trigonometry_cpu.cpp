#include "src/core/visit.h"
#include "src/ops/elementwise/elementwise_ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/elementwise/elementwise_trigonometry_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/math_circular-inl.h"
#include "src/ops/elementwise/elementwise_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace {

using elementwise::Op;

template <class T>
StepFn float_trigonometry(Op op) {
  switch (op) {
    case Op::kSin:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return math::sin(d, v); });
    case Op::kCos:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return math::cos(d, v); });
    case Op::kTan:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return math::tan(d, v); });
    case Op::kAsin:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return math::asin(d, v); });
    case Op::kAcos:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return math::acos(d, v); });
    case Op::kAtan:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return math::atan(d, v); });
    case Op::kSinh:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return math::sinh(d, v); });
    case Op::kCosh:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return math::cosh(d, v); });
    case Op::kAsinh:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return math::asinh(d, v); });
    case Op::kAcosh:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return math::acosh(d, v); });
    case Op::kAtanh:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return math::atanh(d, v); });
    default:
      return nullptr;
  }
}

StepFn trigonometry_kernel(Op op, DType compute) {
  return by_float(compute, [&]<class T>() { return float_trigonometry<T>(op); });
}

}  // namespace
}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {
namespace {
HWY_EXPORT(trigonometry_kernel);
StepFn chosen(elementwise::Op op, DType compute) { return HWY_DYNAMIC_DISPATCH(trigonometry_kernel)(op, compute); }
}  // namespace
}  // namespace tenor::cpu

tenor::cpu::StepFn tenor::elementwise::find_trigonometry(Op op, DType compute) { return cpu::chosen(op, compute); }
#endif
