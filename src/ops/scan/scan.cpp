#include "tenor/scan.h"

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/device_traits.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/ops/scan/scan_kernels.h"
#include "src/ops/scan/scan_problem.h"

namespace tenor {
namespace {

using core::fail;
using core::OpClass;
using core::Output;
using core::Step;
using core::StepScope;
using scan::Op;

const core::OpRegistration kOps({
    {"cumsum", "scan", OpClass::kReduction, "out[i] = x[0] + .. + x[i] along dim"},
    {"cumprod", "scan", OpClass::kReduction, "out[i] = x[0] * .. * x[i] along dim"},
    {"cummax", "scan", OpClass::kReduction, "(values, indices) of the largest of x[0..i] along dim"},
    {"cummin", "scan", OpClass::kReduction, "(values, indices) of the smallest of x[0..i] along dim"},
    {"logcumsumexp", "scan", OpClass::kReduction, "out[i] = log(e^x[0] + .. + e^x[i]) along dim"},
});

constexpr core::OutputRules kRules{.cuda = core::kHasCuda};

/// On x's device.
void compute(const scan::Problem& problem) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(problem.x)) return scan::run_cuda(problem);
  }
  scan::run_cpu(problem);
}

int check_scan(const char* op, const Tensor& x, int64_t dim) {
  core::check_given(op, {"x", x});
  if (is_float8(x.dtype()))
    fail<DTypeError>("{}: x must not be an 8-bit float, got {}; convert it with to(float32)", op, x.dtype());
  return core::normalize_dim(op, dim, x.ndim());
}

/// What a scan takes beside its FLOP an element. The order of float sums (scan_kernels.h) forms a group of 16 in four
/// steps, of which a vector along the line is added to whole and lines side by side by half, and adds what lies before
/// the group and before the block.
core::Work work_of(Op op, const Tensor& x, int dim, DType accumulator) {
  if (op == Op::kLogSumExp) return {.exponentials = core::count_product(2, x.numel())};  // a term's, and a logarithm
  const bool sums = op == Op::kSum && is_float(accumulator) && core::runs_on(x.device()) == DeviceType::kCpu;
  if (!sums || x.ndim() == 0 || x.shape(dim) < scan::kScanGroup) return {};
  return {.operations = core::count_product(x.stride(dim) == 1 ? 5 : 3, x.numel())};
}

Tensor run(const char* name, Op op, const Tensor& x, int dim, DType result, DType accumulator, const Tensor& given) {
  Output out(name, given, x.shape(), result, x, {&x}, kRules);
  // Elements that become integers narrower than the accumulator saturate to the result's dtype before sums wrap in it.
  const bool converts = is_float(x.dtype()) && !is_float(result) && item_size(result) < sizeof(int64_t);
  StepScope step([&] {
    Step made{name, OpClass::kReduction, {x}, {out.target()}, x.numel()};
    made.work = work_of(op, x, dim, accumulator);
    const int64_t bytes = x.numel() * static_cast<int64_t>(item_size(result));
    if (converts) made.copies.push_back({"x", bytes, "its elements saturate to dtype before they meet"});
    made.recipe = core::recipe(
        [=](const auto& in, const auto& outs) { run(name, op, in[0], dim, result, accumulator, outs[0]); });
    return made;
  });
  if (step.shape_only(out.target())) return out.target();
  compute({op, converts ? x.to(result) : x, out.target(), dim, accumulator, {}});
  return out.finish();
}

Tensor run_linear(const char* name, Op op, const Tensor& x, int64_t dim, const ScanOptions& o) {
  const int d = check_scan(name, x, dim);
  const DType integer = is_unsigned(x.dtype()) ? uint64 : int64;
  const DType result = o.dtype.value_or(is_float(x.dtype()) ? x.dtype() : integer);
  if (is_float8(result) || result == boolean)
    fail<DTypeError>("{}: dtype must be an integer or a float of 16 bits or more, got {}", name, result);
  const DType accumulator = result == float64 || result == uint64 ? result : is_float(result) ? float32 : int64;
  return run(name, op, x, d, result, accumulator, o.out);
}

/// What extremes of that dtype are compared in.
DType comparable(DType dtype) {
  if (dtype == float64 || dtype == uint64) return dtype;
  return is_float(dtype) ? float32 : int64;
}

ExtremeScanResult run_extreme(const char* name, Op op, const Tensor& x, int64_t dim, const ExtremeScanOptions& o) {
  const int d = check_scan(name, x, dim);
  core::check_distinct_outputs(name, {&o.out, &o.out_indices});
  Output values(name, o.out, x.shape(), x.dtype(), x, {&x}, kRules),
      indices(name, o.out_indices, x.shape(), int64, x, {&x}, kRules);
  StepScope step([&] {
    return Step{name, OpClass::kReduction, {x}, {values.target(), indices.target()}, x.numel()}
        .with({.as_bits = true})
        .with(core::recipe([=](const auto& in, const auto& outs) {
          ExtremeScanOptions again;
          again.out = outs[0], again.out_indices = outs[1];
          run_extreme(name, op, in[0], dim, again);
        }));
  });
  if (step.shape_only(values.target())) return {values.target(), indices.target()};
  if (values.target().strides() == indices.target().strides()) {
    compute({op, x, values.target(), d, comparable(x.dtype()), indices.target()});
  } else {
    const Tensor best = Tensor::empty(x.shape(), x.dtype(), x.device()),
                 places = Tensor::empty(x.shape(), int64, x.device());
    compute({op, x, best, d, comparable(x.dtype()), places});
    core::copy_into(best, values.target());
    core::copy_into(places, indices.target());
  }
  return {values.finish(), indices.finish()};
}

}  // namespace

Tensor cumsum(const Tensor& x, int64_t dim, const ScanOptions& o) { return run_linear("cumsum", Op::kSum, x, dim, o); }
Tensor cumprod(const Tensor& x, int64_t dim, const ScanOptions& o) {
  return run_linear("cumprod", Op::kProd, x, dim, o);
}
ExtremeScanResult cummax(const Tensor& x, int64_t dim, const ExtremeScanOptions& o) {
  return run_extreme("cummax", Op::kMax, x, dim, o);
}
ExtremeScanResult cummin(const Tensor& x, int64_t dim, const ExtremeScanOptions& o) {
  return run_extreme("cummin", Op::kMin, x, dim, o);
}

Tensor logcumsumexp(const Tensor& x, int64_t dim, const LogScanOptions& o) {
  const int d = check_scan("logcumsumexp", x, dim);
  core::check_float("logcumsumexp", {"x", x});
  return run("logcumsumexp", Op::kLogSumExp, x, d, x.dtype(), float64, o.out);
}

}  // namespace tenor
