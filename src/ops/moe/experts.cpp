// The contract of SwiGluExperts. Kernels: experts_cpu.cpp and, on CUDA, those that moe_cuda.h names.
#include "src/core/backend.h"
#include "src/core/candidates.h"
#include "src/core/device_traits.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/traced_recipe.h"
#include "src/ops/moe/moe_checks.h"
#include "src/ops/moe/moe_cuda.h"

namespace tenor::moe {
namespace {

using core::fail;
using core::OpClass;
using core::Output;
using core::Step;

using ExpertCandidate = core::Candidate<ExpertRows>;

bool for_cuda(const ExpertRows& p) { return core::runs_on(p.device) == DeviceType::kCuda; }

std::string tensorcore_why_not(const ExpertRows& p) {
  if (!for_cuda(p)) return "it takes matrix units of a CUDA device";
  if (p.x.dtype() != float16 && p.x.dtype() != bfloat16) return "it takes float16 and bfloat16";
  if (core::device_traits(p.device).capability < 80) return "the device has no tensor cores for these dtypes";
  return p.gate.numel() == 0 ? "the experts are empty" : "";
}
std::string gemm_why_not(const ExpertRows& p) { return for_cuda(p) ? "it is the CPU's" : ""; }

void run_tensorcore([[maybe_unused]] const ExpertRows& p) {
  if constexpr (core::kHasCuda) cuda::experts_tensorcore(p);
}
void run_gemm(const ExpertRows& p) { experts_cpu(p, false); }
void run_scalar(const ExpertRows& p) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(p.x)) return cuda::experts_scalar(p);
  }
  experts_cpu(p, true);
}

constexpr ExpertCandidate kCandidates[] = {
    {"tensorcore", tensorcore_why_not, run_tensorcore},
    {"gemm", gemm_why_not, run_gemm},
    {"scalar", core::always<ExpertRows>, run_scalar},
};

std::vector<std::string> strategies() {
  std::vector<std::string> names;
  for (const ExpertCandidate& c : kCandidates) names.push_back(c.name);
  return names;
}

const core::OpRegistration kOps({
    {"moe.forward", "moe", OpClass::kContraction,
     "experts, x[T,H], logits[T,E], top_k -> route, then forward_routed [T,H]"},
    {"moe.forward_sigmoid_grouped", "moe", OpClass::kContraction,
     "experts, x[T,H], logits[T,E], bias[E] -> route_sigmoid_grouped, then forward_routed [T,H]", strategies()},
    {"moe.forward_routed", "moe", OpClass::kContraction,
     "experts, x[T,H], plan, shared[T,H] -> sum over slots of weight * expert(x) + shared [T,H]", strategies()},
    {"moe.forward_dispatched", "moe", OpClass::kContraction,
     "experts, tokens[T k,H] -> down (silu(gate x) * (up x)) of each row's expert [T k,H]", strategies()},
});

/// Matrices [E,N,K] as kernels read them: a unit stride along K.
Tensor dense_matrices(const Tensor& w) { return w.shape(2) <= 1 || w.stride(2) == 1 ? w : w.contiguous(); }

ExpertRows rows_of(const char* op, const SwiGluExperts& e, const Tensor& x, const Tensor& offsets, const Tensor& y) {
  return {op,
          x.device(),
          dense_rows(x),
          offsets,
          dense_matrices(e.gate()),
          dense_matrices(e.up()),
          dense_matrices(e.down()),
          y};
}
/// What the candidates are asked: no memory is touched.
ExpertRows rows_described(const char* op, const SwiGluExperts& e, const Tensor& x) {
  return {op, core::stands_for(x.device()), x, {}, e.gate(), e.up(), e.down(), {}};
}

/// As the experts' step is stated: the matrices of experts that may have rows, read once.
Step stated(const char* op, const SwiGluExperts& e, const Tensor& x, int64_t rows, std::vector<Tensor> others,
            const Tensor& out, std::string strategy) {
  const int64_t I = e.gate().shape(1), H = e.gate().shape(2);
  std::vector<Tensor> inputs{x, e.gate(), e.up(), e.down()};
  inputs.insert(inputs.end(), others.begin(), others.end());
  Step step{op,
            OpClass::kContraction,
            std::move(inputs),
            {out},
            core::count_product(core::count_product(rows, 6), core::count_product(I, H)),
            std::move(strategy)};
  const int64_t used = core::count_product(std::min(e.gate().shape(0), rows), core::count_product(I, H));
  step.reads = {-1, used, used, used};
  step.reads.resize(step.inputs.size(), -1);
  state_dense_rows(step, "x", x);
  state_unit_strides(step, "gate", e.gate());
  state_unit_strides(step, "up", e.up());
  state_unit_strides(step, "down", e.down());
  return step;
}

std::string strategy_text(const ExpertRows& p, const ExpertCandidate& taken) {
  return std::string(taken.name) + "\n" + core::declined<ExpertRows>(kCandidates, p);
}

