#include "src/core/visit.h"
#include "src/ops/elementwise/elementwise_ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/elementwise/elementwise_integer_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/ops/elementwise/elementwise_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace {

using elementwise::Op;

/// The quotient towards minus infinity, 0 where b is 0; the most negative value by -1 wraps.
template <class T>
T floor_divide(T a, T b) {
  if (b == 0) return 0;
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a));
    const T q = static_cast<T>(a / b);
    return static_cast<T>(a % b != 0 && ((a % b < 0) != (b < 0)) ? q - 1 : q);
  } else {
    return static_cast<T>(a / b);
  }
}
template <class T>
T trunc_divide(T a, T b) {
  if (b == 0) return 0;
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a));
  }
  return static_cast<T>(a / b);
}
/// The rest with the dividend's sign.
template <class T>
T fmod_integer(T a, T b) {
  if (b == 0) return 0;
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return 0;
  }
  return static_cast<T>(a % b);
}
/// The rest with the divisor's sign.
template <class T>
T remainder_integer(T a, T b) {
  const T r = fmod_integer(a, b);
  if constexpr (std::is_signed_v<T>) {
    if (r != 0 && (r < 0) != (b < 0)) return static_cast<T>(r + b);
  }
  return r;
}
/// a^b modulo 2^width; a negative exponent leaves 1 and -1, and 0 of everything else.
template <class T>
T power(T a, T b) {
  using U = std::make_unsigned_t<T>;
  if constexpr (std::is_signed_v<T>) {
    if (b < 0) return static_cast<T>(a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0);
  }
  uint64_t result = 1, base = static_cast<U>(a);
  for (U rest = static_cast<U>(b); rest != 0; rest = static_cast<U>(rest >> 1), base *= base)
    if (rest & 1) result *= base;
  return static_cast<T>(result);
}

/// Formulas that know signs.
template <class T>
StepFn signed_kernel(Op op) {
  switch (op) {
    case Op::kFloorDivide:
      return plain2<T>([](T a, T b) { return floor_divide(a, b); });
    case Op::kTruncDivide:
      return plain2<T>([](T a, T b) { return trunc_divide(a, b); });
    case Op::kRemainder:
      return plain2<T>([](T a, T b) { return remainder_integer(a, b); });
    case Op::kFmod:
      return plain2<T>([](T a, T b) { return fmod_integer(a, b); });
    case Op::kPow:
      return plain2<T>([](T a, T b) { return power(a, b); });
    case Op::kMaximum:
    case Op::kClampMin:
      return plain2<T>([](T a, T b) { return a > b ? a : b; });
    case Op::kMinimum:
    case Op::kClampMax:
      return plain2<T>([](T a, T b) { return a < b ? a : b; });
    case Op::kClamp:
      return plain3<T, T, T, T>([](T v, T low, T high) {
        const T up = v > low ? v : low;
        return up < high ? up : high;
      });
    case Op::kAbs:
      return plain1<T>([](T v) {
        return v < 0 ? 0 - static_cast<std::make_unsigned_t<T>>(v) : static_cast<std::make_unsigned_t<T>>(v);
      });
    case Op::kSign:
      return plain1<T>([](T v) { return (v > 0) - (v < 0); });
    case Op::kRelu:
      return plain1<T>([](T v) { return v > 0 ? v : T(0); });
    default:
      return nullptr;
  }
}
/// Formulas modulo 2^width.
template <class U>
StepFn modular_kernel(Op op) {
  switch (op) {
    case Op::kAdd:
      return plain2<U>([](U a, U b) { return static_cast<uint64_t>(a) + b; });
    case Op::kSub:
      return plain2<U>([](U a, U b) { return static_cast<uint64_t>(a) - b; });
    case Op::kMul:
      return plain2<U>([](U a, U b) { return static_cast<uint64_t>(a) * b; });
    case Op::kNeg:
      return plain1<U>([](U v) { return 0 - static_cast<uint64_t>(v); });
    case Op::kFloor:
    case Op::kCeil:
    case Op::kRound:
    case Op::kTrunc:
      return plain1<U>([](U v) { return v; });
    default:
      return nullptr;
  }
}
/// On bool, held as 0 or 1: sums are "or", products "and"; differences and quotients have no meaning.
StepFn bool_kernel(Op op) {
  using B = uint8_t;
  switch (op) {
    case Op::kAdd:
    case Op::kMaximum:
    case Op::kClampMin:
      return plain2<B>([](B a, B b) { return a | b; });
    case Op::kMul:
    case Op::kMinimum:
    case Op::kClampMax:
      return plain2<B>([](B a, B b) { return a & b; });
    case Op::kClamp:
      return plain3<B, B, B, B>([](B v, B low, B high) { return (v | low) & high; });
    case Op::kAbs:
    case Op::kSign:
    case Op::kRelu:
    case Op::kFloor:
    case Op::kCeil:
    case Op::kRound:
    case Op::kTrunc:
      return plain1<B>([](B v) { return v; });
    default:
      return nullptr;
  }
}

StepFn integer_kernel(Op op, DType compute) {
  if (compute == boolean) return bool_kernel(op);
  if (!is_integer(compute)) return nullptr;
  if (const StepFn fn = by_size(compute, [&]<class U>() { return modular_kernel<U>(op); })) return fn;
  return core::visit_integer(compute, [&]<class T>() { return signed_kernel<T>(op); });
}

}  // namespace
}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {
namespace {
HWY_EXPORT(integer_kernel);
StepFn chosen(elementwise::Op op, DType compute) { return HWY_DYNAMIC_DISPATCH(integer_kernel)(op, compute); }
}  // namespace
}  // namespace tenor::cpu

tenor::cpu::StepFn tenor::elementwise::find_integer(Op op, DType compute) { return cpu::chosen(op, compute); }
#endif
