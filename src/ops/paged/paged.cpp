// The contract of paged attention and latent attention: checks, then the kernels of the plan's device.
#include <cmath>

#include "src/core/backend.h"
#include "src/core/candidates.h"
#include "src/core/check.h"
#include "src/core/device_traits.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/core/traced_recipe.h"
#include "src/ops/attention/attention_problem.h"
#include "src/ops/attention/attention_range.h"
#include "src/ops/paged/paged_cuda.h"
#include "src/ops/paged/paged_plan.h"

namespace tenor::paged {
namespace {

using core::fail;
using core::Named;
using core::OpClass;
using core::Output;
using core::Step;

const std::vector<std::string> kStrategies = {"flash_tensorcore", "flash_unit"};
const core::OpRegistration kOps({
    {"paged.attention", "paged", OpClass::kContraction,
     "plan, q[N,Hq,D], k[pages,size,Hkv,D], v[pages,size,Hkv,Dv] -> softmax(scale q k^T) v over each row's sequence "
     "[N,Hq,Dv]",
     kStrategies},
    {"paged.mla", "paged", OpClass::kContraction,
     "plan, q[N,H,R], qp[N,H,P], latent[pages,size,1,R], kp[pages,size,1,P] -> softmax(scale (q latent^T + qp kp^T)) "
     "latent [N,H,R]",
     kStrategies},
});

std::string flash_tensorcore_why_not(const Call& c) {
  if (core::runs_on(c.device) == DeviceType::kCuda) return tensorcore_why_not(c);
  return attn::cpu_matrix_unit_takes(c.q.dtype(), c.dim) ? "" : attn::kNoMatrixUnit;
}
/// A template, so that a build without CUDA names no kernel.
template <attn::CpuUnit kUnit, bool kBuilt = core::kHasCuda>
void run(const Call& c) {
  if constexpr (kBuilt)
    if (c.device.type == DeviceType::kCuda)
      return kUnit == attn::CpuUnit::kMatrix ? cuda::paged_run_tensorcore(c) : cuda::paged_run_unit(c);
  run_cpu(c, kUnit);
}

constexpr core::Candidate<Call> kCandidates[] = {
    {"flash_tensorcore", &flash_tensorcore_why_not, &run<attn::CpuUnit::kMatrix>},
    {"flash_unit", &core::always<Call>, &run<attn::CpuUnit::kVectors>},
};

constexpr int64_t kMostDim = 1024, kMostPositionDim = 256;
constexpr int64_t kMostBytes = int64_t{64} << 20;

void check_query(const char* op, Named x, int64_t queries) {
  core::check_ndim(op, x, 3);
  core::check_float(op, x);
  if (x.tensor.shape(0) != queries)
    fail<ShapeError>("{}: {} must have the plan's {} rows, got shape {}", op, x.name, queries, x.tensor.shape());
}

/// A cache [pages, page_size, heads, dim]; heads or dim -1: any.
void check_cache(const char* op, Named x, const Capacity& size, int64_t heads, int64_t dim) {
  core::check_ndim(op, x, 4);
  core::check_shape(
      op, x, {size.pages, size.page_size, heads < 0 ? x.tensor.shape(2) : heads, dim < 0 ? x.tensor.shape(3) : dim});
}

void check_dim(const char* op, const char* name, int64_t dim, int64_t most) {
  if (dim < 1 || dim > most) fail<ShapeError>("{}: {} must have a head size of 1 to {}, got {}", op, name, most, dim);
}

/// workspace= of either kind.
void take_workspace(const char* op, const DevicePlan& plan, const std::optional<SplitWorkspace>& splits,
                    const Tensor& bytes, Call& c) {
  if (splits && bytes.defined()) fail<ValueError>("{}: workspace is given twice", op);
  const int64_t rows = plan.capacity().queries;
  if (splits) {
    if (splits->queries() != rows || splits->heads() != c.heads || splits->value_dim() != c.value_dim)
      fail<ShapeError>("{}: workspace was made for (queries, heads, value_dim) = ({}, {}, {}), expected ({}, {}, {})",
                       op, splits->queries(), splits->heads(), splits->value_dim(), rows, c.heads, c.value_dim);
    if (!core::StepScope::shape_only(c.q)) core::check_same_device(op, {{"q", c.q}, {"workspace", splits->memory()}});
    c.splits = splits->splits();
    c.workspace = splits->memory();
  }
  if (!bytes.defined()) return;
  core::check_dtype(op, {"workspace", bytes}, uint8);
  core::check_ndim(op, {"workspace", bytes}, 1);
  core::check_same_device(op, {{"q", c.q}, {"workspace", bytes}});
  core::check_writable(op, "workspace", bytes);
  const int64_t need = plan.workspace_size(op, c.heads, c.value_dim);
  if (bytes.shape(0) < need || !bytes.is_contiguous())
    fail<ShapeError>("{}: workspace must be {} contiguous bytes, got {}", op, need, bytes.shape(0));
  if (core::on_cuda(bytes) && reinterpret_cast<uintptr_t>(bytes.raw()) % 16 != 0)
    fail<ValueError>("{}: workspace must lie at a multiple of 16 bytes", op);
  c.workspace = bytes;
}

/// Keys that row i sees: [begin, end).
attn::KeyRange visible(const HostPlan& host, int64_t i, bool causal, const Window& window) {
  const int64_t s = host.sequence_ids()[i], at = host.positions()[i];
  if (s < 0) return {0, 0};
  int64_t begin = 0, end = host.lengths()[s];
  if (causal) end = std::min(end, at + 1);
  if (window.right >= 0) end = std::min(end, at + window.right + 1);
  if (window.left >= 0) begin = std::max(begin, at - window.left);
  return {begin, std::max(begin, end)};
}

/// What a call reads and computes, counted only when somebody asks. A schedule that only the device knows counts as
/// full.
Step stated(const Call& c, std::vector<Tensor> inputs, const char* strategy) {
  const HostPlan* host = c.plan->host.get();
  int64_t pairs = 0, keys = 0;
  if (host) {
    for (int64_t i = 0; i < host->queries(); ++i) {
      const auto seen = visible(*host, i, c.causal, c.window);
      pairs = core::count_sum(pairs, seen.end - seen.begin);
    }
    for (int64_t length : host->lengths()) keys = core::count_sum(keys, length);
  } else {
    keys = core::count_product(c.plan->size.sequences, c.plan->longest);
    pairs = core::count_product(c.plan->size.queries, c.plan->longest);
  }
  const int64_t flops = core::count_product(core::count_product(pairs, c.heads), 2 * (c.dim + c.value_dim));
  Step step{c.op,
            OpClass::kContraction,
            std::move(inputs),
            {c.out, c.lse},
            flops,
            std::string(strategy) + "\n" + core::declined<Call>(kCandidates, c)};
  for (const Tensor& x : step.inputs)  // caches have four dims
    step.reads.push_back(
        !x.defined() || x.ndim() != 4 ? -1 : std::min(x.numel(), core::count_product(keys, x.shape(2) * x.shape(3))));
  return step;
}

/// A call that runs again with the plan, whose schedule is what it was updated to last. Not made of a workspace that is
/// traced, which the step does not list.
template <class Options, class F>
std::shared_ptr<const core::Recipe> plan_recipe(const Options& o, const F& again) {
  const Tensor& splits = o.split_workspace ? o.split_workspace->memory() : o.workspace;
  return splits.defined() && core::StepScope::shape_only(splits) ? nullptr : core::traced_recipe(again);
}

/// Makes the results, states the step and runs.
AttentionResult run(Call& c, const std::string& strategy, const Tensor& out_given, const Tensor& lse_given,
                    bool with_lse, std::vector<Tensor> inputs, const std::shared_ptr<const core::Recipe>& again) {
  const char* op = c.op;
  const auto& candidate = core::choose<Call>(op, kCandidates, c, strategy);
  if (lse_given.defined() && !with_lse) fail<ValueError>("{}: out has an lse, but return_lse is off", op);
  if (with_lse && out_given.defined() != lse_given.defined())
    fail<ValueError>("{}: with return_lse, out must be the pair (out, lse)", op);
  if (with_lse) core::check_distinct_outputs(op, {&out_given, &lse_given});
  const int64_t rows = c.plan->size.queries;
  const std::initializer_list<const Tensor*> read = {&c.q, &c.q_tail, &c.k, &c.k_tail, &c.v, &c.sinks, &c.workspace};
  Output out(op, out_given, {rows, c.heads, c.value_dim}, c.q.dtype(), c.q, read, {.cuda = core::kHasCuda});
  std::optional<Output> lse;
  if (with_lse)
    lse.emplace(op, lse_given, Dims{rows, c.heads}, float32, c.q, read, core::OutputRules{.cuda = core::kHasCuda});
  c.out = out.target();
  if (lse) c.lse = lse->target();
  core::StepScope step([&] { return stated(c, std::move(inputs), candidate.name).with(again); });
  if (step.shape_only(c.out)) return {c.out, c.lse};
  candidate.run(c);
  AttentionResult result{out.finish(), {}};
  if (lse) result.lse = lse->finish();
  return result;
}

/// Traced operands have no device of their own.
void check_plan_device(const char* op, const DevicePlan& plan, const Tensor& q) {
  if (!core::StepScope::shape_only(q) && plan.device() != q.device())
    fail<DeviceError>("{}: the plan is on {}, but q on {}", op, plan.device(), q.device());
}

}  // namespace

SplitWorkspace::SplitWorkspace(const Tensor& like, int64_t queries, int64_t heads, int64_t value_dim, int64_t splits)
    : queries_(queries), heads_(heads), value_dim_(value_dim), splits_(splits) {
  constexpr const char* kOp = "paged.SplitWorkspace";
  core::check_given(kOp, {"q", like});
  if (splits < 2 || splits > 32) fail<ValueError>("{}: splits is {}, expected 2 to 32", kOp, splits);
  for (const auto& [name, n] : {std::pair{"queries", queries}, {"heads", heads}, {"value_dim", value_dim}})
    if (n < 0) fail<ValueError>("{}: {} is {}, expected 0 or more", kOp, name, n);
  const int64_t rows = core::count_product(queries, heads);
  const int64_t bytes = core::count_product(core::count_product(rows, core::count_sum(value_dim, 2)), 4 * splits);
  if (bytes > kMostBytes)
    fail<ValueError>("{}: {} bytes of partial states, expected at most {} (64 MiB)", kOp, bytes, kMostBytes);
  memory_ = Tensor::empty({bytes}, uint8, like.device());
}

AttentionResult DevicePlan::attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                      const AttentionOptions& o) const {
  constexpr const char* kOp = "paged.attention";
  const State& plan = *state_;
  check_query(kOp, {"q", q}, plan.size.queries);
  const int64_t Hq = q.shape(1), D = q.shape(2);
  check_cache(kOp, {"k", k}, plan.size, -1, D);
  const int64_t Hkv = k.shape(2);
  check_cache(kOp, {"v", v}, plan.size, Hkv, -1);
  const int64_t Dv = v.shape(3);
  if (Hkv == 0 || Hq % Hkv != 0) fail<ShapeError>("{}: k has {} heads, which does not divide q's {}", kOp, Hkv, Hq);
  core::check_same_dtype(kOp, {"q", q}, {"k", k});
  core::check_same_dtype(kOp, {"q", q}, {"v", v});
  check_dim(kOp, "q", D, kMostDim);
  check_dim(kOp, "v", Dv, kMostDim);
  core::check_same_device(kOp, {{"q", q}, {"k", k}, {"v", v}, {"sinks", o.sinks}});
  check_plan_device(kOp, *this, q);
  Call c{};
  c.op = kOp, c.device = core::stands_for(q.device());
  c.plan = &plan, c.q = q, c.k = k, c.v = v, c.sinks = o.sinks, c.heads = Hq, c.kv_heads = Hkv, c.dim = D,
  c.value_dim = Dv;
  c.scale = o.scale.value_or(1 / std::sqrt(static_cast<double>(D)));
  core::check_positive(kOp, "scale", c.scale);
  c.scale = attn::scale_within(q.dtype(), c.scale);
  c.causal = o.causal;
  c.window = {attn::checked_window(kOp, o.window, o.window.left), attn::checked_window(kOp, o.window, o.window.right)};
  if (o.softcap) core::check_positive(kOp, "softcap", *o.softcap);
  c.softcap = attn::softcap_within(q.dtype(), o.softcap.value_or(0));
  if (o.sinks.defined()) {
    core::check_shape(kOp, {"sinks", o.sinks}, {Hq});
    if (o.sinks.dtype() != float32 && o.sinks.dtype() != q.dtype())
      fail<DTypeError>("{}: sinks must be float32 or q's {}, got {}", kOp, q.dtype(), o.sinks.dtype());
  }
  take_workspace(kOp, *this, o.split_workspace, o.workspace, c);
  const auto again = plan_recipe(o, [plan = *this, o](const auto& in, const auto& outs) {
    AttentionOptions now = o;
    now.sinks = in[3], now.out = outs[0], now.out_lse = outs[1];
    plan.attention(in[0], in[1], in[2], now);
  });
  return run(c, o.strategy, o.out, o.out_lse, o.return_lse, {q, k, v, o.sinks}, again);
}

