#include "src/core/visit.h"
#include "src/ops/elementwise/elementwise_ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/elementwise/elementwise_division_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/math_circular-inl.h"
#include "src/ops/elementwise/elementwise_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace {

using elementwise::Op;

// Division with a rest in floating point. The rest of two floats is exact in double while the quotient stays below
// 2^27: the vector path. Other lanes (and float64) go through fmod, each on its own.

/// C's fmod with the divisor's sign, as Python's %; a zero rest too has the divisor's sign.
double remainder_of(double a, double b) {
  const double r = std::fmod(a, b);
  if (r == 0) return std::copysign(0.0, b);
  return (r < 0) != (b < 0) ? r + b : r;
}
/// Python's //: from the rest, so that 1 // 0.1 is 9; by zero a / b.
double floor_divide_of(double a, double b) {
  if (b == 0) return a / b;
  const double r = std::fmod(a, b);
  double q = (a - r) / b;
  if (r != 0 && (r < 0) != (b < 0)) q -= 1;
  if (q == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(q);
  return q - floor > 0.5 ? floor + 1 : floor;
}

/// vector(w, a, b, quotient towards 0, rest) in double, patched by scalar(a, b) where the rest is not exact.
template <class D, class V, class Vector, class Scalar>
HWY_INLINE V divide(D d, V a, V b, Vector vector, Scalar scalar) {
  if constexpr (math::kIsFloat32<D>) {
    const V v = math::via_double(
        d,
        [vector](auto w, auto x, auto y) HWY_ATTR {
          const auto q = hn::Trunc(hn::Div(x, y));
          return vector(w, x, y, q, hn::NegMulAdd(q, y, x));
        },
        a, b);
    const auto exact =
        hn::And(hn::Lt(hn::Abs(hn::Div(a, b)), math::constant(d, 0x1p27)), hn::Lt(hn::Abs(b), math::infinity(d)));
    if (HWY_LIKELY(hn::AllTrue(d, exact))) return v;
    return hn::IfThenElse(exact, v, math::per_lane(d, a, b, scalar));
  } else {
    return math::per_lane(d, a, b, scalar);
  }
}
template <class W, class V>
HWY_INLINE auto contrary_signs(W w, V rest, V b) {
  return hn::And(hn::Ne(rest, hn::Zero(w)),
                 hn::Ne(hn::CopySign(math::constant(w, 1), rest), hn::CopySign(math::constant(w, 1), b)));
}

template <class T>
StepFn float_division(Op op) {
  switch (op) {
    case Op::kFmod:
      return vector2<T>([](auto d, auto a, auto b) HWY_ATTR {
        return divide(
            d, a, b, [](auto, auto x, auto, auto, auto rest) HWY_ATTR { return hn::CopySign(rest, x); },
            [](double x, double y) { return std::fmod(x, y); });
      });
    case Op::kRemainder:
      return vector2<T>([](auto d, auto a, auto b) HWY_ATTR {
        return divide(
            d, a, b,
            [](auto w, auto, auto y, auto, auto rest) HWY_ATTR {
              return hn::CopySign(hn::IfThenElse(contrary_signs(w, rest, y), hn::Add(rest, y), rest), y);
            },
            [](double x, double y) { return remainder_of(x, y); });
      });
    case Op::kFloorDivide:
      return vector2<T>([](auto d, auto a, auto b) HWY_ATTR {
        return divide(
            d, a, b,
            [](auto w, auto, auto y, auto q, auto rest)
                HWY_ATTR { return hn::IfThenElse(contrary_signs(w, rest, y), hn::Sub(q, math::constant(w, 1)), q); },
            [](double x, double y) { return floor_divide_of(x, y); });
      });
    case Op::kPow:
      return vector2<T>([](auto d, auto a, auto b) HWY_ATTR { return math::pow(d, a, b); });
    case Op::kAtan2:
      return vector2<T>([](auto d, auto a, auto b) HWY_ATTR { return math::atan2(d, a, b); });
    default:
      return nullptr;
  }
}

StepFn division_kernel(Op op, DType compute) {
  return by_float(compute, [&]<class T>() { return float_division<T>(op); });
}

}  // namespace
}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {
namespace {
HWY_EXPORT(division_kernel);
StepFn chosen(elementwise::Op op, DType compute) { return HWY_DYNAMIC_DISPATCH(division_kernel)(op, compute); }
}  // namespace
}  // namespace tenor::cpu

tenor::cpu::StepFn tenor::elementwise::find_division(Op op, DType compute) {
  return is_float(compute) ? cpu::chosen(op, compute) : find_integer(op, compute);
}
#endif
