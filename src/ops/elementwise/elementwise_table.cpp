#include <array>

#include "src/core/registry.h"
#include "src/ops/elementwise/elementwise_ops.h"

namespace tenor::elementwise {
namespace {

constexpr OpRow kTable[] = {
    {Op::kAdd, "add", 2, Rule::kArithmetic, 2, find_arithmetic, "x + other"},
    {Op::kSub, "sub", 2, Rule::kArithmetic, 2, find_arithmetic, "x - other"},
    {Op::kMul, "mul", 2, Rule::kArithmetic, 2, find_arithmetic, "x * other"},
    {Op::kDiv, "div", 2, Rule::kFloat, 4, find_arithmetic, "x / other"},
    {Op::kFloorDivide, "floor_divide", 2, Rule::kArithmetic, 24, find_division, "the largest integer <= x / other"},
    {Op::kRemainder, "remainder", 2, Rule::kArithmetic, 24, find_division,
     "x - other * floor(x / other), the divisor's sign"},
    {Op::kFmod, "fmod", 2, Rule::kArithmetic, 24, find_division, "x - other * trunc(x / other), the dividend's sign"},
    {Op::kPow, "pow", 2, Rule::kArithmetic, 50, find_division, "x^exponent"},
    {Op::kMaximum, "maximum", 2, Rule::kArithmetic, 2, find_arithmetic, "the larger; NaN wins"},
    {Op::kMinimum, "minimum", 2, Rule::kArithmetic, 2, find_arithmetic, "the smaller; NaN wins"},
    {Op::kAtan2, "atan2", 2, Rule::kFloat, 50, find_division, "the angle of the point (other, x)"},
    {Op::kNeg, "neg", 1, Rule::kArithmetic, 2, find_arithmetic, "-x"},
    {Op::kAbs, "abs", 1, Rule::kArithmetic, 2, find_arithmetic, "|x|"},
    {Op::kSign, "sign", 1, Rule::kArithmetic, 2, find_arithmetic, "-1, 0 or 1; NaN stays"},
    {Op::kRelu, "relu", 1, Rule::kArithmetic, 2, find_arithmetic, "max(x, 0)"},
    {Op::kFloor, "floor", 1, Rule::kArithmetic, 2, find_arithmetic, "the largest integer <= x"},
    {Op::kCeil, "ceil", 1, Rule::kArithmetic, 2, find_arithmetic, "the smallest integer >= x"},
    {Op::kRound, "round", 1, Rule::kArithmetic, 2, find_arithmetic, "the nearest integer, halves to even"},
    {Op::kTrunc, "trunc", 1, Rule::kArithmetic, 2, find_arithmetic, "x towards 0 to an integer"},
    {Op::kExp, "exp", 1, Rule::kFloat, 12, find_math, "e^x"},
    {Op::kExp2, "exp2", 1, Rule::kFloat, 12, find_math, "2^x"},
    {Op::kExpm1, "expm1", 1, Rule::kFloat, 14, find_math, "e^x - 1"},
    {Op::kLog, "log", 1, Rule::kFloat, 14, find_math, "ln x"},
    {Op::kLog2, "log2", 1, Rule::kFloat, 30, find_math, "log2 x"},
    {Op::kLog10, "log10", 1, Rule::kFloat, 30, find_math, "log10 x"},
    {Op::kLog1p, "log1p", 1, Rule::kFloat, 20, find_math, "ln(1 + x)"},
    {Op::kSqrt, "sqrt", 1, Rule::kFloat, 6, find_math, "x^(1/2)"},
    {Op::kRsqrt, "rsqrt", 1, Rule::kFloat, 10, find_math, "x^(-1/2)"},
    {Op::kReciprocal, "reciprocal", 1, Rule::kFloat, 6, find_math, "1 / x"},
    {Op::kSin, "sin", 1, Rule::kFloat, 30, find_trigonometry, "sin x"},
    {Op::kCos, "cos", 1, Rule::kFloat, 30, find_trigonometry, "cos x"},
    {Op::kTan, "tan", 1, Rule::kFloat, 40, find_trigonometry, "tan x"},
    {Op::kAsin, "asin", 1, Rule::kFloat, 40, find_trigonometry, "arcsin x"},
    {Op::kAcos, "acos", 1, Rule::kFloat, 40, find_trigonometry, "arccos x"},
    {Op::kAtan, "atan", 1, Rule::kFloat, 30, find_trigonometry, "arctan x"},
    {Op::kSinh, "sinh", 1, Rule::kFloat, 40, find_trigonometry, "sinh x"},
    {Op::kCosh, "cosh", 1, Rule::kFloat, 40, find_trigonometry, "cosh x"},
    {Op::kTanh, "tanh", 1, Rule::kFloat, 16, find_math, "tanh x"},
    {Op::kAsinh, "asinh", 1, Rule::kFloat, 50, find_trigonometry, "arsinh x"},
    {Op::kAcosh, "acosh", 1, Rule::kFloat, 50, find_trigonometry, "arcosh x"},
    {Op::kAtanh, "atanh", 1, Rule::kFloat, 50, find_trigonometry, "artanh x"},
    {Op::kErf, "erf", 1, Rule::kFloat, 24, find_math, "2/sqrt(pi) times the integral of e^(-t^2) from 0 to x"},
    {Op::kSigmoid, "sigmoid", 1, Rule::kFloat, 16, find_math, "1 / (1 + e^-x)"},
    {Op::kLeakyRelu, "leaky_relu", 1, Rule::kFloat, 4, find_activation, "x > 0 ? x : negative_slope * x"},
    {Op::kElu, "elu", 1, Rule::kFloat, 14, find_activation, "x > 0 ? x : alpha * (e^x - 1)"},
    {Op::kSilu, "silu", 1, Rule::kFloat, 16, find_activation, "x / (1 + e^-x)"},
    {Op::kGelu, "gelu", 1, Rule::kFloat, 30, find_activation, "x * Phi(x), Phi the normal distribution function"},
    {Op::kGeluTanh, "gelu", 1, Rule::kFloat, 20, find_activation, "x / 2 * (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))"},
    {Op::kSoftplus, "softplus", 1, Rule::kFloat, 30, find_activation, "ln(1 + e^(beta x)) / beta"},
    {Op::kMish, "mish", 1, Rule::kFloat, 20, find_activation, "x * tanh(ln(1 + e^x))"},
    {Op::kHardswish, "hardswish", 1, Rule::kFloat, 8, find_activation, "x * min(max(x + 3, 0), 6) / 6"},
    {Op::kIsnan, "isnan", 1, Rule::kCompare, 2, find_compare, "x is NaN"},
    {Op::kIsinf, "isinf", 1, Rule::kCompare, 2, find_compare, "x is infinite"},
    {Op::kIsfinite, "isfinite", 1, Rule::kCompare, 2, find_compare, "x is neither NaN nor infinite"},
    {Op::kEq, "eq", 2, Rule::kCompare, 2, find_compare, "x == other"},
    {Op::kNe, "ne", 2, Rule::kCompare, 2, find_compare, "x != other"},
    {Op::kLt, "lt", 2, Rule::kCompare, 2, find_compare, "x < other"},
    {Op::kLe, "le", 2, Rule::kCompare, 2, find_compare, "x <= other"},
    {Op::kGt, "gt", 2, Rule::kCompare, 2, find_compare, "x > other"},
    {Op::kGe, "ge", 2, Rule::kCompare, 2, find_compare, "x >= other"},
    {Op::kLogicalAnd, "logical_and", 2, Rule::kLogical, 2, find_logic, "x != 0 and other != 0"},
    {Op::kLogicalOr, "logical_or", 2, Rule::kLogical, 2, find_logic, "x != 0 or other != 0"},
    {Op::kLogicalXor, "logical_xor", 2, Rule::kLogical, 2, find_logic, "(x != 0) != (other != 0)"},
    {Op::kLogicalNot, "logical_not", 1, Rule::kLogical, 2, find_logic, "x == 0"},
    {Op::kBitwiseAnd, "bitwise_and", 2, Rule::kBitwise, 2, find_logic, "x & other"},
    {Op::kBitwiseOr, "bitwise_or", 2, Rule::kBitwise, 2, find_logic, "x | other"},
    {Op::kBitwiseXor, "bitwise_xor", 2, Rule::kBitwise, 2, find_logic, "x ^ other"},
    {Op::kBitwiseNot, "bitwise_not", 1, Rule::kBitwise, 2, find_logic, "~x"},
    {Op::kBitwiseLeftShift, "bitwise_left_shift", 2, Rule::kBitwise, 2, find_logic, "x * 2^other modulo 2^width"},
    {Op::kBitwiseRightShift, "bitwise_right_shift", 2, Rule::kBitwise, 2, find_logic, "floor(x / 2^other)"},
    {Op::kWhere, "where", 3, Rule::kSelect, 2, find_select, "condition ? x : other"},
    {Op::kMaskedFill, "masked_fill", 3, Rule::kSelect, 2, find_select, "mask ? value : x"},
    {Op::kClamp, "clamp", 3, Rule::kArithmetic, 2, find_arithmetic, "min(max(x, min), max)"},
    {Op::kClampMin, "clamp", 2, Rule::kArithmetic, 2, find_arithmetic, "max(x, min)"},
    {Op::kClampMax, "clamp", 2, Rule::kArithmetic, 2, find_arithmetic, "min(x, max)"},
    {Op::kLerp, "lerp", 3, Rule::kFloat, 4, find_arithmetic, "x + weight * (end - x)"},
    {Op::kIsclose, "isclose", 2, Rule::kClose, 8, find_compare, "|x - other| <= atol + rtol |other|"},
    {Op::kTruncDivide, "div", 2, Rule::kArithmetic, 16, find_arithmetic, "x / other towards 0"},
};
static_assert(std::size(kTable) == kOps);
static_assert(
    [] {
      for (size_t i = 0; i < std::size(kTable); ++i)
        if (static_cast<size_t>(kTable[i].op) != i) return false;
      return true;
    }(),
    "rows stand in the order of Op");

const bool kRegistered = [] {
  for (const OpRow& r : kTable)
    if (r.op != Op::kGeluTanh && r.op != Op::kTruncDivide && r.op != Op::kClampMin && r.op != Op::kClampMax)
      core::register_operator({r.name, "elementwise", core::OpClass::kElementwise, r.formula});
  core::register_operator({"to", "elementwise", core::OpClass::kElementwise, "x in another dtype, rounded once"});
  return true;
}();

}  // namespace

std::span<const OpRow> table() { return kTable; }

}  // namespace tenor::elementwise
