// The public functions: each names its row of the table.
#include "src/core/check.h"
#include "src/ops/elementwise/elementwise_run.h"
#include "tenor/elementwise.h"

namespace tenor {

using elementwise::Op;
using elementwise::run;
using elementwise::write;

// ---- arithmetic ----------------------------------------------------------------------------------------------------

Tensor add(const Operand& x, const Operand& other, const AddOptions& options) {
  const Operand scaled = elementwise::times("add", other, options.alpha);
  return run({Op::kAdd, {&x, &scaled}, options.out});
}
Tensor add_(const Tensor& x, const Operand& other, Scalar alpha) {
  const Operand scaled = elementwise::times("add_", other, alpha);
  return write("add_", x, [&](const Operand& self) { return elementwise::Call{Op::kAdd, {&self, &scaled}}; });
}
Tensor sub(const Operand& x, const Operand& other, const AddOptions& options) {
  const Operand scaled = elementwise::times("sub", other, options.alpha);
  return run({Op::kSub, {&x, &scaled}, options.out});
}
Tensor sub_(const Tensor& x, const Operand& other, Scalar alpha) {
  const Operand scaled = elementwise::times("sub_", other, alpha);
  return write("sub_", x, [&](const Operand& self) { return elementwise::Call{Op::kSub, {&self, &scaled}}; });
}
Tensor mul(const Operand& x, const Operand& other, const ElementwiseOptions& options) {
  return run({Op::kMul, {&x, &other}, options.out});
}
Tensor mul_(const Tensor& x, const Operand& other) {
  return write("mul_", x, [&](const Operand& self) { return elementwise::Call{Op::kMul, {&self, &other}}; });
}
Tensor div(const Operand& x, const Operand& other, const DivOptions& options) {
  return run({elementwise::division_of("div", options.rounding_mode), {&x, &other}, options.out, nullptr, "div"});
}
Tensor div_(const Tensor& x, const Operand& other, std::string_view rounding_mode) {
  const Op op = elementwise::division_of("div_", rounding_mode);
  return write("div_", x, [&](const Operand& self) { return elementwise::Call{op, {&self, &other}}; });
}
Tensor floor_divide(const Operand& x, const Operand& other, const ElementwiseOptions& options) {
  return run({Op::kFloorDivide, {&x, &other}, options.out});
}
Tensor floor_divide_(const Tensor& x, const Operand& other) {
  return write("floor_divide_", x, [&](const Operand& self) {
    return elementwise::Call{Op::kFloorDivide, {&self, &other}};
  });
}
Tensor remainder(const Operand& x, const Operand& other, const ElementwiseOptions& options) {
  return run({Op::kRemainder, {&x, &other}, options.out});
}
Tensor remainder_(const Tensor& x, const Operand& other) {
  return write("remainder_", x, [&](const Operand& self) {
    return elementwise::Call{Op::kRemainder, {&self, &other}};
  });
}
Tensor fmod(const Operand& x, const Operand& other, const ElementwiseOptions& options) {
  return run({Op::kFmod, {&x, &other}, options.out});
}
Tensor fmod_(const Tensor& x, const Operand& other) {
  return write("fmod_", x, [&](const Operand& self) { return elementwise::Call{Op::kFmod, {&self, &other}}; });
}
Tensor pow(const Operand& x, const Operand& exponent, const ElementwiseOptions& options) {
  return run(elementwise::power_call("pow", x, exponent, options.out));
}
Tensor pow_(const Tensor& x, const Operand& exponent) {
  return write("pow_", x, [&](const Operand& self) { return elementwise::power_call("pow_", self, exponent, {}); });
}
Tensor maximum(const Operand& x, const Operand& other, const ElementwiseOptions& options) {
  return run({Op::kMaximum, {&x, &other}, options.out});
}
Tensor maximum_(const Tensor& x, const Operand& other) {
  return write("maximum_", x, [&](const Operand& self) { return elementwise::Call{Op::kMaximum, {&self, &other}}; });
}
Tensor minimum(const Operand& x, const Operand& other, const ElementwiseOptions& options) {
  return run({Op::kMinimum, {&x, &other}, options.out});
}
Tensor minimum_(const Tensor& x, const Operand& other) {
  return write("minimum_", x, [&](const Operand& self) { return elementwise::Call{Op::kMinimum, {&self, &other}}; });
}
Tensor atan2(const Operand& x, const Operand& other, const ElementwiseOptions& options) {
  return run({Op::kAtan2, {&x, &other}, options.out});
}
Tensor atan2_(const Tensor& x, const Operand& other) {
  return write("atan2_", x, [&](const Operand& self) { return elementwise::Call{Op::kAtan2, {&self, &other}}; });
}
Tensor neg(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kNeg, x, options.out);
}
Tensor neg_(const Tensor& x) { return elementwise::write_unary("neg_", Op::kNeg, x); }
Tensor abs(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kAbs, x, options.out);
}
Tensor abs_(const Tensor& x) { return elementwise::write_unary("abs_", Op::kAbs, x); }
Tensor sign(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kSign, x, options.out);
}
Tensor sign_(const Tensor& x) { return elementwise::write_unary("sign_", Op::kSign, x); }
Tensor relu(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kRelu, x, options.out);
}
Tensor relu_(const Tensor& x) { return elementwise::write_unary("relu_", Op::kRelu, x); }
Tensor floor(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kFloor, x, options.out);
}
Tensor floor_(const Tensor& x) { return elementwise::write_unary("floor_", Op::kFloor, x); }
Tensor ceil(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kCeil, x, options.out);
}
Tensor ceil_(const Tensor& x) { return elementwise::write_unary("ceil_", Op::kCeil, x); }
Tensor round(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kRound, x, options.out);
}
Tensor round_(const Tensor& x) { return elementwise::write_unary("round_", Op::kRound, x); }
Tensor trunc(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kTrunc, x, options.out);
}
Tensor trunc_(const Tensor& x) { return elementwise::write_unary("trunc_", Op::kTrunc, x); }
// ---- functions -----------------------------------------------------------------------------------------------------

