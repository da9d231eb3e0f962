// tenor.moe: routing plans, dispatch, experts and grouped products. python/tenor/moe.py gives these names their module.
#include "part.h"
#include "tenor/moe.h"

namespace tenor::python {
namespace {

using moe::DispatchedTokens;
using moe::RoutingPlan;
using moe::SwiGluExperts;

/// A plan and its weights as an array of the caller's library, whose stream and allocator the plan's calls use.
struct MoePlan {  // nanobind knows types by name, and the paged family has a Plan
  RoutingPlan plan;
  nb::object weights;
};

/// Dispatched tokens as arrays of their library.
struct MoeTokens {
  DispatchedTokens dispatched;
  nb::object tokens, offsets;
};

template <class F>
MoePlan make_plan(Call& call, F&& fn) {
  const RoutingPlan plan = call.compute(fn);
  return {plan, call.wrap_one(plan.weights())};
}

moe::SigmoidGroupedOptions grouped_options(Call& call, Int top_k, Int groups, Int selected_groups, bool group_top_two,
                                           bool renormalize, Real scale) {
  return {call.count("top_k", top_k),
          call.count("groups", groups),
          call.count("selected_groups", selected_groups),
          group_top_two,
          renormalize,
          scale};
}

void bind_plan(nb::module_& m) {
  nb::class_<MoePlan>(m, "_MoeRoutingPlan",
                      R"(Which experts each of T tokens goes to, and with which weights: k slots a token.

RoutingPlan(expert_indices, weights, experts) from any router's ids [T, k], an integer array, and weights [T, k], a float array;
both are copied. A slot whose id is -1 (padding, another rank's expert) is not dispatched and adds nothing. Raises IndexError
for an id outside -1..experts-1 (on CUDA it becomes -1 and raises the stream's flag), ValueError unless experts >= 1, ShapeError,
DTypeError, DeviceError.)")
      .def(
          "__init__",
          [](MoePlan* self, Array expert_indices, Array weights, Int experts) {
            Call call("moe.RoutingPlan");
            const Tensor ids = call.array("expert_indices", expert_indices), w = call.array("weights", weights);
            const int64_t count = call.count("experts", experts);
            new (self) MoePlan(make_plan(call, [&] { return RoutingPlan(ids, w, count); }));
          },
          "expert_indices"_a, "weights"_a, "experts"_a)
      .def_prop_ro(
          "experts", [](const MoePlan& p) { return p.plan.experts(); }, "E, the experts there are.")
      .def_prop_ro(
          "top_k", [](const MoePlan& p) { return p.plan.top_k(); }, "k, the slots of a token.")
      .def(
          "expert_indices",
          [](const MoePlan& p, DTypeLike dtype) {
            Call call("moe.expert_indices");
            call.array("weights", Array{p.weights});
            const DType to = call.dtype(dtype).value_or(uint32);
            return call.run([&] { return p.plan.expert_indices(to); });
          },
          "dtype"_a = "uint32", "The experts' ids [T, k] as an integer dtype; -1 wraps in unsigned ones.")
      .def(
          "weights", [](const MoePlan& p) { return p.weights; }, "The slots' weights [T, k].")
      .def(
          "dispatch",
          [](const MoePlan& p, Array x, Out out, Workspace workspace) {
            Call call("moe.dispatch", out, workspace);
            const Tensor rows = call.array("x", x);
            const DispatchedTokens d = call.compute([&] { return p.plan.dispatch(rows, {.out = call.out()}); });
            return MoeTokens{d, call.wrap(d.tokens()), call.wrap_one(d.offsets())};
          },
          "x"_a, nb::kw_only(), "out"_a = nb::none(), "workspace"_a = nb::none(),
          R"(x's rows [T, H] dealt out by expert: DispatchedTokens with .tokens [T * k, H] and .offsets int64 [E + 1].

Stable: in token order within an expert, in slot order within a token. No capacity limit; rows past the last are 0. out= takes
the tokens. Raises ShapeError unless x is [T, H], DTypeError, DeviceError.)")
      .def("_arrays",
           [](nb::object self) {
             nb::dict arrays;
             arrays["expert_indices"] = self.attr("expert_indices")();
             arrays["weights"] = self.attr("weights")();
             return arrays;
           })
      .def("__repr__", [](const MoePlan& p) {
        return "RoutingPlan(tokens=" + std::to_string(p.plan.tokens()) + ", top_k=" + std::to_string(p.plan.top_k()) +
               ", experts=" + std::to_string(p.plan.experts()) + ")";
      });
}

void bind_tokens(nb::module_& m) {
  nb::class_<MoeTokens> tokens(m, "_MoeDispatchedTokens",
                               "Tokens by expert: those of expert e are tokens[offsets[e]:offsets[e + 1]]. "
                               "Made by RoutingPlan.dispatch.");
  refuse_construction(tokens, "moe.DispatchedTokens", "moe.RoutingPlan's dispatch(x)");
  tokens
      .def_prop_ro(
          "tokens", [](const MoeTokens& t) { return t.tokens; }, "The rows by expert, [T * k, H].")
      .def_prop_ro(
          "offsets", [](const MoeTokens& t) { return t.offsets; }, "Where each expert's rows start, int64 [E + 1].")
      .def(
          "combine",
          [](const MoeTokens& t, Array y, OptionalArray shared, Out out, Workspace workspace) {
            Call call("moe.combine", out, workspace);
            const Tensor rows = call.array("y", y), added = call.array("shared", shared);
            return call.run([&] { return t.dispatched.combine(rows, {.shared = added, .out = call.out()}); });
          },
          "y"_a, nb::kw_only(), "shared"_a = nb::none(), "out"_a = nb::none(), "workspace"_a = nb::none(),
          R"(The way back: [T, H], for each token the sum over its slots, ascending, of weight times its row of y [T * k, H].

In float32 (float64 for float64), rounded once; shared [T, H], y's dtype or float32, joins the sum last. Rows of y that no slot
names never reach a result, NaN or not; a token without a dispatched slot gives 0. Raises ShapeError, DTypeError, DeviceError.)");
}

void bind_experts(nb::module_& m) {
  nb::class_<SwiGluExperts>(m, "_MoeSwiGluExperts", R"(E experts without biases: down @ (silu(gate @ x) * (up @ x)).

SwiGluExperts(gate, up, down): gate, up [E, I, H] and down [E, H, I] of one float dtype and device, any strides; nothing is copied.
Sums are float32 (float64 for float64); silu(gate) * up stays float32 until it is rounded, once, before down. strategy=:
"tensorcore" (matrix units of a CUDA device, float16 and bfloat16), "gemm" (the CPU's contraction kernels), "scalar" (one chain of
multiply-adds an element, any dtype), "auto". Under tenor.batch_invariant() a token's bits do not depend on the others'.

Raises ShapeError, DTypeError, DeviceError.)")
      .def(
          "__init__",
          [](SwiGluExperts* self, Array gate, Array up, Array down) {
            Call call("moe.SwiGluExperts");
            const Tensor g = call.array("gate", gate), u = call.array("up", up), d = call.array("down", down);
            new (self) SwiGluExperts(g, u, d);
          },
          "gate"_a, "up"_a, "down"_a)
      .def(
          "forward",
          [](const SwiGluExperts& self, Array x, Array logits, Int top_k, bool renormalize, Out out,
             Workspace workspace) {
            Call call("moe.forward", out, workspace);
            const Tensor rows = call.array("x", x), l = call.array("logits", logits);
            const int64_t k = call.count("top_k", top_k);
            return call.run([&] { return self.forward(rows, l, k, {.renormalize = renormalize, .out = call.out()}); });
          },
          "x"_a, "logits"_a, "top_k"_a, "renormalize"_a = true, nb::kw_only(), "out"_a = nb::none(),
          "workspace"_a = nb::none(),
          R"(x [T, H] through the top_k experts that route(logits [T, E]) chooses: [T, H].

Equal bit for bit to route, dispatch, forward_dispatched, combine. Raises their errors.)")
      .def(
          "forward_sigmoid_grouped",
          [](const SwiGluExperts& self, Array x, Array logits, OptionalArray bias, Int top_k, Int groups,
             Int selected_groups, bool group_top_two, bool renormalize, Real scale, const std::string& strategy,
             Out out, Workspace workspace) {
            Call call("moe.forward_sigmoid_grouped", out, workspace);
            const Tensor rows = call.array("x", x), l = call.array("logits", logits), b = call.array("bias", bias);
            const auto options =
                grouped_options(call, top_k, groups, selected_groups, group_top_two, renormalize, scale);
            return call.run([&] {
              return self.forward_sigmoid_grouped(rows, l, b,
                                                  {.routing = options, .strategy = strategy, .out = call.out()});
            });
          },
          "x"_a, "logits"_a, "bias"_a = nb::none(), nb::kw_only(), "top_k"_a, "groups"_a, "selected_groups"_a,
          "group_top_two"_a = true, "renormalize"_a = true, "scale"_a = 1.0, "strategy"_a = "auto",
          "out"_a = nb::none(), "workspace"_a = nb::none(),
          "x [T, H] through the experts that route_sigmoid_grouped chooses: [T, H]. Its options are that function's.")
      .def(
          "forward_routed",
          [](const SwiGluExperts& self, Array x, const MoePlan& plan, OptionalArray shared, const std::string& strategy,
             Out out, Workspace workspace) {
            Call call("moe.forward_routed", out, workspace);
            const Tensor rows = call.array("x", x), added = call.array("shared", shared);
            return call.run([&] {
              return self.forward_routed(rows, plan.plan, {.shared = added, .strategy = strategy, .out = call.out()});
            });
          },
          "x"_a, "plan"_a, nb::kw_only(), "shared"_a = nb::none(), "strategy"_a = "auto", "out"_a = nb::none(),
          "workspace"_a = nb::none(),
          R"(x [T, H] through the experts of a plan: [T, H], dispatch, forward_dispatched and combine bit for bit.

shared [T, H], x's dtype or float32, is added in float32 before the one rounding.)")
      .def(
          "forward_dispatched",
          [](const SwiGluExperts& self, const MoeTokens& dispatched, const std::string& strategy, Out out,
             Workspace workspace) {
            Call call("moe.forward_dispatched", out, workspace);
            call.array("tokens", Array{dispatched.tokens});
            return call.run([&] {
              return self.forward_dispatched(dispatched.dispatched, {.strategy = strategy, .out = call.out()});
            });
          },
          "dispatched"_a, "strategy"_a = "auto", nb::kw_only(), "out"_a = nb::none(), "workspace"_a = nb::none(),
          R"(Each row of the dispatched tokens through its expert: [T * k, H]; rows past the last expert's are 0.

Raises ShapeError, DTypeError, DeviceError, ValueError for an unknown strategy, UnsupportedError for one that cannot do it.)");
}

}  // namespace

void bind_moe(nb::module_& m) {
  bind_plan(m);
  bind_tokens(m);
  bind_experts(m);
  Part part(m, "moe");
  part.def(
      "route",
      [](Array logits, Int top_k, bool renormalize, Workspace workspace) {
        Call call("moe.route", Out{nb::none()}, workspace);
        const Tensor x = call.array("logits", logits);
        const int64_t k = call.count("top_k", top_k);
        return make_plan(call, [&] { return moe::route(x, k, {.renormalize = renormalize}); });
      },
      "logits"_a, "top_k"_a, "renormalize"_a = true, nb::kw_only(), "workspace"_a = nb::none(),
      R"(RoutingPlan of the top_k of softmax(logits [T, E]) over all experts, computed in float32 (float64 for float64).

Slots stand in descending order, the lower expert on ties; renormalize divides the chosen weights by their sum; weights have logits'
dtype. A row with NaN or +inf, or of -inf alone, keeps NaN weights; its experts are the first by its logits, NaN below -inf, and
distinct. The CPU and CUDA give the same bits. Raises ValueError unless 1 <= top_k <= E, ShapeError, DTypeError, UnsupportedError for more than 16384
experts on CUDA.)");
  part.def(
      "route_sigmoid_grouped",
      [](Array logits, OptionalArray bias, Int top_k, Int groups, Int selected_groups, bool group_top_two,
         bool renormalize, Real scale, Workspace workspace) {
        Call call("moe.route_sigmoid_grouped", Out{nb::none()}, workspace);
        const Tensor x = call.array("logits", logits), b = call.array("bias", bias);
        const auto options = grouped_options(call, top_k, groups, selected_groups, group_top_two, renormalize, scale);
        return make_plan(call, [&] { return moe::route_sigmoid_grouped(x, b, options); });
      },
      "logits"_a, "bias"_a = nb::none(), nb::kw_only(), "top_k"_a, "groups"_a, "selected_groups"_a,
      "group_top_two"_a = true, "renormalize"_a = true, "scale"_a = 1.0, "workspace"_a = nb::none(),
      R"(RoutingPlan by sigmoid scores within the best groups of experts (DeepSeek-V3).

Scores s = sigmoid(logits [T, E]) in float32; bias, float32 [E], is added for the choice alone. A group's score is the sum of its two
best biased scores (group_top_two), or its best; experts outside of the selected_groups best are never chosen. Slots stand in
descending biased score, the lower number on ties. Weights, of logits' dtype, are the unbiased scores, with renormalize over
(their sum + 1e-20), times scale.

Raises ValueError unless E is 1..1024, groups 1..128 and divides E, selected_groups 1..groups, top_k 1..64 and at most the experts of
the selected groups, scale finite and > 0, and groups have two experts with group_top_two; ShapeError, DTypeError, DeviceError.)");
  part.def(
      "grouped_matmul",
      [](Array x, Array weight, Array offsets, Out out, Workspace workspace) {
        Call call("moe.grouped_matmul", out, workspace);
        const Tensor rows = call.array("x", x), w = call.array("weight", weight), at = call.array("offsets", offsets);
        return call.run([&] { return moe::grouped_matmul(rows, w, at, {.out = call.out()}); });
      },
      "x"_a, "weight"_a, "offsets"_a, nb::kw_only(), "out"_a = nb::none(), "workspace"_a = nb::none(),
      R"(out[i] = weight[g] @ x[i] for the rows offsets[g] <= i < offsets[g + 1] of group g; rows past the last offset are 0.

x [M, K] and weight [G, N, K] of one float dtype, any strides; offsets int32 or int64 [G + 1], rising from 0 to at most M, any group
sizes. float32 accumulation (float64 for float64), one rounding. Raises ValueError for other offsets (on CUDA they are clamped and
raise the stream's flag), ShapeError, DTypeError, DeviceError.)");
}

}  // namespace tenor::python
