// The contract of dispatch and combine. Kernels: dispatch_cpu.cpp, dispatch_cuda.cu.
#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/ops/moe/moe_checks.h"
#include "src/ops/moe/moe_cuda.h"
#include "src/ops/moe/moe_plan.h"

namespace tenor::moe {
namespace {

using core::fail;
using core::OpClass;
using core::Output;
using core::Step;

const core::OpRegistration kOps({
    {"moe.dispatch", "moe", OpClass::kIndex, "plan, x[T,H] -> tokens[T k,H] by expert, offsets[E+1]"},
    {"moe.combine", "moe", OpClass::kIndex, "plan, y[T k,H] -> sum over a token's slots of weight * y [T,H]"},
});

}  // namespace

void check_plan_device(const char* op, const RoutingPlan& plan, core::Named x) {
  if (!core::StepScope::shape_only(x.tensor) && plan.device() != x.tensor.device())
    fail<DeviceError>("{}: the plan is on {}, but {} on {}", op, plan.device(), x.name, x.tensor.device());
}

Tensor dense_rows(const Tensor& x) { return x.shape(1) <= 1 || x.stride(1) == 1 ? x : x.contiguous(); }

void state_dense_rows(Step& step, const char* name, const Tensor& x) {
  if (x.shape(1) > 1 && x.stride(1) != 1)
    step.copies.push_back(
        {name, x.numel() * static_cast<int64_t>(item_size(x.dtype())), "a row's elements are read side by side"});
}

void state_unit_strides(Step& step, const char* name, const Tensor& matrices) {
  if (matrices.shape(-1) > 1 && matrices.stride(-1) != 1)
    step.copies.push_back({name, matrices.numel() * static_cast<int64_t>(item_size(matrices.dtype())),
                           "kernels read matrices with a unit stride along what is summed"});
}

void dispatch_into(const RoutingPlan::State& plan, const Tensor& x, const Tensor& tokens) {
  if (tokens.numel() == 0) return;
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(tokens)) return cuda::dispatch_rows(plan, dense_rows(x), tokens);
  }
  dispatch_cpu(plan, dense_rows(x), tokens);
}

void combine_into(const RoutingPlan::State& plan, const Tensor& y, const Tensor& shared, const Tensor& out) {
  if (out.numel() == 0) return;
  Tensor added = shared;
  if (added.defined() && added.dtype() != y.dtype() && y.dtype() == float64) added = added.to(float64);
  if (added.defined()) added = dense_rows(added);
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(out)) return cuda::combine_rows(plan, dense_rows(y), added, out);
  }
  combine_cpu(plan, dense_rows(y), added, out);
}

void clear_tail([[maybe_unused]] const char* op, const Tensor& offsets, const Tensor& y) {
  if (y.numel() == 0) return;
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(y)) return cuda::clear_tail(op, offsets, y);
  }
  clear_tail_cpu(offsets, y);
}

void check_shared(const char* op, const Tensor& shared, core::Named y, const Dims& shape) {
  if (!shared.defined()) return;
  if (shared.dtype() != float32 && shared.dtype() != y.tensor.dtype())
    fail<DTypeError>("{}: shared must be float32 or {}'s {}, got {}", op, y.name, y.tensor.dtype(), shared.dtype());
  core::check_shape(op, {"shared", shared}, shape);
  core::check_same_device(op, {y, {"shared", shared}});
}

DispatchedTokens RoutingPlan::dispatch(const Tensor& x, const DispatchOptions& options) const {
  constexpr const char* kOp = "moe.dispatch";
  core::check_float(kOp, {"x", x});
  core::check_ndim(kOp, {"x", x}, 2);
  if (x.shape(0) != tokens()) fail<ShapeError>("{}: x has {} tokens, but the plan {}", kOp, x.shape(0), tokens());
  check_plan_device(kOp, *this, {"x", x});
  Output out(kOp, options.out, {tokens() * top_k(), x.shape(1)}, x.dtype(), x, {&x},
             {.contiguous = true, .cuda = core::kHasCuda});
  core::StepScope step([&] {
    Step s{kOp, OpClass::kIndex, {x, state_->rows}, {out.target()}};
    state_dense_rows(s, "x", x);
    s.recipe = core::recipe([experts = state_->experts](const auto& in, const auto& outs) {
      dispatch_into({.experts = experts, .ids = in[1], .weights = {}, .offsets = {}, .rows = in[1]}, in[0], outs[0]);
    });
    return s;
  });
  if (step.shape_only(out.target())) return {*this, out.target()};
  dispatch_into(*state_, x, out.target());
  return {*this, out.finish()};
}

const Tensor& DispatchedTokens::offsets() const { return plan_.state().offsets; }

Tensor DispatchedTokens::combine(const Tensor& y, const CombineOptions& options) const {
  constexpr const char* kOp = "moe.combine";
  core::check_float(kOp, {"y", y});
  core::check_ndim(kOp, {"y", y}, 2);
  const RoutingPlan::State& plan = plan_.state();
  if (y.shape(0) != plan.ids.numel())
    fail<ShapeError>("{}: y has {} rows, but the plan {}", kOp, y.shape(0), plan.ids.numel());
  check_plan_device(kOp, plan_, {"y", y});
  const Dims shape{plan_.tokens(), y.shape(1)};
  check_shared(kOp, options.shared, {"y", y}, shape);
  Output out(kOp, options.out, shape, y.dtype(), y, {&y, &options.shared}, {.cuda = core::kHasCuda});
  core::StepScope step([&] {
    Step s{kOp, OpClass::kIndex, {y, plan.weights, plan.rows, options.shared}, {out.target()}};
    state_dense_rows(s, "y", y);
    if (options.shared.defined()) state_dense_rows(s, "shared", options.shared);
    s.recipe = core::recipe([experts = plan.experts](const auto& in, const auto& outs) {
      const RoutingPlan::State again{.experts = experts, .ids = in[2], .weights = in[1], .offsets = {}, .rows = in[2]};
      write_dense(outs[0], [&](const Tensor& to) { combine_into(again, in[0], in[3], to); });
    });
    return s;
  });
  if (step.shape_only(out.target())) return out.target();
  write_dense(out.target(), [&](const Tensor& to) { combine_into(plan, y, options.shared, to); });
  return out.finish();
}

}  // namespace tenor::moe