void check_rows(const char* op, const SwiGluExperts& e, core::Named x) {
  core::check_float(op, x);
  core::check_ndim(op, x, 2);
  core::check_same_dtype(op, {"gate", e.gate()}, x);
  if (x.tensor.shape(1) != e.gate().shape(2))
    fail<ShapeError>("{}: {} must have the experts' {} columns, got shape {}", op, x.name, e.gate().shape(2),
                     x.tensor.shape());
  if (!core::StepScope::shape_only(x.tensor)) core::check_same_device(op, {{"gate", e.gate()}, x});
}

void check_experts(const char* op, const SwiGluExperts& e, int64_t experts, const char* what) {
  if (experts != e.gate().shape(0))
    fail<ShapeError>("{}: {} has {} experts, but gate {}", op, what, experts, e.gate().shape(0));
}

void check_logits_of(const char* op, const Tensor& logits, const Tensor& x, int64_t experts) {
  core::check_float(op, {"logits", logits});
  core::check_shape(op, {"logits", logits}, {x.shape(0), experts});
  core::check_same_device(op, {{"x", x}, {"logits", logits}});
}

void run_experts(const ExpertCandidate& taken, const ExpertRows& p) {
  if (p.x.shape(0) == 0 || p.x.shape(1) == 0) return;
  taken.run(p);
}

/// A single token's shorter way, where there is one: without copies of its row, summed where its rows are made.
bool one_token([[maybe_unused]] const ExpertCandidate& taken, [[maybe_unused]] const ExpertRows& p,
               [[maybe_unused]] const RoutingPlan::State& plan, [[maybe_unused]] const Tensor& shared,
               [[maybe_unused]] const Tensor& out) {
  if constexpr (core::kHasCuda) {
    const Tensor added = shared.defined() ? dense_rows(shared) : shared;
    return taken.run == run_tensorcore && out.numel() > 0 && core::on_cuda(out) &&
           cuda::experts_one_token(p, plan, added, out);
  }
  return false;
}

/// Everything of forward_routed but its statement.
void forward_into(const ExpertCandidate& taken, const SwiGluExperts& e, const char* op, const Tensor& x,
                  const RoutingPlan& plan, const Tensor& shared, const Tensor& out) {
  const RoutingPlan::State& state = plan.state();
  const Tensor y = Tensor::empty({state.ids.numel(), x.shape(1)}, x.dtype(), x.device());
  if (one_token(taken, rows_of(op, e, x, state.offsets, y), state, shared, out)) return;
  const Tensor tokens = Tensor::empty(y.shape(), x.dtype(), x.device());
  dispatch_into(state, x, tokens);
  run_experts(taken, rows_of(op, e, tokens, state.offsets, y));
  combine_into(state, y, shared, out);
}

struct Forward {
  const char* op;
  const SwiGluExperts& experts;
  const Tensor &x, &shared;
  std::string_view strategy;
  const Tensor& out;
  std::shared_ptr<const core::Recipe> recipe;
};

/// The experts of a step, as stated() lists them.
SwiGluExperts experts_of(const std::vector<Tensor>& in) { return SwiGluExperts(in[1], in[2], in[3]); }

/// `plan()` makes the plan once everything else is checked; `read` are its inputs.
template <class F>
Tensor forward_with(const Forward& f, int64_t top_k, std::vector<Tensor> read, F&& plan) {
  const Dims shape = f.x.shape();
  check_shared(f.op, f.shared, {"x", f.x}, shape);
  Output out(f.op, f.out, shape, f.x.dtype(), f.x,
             {&f.x, &f.shared, &f.experts.gate(), &f.experts.up(), &f.experts.down()}, {.cuda = core::kHasCuda});
  const ExpertRows described = rows_described(f.op, f.experts, f.x);
  const ExpertCandidate& taken = core::choose<ExpertRows>(f.op, kCandidates, described, f.strategy);
  if (f.shared.defined()) read.push_back(f.shared);
  core::StepScope step([&] {
    core::Step made = stated(f.op, f.experts, f.x, core::count_product(shape[0], top_k), std::move(read), out.target(),
                             strategy_text(described, taken));
    if (f.shared.defined()) state_dense_rows(made, "shared", f.shared);
    made.recipe = f.recipe;
    return made;
  });
  const RoutingPlan routed = plan();
  if (step.shape_only(out.target())) return out.target();
  write_dense(out.target(), [&](const Tensor& to) { forward_into(taken, f.experts, f.op, f.x, routed, f.shared, to); });
  return out.finish();
}

}  // namespace

SwiGluExperts::SwiGluExperts(const Tensor& gate, const Tensor& up, const Tensor& down)
    : gate_(gate), up_(up), down_(down) {
  constexpr const char* kOp = "moe.SwiGluExperts";
  core::check_float(kOp, {"gate", gate});
  core::check_ndim(kOp, {"gate", gate}, 3);
  core::check_same_dtype(kOp, {"gate", gate}, {"up", up});
  core::check_same_dtype(kOp, {"gate", gate}, {"down", down});
  core::check_shape(kOp, {"up", up}, gate.shape());
  core::check_shape(kOp, {"down", down}, {gate.shape(0), gate.shape(2), gate.shape(1)});
  core::check_same_device(kOp, {{"gate", gate}, {"up", up}, {"down", down}});
}

