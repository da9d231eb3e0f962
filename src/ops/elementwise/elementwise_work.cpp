#include "src/ops/elementwise/elementwise_work.h"

namespace tenor::elementwise {

core::Work work_of(Op op, DType compute, int64_t count) {
  if (row(op).rule == Rule::kSelect) return {.as_bits = true};
  if (!is_float(compute)) return {};
  // As short as bfloat16 allows, without an exponential (src/cpu/math_short-inl.h).
  if (compute == DType::kBFloat16 && op == Op::kTanh) return {.operations = 4 * count};
  if (compute == DType::kBFloat16 && op == Op::kErf) return {.operations = 8 * count};
  switch (op) {
    case Op::kDiv:
    case Op::kSqrt:
    case Op::kRsqrt:
    case Op::kReciprocal:
      return {.divisions = count};
    case Op::kAtan2:
    case Op::kExp:
    case Op::kExp2:
    case Op::kExpm1:
    case Op::kLog:
    case Op::kLog2:
    case Op::kLog10:
    case Op::kLog1p:
    case Op::kSin:
    case Op::kCos:
    case Op::kTan:
    case Op::kAsin:
    case Op::kAcos:
    case Op::kAtan:
    case Op::kSinh:
    case Op::kCosh:
    case Op::kTanh:
    case Op::kAsinh:
    case Op::kAcosh:
    case Op::kAtanh:
    case Op::kErf:
    case Op::kSigmoid:
    case Op::kElu:
    case Op::kSilu:
    case Op::kGelu:
    case Op::kGeluTanh:
    case Op::kSoftplus:
    case Op::kMish:
      return {.exponentials = count};
    default:
      return {};  // pow among them, which often is a product
  }
}

}  // namespace tenor::elementwise
