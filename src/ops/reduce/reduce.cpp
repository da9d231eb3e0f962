#include "tenor/reduce.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/ops/reduce/reduce_problem.h"
#include "src/ops/reduce/reduce_recipe.h"
#include "tenor/elementwise.h"

namespace tenor {
namespace {

using core::fail;
using core::OpClass;
using core::Output;
using core::Step;
using core::StepScope;
using reduce::Op;

const core::OpRegistration kOps({
    {"sum", "reduce", OpClass::kReduction, "sum of x over dim"},
    {"mean", "reduce", OpClass::kReduction, "sum of x over dim / N"},
    {"prod", "reduce", OpClass::kReduction, "product of x over dim"},
    {"max", "reduce", OpClass::kReduction, "largest x, or along dim (values, indices)"},
    {"min", "reduce", OpClass::kReduction, "smallest x, or along dim (values, indices)"},
    {"amax", "reduce", OpClass::kReduction, "largest x over dim"},
    {"amin", "reduce", OpClass::kReduction, "smallest x over dim"},
    {"argmax", "reduce", OpClass::kReduction, "index of the first largest x"},
    {"argmin", "reduce", OpClass::kReduction, "index of the first smallest x"},
    {"any", "reduce", OpClass::kReduction, "some x != 0 over dim"},
    {"all", "reduce", OpClass::kReduction, "every x != 0 over dim"},
    {"count_nonzero", "reduce", OpClass::kReduction, "count of x != 0 over dim"},
    {"norm", "reduce", OpClass::kReduction, "(sum |x|^p)^(1/p) over dim"},
    {"var", "reduce", OpClass::kReduction, "sum (x - mean)^2 / (N - correction) over dim"},
    {"std", "reduce", OpClass::kReduction, "sqrt(var)"},
    {"logsumexp", "reduce", OpClass::kReduction, "log(sum exp(x)) over dim"},
});

void check_reducible(const char* op, const Tensor& x) {
  core::check_given(op, {"x", x});
  if (is_float8(x.dtype()))
    fail<DTypeError>("{}: x must not be an 8-bit float, got {}; convert it with to(float32)", op, x.dtype());
}

/// The dims that are reduced, rising: those named, or all. A 0-d tensor's dim 0 is none.
Dims resolve_dims(const char* op, const Tensor& x, const std::optional<Dims>& dim) {
  Dims dims(static_cast<size_t>(x.ndim()), 0);
  std::iota(dims.begin(), dims.end(), 0);
  if (dim) dims = core::normalize_dims(op, *dim, x.ndim());
  if (x.ndim() == 0) dims.clear();
  std::sort(dims.begin(), dims.end());
  return dims;
}

bool reduces(const Dims& dims, int d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); }

Dims reduced_shape(const Tensor& x, const Dims& dims, bool keepdim) {
  Dims shape;
  for (int d = 0; d < x.ndim(); ++d) {
    if (!reduces(dims, d))
      shape.push_back(x.shape(d));
    else if (keepdim)
      shape.push_back(1);
  }
  return shape;
}

/// @throws ShapeError where an empty axis leaves an output without a value.
void check_not_empty(const char* op, const Tensor& x, const Dims& dims) {
  if (x.numel() != 0 || product(reduced_shape(x, dims, false)) == 0) return;
  for (int64_t d : dims)
    if (x.shape(static_cast<int>(d)) == 0)
      fail<ShapeError>("{}: dim {} of x is empty (shape {}), so there is no value to return", op, d, x.shape());
}

void check_float_result(const char* op, DType dtype) {
  if (!is_float(dtype) || is_float8(dtype))
    fail<DTypeError>("{}: dtype must be float16, bfloat16, float32 or float64, got {}", op, dtype);
}

constexpr core::OutputRules kRules{.cuda = core::kHasCuda};

/// On x's device.
void compute(const reduce::Problem& problem) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(problem.x)) return reduce::run_cuda(problem);
  }
  reduce::run_cpu(problem);
}
void compute(const reduce::ArgProblem& problem) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(problem.x)) return reduce::run_arg_cuda(problem);
  }
  reduce::run_arg_cpu(problem);
}

struct Request {
  const char* name;
  Op op;
  const std::optional<Dims>& dim;
  bool keepdim;
  DType result;
  const Tensor& out;
  double power = 2, correction = 1;
};

/// What sums are formed in for a result of that dtype.
DType accumulator_of(DType result) {
  if (result == float64 || result == uint64) return result;
  return is_float(result) ? float32 : int64;
}

/// Whether elements become integers narrower than the accumulator: each is saturated to `result` before sums wrap in
/// it.
bool narrows(const Tensor& x, DType result) {
  return is_float(x.dtype()) && !is_float(result) && result != boolean && item_size(result) < sizeof(int64_t);
}

/// Whether x's elements may be so large that their differences are lost in any float.
bool varies_widely(const Tensor& x, Op op) {
  return (op == Op::kVar || op == Op::kStd) && !is_float(x.dtype()) && item_size(x.dtype()) >= 4;
}

