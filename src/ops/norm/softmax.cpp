// Contract of softmax, log_softmax, softmax_last_axis and normalize.
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/ops/norm/norm_checks.h"
#include "src/ops/norm/norm_kernels.h"
#include "tenor/norm.h"

namespace tenor {
namespace {

using core::fail;
using core::OpClass;
using core::Output;
using core::Step;
using core::StepScope;
using cpu::RowBlock;

const core::OpRegistration kOps({
    {"softmax", "norm", OpClass::kReduction, "exp(x - max) / sum(exp(x - max)) along dim"},
    {"log_softmax", "norm", OpClass::kReduction, "x - max - log(sum(exp(x - max))) along dim"},
    {"softmax_last_axis", "norm", OpClass::kReduction, "softmax over the last axis"},
    {"normalize", "norm", OpClass::kReduction, "x / max(norm_p(x), epsilon) along dim"},
});

/// An operator over dim `dim` of x whose result has x's shape.
Tensor along_dim(const char* op, const Tensor& x, int64_t dim, const Tensor& given,
                 cpu::FunctionRef<void(const RowBlock&)> kernel) {
  const int d = core::normalize_dim(op, dim, x.ndim());
  Output out(op, given, x.shape(), x.dtype(), x, {&x}, {.elementwise = true});
  StepScope step([&] { return Step{op, OpClass::kReduction, {x}, {out.target()}, x.numel()}; });
  if (step.shape_only(out.target())) return out.target();
  const Tensor from = cpu::dim_last(x, d);
  cpu::RowWalk walk(from.shape(), 1);
  walk.read(from);
  walk.write(cpu::dim_last(out.target(), d));
  walk.run(kernel);
  return out.finish();
}

}  // namespace

Tensor softmax(const Tensor& x, const SoftmaxOptions& o) {
  core::check_float("softmax", {"x", x});
  return along_dim("softmax", x, o.dim, o.out, [&](const RowBlock& block) { cpu::softmax_rows(block, x.dtype()); });
}

Tensor log_softmax(const Tensor& x, const SoftmaxOptions& o) {
  core::check_float("log_softmax", {"x", x});
  return along_dim("log_softmax", x, o.dim, o.out,
                   [&](const RowBlock& block) { cpu::log_softmax_rows(block, x.dtype()); });
}

Tensor softmax_last_axis(const Tensor& x, const SoftmaxLastAxisOptions& o) {
  core::check_float("softmax_last_axis", {"x", x});
  check_last_axis("softmax_last_axis", x);
  return along_dim("softmax_last_axis", x, -1, o.out,
                   [&](const RowBlock& block) { cpu::softmax_rows(block, x.dtype()); });
}

Tensor normalize(const Tensor& x, const NormalizeOptions& o) {
  core::check_float("normalize", {"x", x});
  if (std::isnan(o.p)) fail<ValueError>("normalize: p must be a number, got {}", o.p);
  if (!(std::isfinite(o.epsilon) && o.epsilon >= 0))
    fail<ValueError>("normalize: epsilon must be finite and >= 0, got {}", o.epsilon);
  return along_dim("normalize", x, o.dim, o.out,
                   [&](const RowBlock& block) { cpu::normalize_rows(block, x.dtype(), o.p, o.epsilon); });
}

}  // namespace tenor
