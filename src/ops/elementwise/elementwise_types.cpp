// Dtype rules: promotion of arrays and scalars, and what a row of the table makes of the result.
#include "src/core/check.h"
#include "src/core/scalar_value.h"
#include "src/ops/elementwise/elementwise_run.h"

namespace tenor::elementwise {
namespace {

using core::fail;

bool is_integer_scalar(const Scalar& s) { return !s.is_float() && !s.is_bool(); }

void check_signs(const char* name, DType a, DType b) {
  if ((a == uint64 && is_signed(b)) || (b == uint64 && is_signed(a)))
    fail<DTypeError>("{}: {} and {} have no common dtype; convert one of them first", name, a, b);
}

DType promote_arrays(const char* name, DType a, DType b) {
  check_signs(name, a, b);
  return promote(a, b);
}

/// A scalar takes the arrays' dtype, but for a float beside integers or bool and an integer beside bool.
DType with_scalar(DType arrays, const Scalar& s) {
  if (s.is_float()) return is_float(arrays) ? arrays : float32;
  return is_integer_scalar(s) && arrays == boolean ? int64 : arrays;
}
DType of_scalars(const Scalar& a, const Scalar& b) {
  if (a.is_float() || b.is_float()) return float32;
  return a.is_bool() && b.is_bool() ? boolean : int64;
}

/// The common dtype of operands first..arity-1.
DType promote_operands(const char* name, const Call& call, int first, int arity) {
  std::optional<DType> dtype;
  for (int i = first; i < arity; ++i)
    if (const Operand& o = *call.operands[i]; o.is_tensor())
      dtype = dtype ? promote_arrays(name, *dtype, o.tensor().dtype()) : o.tensor().dtype();
  if (!dtype) {
    if (call.op != Op::kWhere) fail<DTypeError>("{}: needs at least one array, got only scalars", name);
    return of_scalars(call.operands[1]->scalar(), call.operands[2]->scalar());
  }
  for (int i = first; i < arity; ++i)
    if (const Operand& o = *call.operands[i]; !o.is_tensor()) dtype = with_scalar(*dtype, o.scalar());
  return *dtype;
}

void check_scalars_fit(const char* name, const Call& call, int first, int arity, DType dtype) {
  for (int i = first; i < arity; ++i)
    if (const Operand& o = *call.operands[i]; !o.is_tensor()) core::check_fits(name, "the scalar", o.scalar(), dtype);
}

/// Logic asks each operand alone whether it is zero, in its own dtype and of any kind. What may not meet in arithmetic
/// may not here either: uint64 and a signed integer, an integer array and a scalar that it cannot hold.
DType logical_dtype(const char* name, const Call& call, int arity) {
  const Operand *x = call.operands[0], *other = arity == 2 ? call.operands[1] : x;
  if (!x->is_tensor() && !other->is_tensor()) return promote_operands(name, call, 0, arity);
  if (x->is_tensor() && other->is_tensor()) {
    check_signs(name, x->tensor().dtype(), other->tensor().dtype());
  } else {
    const DType array = (x->is_tensor() ? x : other)->tensor().dtype();
    check_scalars_fit(name, call, 0, arity, with_scalar(array, (x->is_tensor() ? other : x)->scalar()));
  }
  return boolean;
}

Types select_types(const char* name, const Call& call) {
  const Tensor& which = call.operands[0]->tensor();
  const char* argument = call.op == Op::kWhere ? "condition" : "mask";
  core::check_dtype(name, {argument, which}, boolean);
  const bool fill = call.op == Op::kMaskedFill;
  const DType dtype = fill ? call.operands[2]->tensor().dtype() : promote_operands(name, call, 1, 3);
  check_scalars_fit(name, call, 1, 3, dtype);
  return {dtype, {boolean, dtype, dtype}, dtype, dtype};
}

DType close_dtype(DType promoted) {
  if (is_float(promoted)) return float64;
  return promoted == uint64 ? uint64 : int64;
}

}  // namespace

Types resolve_types(const Call& call) {
  const OpRow& r = row(call.op);
  const char* name = call.name ? call.name : r.name;
  if (r.rule == Rule::kSelect) return select_types(name, call);
  const DType promoted =
      r.rule == Rule::kLogical ? logical_dtype(name, call, r.arity) : promote_operands(name, call, 0, r.arity);
  Types t{promoted, {}, promoted, promoted};
  switch (r.rule) {
    case Rule::kFloat:
      t.result = float_dtype(promoted);
      break;
    case Rule::kBitwise:
      if (is_float(promoted)) fail<DTypeError>("{}: needs integers or bool, got {}", name, promoted);
      break;
    case Rule::kCompare:
    case Rule::kLogical:
    case Rule::kClose:
      t.result = boolean;
      break;
    default:
      break;
  }
  DType compute = compute_dtype(r.rule == Rule::kFloat ? t.result : promoted);
  if (r.rule == Rule::kClose) compute = close_dtype(promoted);
  if (r.rule != Rule::kLogical) check_scalars_fit(name, call, 0, r.arity, promoted);
  if (is_float8(promoted)) fail<DTypeError>("{}: {} is a storage dtype; convert with to() first", name, promoted);
  t.compute.fill(compute);
  t.computed = t.result == boolean ? boolean : compute;
  return t;
}

}  // namespace tenor::elementwise