AttentionResult DevicePlan::mla(const Tensor& q, const Tensor& qp, const Tensor& latent, const Tensor& kp, double scale,
                                bool causal, const MlaOptions& o) const {
  constexpr const char* kOp = "paged.mla";
  const State& plan = *state_;
  check_query(kOp, {"q", q}, plan.size.queries);
  check_query(kOp, {"qp", qp}, plan.size.queries);
  const int64_t H = q.shape(1), R = q.shape(2), P = qp.shape(2);
  core::check_shape(kOp, {"qp", qp}, {plan.size.queries, H, P});
  check_cache(kOp, {"latent", latent}, plan.size, 1, R);
  check_cache(kOp, {"kp", kp}, plan.size, 1, P);
  for (const Named& x : {Named{"qp", qp}, Named{"latent", latent}, Named{"kp", kp}})
    core::check_same_dtype(kOp, {"q", q}, x);
  check_dim(kOp, "q", R, kMostDim);
  check_dim(kOp, "qp", P, kMostPositionDim);
  core::check_same_device(kOp, {{"q", q}, {"qp", qp}, {"latent", latent}, {"kp", kp}});
  check_plan_device(kOp, *this, q);
  core::check_positive(kOp, "scale", scale);
  Call c{};
  c.op = kOp, c.device = core::stands_for(q.device());
  c.plan = &plan, c.q = q, c.k = latent, c.v = latent, c.q_tail = qp, c.k_tail = kp;
  c.heads = H, c.kv_heads = 1, c.dim = R + P, c.value_dim = R, c.scale = attn::scale_within(q.dtype(), scale),
  c.causal = causal;
  take_workspace(kOp, *this, o.split_workspace, o.workspace, c);
  const auto again = plan_recipe(o, [plan = *this, scale, causal, o](const auto& in, const auto& outs) {
    MlaOptions now = o;
    now.out = outs[0], now.out_lse = outs[1];
    plan.mla(in[0], in[1], in[2], in[3], scale, causal, now);
  });
  return run(c, o.strategy, o.out, o.out_lse, o.return_lse, {q, qp, latent, kp}, again);
}

int64_t DevicePlan::workspace_size(std::string_view op, int64_t heads, int64_t value_dim) const {
  constexpr const char* kOp = "paged.workspace_size";
  if (op.starts_with("paged.")) op.remove_prefix(6);
  if (op != "attention" && op != "mla")
    fail<ValueError>("{}: op must be 'attention' or 'mla', got '{}'", kOp, std::string(op));
  if (heads < 0) fail<ValueError>("{}: heads is {}, expected 0 or more", kOp, heads);
  if (value_dim < 0) fail<ValueError>("{}: value_dim is {}, expected 0 or more", kOp, value_dim);
  if constexpr (core::kHasCuda) {
    if (state_->device.type == DeviceType::kCuda) return cuda::paged_workspace_bytes(*state_, heads, value_dim);
  }
  return 0;  // the CPU's kernels merge in place
}

}  // namespace tenor::paged
