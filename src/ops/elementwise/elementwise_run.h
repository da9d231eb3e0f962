// The life of an elementwise call: dtypes, shape, checks, result, cost statement, tiles.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "src/ops/elementwise/elementwise_ops.h"
#include "tenor/scalar.h"

namespace tenor::elementwise {

/// A row of the table applied to operands, in the kernel's order.
struct Call {
  Op op;
  std::array<const Operand*, 3> operands;  ///< as many as the row's arity
  Tensor out = {};
  const double* params = nullptr;          ///< the kernel's, read during the call
  const char* name = nullptr;              ///< in error texts; the row's when null
  bool in_place = false;                   ///< out is also the operand written, and may be of a wider dtype's kind
};

/// What the dtype rule makes of the operands.
struct Types {
  DType promoted;                ///< where scalars and arrays meet
  std::array<DType, 3> compute;  ///< of each input's register
  DType computed;                ///< of the result's register
  DType result;
};
Types resolve_types(const Call& call);

Tensor run(const Call& call);
Tensor run_unary(Op op, const Tensor& x, const Tensor& out, const double* params = nullptr);
Tensor run_compare(const char* name, Op op, const Operand& x, const Operand& other, const Tensor& out, bool in_place = false);

/// x as the call's first operand and its result. @throws ShapeError where x would have to grow, DTypeError where the result
/// is of a higher kind than x.
Tensor write_call(const char* name, const Tensor& x, Call call);
template <class F>
Tensor write(const char* name, const Tensor& x, F make) {
  const Operand self(x);
  return write_call(name, x, make(self));
}
Tensor write_unary(const char* name, Op op, const Tensor& x, const double* params = nullptr);
Tensor write_compare(const char* name, Op op, const Tensor& x, const Operand& other);

// Options that choose the row.
Op division_of(const char* name, std::string_view rounding_mode);
Op gelu_of(const char* name, std::string_view approximate);
Call power_call(const char* name, const Operand& x, const Operand& exponent, const Tensor& out);
Call clamp_call(const char* name, const Operand& x, const std::optional<Operand>& min, const std::optional<Operand>& max, const Tensor& out);
/// other * alpha, other itself for 1. @throws ValueError, in op's name, where alpha or the product of two numbers does not fit.
Operand times(const char* op, const Operand& other, const Scalar& alpha);

/// Every element of x becomes the value, known to be of x's dtype.
void fill_value(const Tensor& x, const void* value);

}  // namespace tenor::elementwise