Tensor exp(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kExp, x, options.out);
}
Tensor exp_(const Tensor& x) { return elementwise::write_unary("exp_", Op::kExp, x); }
Tensor exp2(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kExp2, x, options.out);
}
Tensor exp2_(const Tensor& x) { return elementwise::write_unary("exp2_", Op::kExp2, x); }
Tensor expm1(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kExpm1, x, options.out);
}
Tensor expm1_(const Tensor& x) { return elementwise::write_unary("expm1_", Op::kExpm1, x); }
Tensor log(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kLog, x, options.out);
}
Tensor log_(const Tensor& x) { return elementwise::write_unary("log_", Op::kLog, x); }
Tensor log2(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kLog2, x, options.out);
}
Tensor log2_(const Tensor& x) { return elementwise::write_unary("log2_", Op::kLog2, x); }
Tensor log10(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kLog10, x, options.out);
}
Tensor log10_(const Tensor& x) { return elementwise::write_unary("log10_", Op::kLog10, x); }
Tensor log1p(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kLog1p, x, options.out);
}
Tensor log1p_(const Tensor& x) { return elementwise::write_unary("log1p_", Op::kLog1p, x); }
Tensor sqrt(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kSqrt, x, options.out);
}
Tensor sqrt_(const Tensor& x) { return elementwise::write_unary("sqrt_", Op::kSqrt, x); }
Tensor rsqrt(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kRsqrt, x, options.out);
}
Tensor rsqrt_(const Tensor& x) { return elementwise::write_unary("rsqrt_", Op::kRsqrt, x); }
Tensor reciprocal(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kReciprocal, x, options.out);
}
Tensor reciprocal_(const Tensor& x) { return elementwise::write_unary("reciprocal_", Op::kReciprocal, x); }
Tensor sin(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kSin, x, options.out);
}
Tensor sin_(const Tensor& x) { return elementwise::write_unary("sin_", Op::kSin, x); }
Tensor cos(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kCos, x, options.out);
}
Tensor cos_(const Tensor& x) { return elementwise::write_unary("cos_", Op::kCos, x); }
Tensor tan(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kTan, x, options.out);
}
Tensor tan_(const Tensor& x) { return elementwise::write_unary("tan_", Op::kTan, x); }
Tensor asin(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kAsin, x, options.out);
}
Tensor asin_(const Tensor& x) { return elementwise::write_unary("asin_", Op::kAsin, x); }
Tensor acos(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kAcos, x, options.out);
}
Tensor acos_(const Tensor& x) { return elementwise::write_unary("acos_", Op::kAcos, x); }
Tensor atan(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kAtan, x, options.out);
}
Tensor atan_(const Tensor& x) { return elementwise::write_unary("atan_", Op::kAtan, x); }
Tensor sinh(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kSinh, x, options.out);
}
Tensor sinh_(const Tensor& x) { return elementwise::write_unary("sinh_", Op::kSinh, x); }
Tensor cosh(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kCosh, x, options.out);
}
Tensor cosh_(const Tensor& x) { return elementwise::write_unary("cosh_", Op::kCosh, x); }
Tensor tanh(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kTanh, x, options.out);
}
Tensor tanh_(const Tensor& x) { return elementwise::write_unary("tanh_", Op::kTanh, x); }
Tensor asinh(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kAsinh, x, options.out);
}
Tensor asinh_(const Tensor& x) { return elementwise::write_unary("asinh_", Op::kAsinh, x); }
Tensor acosh(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kAcosh, x, options.out);
}
Tensor acosh_(const Tensor& x) { return elementwise::write_unary("acosh_", Op::kAcosh, x); }
Tensor atanh(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kAtanh, x, options.out);
}
Tensor atanh_(const Tensor& x) { return elementwise::write_unary("atanh_", Op::kAtanh, x); }
Tensor erf(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kErf, x, options.out);
}
Tensor erf_(const Tensor& x) { return elementwise::write_unary("erf_", Op::kErf, x); }
Tensor sigmoid(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kSigmoid, x, options.out);
}
Tensor sigmoid_(const Tensor& x) { return elementwise::write_unary("sigmoid_", Op::kSigmoid, x); }
// ---- activations, with their limits at infinities ------------------------------------------------------------------