/// What each element of a wide integer exceeds the least of its output by, as float64. Differences of 64 bits are exact
/// modulo 2^64, which the least makes them.
Tensor above_least(const Tensor& x, const Dims& dims) {
  if (x.numel() == 0) return x.to(float64);
  const Tensor least = amin(x, {.dim = dims, .keepdim = true});
  return sub(x.to(int64), least.to(int64)).to(uint64).to(float64);
}

std::shared_ptr<const core::Recipe> recipe_of(const Request& r, const Dims& dims, bool direct) {
  auto made = std::make_shared<reduce::Recipe>();
  made->name = r.name, made->op = r.op, made->dims = dims, made->keepdim = r.keepdim;
  made->accumulator = accumulator_of(r.result), made->power = r.power, made->correction = r.correction;
  made->direct = direct;
  return made;
}

Step step_of(const char* name, const Tensor& x, std::vector<Tensor> outputs, const Dims& dims) {
  Step step{name, OpClass::kReduction, {x}, std::move(outputs), x.numel()};
  step.reduced = dims;
  return step;
}

Tensor run(const Tensor& x, const Request& r) {
  const Dims dims = resolve_dims(r.name, x, r.dim);
  const bool no_identity = r.op == Op::kMax || r.op == Op::kMin || (r.op == Op::kNorm && std::isinf(r.power));
  if (no_identity) check_not_empty(r.name, x, dims);
  Output out(r.name, r.out, reduced_shape(x, dims, r.keepdim), r.result, x, {&x}, kRules);
  const bool converts = narrows(x, r.result), wide = varies_widely(x, r.op);
  StepScope step([&] {
    Step made = step_of(r.name, x, {out.target()}, dims);
    const int64_t bytes = x.numel() * static_cast<int64_t>(item_size(r.result));
    if (r.op == Op::kLogSumExp) made.work.exponentials = x.numel();
    if (r.op == Op::kMax || r.op == Op::kMin) made.work.operations = x.numel();  // NaN is asked for
    if (r.op == Op::kVar || r.op == Op::kStd)  // the difference from a shift, its square and a sum beside the other
      made.work.operations = core::count_product(3, x.numel());
    if (converts) made.copies.push_back({"x", bytes, "its elements saturate to dtype before they meet"});
    if (wide) made.copies.push_back({"x", 8 * x.numel(), "differences of wide integers, which floats would lose"});
    made.recipe = recipe_of(r, dims, !converts && !wide);
    return made;
  });
  if (step.shape_only(out.target())) return out.target();
  if (wide) {
    const Tensor precise = Tensor::empty(out.target().shape(), float64, x.device());
    compute(reduce::Problem{r.op, above_least(x, dims), precise, dims, float64, r.power, r.correction});
    core::copy_into(precise, out.target());
    return out.finish();
  }
  const Tensor elements = converts ? x.to(r.result) : x;
  compute(reduce::Problem{r.op, elements, out.target(), dims, accumulator_of(r.result), r.power, r.correction});
  return out.finish();
}

/// sum's and prod's result: 64 bits for integers.
DType total_dtype(const char* op, const Tensor& x, const std::optional<DType>& dtype) {
  if (dtype && is_float8(*dtype)) fail<DTypeError>("{}: dtype must not be an 8-bit float, got {}", op, *dtype);
  if (dtype) return *dtype;
  if (is_float(x.dtype())) return x.dtype();
  return is_unsigned(x.dtype()) ? uint64 : int64;
}

Tensor run_arg(const char* name, bool largest, const Tensor& x, const ArgOptions& o) {
  check_reducible(name, x);
  const Dims dims = resolve_dims(name, x, o.dim ? std::optional<Dims>(Dims{*o.dim}) : std::nullopt);
  check_not_empty(name, x, dims);
  Output out(name, o.out, reduced_shape(x, dims, o.keepdim), int64, x, {&x}, kRules);
  StepScope step([&] {
    return step_of(name, x, {out.target()}, dims)
        .with(core::recipe([name, largest, o](const auto& in, const auto& outs) {
          ArgOptions again = o;
          again.out = outs[0];
          run_arg(name, largest, in[0], again);
        }));
  });
  if (step.shape_only(out.target())) return out.target();
  compute(reduce::ArgProblem{largest, x, dims, {}, out.target()});
  return out.finish();
}

