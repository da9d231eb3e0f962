// The contract of gated_delta_rule and chunk_gated_delta_rule.
#include "tenor/gated_delta.h"

#include <cmath>
#include <optional>

#include "src/core/backend.h"
#include "src/core/candidates.h"
#include "src/core/layout.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/ops/gated_delta/gated_delta_cuda.h"
#include "src/ops/gated_delta/gated_delta_kernels.h"
#include "src/ops/gated_delta/state_pool.h"

namespace tenor {
namespace {

using core::fail;
using core::Named;
using core::OpClass;
using core::Output;
using core::Step;
using delta::Problem;
using delta::StateOptions;

const core::OpRegistration kOps({
    {"gated_delta_rule", "gated_delta", OpClass::kContraction,
     "q,k[B,H,T,K], v[B,Hv,T,V], beta, g[B,Hv,T] -> a step: S = exp(g) S; S += k (beta (v - S^T k))^T; o = S^T (scale "
     "q)"},
    {"chunk_gated_delta_rule",
     "gated_delta",
     OpClass::kContraction,
     "q,k[B,H,T,K], v[B,Hv,T,V], beta, g[B,Hv,T] -> gated_delta_rule, many steps at once",
     {"tensorcore", "general"}},
});

/// What a CUDA strategy does: a template, so that a build without CUDA names no kernel.
template <bool kTensorcore, bool kBuilt = core::kHasCuda>
void run_chunked(const Problem& p) {
  if constexpr (kBuilt) {
    if (core::on_cuda(p.output)) return kTensorcore ? delta::run_tensorcore_cuda(p) : delta::run_general_cuda(p);
  }
  if constexpr (!kTensorcore) cpu::delta_chunked(p);
}
template <bool kBuilt = core::kHasCuda>
void run_recurrent(const Problem& p) {
  if constexpr (kBuilt) {
    if (core::on_cuda(p.output)) return delta::run_recurrent_cuda(p);
  }
  cpu::delta_recurrent(p);
}

constexpr core::Candidate<Problem> kCandidates[] = {
    {"tensorcore", &delta::tensorcore_why_not, &run_chunked<true>},
    {"general", &delta::chunk_why_not, &run_chunked<false>, 1},
};

void check_operands(const char* op, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& beta,
                    const Tensor& decay) {
  const Named q{"query", query}, k{"key", key}, v{"value", value}, b{"beta", beta}, g{"log_decay", decay};
  for (const Named& x : {q, k, v}) {
    core::check_ndim(op, x, 4);
    core::check_float(op, x);
    core::check_same_dtype(op, q, x);
  }
  core::check_given(op, b);
  core::check_dtype(op, g, float32);
  if (beta.dtype() != float32 && beta.dtype() != query.dtype())
    fail<DTypeError>("{}: beta must be float32 or query's {}, got {}", op, query.dtype(), beta.dtype());
  core::check_same_device(op, {q, k, v, b, g});
  const int64_t B = query.shape(0), H = query.shape(1), T = query.shape(2), K = query.shape(3);
  const int64_t Hv = value.shape(1), V = value.shape(3);
  if (K < 1) fail<ShapeError>("{}: query must have a head size of at least 1, got {}", op, K);
  core::check_shape(op, k, {B, H, T, K});
  if (H == 0 ? Hv != 0 : Hv % H != 0)
    fail<ShapeError>("{}: value has {} heads, which is no multiple of query's {}", op, Hv, H);
  core::check_shape(op, v, {B, Hv, T, V});
  core::check_shape(op, b, {B, Hv, T});
  if (decay.shape() != Dims{B, Hv, T} && decay.shape() != Dims{B, Hv, T, K})
    fail<ShapeError>("{}: log_decay must have shape {} or {}, got {}", op, Dims{B, Hv, T}, Dims{B, Hv, T, K},
                     decay.shape());
}

double checked_scale(const char* op, const std::optional<double>& scale, int64_t key_dim) {
  const double value = scale.value_or(1 / std::sqrt(static_cast<double>(key_dim)));
  if (!std::isfinite(value)) fail<ValueError>("{}: query_scale must be finite, got {}", op, value);
  return value;
}

/// What a call computes and moves: of a pool the slots named.
Step stated(const Problem& p, const Tensor& first, const Tensor& last, std::string strategy) {
  const int64_t state = core::count_product(core::count_product(p.value_heads, p.key_dim), p.value_dim);
  const int64_t steps = core::count_product(p.batch, p.steps);
  Step step{p.op,
            OpClass::kContraction,
            {p.query, p.key, p.value, p.beta, p.decay, first, p.cu_seqlens, p.state_indices, p.has_initial},
            {p.output, last},
            core::count_product(core::count_product(steps, state), 7),
            std::move(strategy)};
  if (step.strategy.starts_with("tensorcore")) {
    std::vector<Named> moved{{"query", p.query}, {"key", p.key}};
    if (p.query.dtype() == bfloat16) moved.push_back({"value", p.value}), moved.push_back({"out", p.output});
    for (const Named& x : moved)
      if (!delta::has_aligned_rows(x.tensor))
        step.copies.push_back({x.name, 2 * x.tensor.numel(), "rows are moved dense, at multiples of 16 bytes"});
    if (p.chunk != delta::kTensorcoreSteps)
      step.note = core::text("{} steps at once, for chunk_size {}", delta::kTensorcoreSteps, p.chunk);
  }
  if (p.state_indices.defined()) {
    const int64_t named = core::count_product(p.sequences, state);
    step.reads = {-1, -1, -1, -1, -1, named, -1, -1, -1};
    step.writes = {p.output.numel(), named};
  }
  return step;
}

GatedDeltaResult call(const std::vector<Tensor>& in, const GatedDeltaOptions& o) {
  return gated_delta_rule(in[0], in[1], in[2], in[3], in[4], o);
}
GatedDeltaResult call(const std::vector<Tensor>& in, const ChunkGatedDeltaOptions& o) {
  return chunk_gated_delta_rule(in[0], in[1], in[2], in[3], in[4], o);
}

/// The call on other tensors, in the order of stated().
template <class Options>
std::shared_ptr<const core::Recipe> again(const Options& o, bool pool) {
  return core::recipe([o, pool](const auto& in, const auto& outs) {
    Options now = o;
    (pool ? now.state : now.initial_state) = in[5];
    now.cu_seqlens = in[6], now.state_indices = in[7], now.has_initial_state = in[8];
    now.out = {outs[0], pool ? Tensor() : outs[1]};
    call(in, now);
  });
}

/// final_state, which may be the initial one itself: kernels read a state before they write it, as in a pool.
Output state_output(const Problem& p, const Tensor& out, const Tensor& initial) {
  const bool onto = out.defined() && initial.defined() && core::same_elements(initial, out);
  const Tensor apart = onto ? Tensor() : initial;
  return {p.op,
          out,
          {p.sequences, p.value_heads, p.key_dim, p.value_dim},
          float32,
          p.query,
          {&p.query, &p.key, &p.value, &p.beta, &p.decay, &p.cu_seqlens, &apart, &p.state_indices, &p.has_initial},
          {.contiguous = true, .argument = "out.final_state", .cuda = core::kHasCuda}};
}

/// Fills in what both forms share, makes the results, states the step and runs.
template <class Options, class Run>
GatedDeltaResult run(const char* op, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& beta,
                     const Tensor& decay, const Options& o, int64_t chunk, Run&& choose) {
  check_operands(op, query, key, value, beta, decay);
  const int64_t B = query.shape(0), K = query.shape(3), Hv = value.shape(1), T = query.shape(2), V = value.shape(3);
  const StateOptions states{o.cu_seqlens, o.initial_state, o.state, o.state_indices, o.has_initial_state};
  delta::check_states(op, states, {"query", query}, {Hv, K, V}, float32);
  Problem p{};
  p.op = op, p.query = query, p.key = key, p.value = value, p.beta = beta, p.decay = decay;
  p.cu_seqlens = o.cu_seqlens, p.state_indices = o.state_indices, p.has_initial = o.has_initial_state;
  p.batch = B, p.heads = query.shape(1), p.value_heads = Hv, p.steps = T, p.key_dim = K, p.value_dim = V;
  p.sequences = delta::sequence_count(states, B);
  p.scale = checked_scale(op, o.query_scale, K), p.normalize = o.qk_normalize, p.chunk = chunk;
  p.device = core::stands_for(query.device());
  const auto [kernel, strategy] = choose(p);

  const bool pool = o.state.defined(), traced = core::StepScope::shape_only(query);
  if (!pool && o.out.output.defined() != o.out.final_state.defined())
    fail<ValueError>("{}: out must hold both output and final_state", op);
  if (pool && o.out.final_state.defined() && o.out.final_state.raw() != o.state.raw())
    fail<ValueError>("{}: out.final_state must be state itself where state is given", op);
  if (!traced && query.device().type == DeviceType::kCpu) p.on_cpu = delta::read_sequences(op, states, B, T);
  const Tensor& written = pool ? o.state : o.out.final_state;
  core::check_distinct_outputs(op, {&o.out.output, &written});
  const std::initializer_list<const Tensor*> inputs = {
      &query, &key, &value, &beta, &decay, &o.cu_seqlens, &o.initial_state, &o.state_indices, &o.has_initial_state};
  Output output(op, o.out.output, {B, Hv, T, V}, query.dtype(), query, inputs,
                {.argument = pool ? "out" : "out.output", .cuda = core::kHasCuda});
  std::optional<Output> last;
  if (!pool) last = state_output(p, o.out.final_state, o.initial_state);
  p.output = output.target();
  p.first = pool ? o.state : o.initial_state;
  p.last = pool ? o.state : last->target();
  core::StepScope step([&] { return stated(p, p.first, p.last, strategy).with(again(o, pool)); });
  if (step.shape_only(p.output)) return {p.output, p.last};
  if (pool)
    for (Tensor* x : {&p.query, &p.key, &p.value, &p.beta, &p.decay, &p.cu_seqlens, &p.state_indices, &p.has_initial})
      *x = delta::apart_from_pool(*x, o.state);
  // On CUDA kernels alone read offsets and slots, and find bad ones where there is nothing to compute, too.
  const bool looks = core::on_cuda(p.output) && (p.cu_seqlens.defined() || p.state_indices.defined());
  if (looks || p.last.numel() > 0 || p.output.numel() > 0) kernel(p);
  GatedDeltaResult result{output.finish(), {}};
  result.final_state = pool ? o.state : last->finish();
  return result;
}

using Kernel = void (*)(const Problem&);
struct Chosen {
  Kernel run;
  std::string strategy;
};

}  // namespace

GatedDeltaResult gated_delta_rule(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& beta,
                                  const Tensor& log_decay, const GatedDeltaOptions& o) {
  return run("gated_delta_rule", query, key, value, beta, log_decay, o, 0, [](const Problem&) {
    return Chosen{&run_recurrent<>, {}};
  });
}

GatedDeltaResult chunk_gated_delta_rule(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& beta,
                                        const Tensor& log_decay, const ChunkGatedDeltaOptions& o) {
  constexpr const char* kOp = "chunk_gated_delta_rule";
  if (o.chunk_size < 1) fail<ValueError>("{}: chunk_size must be > 0, got {}", kOp, o.chunk_size);
  return run(kOp, query, key, value, beta, log_decay, o, o.chunk_size, [&](const Problem& p) {
    const auto& candidate = core::choose<Problem>(kOp, kCandidates, p, o.strategy);
    return Chosen{candidate.run, std::string(candidate.name) + "\n" + core::declined<Problem>(kCandidates, p)};
  });
}

}  // namespace tenor