Tensor silu(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kSilu, x, options.out);
}
Tensor silu_(const Tensor& x) { return elementwise::write_unary("silu_", Op::kSilu, x); }
Tensor leaky_relu(const Tensor& x, const LeakyReluOptions& options) {
  return elementwise::run_unary(Op::kLeakyRelu, x, options.out, &options.negative_slope);
}
Tensor leaky_relu_(const Tensor& x, double negative_slope) {
  return elementwise::write_unary("leaky_relu_", Op::kLeakyRelu, x, &negative_slope);
}
Tensor elu(const Tensor& x, const EluOptions& options) {
  return elementwise::run_unary(Op::kElu, x, options.out, &options.alpha);
}
Tensor elu_(const Tensor& x, double alpha) { return elementwise::write_unary("elu_", Op::kElu, x, &alpha); }
Tensor softplus(const Tensor& x, const SoftplusOptions& options) {
  core::check_positive("softplus", "beta", options.beta);
  return elementwise::run_unary(Op::kSoftplus, x, options.out, &options.beta);
}
Tensor softplus_(const Tensor& x, double beta) {
  core::check_positive("softplus_", "beta", beta);
  return elementwise::write_unary("softplus_", Op::kSoftplus, x, &beta);
}
Tensor gelu(const Tensor& x, const GeluOptions& options) {
  return elementwise::run_unary(elementwise::gelu_of("gelu", options.approximate), x, options.out);
}
Tensor gelu_(const Tensor& x, std::string_view approximate) {
  return elementwise::write_unary("gelu_", elementwise::gelu_of("gelu_", approximate), x);
}
Tensor mish(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kMish, x, options.out);
}
Tensor mish_(const Tensor& x) { return elementwise::write_unary("mish_", Op::kMish, x); }
Tensor hardswish(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kHardswish, x, options.out);
}
Tensor hardswish_(const Tensor& x) { return elementwise::write_unary("hardswish_", Op::kHardswish, x); }
// ---- comparisons and predicates: bool ------------------------------------------------------------------------------

