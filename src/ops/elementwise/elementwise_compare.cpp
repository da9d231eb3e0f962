// Comparisons with scalars answer by value: integers with float scalars, and scalars that the array's dtype cannot
// hold. What a scalar cannot be is turned into a bound that it can, or into a constant answer.
#include <cmath>

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/numeric.h"
#include "src/core/output.h"
#include "src/core/scalar_value.h"
#include "src/core/step.h"
#include "src/core/visit.h"
#include "src/ops/elementwise/elementwise_recipe.h"
#include "src/ops/elementwise/elementwise_run.h"

namespace tenor::elementwise {
namespace {

/// The comparison with its sides exchanged.
Op mirrored(Op op) {
  switch (op) {
    case Op::kLt:
      return Op::kGt;
    case Op::kLe:
      return Op::kGe;
    case Op::kGt:
      return Op::kLt;
    case Op::kGe:
      return Op::kLe;
    default:
      return op;
  }
}

/// `array op scalar` as another comparison that holds for the same values, or as a constant.
struct Reworded {
  Op op;
  Scalar scalar;
  std::optional<bool> constant = {};
};

/// The answer for a scalar above (or below) every value of the dtype; for one that no value equals.
Reworded beyond(Op op, bool above) {
  const bool less = op == Op::kLt || op == Op::kLe;
  return {op, Scalar(0), op == Op::kEq ? false : op == Op::kNe ? true : less == above};
}

Reworded reword_for_integers(Op op, Scalar s, DType dtype) {
  if (s.kind() == Scalar::Kind::kBeyond) return beyond(op, s.as_double() > 0);
  if (s.is_float()) {
    const double v = s.as_double();
    if (std::isnan(v)) return {op, s, op == Op::kNe};
    const bool up = op == Op::kLt || op == Op::kGe;  // x < 2.5 is x < 3, x <= 2.5 is x <= 2
    const double bound = up ? std::ceil(v) : std::floor(v);
    if ((op == Op::kEq || op == Op::kNe) && bound != v) return {op, s, op == Op::kNe};
    if (bound >= 0x1p64 || bound < -0x1p63) return beyond(op, bound > 0);
    s = bound >= 0x1p63 ? Scalar(static_cast<uint64_t>(bound)) : Scalar(static_cast<int64_t>(bound));
  }
  if (core::fits(s, dtype)) return {op, s};
  return beyond(op, s.kind() == Scalar::Kind::kUInt || s.as_int() > 0);
}

/// The scalar as an element of the float dtype.
double as_element(const Scalar& s, DType dtype) {
  return core::visit(dtype, [&]<class T>() {
    alignas(8) T element;
    core::store_scalar(s, dtype, &element);
    return static_cast<double>(core::widen(element));
  });
}

/// Where an integer lies beside v, what it rounds to as an element of a float dtype: -1 below, 0 at it, 1 above.
int side_of(const Scalar& s, double v) {
  if (s.kind() == Scalar::Kind::kBeyond) return s.as_double() < v ? -1 : s.as_double() > v ? 1 : s.side();
  // Compared as integers where v is one of 64 bits: as doubles both could be rounded alike.
  const bool big = s.kind() == Scalar::Kind::kUInt;
  const auto i = big ? static_cast<__int128>(static_cast<uint64_t>(s.as_int())) : static_cast<__int128>(s.as_int());
  const __int128 far = static_cast<__int128>(1) << 65;
  const __int128 w = std::abs(v) < 0x1p65 ? static_cast<__int128>(v) : v > 0 ? far : -far;
  return i < w ? -1 : i > w ? 1 : 0;
}

/// An integer that rounds to another value v of the float dtype: beside it, x < i is x < v or x <= v.
Reworded reword_for_floats(Op op, const Scalar& s, DType dtype) {
  if (s.is_float() || s.is_bool()) return {op, s};
  const Scalar rounded = s.kind() == Scalar::Kind::kBeyond ? Scalar(s.as_double()) : s;
  const int side = side_of(s, as_element(rounded, dtype));
  if (side == 0) return {op, rounded};
  if (op == Op::kEq || op == Op::kNe) return {op, rounded, op == Op::kNe};
  const bool less = op == Op::kLt || op == Op::kLe;
  if (side < 0) return {less ? Op::kLt : Op::kGe, rounded};
  return {less ? Op::kLe : Op::kGt, rounded};
}

Tensor constant_result(const char* name, const Tensor& x, const Tensor& out, bool in_place, bool value) {
  core::Output result(name, out, x.shape(), in_place ? out.dtype() : boolean, x, {&x},
                      {.elementwise = true, .argument = in_place ? "x" : "out", .cuda = core::kHasCuda});
  alignas(8) char element[8];
  core::store_scalar(Scalar(value), result.target().dtype(), element);
  core::StepScope step([&] {
    return core::Step{name, core::OpClass::kElementwise, {x}, {result.target()}, x.numel()}
        .with({.as_bits = true})
        .with(std::make_shared<Fill>(element, result.target().dtype()));
  });
  if (step.shape_only(result.target())) return result.target();
  fill_value(result.target(), element);
  return result.finish();
}

}  // namespace

Tensor run_compare(const char* name, Op op, const Operand& x, const Operand& other, const Tensor& out, bool in_place) {
  if (x.is_tensor() == other.is_tensor()) {
    Call call{.op = op, .operands = {&x, &other}, .out = out, .name = name, .in_place = in_place};
    return run(call);
  }
  const Operand& array = x.is_tensor() ? x : other;
  const Scalar& scalar = x.is_tensor() ? other.scalar() : x.scalar();
  const DType dtype = array.tensor().dtype();
  if (is_float8(dtype)) core::fail<DTypeError>("{}: {} is a storage dtype; convert with to() first", name, dtype);
  const Op straight = x.is_tensor() ? op : mirrored(op);
  // Bool with a number compares as int64.
  const Reworded r = is_float(dtype) ? reword_for_floats(straight, scalar, dtype)
                                     : reword_for_integers(straight, scalar, dtype == boolean ? int64 : dtype);
  if (r.constant) return constant_result(name, array.tensor(), out, in_place, *r.constant);
  const Operand bound(r.scalar);
  return run({.op = r.op, .operands = {&array, &bound}, .out = out, .name = name, .in_place = in_place});
}

Tensor write_compare(const char* name, Op op, const Tensor& x, const Operand& other) {
  core::check_given(name, {"x", x});
  run_compare(name, op, Operand(x), other, x, true);
  return x;
}

}  // namespace tenor::elementwise
