// Class 2, elementwise: one output element from the input elements at its own place.
//
// Shapes broadcast: aligned at the right, size 1 repeats (by stride 0, nothing is copied). Dtypes promote by the
// array-API lattice; besides, integer with float gives the float and float16 with bfloat16 gives float32; the rank of
// an array never matters. A scalar takes the array's dtype, except an integer or bool array with a float scalar
// (float32) and a bool array with an integer scalar (int64). float16 and bfloat16 compute in float32 and round once;
// float functions of integers give float32. Every step rounds to its own dtype, with IEEE division and square root and
// no contraction into FMA across steps.
//
// Errors, before anything is written: ShapeError where shapes do not broadcast, DTypeError for dtypes that do not
// combine (uint64 with a signed integer) or that the operator does not take (8-bit floats, which are storage; see
// Tensor::to), ValueError for a scalar that does not fit (an integer out of range; in masked_fill and fill_ of integers
// also 1.5 or NaN; comparisons answer by value instead), DeviceError for mixed devices.
//
// out: a tensor of the result's shape and dtype, which may alias an input. A name with a trailing underscore writes x:
// the result must have x's shape and a dtype of x's kind or below it (bool < integer < float), and is rounded to x's
// dtype.
//
// Cost: 1 FLOP an output element; each operand read once, the result written once: bound by memory.
#pragma once

#include <optional>
#include <string_view>

#include "tenor/scalar.h"
#include "tenor/tensor.h"