Tensor eq(const Operand& x, const Operand& other, const ElementwiseOptions& options) {
  return elementwise::run_compare("eq", Op::kEq, x, other, options.out);
}
Tensor eq_(const Tensor& x, const Operand& other) { return elementwise::write_compare("eq_", Op::kEq, x, other); }
Tensor ne(const Operand& x, const Operand& other, const ElementwiseOptions& options) {
  return elementwise::run_compare("ne", Op::kNe, x, other, options.out);
}
Tensor ne_(const Tensor& x, const Operand& other) { return elementwise::write_compare("ne_", Op::kNe, x, other); }
Tensor lt(const Operand& x, const Operand& other, const ElementwiseOptions& options) {
  return elementwise::run_compare("lt", Op::kLt, x, other, options.out);
}
Tensor lt_(const Tensor& x, const Operand& other) { return elementwise::write_compare("lt_", Op::kLt, x, other); }
Tensor le(const Operand& x, const Operand& other, const ElementwiseOptions& options) {
  return elementwise::run_compare("le", Op::kLe, x, other, options.out);
}
Tensor le_(const Tensor& x, const Operand& other) { return elementwise::write_compare("le_", Op::kLe, x, other); }
Tensor gt(const Operand& x, const Operand& other, const ElementwiseOptions& options) {
  return elementwise::run_compare("gt", Op::kGt, x, other, options.out);
}
Tensor gt_(const Tensor& x, const Operand& other) { return elementwise::write_compare("gt_", Op::kGt, x, other); }
Tensor ge(const Operand& x, const Operand& other, const ElementwiseOptions& options) {
  return elementwise::run_compare("ge", Op::kGe, x, other, options.out);
}
Tensor ge_(const Tensor& x, const Operand& other) { return elementwise::write_compare("ge_", Op::kGe, x, other); }
Tensor isnan(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kIsnan, x, options.out);
}
Tensor isinf(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kIsinf, x, options.out);
}
Tensor isfinite(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kIsfinite, x, options.out);
}
Tensor isclose(const Operand& x, const Operand& other, const IscloseOptions& options) {
  for (const auto& [name, value] : {std::pair{"rtol", options.rtol}, {"atol", options.atol}})
    if (!(value >= 0)) core::fail<ValueError>("isclose: {} must be >= 0, got {}", name, value);
  const double params[] = {options.rtol, options.atol, options.equal_nan ? 1.0 : 0.0};
  return run({Op::kIsclose, {&x, &other}, options.out, params});
}
// ---- logic (any dtype, not zero is true, gives bool) and bits (integers and bool) ----------------------------------

