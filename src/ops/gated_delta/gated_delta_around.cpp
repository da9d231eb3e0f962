// The contract of what models put around the gated delta rule: gated_delta_gate, causal_conv1d, gated_rms_norm.
#include <cmath>
#include <optional>

#include "src/core/backend.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/ops/gated_delta/gated_delta_around_kernels.h"
#include "src/ops/gated_delta/state_pool.h"
#include "src/ops/norm/norm_checks.h"
#include "tenor/gated_delta.h"

namespace tenor {
namespace {

using core::fail;
using core::Named;
using core::OpClass;
using core::Output;
using core::Step;

const core::OpRegistration kOps({
    {"gated_delta_gate", "gated_delta", OpClass::kElementwise,
     "a[B,Hv,T] or [B,Hv,T,K] -> -exp(A_log[Hv]) softplus(a + dt_bias), or lower_bound sigmoid(exp(A_log) (a + "
     "dt_bias))"},
    {"causal_conv1d", "gated_delta", OpClass::kContraction,
     "x[B,C,T], weight[C,W] -> activation(bias + sum_w weight[c,w] x[t-W+1+w]), the last W-1 inputs"},
    {"gated_rms_norm", "gated_delta", OpClass::kReduction,
     "x, gate [..., H] -> x / sqrt(mean(x^2) + epsilon) * gamma[H] * silu(gate)"},
});

/// A parameter on x's device: float32 or x's dtype.
void check_parameter(const char* op, Named v, Named x, const Dims& shape) {
  core::check_given(op, v);
  if (v.tensor.dtype() != float32 && v.tensor.dtype() != x.tensor.dtype())
    fail<DTypeError>("{}: {} must be float32 or {}'s dtype {}, got {}", op, v.name, x.name, x.tensor.dtype(),
                     v.tensor.dtype());
  core::check_same_device(op, {x, v});
  core::check_shape(op, v, shape);
}

}  // namespace

Tensor gated_delta_gate(const Tensor& a, const Tensor& A_log, const Tensor& dt_bias, const GatedDeltaGateOptions& o) {
  constexpr const char* kOp = "gated_delta_gate";
  const Named x{"a", a};
  core::check_float(kOp, x);
  if (a.ndim() != 3 && a.ndim() != 4)
    fail<ShapeError>("{}: a must have shape [B, Hv, T] or [B, Hv, T, K], got {}", kOp, a.shape());
  check_parameter(kOp, {"A_log", A_log}, x, {a.shape(1)});
  check_parameter(kOp, {"dt_bias", dt_bias}, x, a.ndim() == 3 ? Dims{a.shape(1)} : Dims{a.shape(1), a.shape(3)});
  if (o.lower_bound && !(std::isfinite(*o.lower_bound) && *o.lower_bound < 0))
    fail<ValueError>("{}: lower_bound must be finite and < 0, got {}", kOp, *o.lower_bound);
  Output out(kOp, o.out, a.shape(), float32, a, {&a, &A_log, &dt_bias}, {.cuda = core::kHasCuda});
  core::StepScope step([&] {
    return Step{kOp, OpClass::kElementwise, {a, A_log, dt_bias}, {out.target()}, a.numel()}.with(
        core::recipe([bound = o.lower_bound](const auto& in, const auto& outs) {
          gated_delta_gate(in[0], in[1], in[2], {.lower_bound = bound, .out = outs[0]});
        }));
  });
  if (step.shape_only(out.target())) return out.target();
  const delta::Gate gate{a, A_log, dt_bias, out.target(), o.lower_bound.has_value(), o.lower_bound.value_or(0)};
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(a)) {
      delta::gate_cuda(gate);
      return out.finish();
    }
  }
  cpu::delta_gate(gate);
  return out.finish();
}