namespace tenor {

struct ElementwiseOptions {
  Tensor out = {};
};
struct AddOptions {
  Scalar alpha = 1;  ///< other is multiplied by it first
  Tensor out = {};
};
struct DivOptions {
  std::string_view rounding_mode;  ///< "" true division, "floor" as floor_divide, "trunc" towards zero
  Tensor out = {};
};
struct LeakyReluOptions {
  double negative_slope = 0.01;
  Tensor out = {};
};
struct EluOptions {
  double alpha = 1.0;
  Tensor out = {};
};
struct GeluOptions {
  std::string_view approximate = "none";  ///< or "tanh"
  Tensor out = {};
};
struct SoftplusOptions {
  double beta = 1.0;  ///< finite and > 0
  Tensor out = {};
};
struct IscloseOptions {
  double rtol = 1e-5, atol = 1e-8;  ///< >= 0
  bool equal_nan = false;
  Tensor out = {};
};

// ---- arithmetic ----------------------------------------------------------------------------------------------------

/// x + alpha * other; bool: or.
Tensor add(const Operand& x, const Operand& other, const AddOptions& options = {});
Tensor add_(const Tensor& x, const Operand& other, Scalar alpha = 1);
/// x - alpha * other; not for bool.
Tensor sub(const Operand& x, const Operand& other, const AddOptions& options = {});
Tensor sub_(const Tensor& x, const Operand& other, Scalar alpha = 1);
/// x * other; bool: and.
Tensor mul(const Operand& x, const Operand& other, const ElementwiseOptions& options = {});
Tensor mul_(const Tensor& x, const Operand& other);
/// x / other, float32 for integers; with a rounding_mode the floor or the truncated quotient, integers staying integers.
Tensor div(const Operand& x, const Operand& other, const DivOptions& options = {});
Tensor div_(const Tensor& x, const Operand& other, std::string_view rounding_mode = "");
/// The quotient rounded to minus infinity, as Python's // (1.0 // 0.1 is 9); integers by zero give 0.
Tensor floor_divide(const Operand& x, const Operand& other, const ElementwiseOptions& options = {});
Tensor floor_divide_(const Tensor& x, const Operand& other);
/// The rest with the divisor's sign, as Python's %; integers by zero give 0.
Tensor remainder(const Operand& x, const Operand& other, const ElementwiseOptions& options = {});
Tensor remainder_(const Tensor& x, const Operand& other);
/// The rest with the dividend's sign, as C's fmod; integers by zero give 0.
Tensor fmod(const Operand& x, const Operand& other, const ElementwiseOptions& options = {});
Tensor fmod_(const Tensor& x, const Operand& other);
/// x^exponent, integers modulo 2^width. @throws ValueError for integers to a negative scalar; a negative element gives 0
/// (1 and -1 keep their powers).
Tensor pow(const Operand& x, const Operand& exponent, const ElementwiseOptions& options = {});
Tensor pow_(const Tensor& x, const Operand& exponent);
/// The larger of both; NaN if either is.
Tensor maximum(const Operand& x, const Operand& other, const ElementwiseOptions& options = {});
Tensor maximum_(const Tensor& x, const Operand& other);
/// The smaller of both; NaN if either is.
Tensor minimum(const Operand& x, const Operand& other, const ElementwiseOptions& options = {});
Tensor minimum_(const Tensor& x, const Operand& other);
/// The angle of the point (other, x), in radians.
Tensor atan2(const Operand& x, const Operand& other, const ElementwiseOptions& options = {});
Tensor atan2_(const Tensor& x, const Operand& other);
/// -x; unsigned integers wrap; not for bool.
Tensor neg(const Tensor& x, const ElementwiseOptions& options = {});
Tensor neg_(const Tensor& x);
/// |x|; the most negative integer stays.
Tensor abs(const Tensor& x, const ElementwiseOptions& options = {});
Tensor abs_(const Tensor& x);
/// -1, 0 or 1; 0 and NaN stay as they are.
Tensor sign(const Tensor& x, const ElementwiseOptions& options = {});
Tensor sign_(const Tensor& x);
/// max(x, 0); NaN stays.
Tensor relu(const Tensor& x, const ElementwiseOptions& options = {});
Tensor relu_(const Tensor& x);
/// The largest integer <= x; integers stay.
Tensor floor(const Tensor& x, const ElementwiseOptions& options = {});
Tensor floor_(const Tensor& x);
/// The smallest integer >= x; integers stay.
Tensor ceil(const Tensor& x, const ElementwiseOptions& options = {});
Tensor ceil_(const Tensor& x);
/// The nearest integer, halves to even, the sign of zero kept; integers stay.
Tensor round(const Tensor& x, const ElementwiseOptions& options = {});
Tensor round_(const Tensor& x);
/// The integer part; integers stay.
Tensor trunc(const Tensor& x, const ElementwiseOptions& options = {});
Tensor trunc_(const Tensor& x);
// ---- functions -----------------------------------------------------------------------------------------------------

/// E^x.
Tensor exp(const Tensor& x, const ElementwiseOptions& options = {});
Tensor exp_(const Tensor& x);
/// 2^x.
Tensor exp2(const Tensor& x, const ElementwiseOptions& options = {});
Tensor exp2_(const Tensor& x);
/// E^x - 1.
Tensor expm1(const Tensor& x, const ElementwiseOptions& options = {});
Tensor expm1_(const Tensor& x);
/// Ln x.
Tensor log(const Tensor& x, const ElementwiseOptions& options = {});
Tensor log_(const Tensor& x);
/// Log2 x.
Tensor log2(const Tensor& x, const ElementwiseOptions& options = {});
Tensor log2_(const Tensor& x);
/// Log10 x.
Tensor log10(const Tensor& x, const ElementwiseOptions& options = {});
Tensor log10_(const Tensor& x);
/// Ln(1 + x).
Tensor log1p(const Tensor& x, const ElementwiseOptions& options = {});
Tensor log1p_(const Tensor& x);
/// X^(1/2).
Tensor sqrt(const Tensor& x, const ElementwiseOptions& options = {});
Tensor sqrt_(const Tensor& x);
/// X^(-1/2).
Tensor rsqrt(const Tensor& x, const ElementwiseOptions& options = {});
Tensor rsqrt_(const Tensor& x);
/// 1 / x.
Tensor reciprocal(const Tensor& x, const ElementwiseOptions& options = {});
Tensor reciprocal_(const Tensor& x);
/// Sin x.
Tensor sin(const Tensor& x, const ElementwiseOptions& options = {});
Tensor sin_(const Tensor& x);
/// Cos x.
Tensor cos(const Tensor& x, const ElementwiseOptions& options = {});
Tensor cos_(const Tensor& x);
/// Tan x.
Tensor tan(const Tensor& x, const ElementwiseOptions& options = {});
Tensor tan_(const Tensor& x);
/// Arcsin x.
Tensor asin(const Tensor& x, const ElementwiseOptions& options = {});
Tensor asin_(const Tensor& x);
/// Arccos x.
Tensor acos(const Tensor& x, const ElementwiseOptions& options = {});
Tensor acos_(const Tensor& x);
/// Arctan x.
Tensor atan(const Tensor& x, const ElementwiseOptions& options = {});
Tensor atan_(const Tensor& x);
/// Sinh x.
Tensor sinh(const Tensor& x, const ElementwiseOptions& options = {});
Tensor sinh_(const Tensor& x);
/// Cosh x.
Tensor cosh(const Tensor& x, const ElementwiseOptions& options = {});
Tensor cosh_(const Tensor& x);
/// Tanh x.
Tensor tanh(const Tensor& x, const ElementwiseOptions& options = {});
Tensor tanh_(const Tensor& x);
/// Arsinh x.
Tensor asinh(const Tensor& x, const ElementwiseOptions& options = {});
Tensor asinh_(const Tensor& x);
/// Arcosh x.
Tensor acosh(const Tensor& x, const ElementwiseOptions& options = {});
Tensor acosh_(const Tensor& x);
/// Artanh x.
Tensor atanh(const Tensor& x, const ElementwiseOptions& options = {});
Tensor atanh_(const Tensor& x);
/// The error function.
Tensor erf(const Tensor& x, const ElementwiseOptions& options = {});
Tensor erf_(const Tensor& x);
/// 1 / (1 + e^-x).
Tensor sigmoid(const Tensor& x, const ElementwiseOptions& options = {});
Tensor sigmoid_(const Tensor& x);
// ---- activations, with their limits at infinities ------------------------------------------------------------------

/// x * sigmoid(x).
Tensor silu(const Tensor& x, const ElementwiseOptions& options = {});
Tensor silu_(const Tensor& x);
/// x > 0 ? x : negative_slope * x.
Tensor leaky_relu(const Tensor& x, const LeakyReluOptions& options = {});
Tensor leaky_relu_(const Tensor& x, double negative_slope = 0.01);
/// x > 0 ? x : alpha * (e^x - 1).
Tensor elu(const Tensor& x, const EluOptions& options = {});
Tensor elu_(const Tensor& x, double alpha = 1.0);
/// x times the normal distribution function, or its tanh approximation x / 2 * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
/// (Hendrycks and Gimpel, arXiv:1606.08415).
Tensor gelu(const Tensor& x, const GeluOptions& options = {});
Tensor gelu_(const Tensor& x, std::string_view approximate = "none");
/// ln(1 + e^(beta x)) / beta.
Tensor softplus(const Tensor& x, const SoftplusOptions& options = {});
Tensor softplus_(const Tensor& x, double beta = 1.0);
/// x * tanh(softplus(x)) (Misra, arXiv:1908.08681).
Tensor mish(const Tensor& x, const ElementwiseOptions& options = {});
Tensor mish_(const Tensor& x);
/// x * min(max(x + 3, 0), 6) / 6.
Tensor hardswish(const Tensor& x, const ElementwiseOptions& options = {});
Tensor hardswish_(const Tensor& x);
// ---- comparisons and predicates: bool ------------------------------------------------------------------------------

/// x == other. By value against scalars, also such as the dtype cannot hold.
Tensor eq(const Operand& x, const Operand& other, const ElementwiseOptions& options = {});
Tensor eq_(const Tensor& x, const Operand& other);
/// x != other.
Tensor ne(const Operand& x, const Operand& other, const ElementwiseOptions& options = {});
Tensor ne_(const Tensor& x, const Operand& other);
/// x < other.
Tensor lt(const Operand& x, const Operand& other, const ElementwiseOptions& options = {});
Tensor lt_(const Tensor& x, const Operand& other);
/// x <= other.
Tensor le(const Operand& x, const Operand& other, const ElementwiseOptions& options = {});
Tensor le_(const Tensor& x, const Operand& other);
/// x > other.
Tensor gt(const Operand& x, const Operand& other, const ElementwiseOptions& options = {});
Tensor gt_(const Tensor& x, const Operand& other);
/// x >= other.
Tensor ge(const Operand& x, const Operand& other, const ElementwiseOptions& options = {});
Tensor ge_(const Tensor& x, const Operand& other);
/// Whether x is NaN; false for integers.
Tensor isnan(const Tensor& x, const ElementwiseOptions& options = {});
/// Whether x is an infinity; false for integers.
Tensor isinf(const Tensor& x, const ElementwiseOptions& options = {});
/// Whether x is neither; true for integers.
Tensor isfinite(const Tensor& x, const ElementwiseOptions& options = {});
/// |x - other| <= atol + rtol |other|, or both equal (infinities too), or both NaN where equal_nan. Computed in float64.
Tensor isclose(const Operand& x, const Operand& other, const IscloseOptions& options = {});
// ---- logic (any dtype, not zero is true, gives bool) and bits (integers and bool) ----------------------------------

/// x and other.
Tensor logical_and(const Operand& x, const Operand& other, const ElementwiseOptions& options = {});
Tensor logical_and_(const Tensor& x, const Operand& other);
/// x or other.
Tensor logical_or(const Operand& x, const Operand& other, const ElementwiseOptions& options = {});
Tensor logical_or_(const Tensor& x, const Operand& other);
/// Exactly one of both.
Tensor logical_xor(const Operand& x, const Operand& other, const ElementwiseOptions& options = {});
Tensor logical_xor_(const Tensor& x, const Operand& other);
/// Not x.
Tensor logical_not(const Tensor& x, const ElementwiseOptions& options = {});
Tensor logical_not_(const Tensor& x);
/// x & other.
Tensor bitwise_and(const Operand& x, const Operand& other, const ElementwiseOptions& options = {});
Tensor bitwise_and_(const Tensor& x, const Operand& other);
/// x | other.
Tensor bitwise_or(const Operand& x, const Operand& other, const ElementwiseOptions& options = {});
Tensor bitwise_or_(const Tensor& x, const Operand& other);
/// x ^ other.
Tensor bitwise_xor(const Operand& x, const Operand& other, const ElementwiseOptions& options = {});
Tensor bitwise_xor_(const Tensor& x, const Operand& other);
/// ~x; bool: not.
Tensor bitwise_not(const Tensor& x, const ElementwiseOptions& options = {});
Tensor bitwise_not_(const Tensor& x);
/// x << other, integers only; a count of the width or more, or a negative one, shifts everything out.
Tensor bitwise_left_shift(const Operand& x, const Operand& other, const ElementwiseOptions& options = {});
Tensor bitwise_left_shift_(const Tensor& x, const Operand& other);
/// x >> other, integers only, the sign filling in; counts as for the left shift.
Tensor bitwise_right_shift(const Operand& x, const Operand& other, const ElementwiseOptions& options = {});
Tensor bitwise_right_shift_(const Tensor& x, const Operand& other);
// ---- choice --------------------------------------------------------------------------------------------------------

/// condition ? x : other; condition is bool. Two scalars give float32, int64 or bool.
Tensor where(const Tensor& condition, const Operand& x, const Operand& other, const ElementwiseOptions& options = {});
/// mask ? value : x, in x's dtype; mask is bool, value a scalar or a tensor that broadcasts.
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Operand& value, const ElementwiseOptions& options = {});
Tensor masked_fill_(const Tensor& x, const Tensor& mask, const Operand& value);
/// min(max(x, min), max): max wins where it is below min; NaN stays. @throws ValueError without both.
Tensor clamp(const Tensor& x, const std::optional<Operand>& min = {}, const std::optional<Operand>& max = {},
             const ElementwiseOptions& options = {});
Tensor clamp_(const Tensor& x, const std::optional<Operand>& min = {}, const std::optional<Operand>& max = {});
/// x + weight * (end - x); from |weight| >= 0.5 on end - (end - x) * (1 - weight), so that weight 1 gives end exactly.
Tensor lerp(const Operand& x, const Operand& end, const Operand& weight, const ElementwiseOptions& options = {});
Tensor lerp_(const Tensor& x, const Operand& end, const Operand& weight);

// ---- conversion and assignment -------------------------------------------------------------------------------------

/// x in that dtype, itself when it has it. Float to narrower float rounds once to nearest even; float to integer truncates
/// and saturates, NaN to 0; integers wrap; anything to bool is "not zero".
Tensor to(const Tensor& x, DType dtype, const ElementwiseOptions& options = {});
/// Copies src, broadcast and converted by the rules of `to`, into x.
Tensor copy_(const Tensor& x, const Operand& src);
/// Every element becomes value, a scalar or a one-element tensor.
Tensor fill_(const Tensor& x, const Operand& value);

}  // namespace tenor