Tensor logical_and(const Operand& x, const Operand& other, const ElementwiseOptions& options) {
  return run({Op::kLogicalAnd, {&x, &other}, options.out});
}
Tensor logical_and_(const Tensor& x, const Operand& other) {
  return write("logical_and_", x, [&](const Operand& self) {
    return elementwise::Call{Op::kLogicalAnd, {&self, &other}};
  });
}
Tensor logical_or(const Operand& x, const Operand& other, const ElementwiseOptions& options) {
  return run({Op::kLogicalOr, {&x, &other}, options.out});
}
Tensor logical_or_(const Tensor& x, const Operand& other) {
  return write("logical_or_", x, [&](const Operand& self) {
    return elementwise::Call{Op::kLogicalOr, {&self, &other}};
  });
}
Tensor logical_xor(const Operand& x, const Operand& other, const ElementwiseOptions& options) {
  return run({Op::kLogicalXor, {&x, &other}, options.out});
}
Tensor logical_xor_(const Tensor& x, const Operand& other) {
  return write("logical_xor_", x, [&](const Operand& self) {
    return elementwise::Call{Op::kLogicalXor, {&self, &other}};
  });
}
Tensor logical_not(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kLogicalNot, x, options.out);
}
Tensor logical_not_(const Tensor& x) { return elementwise::write_unary("logical_not_", Op::kLogicalNot, x); }
Tensor bitwise_and(const Operand& x, const Operand& other, const ElementwiseOptions& options) {
  return run({Op::kBitwiseAnd, {&x, &other}, options.out});
}
Tensor bitwise_and_(const Tensor& x, const Operand& other) {
  return write("bitwise_and_", x, [&](const Operand& self) {
    return elementwise::Call{Op::kBitwiseAnd, {&self, &other}};
  });
}
Tensor bitwise_or(const Operand& x, const Operand& other, const ElementwiseOptions& options) {
  return run({Op::kBitwiseOr, {&x, &other}, options.out});
}
Tensor bitwise_or_(const Tensor& x, const Operand& other) {
  return write("bitwise_or_", x, [&](const Operand& self) {
    return elementwise::Call{Op::kBitwiseOr, {&self, &other}};
  });
}
Tensor bitwise_xor(const Operand& x, const Operand& other, const ElementwiseOptions& options) {
  return run({Op::kBitwiseXor, {&x, &other}, options.out});
}
Tensor bitwise_xor_(const Tensor& x, const Operand& other) {
  return write("bitwise_xor_", x, [&](const Operand& self) {
    return elementwise::Call{Op::kBitwiseXor, {&self, &other}};
  });
}
Tensor bitwise_not(const Tensor& x, const ElementwiseOptions& options) {
  return elementwise::run_unary(Op::kBitwiseNot, x, options.out);
}
Tensor bitwise_not_(const Tensor& x) { return elementwise::write_unary("bitwise_not_", Op::kBitwiseNot, x); }
Tensor bitwise_left_shift(const Operand& x, const Operand& other, const ElementwiseOptions& options) {
  return run({Op::kBitwiseLeftShift, {&x, &other}, options.out});
}
Tensor bitwise_left_shift_(const Tensor& x, const Operand& other) {
  return write("bitwise_left_shift_", x, [&](const Operand& self) {
    return elementwise::Call{Op::kBitwiseLeftShift, {&self, &other}};
  });
}
Tensor bitwise_right_shift(const Operand& x, const Operand& other, const ElementwiseOptions& options) {
  return run({Op::kBitwiseRightShift, {&x, &other}, options.out});
}
Tensor bitwise_right_shift_(const Tensor& x, const Operand& other) {
  return write("bitwise_right_shift_", x, [&](const Operand& self) {
    return elementwise::Call{Op::kBitwiseRightShift, {&self, &other}};
  });
}
// ---- choice --------------------------------------------------------------------------------------------------------

Tensor where(const Tensor& condition, const Operand& x, const Operand& other, const ElementwiseOptions& options) {
  const Operand which(condition);
  return run({Op::kWhere, {&which, &x, &other}, options.out});
}
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Operand& value, const ElementwiseOptions& options) {
  const Operand self(x), which(mask);
  return run({Op::kMaskedFill, {&which, &value, &self}, options.out});
}
Tensor masked_fill_(const Tensor& x, const Tensor& mask, const Operand& value) {
  const Operand which(mask);
  return write("masked_fill_", x, [&](const Operand& self) {
    return elementwise::Call{Op::kMaskedFill, {&which, &value, &self}};
  });
}
Tensor clamp(const Tensor& x, const std::optional<Operand>& min, const std::optional<Operand>& max,
             const ElementwiseOptions& options) {
  const Operand self(x);
  return run(elementwise::clamp_call("clamp", self, min, max, options.out));
}
Tensor clamp_(const Tensor& x, const std::optional<Operand>& min, const std::optional<Operand>& max) {
  return write("clamp_", x, [&](const Operand& self) { return elementwise::clamp_call("clamp_", self, min, max, {}); });
}
Tensor lerp(const Operand& x, const Operand& end, const Operand& weight, const ElementwiseOptions& options) {
  return run({Op::kLerp, {&x, &end, &weight}, options.out});
}
Tensor lerp_(const Tensor& x, const Operand& end, const Operand& weight) {
  return write("lerp_", x, [&](const Operand& self) { return elementwise::Call{Op::kLerp, {&self, &end, &weight}}; });
}

}  // namespace tenor
