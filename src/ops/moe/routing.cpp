// The contract of route, route_sigmoid_grouped and RoutingPlan. Kernels: routing_cpu.cpp, routing_cuda.cu.
#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/ops/moe/moe_cuda.h"
#include "src/ops/moe/moe_plan.h"

namespace tenor::moe {
namespace {

using core::fail;
using core::OpClass;
using core::Step;

const core::OpRegistration kOps({
    {"moe.route", "moe", OpClass::kReduction,
     "logits[T,E] -> plan: the top_k of softmax(logits) and their weights, [T,k] both"},
    {"moe.route_sigmoid_grouped", "moe", OpClass::kReduction,
     "logits[T,E], bias[E] -> plan: the top_k of sigmoid(logits) + bias within the best groups, weights "
     "sigmoid(logits)"},
});

constexpr int64_t kMostSigmoidExperts = 1024, kMostGroups = 128, kMostSigmoidTopK = 64;

/// Rows are counted in 32 bits.
void check_slots(const char* op, int64_t tokens, int64_t top_k) {
  if (core::count_product(tokens, top_k) >= INT32_MAX)
    fail<ShapeError>("{}: {} tokens of {} slots are more than 2^31 - 2 rows", op, tokens, top_k);
}

void check_whole(const char* op, const char* argument, int64_t value, int64_t least, int64_t most) {
  if (value < least || value > most)
    fail<ValueError>("{}: {} must be {} to {}, got {}", op, argument, least, most, value);
}

void check_logits(const char* op, const Tensor& logits) {
  core::check_float(op, {"logits", logits});
  core::check_ndim(op, {"logits", logits}, 2);
}

void check_cuda(const char* op, const Tensor& x, int64_t experts) {
  if (!core::on_cuda(x)) return;
  if (!core::kHasCuda) fail<UnsupportedError>("{}: this build has no CUDA kernels", op);
  if (experts > kMostCudaExperts)
    fail<UnsupportedError>("{}: at most {} experts on CUDA, got {}", op, kMostCudaExperts, experts);
}

/// Memory for a plan of [tokens, top_k].
RoutingPlan::State new_plan(const Tensor& like, int64_t tokens, int64_t top_k, int64_t experts, DType weights) {
  const Device device = like.device();
  RoutingPlan::State plan{experts,
                          Tensor::empty({tokens, top_k}, int32, device),
                          {},
                          Tensor::empty({experts + 1}, int64, device),
                          Tensor::empty({tokens, top_k}, int32, device)};
  plan.weights = Tensor::empty({tokens, top_k}, weights, device);
  return plan;
}

/// The ids as int32, those out of range refused.
void read_ids(const char* op, const Tensor& ids, int64_t experts, const Tensor& to) {
  const Tensor wide = ids.to(int64).contiguous();
  const int64_t* x = wide.data<int64_t>();
  const bool wraps = ids.dtype() == uint64;  // the greatest ones are negative here, and no -1
  for (int64_t i = 0; i < wide.numel(); ++i)
    if (x[i] < (wraps ? 0 : -1) || x[i] >= experts)
      fail<IndexError>("{}: expert_indices[{}, {}] is {}, expected -1 to {}", op, i / ids.shape(1), i % ids.shape(1),
                       wraps ? std::to_string(static_cast<uint64_t>(x[i])) : std::to_string(x[i]), experts - 1);
  core::copy_into(wide, to);
}

/// Fills the plan, which has memory.
void fill_plan(Routing& r) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(r.logits)) {
      if (r.logits.shape(0) == 1) r.plan.arrivals = Tensor::empty({kArrivals}, int32, r.logits.device());
      return cuda::route_tokens(r);
    }
  }
  route_cpu(r);
  arrange_cpu(r.plan);
}

/// The same of another router's choice.
void fill_plan(const Tensor& expert_indices, const Tensor& weights, const RoutingPlan::State& plan) {
  constexpr const char* kOp = "moe.RoutingPlan";
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(weights)) cuda::read_expert_ids(kOp, expert_indices, plan.experts, plan.ids);
  }
  if (!core::on_cuda(weights)) read_ids(kOp, expert_indices, plan.experts, plan.ids);
  core::copy_into(weights, plan.weights);  // the caller may change theirs
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(weights)) return cuda::arrange(kOp, plan);
  }
  arrange_cpu(plan);
}

/// What a step lists of a plan, and the plan of what it lists.
std::vector<Tensor> parts_of(const RoutingPlan::State& plan) {
  return {plan.ids, plan.weights, plan.offsets, plan.rows};
}
RoutingPlan::State plan_of(const std::vector<Tensor>& parts, int64_t experts) {
  return {experts, parts[0], parts[1], parts[2], parts[3]};
}