ExtremeResult run_extreme(const char* name, bool largest, const Tensor& x, int64_t dim, const ExtremeOptions& o) {
  check_reducible(name, x);
  const Dims dims = resolve_dims(name, x, Dims{dim}), shape = reduced_shape(x, dims, o.keepdim);
  check_not_empty(name, x, dims);
  core::check_distinct_outputs(name, {&o.out, &o.out_indices});
  Output values(name, o.out, shape, x.dtype(), x, {&x}, kRules),
      indices(name, o.out_indices, shape, int64, x, {&x}, kRules);
  StepScope step([&] {
    return step_of(name, x, {values.target(), indices.target()}, dims)
        .with(core::recipe([name, largest, dim, o](const auto& in, const auto& outs) {
          ExtremeOptions again = o;
          again.out = outs[0], again.out_indices = outs[1];
          run_extreme(name, largest, in[0], dim, again);
        }));
  });
  if (step.shape_only(values.target())) return {values.target(), indices.target()};
  if (values.target().strides() == indices.target().strides()) {
    compute(reduce::ArgProblem{largest, x, dims, values.target(), indices.target()});
  } else {
    const Tensor best = Tensor::empty(shape, x.dtype(), x.device()), places = Tensor::empty(shape, int64, x.device());
    compute(reduce::ArgProblem{largest, x, dims, best, places});
    core::copy_into(best, values.target());
    core::copy_into(places, indices.target());
  }
  return {values.finish(), indices.finish()};
}

Tensor run_var(const char* name, Op op, const Tensor& x, const VarOptions& o) {
  check_reducible(name, x);
  if (!std::isfinite(o.correction)) fail<ValueError>("{}: correction must be finite, got {}", name, o.correction);
  return run(x, {name, op, o.dim, o.keepdim, float_dtype(x.dtype()), o.out, 2, o.correction});
}

Tensor run_plain(const char* name, Op op, const Tensor& x, DType result, const ReduceOptions& o) {
  check_reducible(name, x);
  return run(x, {name, op, o.dim, o.keepdim, result, o.out});
}

}  // namespace

void reduce::Recipe::run(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) const {
  const std::optional<Dims> taken(dims);
  tenor::run(inputs[0], {name, op, taken, keepdim, outputs[0].dtype(), outputs[0], power, correction});
}

Tensor sum(const Tensor& x, const SumOptions& o) {
  check_reducible("sum", x);
  const DType result = total_dtype("sum", x, o.dtype);
  return run(x, {"sum", result == boolean ? Op::kAny : Op::kSum, o.dim, o.keepdim, result, o.out});
}

Tensor prod(const Tensor& x, const SumOptions& o) {
  check_reducible("prod", x);
  const DType result = total_dtype("prod", x, o.dtype);
  return run(x, {"prod", result == boolean ? Op::kAll : Op::kProd, o.dim, o.keepdim, result, o.out});
}

Tensor mean(const Tensor& x, const SumOptions& o) {
  check_reducible("mean", x);
  const DType result = o.dtype.value_or(float_dtype(x.dtype()));
  check_float_result("mean", result);
  return run(x, {"mean", Op::kMean, o.dim, o.keepdim, result, o.out});
}

Tensor amax(const Tensor& x, const ReduceOptions& o) { return run_plain("amax", Op::kMax, x, x.dtype(), o); }
Tensor amin(const Tensor& x, const ReduceOptions& o) { return run_plain("amin", Op::kMin, x, x.dtype(), o); }
Tensor max(const Tensor& x, const ReduceOptions& o) { return run_plain("max", Op::kMax, x, x.dtype(), o); }
Tensor min(const Tensor& x, const ReduceOptions& o) { return run_plain("min", Op::kMin, x, x.dtype(), o); }
ExtremeResult max(const Tensor& x, int64_t dim, const ExtremeOptions& o) { return run_extreme("max", true, x, dim, o); }
ExtremeResult min(const Tensor& x, int64_t dim, const ExtremeOptions& o) {
  return run_extreme("min", false, x, dim, o);
}
Tensor argmax(const Tensor& x, const ArgOptions& o) { return run_arg("argmax", true, x, o); }
Tensor argmin(const Tensor& x, const ArgOptions& o) { return run_arg("argmin", false, x, o); }
Tensor any(const Tensor& x, const ReduceOptions& o) { return run_plain("any", Op::kAny, x, boolean, o); }
Tensor all(const Tensor& x, const ReduceOptions& o) { return run_plain("all", Op::kAll, x, boolean, o); }
Tensor count_nonzero(const Tensor& x, const ReduceOptions& o) {
  return run_plain("count_nonzero", Op::kCount, x, int64, o);
}
Tensor logsumexp(const Tensor& x, const ReduceOptions& o) {
  return run_plain("logsumexp", Op::kLogSumExp, x, float_dtype(x.dtype()), o);
}
Tensor var(const Tensor& x, const VarOptions& o) { return run_var("var", Op::kVar, x, o); }
Tensor std(const Tensor& x, const VarOptions& o) { return run_var("std", Op::kStd, x, o); }

Tensor norm(const Tensor& x, const NormOptions& o) {
  check_reducible("norm", x);
  if (std::isnan(o.p)) fail<ValueError>("norm: p must be a number, got nan");
  const DType result = o.dtype.value_or(float_dtype(x.dtype()));
  check_float_result("norm", result);
  return run(x, {"norm", Op::kNorm, o.dim, o.keepdim, result, o.out, o.p});
}

}  // namespace tenor
