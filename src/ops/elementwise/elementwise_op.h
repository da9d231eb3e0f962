// The names of the elementwise operators' rows.
#pragma once

#include <cstdint>

namespace tenor::elementwise {

enum class Op : uint8_t {
  kAdd, kSub, kMul, kDiv, kFloorDivide, kRemainder, kFmod, kPow, kMaximum, kMinimum, kAtan2,
  kNeg, kAbs, kSign, kRelu, kFloor, kCeil, kRound, kTrunc,
  kExp, kExp2, kExpm1, kLog, kLog2, kLog10, kLog1p, kSqrt, kRsqrt, kReciprocal,
  kSin, kCos, kTan, kAsin, kAcos, kAtan, kSinh, kCosh, kTanh, kAsinh, kAcosh, kAtanh, kErf,
  kSigmoid, kLeakyRelu, kElu, kSilu, kGelu, kGeluTanh, kSoftplus, kMish, kHardswish,
  kIsnan, kIsinf, kIsfinite,
  kEq, kNe, kLt, kLe, kGt, kGe,
  kLogicalAnd, kLogicalOr, kLogicalXor, kLogicalNot,
  kBitwiseAnd, kBitwiseOr, kBitwiseXor, kBitwiseNot, kBitwiseLeftShift, kBitwiseRightShift,
  kWhere, kMaskedFill, kClamp, kClampMin, kClampMax, kLerp, kIsclose, kTruncDivide,
};
inline constexpr int kOps = static_cast<int>(Op::kTruncDivide) + 1;

}  // namespace tenor::elementwise