RoutingPlan run(Routing& r, int64_t top_k) {
  const int64_t tokens = r.logits.shape(0), experts = r.logits.shape(1);
  check_slots(r.op, tokens, top_k);
  check_cuda(r.op, r.logits, experts);
  r.plan = new_plan(r.logits, tokens, top_k, experts, r.logits.dtype());
  core::StepScope step([&] {
    return Step{r.op, OpClass::kReduction, {r.logits, r.bias}, parts_of(r.plan), r.logits.numel()}.with(
        core::recipe([traced = r, experts](const auto& in, const auto& outs) {
          Routing again = traced;
          again.logits = in[0], again.bias = in[1], again.plan = plan_of(outs, experts);
          fill_plan(again);
        }));
  });
  const auto finished = [&] { return RoutingPlan(std::make_shared<const RoutingPlan::State>(r.plan)); };
  if (step.shape_only(r.plan.weights)) return finished();
  fill_plan(r);
  return finished();
}

}  // namespace

RoutingPlan route(const Tensor& logits, int64_t top_k, const RouteOptions& options) {
  constexpr const char* kOp = "moe.route";
  check_logits(kOp, logits);
  check_whole(kOp, "top_k", top_k, 1, logits.shape(1));
  Routing r{.op = kOp, .logits = logits, .renormalize = options.renormalize, .plan = {}};
  return run(r, top_k);
}

RoutingPlan route_sigmoid_grouped(const Tensor& logits, const Tensor& bias, const SigmoidGroupedOptions& o) {
  constexpr const char* kOp = "moe.route_sigmoid_grouped";
  check_logits(kOp, logits);
  const int64_t experts = logits.shape(1);
  if (experts < 1 || experts > kMostSigmoidExperts)
    fail<ValueError>("{}: logits must have 1 to {} experts, got {}", kOp, kMostSigmoidExperts, experts);
  check_whole(kOp, "groups", o.groups, 1, kMostGroups);
  if (experts % o.groups != 0)
    fail<ValueError>("{}: groups {} does not divide logits' {} experts", kOp, o.groups, experts);
  check_whole(kOp, "selected_groups", o.selected_groups, 1, o.groups);
  const int64_t size = experts / o.groups;
  check_whole(kOp, "top_k", o.top_k, 1, std::min(kMostSigmoidTopK, o.selected_groups * size));
  if (o.group_top_two && size < 2)
    fail<ValueError>("{}: group_top_two needs two experts a group, got groups of {}", kOp, size);
  core::check_positive(kOp, "scale", o.scale);
  if (bias.defined()) {
    core::check_dtype(kOp, {"bias", bias}, float32);
    core::check_shape(kOp, {"bias", bias}, {experts});
    core::check_same_device(kOp, {{"logits", logits}, {"bias", bias}});
  }
  Routing r{.op = kOp,
            .logits = logits,
            .sigmoid = true,
            .renormalize = o.renormalize,
            .bias = bias,
            .groups = o.groups,
            .selected_groups = o.selected_groups,
            .group_top_two = o.group_top_two,
            .scale = o.scale,
            .plan = {}};
  return run(r, o.top_k);
}

RoutingPlan::RoutingPlan(const Tensor& expert_indices, const Tensor& weights, int64_t experts) {
  constexpr const char* kOp = "moe.RoutingPlan";
  core::check_index_dtype(kOp, {"expert_indices", expert_indices});
  core::check_ndim(kOp, {"expert_indices", expert_indices}, 2);
  core::check_float(kOp, {"weights", weights});
  core::check_shape(kOp, {"weights", weights}, expert_indices.shape());
  core::check_same_device(kOp, {{"expert_indices", expert_indices}, {"weights", weights}});
  check_whole(kOp, "experts", experts, 1, INT32_MAX - 1);
  const int64_t tokens = weights.shape(0), top_k = weights.shape(1);
  check_slots(kOp, tokens, top_k);
  check_cuda(kOp, weights, experts);
  State plan = new_plan(weights, tokens, top_k, experts, weights.dtype());
  core::StepScope step([&] {
    return Step{kOp, OpClass::kIndex, {expert_indices, weights}, parts_of(plan)}.with(
        core::recipe([experts](const auto& in, const auto& outs) { fill_plan(in[0], in[1], plan_of(outs, experts)); }));
  });
  if (!step.shape_only(plan.weights)) fill_plan(expert_indices, weights, plan);
  state_ = std::make_shared<const State>(std::move(plan));
}

int64_t RoutingPlan::tokens() const { return state_->ids.shape(0); }
int64_t RoutingPlan::top_k() const { return state_->ids.shape(1); }
int64_t RoutingPlan::experts() const { return state_->experts; }
Device RoutingPlan::device() const { return state_->ids.device(); }
const Tensor& RoutingPlan::weights() const { return state_->weights; }

Tensor RoutingPlan::expert_indices(DType dtype) const {
  if (!is_integer(dtype)) fail<DTypeError>("moe.expert_indices: dtype must be an integer one, got {}", dtype);
  return state_->ids.to(dtype);
}

}  // namespace tenor::moe