Tensor SwiGluExperts::forward(const Tensor& x, const Tensor& logits, int64_t top_k, const ForwardOptions& o) const {
  constexpr const char* kOp = "moe.forward";
  check_rows(kOp, *this, {"x", x});
  check_logits_of(kOp, logits, x, gate_.shape(0));
  const auto again = core::traced_recipe([top_k, renormalize = o.renormalize](const auto& in, const auto& outs) {
    experts_of(in).forward(in[0], in[4], top_k, {.renormalize = renormalize, .out = outs[0]});
  });
  return forward_with({kOp, *this, x, {}, "auto", o.out, again}, top_k, {logits},
                      [&] { return route(logits, top_k, {.renormalize = o.renormalize}); });
}

Tensor SwiGluExperts::forward_sigmoid_grouped(const Tensor& x, const Tensor& logits, const Tensor& bias,
                                              const SigmoidGroupedForwardOptions& o) const {
  constexpr const char* kOp = "moe.forward_sigmoid_grouped";
  check_rows(kOp, *this, {"x", x});
  check_logits_of(kOp, logits, x, gate_.shape(0));
  const auto again =
      core::traced_recipe([routing = o.routing, strategy = std::string(o.strategy)](const auto& in, const auto& outs) {
        experts_of(in).forward_sigmoid_grouped(in[0], in[4], in[5],
                                               {.routing = routing, .strategy = strategy, .out = outs[0]});
      });
  return forward_with({kOp, *this, x, {}, o.strategy, o.out, again}, o.routing.top_k, {logits, bias},
                      [&] { return route_sigmoid_grouped(logits, bias, o.routing); });
}

Tensor SwiGluExperts::forward_routed(const Tensor& x, const RoutingPlan& plan, const ForwardRoutedOptions& o) const {
  constexpr const char* kOp = "moe.forward_routed";
  check_rows(kOp, *this, {"x", x});
  check_experts(kOp, *this, plan.experts(), "the plan");
  if (x.shape(0) != plan.tokens())
    fail<ShapeError>("{}: x has {} tokens, but the plan {}", kOp, x.shape(0), plan.tokens());
  check_plan_device(kOp, plan, {"x", x});
  const RoutingPlan::State& state = plan.state();
  // A single token's plan by a router has memory that this step does not list.
  const auto again =
      x.shape(0) == 1
          ? nullptr
          : core::traced_recipe([experts = state.experts, strategy = std::string(o.strategy),
                                 shared = o.shared.defined()](const auto& in, const auto& outs) {
              const RoutingPlan routed(
                  std::make_shared<const RoutingPlan::State>(RoutingPlan::State{experts, in[6], in[4], in[7], in[5]}));
              experts_of(in).forward_routed(
                  in[0], routed, {.shared = shared ? in[8] : Tensor(), .strategy = strategy, .out = outs[0]});
            });
  return forward_with({kOp, *this, x, o.shared, o.strategy, o.out, again}, plan.top_k(),
                      {state.weights, state.rows, state.ids, state.offsets}, [&] { return plan; });
}

Tensor SwiGluExperts::forward_dispatched(const DispatchedTokens& d, const ForwardDispatchedOptions& o) const {
  constexpr const char* kOp = "moe.forward_dispatched";
  const Tensor& x = d.tokens();
  check_rows(kOp, *this, {"tokens", x});
  check_experts(kOp, *this, d.plan().experts(), "the dispatch");
  Output out(kOp, o.out, x.shape(), x.dtype(), x, {&x, &gate_, &up_, &down_}, {.cuda = core::kHasCuda});
  const ExpertRows described = rows_described(kOp, *this, x);
  const ExpertCandidate& taken = core::choose<ExpertRows>(kOp, kCandidates, described, o.strategy);
  core::StepScope step([&] {
    return stated(kOp, *this, x, x.shape(0), {d.offsets()}, out.target(), strategy_text(described, taken))
        .with(core::recipe([strategy = std::string(o.strategy)](const auto& in, const auto& outs) {
          const int64_t rows = in[0].shape(0);
          // Of the plan only the offsets are read.
          const RoutingPlan::State state{.experts = in[4].shape(0) - 1,
                                         .ids = Tensor::empty({rows, 0}, int32, in[0].device()),
                                         .weights = {},
                                         .offsets = in[4],
                                         .rows = {}};
          const DispatchedTokens tokens(RoutingPlan(std::make_shared<const RoutingPlan::State>(state)), in[0]);
          experts_of(in).forward_dispatched(tokens, {.strategy = strategy, .out = outs[0]});
        }));
  });
  if (step.shape_only(out.target())) return out.target();
  write_dense(out.target(), [&](const Tensor& y) {
    run_experts(taken, rows_of(kOp, *this, x, d.offsets(), y));
    clear_tail(kOp, d.offsets(), y);
  });
  return out.finish();
}

}  // namespace tenor::moe