CausalConvResult causal_conv1d(const Tensor& x, const Tensor& weight, const CausalConvOptions& o) {
  constexpr const char* kOp = "causal_conv1d";
  const Named in{"x", x};
  core::check_ndim(kOp, in, 3);
  core::check_float(kOp, in);
  core::check_ndim(kOp, {"weight", weight}, 2);
  const int64_t B = x.shape(0), C = x.shape(1), T = x.shape(2), W = weight.shape(1);
  if (W < 1) fail<ShapeError>("{}: weight must have at least 1 tap, got shape {}", kOp, weight.shape());
  check_parameter(kOp, {"weight", weight}, in, {C, W});
  if (o.bias.defined()) check_parameter(kOp, {"bias", o.bias}, in, {C});
  if (o.activation != "none" && o.activation != "silu")
    fail<ValueError>("{}: activation must be 'none' or 'silu', got '{}'", kOp, o.activation);
  const delta::StateOptions states{o.cu_seqlens, o.initial_state, o.state, o.state_indices, o.has_initial_state};
  delta::check_states(kOp, states, in, {C, W - 1}, x.dtype());
  delta::Conv c{x,
                weight,
                o.bias,
                {},
                {},
                {},
                o.cu_seqlens,
                o.state_indices,
                o.has_initial_state,
                B,
                C,
                T,
                W,
                delta::sequence_count(states, B),
                o.activation == "silu",
                {}};
  const bool pool = o.state.defined(), traced = core::StepScope::shape_only(x);
  if (!pool && o.out.y.defined() != o.out.final_state.defined())
    fail<ValueError>("{}: out must hold both y and final_state", kOp);
  if (pool && o.out.final_state.defined() && o.out.final_state.raw() != o.state.raw())
    fail<ValueError>("{}: out.final_state must be state itself where state is given", kOp);
  if (!traced && x.device().type == DeviceType::kCpu) c.on_cpu = delta::read_sequences(kOp, states, B, T);
  const Tensor& written = pool ? o.state : o.out.final_state;
  core::check_distinct_outputs(kOp, {&o.out.y, &written});
  const std::initializer_list<const Tensor*> inputs = {
      &x, &weight, &o.bias, &o.cu_seqlens, &o.initial_state, &o.state_indices, &o.has_initial_state};
  Output y(kOp, o.out.y, x.shape(), x.dtype(), x, inputs, {.argument = pool ? "out" : "out.y", .cuda = core::kHasCuda});
  std::optional<Output> last;
  if (!pool)
    last.emplace(kOp, o.out.final_state, Dims{c.sequences, C, W - 1}, x.dtype(), x, inputs,
                 core::OutputRules{.contiguous = true, .argument = "out.final_state", .cuda = core::kHasCuda});
  c.y = y.target(), c.first = pool ? o.state : o.initial_state, c.last = pool ? o.state : last->target();
  core::StepScope step([&] {
    const int64_t flops = core::count_product(x.numel(), 2 * W);
    Step made{kOp,
              OpClass::kContraction,
              {x, weight, o.bias, c.first, c.cu_seqlens, c.state_indices, c.has_initial},
              {c.y, c.last},
              flops};
    const int64_t named = core::count_product(c.sequences, C * (W - 1));
    if (pool) made.reads = {-1, -1, -1, named, -1, -1, -1}, made.writes = {c.y.numel(), named};
    made.recipe = core::recipe([activation = o.activation, pool](const auto& in, const auto& outs) {
      causal_conv1d(in[0], in[1],
                    {.bias = in[2],
                     .initial_state = pool ? Tensor() : in[3],
                     .activation = activation,
                     .cu_seqlens = in[4],
                     .state = pool ? outs[1] : Tensor(),
                     .state_indices = in[5],
                     .has_initial_state = in[6],
                     .out = {outs[0], pool ? Tensor() : outs[1]}});
    });
    return made;
  });
  if (step.shape_only(c.y)) return {c.y, c.last};
  if (pool)
    for (Tensor* t : {&c.x, &c.weight, &c.bias, &c.cu_seqlens, &c.state_indices, &c.has_initial})
      *t = delta::apart_from_pool(*t, o.state);
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) {
      if (C > 0) delta::conv_cuda(c);
      return {y.finish(), pool ? o.state : last->finish()};
    }
  }
  cpu::causal_conv(c);
  CausalConvResult result{y.finish(), {}};
  result.final_state = pool ? o.state : last->finish();
  return result;
}

Tensor gated_rms_norm(const Tensor& x, const Tensor& gate, const Tensor& gamma, const GatedRmsNormOptions& o) {
  constexpr const char* kOp = "gated_rms_norm";
  core::check_float(kOp, {"x", x});
  check_last_axis(kOp, x);
  core::check_same_dtype(kOp, {"x", x}, {"gate", gate});
  core::check_same_device(kOp, {{"x", x}, {"gate", gate}});
  core::check_shape(kOp, {"gate", gate}, x.shape());
  check_vector(kOp, {"gamma", gamma}, x, x.shape(-1));
  core::check_positive(kOp, "epsilon", o.epsilon);
  Output out(kOp, o.out, x.shape(), x.dtype(), x, {&x, &gate, &gamma}, {.elementwise = true, .cuda = core::kHasCuda});
  core::StepScope step([&] {
    return Step{kOp, OpClass::kReduction, {x, gate, gamma}, {out.target()}, 2 * x.numel()}.with(
        core::recipe([epsilon = o.epsilon](const auto& in, const auto& outs) {
          gated_rms_norm(in[0], in[1], in[2], {.epsilon = epsilon, .out = outs[0]});
        }));
  });
  if (step.shape_only(out.target())) return out.target();
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) {
      delta::gated_rms_norm_cuda(x, gate, gamma, o.epsilon, out.target());
      return out.finish();
    }
  }
  const cpu::DenseVector scale(gamma, compute_dtype(x.dtype()));
  cpu::RowWalk walk(x.shape(), 1);
  walk.read(x);
  walk.read(gate);
  walk.write(out.target());
  const cpu::GatedNormParameters p{x.dtype(), scale.data(), o.epsilon};
  walk.run([&](const cpu::RowBlock& block) { cpu::gated_rms_norm_rows(block, p); });
  return out.finish();
}

}  // namespace tenor
