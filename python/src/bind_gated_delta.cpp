#include "call.h"
#include "tenor/gated_delta.h"

namespace tenor::python {
namespace {

/// out= of an operator with a state: the pair, or with a pool the first result alone as well.
std::pair<Tensor, Tensor> out_pair(Call& call, Out out, bool pool) {
  if (pool && !out.object.is_none() && !nb::isinstance<nb::tuple>(out.object)) return {call.out(), {}};
  return {call.out(0, 2), call.out(1, 2)};
}

/// The results as the named tuple `type`; what the caller passed where he did, a lone out= beside the pool.
template <class F>
nb::object run_stateful(Call& call, nb::handle type, Out out, OptionalArray state, F&& fn) {
  if (!state.object.is_none()) {
    const Tensor first = call.compute(fn)[0];
    nb::object made = out.object.is_none()                    ? call.wrap_one(first)
                      : nb::isinstance<nb::tuple>(out.object) ? nb::object(nb::borrow<nb::tuple>(out.object)[0])
                                                              : nb::borrow(out.object);
    return type(made, state.object);
  }
  return call.run_named(type, std::forward<F>(fn));
}

template <class Options>
void read_options(Call& call, Options& o, OptionalArray initial_state, OptionalReal query_scale,
                  OptionalArray cu_seqlens, OptionalArray state, OptionalArray state_indices,
                  OptionalArray has_initial_state, bool qk_normalize, Out out) {
  o.initial_state = call.array("initial_state", initial_state);
  o.query_scale = query_scale;
  o.cu_seqlens = call.array("cu_seqlens", cu_seqlens);
  o.state = call.array("state", state);
  o.state_indices = call.array("state_indices", state_indices);
  o.has_initial_state = call.array("has_initial_state", has_initial_state);
  o.qk_normalize = qk_normalize;
  std::tie(o.out.output, o.out.final_state) = out_pair(call, out, o.state.defined());
}

void bind_rules(nb::module_& m) {
  const nb::object type = named_tuple("GatedDeltaResult", {"output", "final_state"});
  m.def(
      "gated_delta_rule",
      [type](Array query, Array key, Array value, Array beta, Array log_decay, OptionalArray initial_state,
             OptionalReal query_scale, OptionalArray cu_seqlens, OptionalArray state, OptionalArray state_indices,
             OptionalArray has_initial_state, bool qk_normalize, Out out, Workspace workspace) {
        Call call("gated_delta_rule", out, workspace);
        const Tensor q = call.array("query", query), k = call.array("key", key), v = call.array("value", value),
                     b = call.array("beta", beta), g = call.array("log_decay", log_decay);
        GatedDeltaOptions o;
        read_options(call, o, initial_state, query_scale, cu_seqlens, state, state_indices, has_initial_state,
                     qk_normalize, out);
        return run_stateful(call, type, out, state, [&] {
          const GatedDeltaResult r = gated_delta_rule(q, k, v, b, g, o);
          return std::vector<Tensor>{r.output, r.final_state};
        });
      },
      "query"_a, "key"_a, "value"_a, "beta"_a, "log_decay"_a, "initial_state"_a = nb::none(),
      "query_scale"_a = nb::none(), nb::kw_only(), "cu_seqlens"_a = nb::none(), "state"_a = nb::none(),
      "state_indices"_a = nb::none(), "has_initial_state"_a = nb::none(), "qk_normalize"_a = false,
      "out"_a = nb::none(), "workspace"_a = nb::none(),
      "The gated delta rule step by step (decoding): (output [B,Hv,T,V], final_state float32 [B,Hv,K,V]). A step: S *= "
      "exp(log_decay);\n"
      "e = beta * (v - S^T k); S += k e^T; o = S^T (scale * q). query, key [B,H,T,K], value [B,Hv,T,V], one dtype; "
      "beta "
      "[B,Hv,T], that or\n"
      "float32; log_decay float32 [B,Hv,T], or [B,Hv,T,K] for a decay a row of S. Value head j reads query head j // "
      "(Hv/H). query_scale\n"
      "None is K^-0.5. cu_seqlens [N+1] (B = 1) packs N sequences, each with its state; one without steps hands it on. "
      "state [slots,Hv,K,V]\n"
      "with state_indices updates a pool in place and returns (output, state): -1 skips and gives 0; has_initial_state "
      "False starts from\n"
      "zeros. qk_normalize: query and key become x * rsqrt(sum x^2 + 1e-6). IndexError for a slot out of range, "
      "ValueError for one named\n"
      "twice, cu_seqlens that do not rise from 0 to at most T, a scale that is not finite.");
  m.def(
      "chunk_gated_delta_rule",
      [type](Array query, Array key, Array value, Array beta, Array log_decay, OptionalArray initial_state,
             OptionalReal query_scale, Int chunk_size, OptionalArray cu_seqlens, OptionalArray state,
             OptionalArray state_indices, OptionalArray has_initial_state, bool qk_normalize, std::string strategy,
             Out out, Workspace workspace) {
        Call call("chunk_gated_delta_rule", out, workspace);
        const Tensor q = call.array("query", query), k = call.array("key", key), v = call.array("value", value),
                     b = call.array("beta", beta), g = call.array("log_decay", log_decay);
        ChunkGatedDeltaOptions o;
        read_options(call, o, initial_state, query_scale, cu_seqlens, state, state_indices, has_initial_state,
                     qk_normalize, out);
        o.chunk_size = chunk_size;
        o.strategy = strategy;
        return run_stateful(call, type, out, state, [&] {
          const GatedDeltaResult r = chunk_gated_delta_rule(q, k, v, b, g, o);
          return std::vector<Tensor>{r.output, r.final_state};
        });
      },
      "query"_a, "key"_a, "value"_a, "beta"_a, "log_decay"_a, "initial_state"_a = nb::none(),
      "query_scale"_a = nb::none(), nb::kw_only(), "chunk_size"_a = 64, "cu_seqlens"_a = nb::none(),
      "state"_a = nb::none(), "state_indices"_a = nb::none(), "has_initial_state"_a = nb::none(),
      "qk_normalize"_a = false, "strategy"_a = "auto", "out"_a = nb::none(), "workspace"_a = nb::none(),
      "gated_delta_rule, many steps at once (prefill): the same arguments and results by the chunked algorithm, any T. "
      "strategy:\n"
      "'general' computes chunk_size steps together, 'tensorcore' (Hopper; float32, float16 and bfloat16) always 64,\n"
      "whatever chunk_size is, as explain notes: the same function within the same tolerance. ValueError for\n"
      "chunk_size < 1; on CUDA UnsupportedError from either where general's triangular workspace of\n"
      "4 * (chunk_size^2 + chunk_size) bytes exceeds a block's shared memory.");
}

}  // namespace

void bind_gated_delta(nb::module_& m) {
  bind_rules(m);
  m.def(
      "gated_delta_gate",
      [](Array a, Array A_log, Array dt_bias, OptionalReal lower_bound, Out out) {
        Call call("gated_delta_gate", out);
        const Tensor x = call.array("a", a), rate = call.array("A_log", A_log), bias = call.array("dt_bias", dt_bias);
        const GatedDeltaGateOptions o{lower_bound, call.out()};
        return call.run([&] { return gated_delta_gate(x, rate, bias, o); });
      },
      "a"_a, "A_log"_a, "dt_bias"_a, "lower_bound"_a = nb::none(), nb::kw_only(), "out"_a = nb::none(),
      "log_decay, float32, from a [B,Hv,T] or [B,Hv,T,K]: -exp(A_log) * softplus(a + dt_bias), or with lower_bound (< "
      "0) "
      "lower_bound *\n"
      "sigmoid(exp(A_log) * (a + dt_bias)). A_log [Hv]; dt_bias [Hv], or [Hv,K] where a has K; float32 or a's dtype.\n"
      "Source: arXiv 2412.06464, 2510.26692. Raises ShapeError, DTypeError, DeviceError, ValueError for a lower_bound "
      "that is not "
      "finite and < 0.");
  const nb::object type = named_tuple("CausalConvResult", {"y", "final_state"});
  m.def(
      "causal_conv1d",
      [type](Array x, Array weight, OptionalArray bias, OptionalArray initial_state,
             std::optional<std::string> activation, OptionalArray cu_seqlens, OptionalArray state,
             OptionalArray state_indices, OptionalArray has_initial_state, Out out) {
        Call call("causal_conv1d", out);
        const Tensor in = call.array("x", x), taps = call.array("weight", weight);
        CausalConvOptions o;
        o.bias = call.array("bias", bias);
        o.initial_state = call.array("initial_state", initial_state);
        o.activation = activation.value_or("none");
        o.cu_seqlens = call.array("cu_seqlens", cu_seqlens);
        o.state = call.array("state", state);
        o.state_indices = call.array("state_indices", state_indices);
        o.has_initial_state = call.array("has_initial_state", has_initial_state);
        std::tie(o.out.y, o.out.final_state) = out_pair(call, out, o.state.defined());
        return run_stateful(call, type, out, state, [&] {
          const CausalConvResult r = causal_conv1d(in, taps, o);
          return std::vector<Tensor>{r.y, r.final_state};
        });
      },
      "x"_a, "weight"_a, "bias"_a = nb::none(), "initial_state"_a = nb::none(), nb::kw_only(),
      "activation"_a = nb::none(), "cu_seqlens"_a = nb::none(), "state"_a = nb::none(), "state_indices"_a = nb::none(),
      "has_initial_state"_a = nb::none(), "out"_a = nb::none(),
      "A convolution along T of each channel with its own W taps that sees the past alone: (y [B,C,T], final_state "
      "[B,C,W-1], the last\n"
      "inputs, oldest first). y[t] = activation(bias + sum_w weight[c,w] * x[t-W+1+w]). x [B,C,T], weight [C,W], bias "
      "[C] (float32 or x's\n"
      "dtype), initial_state [B,C,W-1] (x's dtype; None is zeros), activation None or 'silu'. cu_seqlens, state, "
      "state_indices and\n"
      "has_initial_state as for gated_delta_rule, states being of x's dtype. Raises ShapeError, DTypeError, "
      "DeviceError,\n"
      "IndexError for a slot out of range, ValueError for another activation, a slot named twice, other cu_seqlens.");
  m.def(
      "gated_rms_norm",
      [](Array x, Array gate, Array gamma, Real epsilon, Out out) {
        Call call("gated_rms_norm", out);
        const Tensor in = call.array("x", x), by = call.array("gate", gate), scale = call.array("gamma", gamma);
        const GatedRmsNormOptions o{epsilon, call.out()};
        return call.run([&] { return gated_rms_norm(in, by, scale, o); });
      },
      "x"_a, "gate"_a, "gamma"_a, "epsilon"_a = 1e-6, nb::kw_only(), "out"_a = nb::none(),
      "x / sqrt(mean(x^2) + epsilon) * gamma * silu(gate) over the last axis, rounded once. gate has x's shape and "
      "dtype; "
      "gamma [H],\n"
      "float32 or x's dtype. Raises ShapeError, DTypeError, DeviceError, ValueError unless epsilon is finite and > 0.");
}

}  // namespace tenor::python
