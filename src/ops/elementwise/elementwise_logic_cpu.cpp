#include "src/core/visit.h"
#include "src/ops/elementwise/elementwise_ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/elementwise/elementwise_logic_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/ops/elementwise/elementwise_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace {

using elementwise::Op;

/// On bool, held as 0 or 1.
StepFn bool_kernel(Op op) {
  using B = uint8_t;
  switch (op) {
    case Op::kLogicalAnd:
    case Op::kBitwiseAnd:
      return plain2<B>([](B a, B b) { return a & b; });
    case Op::kLogicalOr:
    case Op::kBitwiseOr:
      return plain2<B>([](B a, B b) { return a | b; });
    case Op::kLogicalXor:
    case Op::kBitwiseXor:
      return plain2<B>([](B a, B b) { return a ^ b; });
    case Op::kLogicalNot:
    case Op::kBitwiseNot:
      return plain1<B>([](B v) { return v ^ 1; });
    default:
      return nullptr;
  }
}
template <class U>
StepFn bits_kernel(Op op) {
  constexpr U kBits = 8 * sizeof(U);
  switch (op) {
    case Op::kBitwiseAnd:
      return plain2<U>([](U a, U b) { return a & b; });
    case Op::kBitwiseOr:
      return plain2<U>([](U a, U b) { return a | b; });
    case Op::kBitwiseXor:
      return plain2<U>([](U a, U b) { return a ^ b; });
    case Op::kBitwiseNot:
      return plain1<U>([](U v) { return ~v; });
    // A negative count is a large unsigned one: everything is shifted out.
    case Op::kBitwiseLeftShift:
      return plain2<U>([](U a, U b) { return b < kBits ? static_cast<U>(a << (b % kBits)) : U(0); });
    default:
      return nullptr;
  }
}
/// The sign fills in from the left.
template <class T>
StepFn right_shift_kernel() {
  return plain2<T>([](T a, T b) {
    using U = std::make_unsigned_t<T>;
    constexpr U kBits = 8 * sizeof(T);
    const U count = static_cast<U>(b);
    if constexpr (std::is_signed_v<T>)
      return static_cast<T>(a >> (count < kBits ? count : kBits - 1));
    else
      return count < kBits ? static_cast<T>(a >> (count % kBits)) : T(0);
  });
}

StepFn logic_kernel(Op op, DType compute) {
  if (compute == boolean) return bool_kernel(op);
  if (!is_integer(compute)) return nullptr;
  if (op == Op::kBitwiseRightShift)
    return core::visit_integer(compute, [&]<class T>() { return right_shift_kernel<T>(); });
  return by_size(compute, [&]<class U>() { return bits_kernel<U>(op); });
}

}  // namespace
}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {
namespace {
HWY_EXPORT(logic_kernel);
StepFn chosen(elementwise::Op op, DType compute) { return HWY_DYNAMIC_DISPATCH(logic_kernel)(op, compute); }
}  // namespace
}  // namespace tenor::cpu

tenor::cpu::StepFn tenor::elementwise::find_logic(Op op, DType compute) { return cpu::chosen(op, compute); }
#endif
