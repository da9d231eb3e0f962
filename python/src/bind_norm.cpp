#include "call.h"
#include "tenor/norm.h"

namespace tenor::python {
namespace {

/// The named tuple of an AddNormResult.
template <class F>
nb::object run_add_norm(Call& call, F&& fn) {
  static auto* type = new nb::object(named_tuple("AddNormResult", {"y", "new_residual"}));
  return call.run_named(*type, [&] {
    AddNormResult r = fn();
    return std::vector<Tensor>{std::move(r.y), std::move(r.new_residual)};
  });
}

AddNormResult outs(Call& call) { return {call.out(0, 2), call.out(1, 2)}; }

void bind_row_norms(nb::module_& m) {
  m.def(
      "layer_norm",
      [](Array x, Array gamma, OptionalArray beta, Real epsilon, Out out) {
        Call call("layer_norm", out);
        const Tensor t = call.array("x", x), g = call.array("gamma", gamma), b = call.array("beta", beta),
                     to = call.out();
        return call.run([&] { return layer_norm(t, g, {.beta = b, .epsilon = epsilon, .out = to}); });
      },
      "x"_a, "gamma"_a, "beta"_a = nb::none(), "epsilon"_a = 1e-5, nb::kw_only(), "out"_a = nb::none(),
      "(x - mean) / sqrt(variance + epsilon) * gamma + beta over the last axis: x[..., H], H > 0; gamma, beta [H], "
      "float32 or "
      "x's dtype. Statistics and affine in float32, two-pass variance, one rounding.");

  m.def(
      "rms_norm",
      [](Array x, Array gamma, Real epsilon, Real weight_offset, Out out) {
        Call call("rms_norm", out);
        const Tensor t = call.array("x", x), g = call.array("gamma", gamma), to = call.out();
        return call.run(
            [&] { return rms_norm(t, g, {.epsilon = epsilon, .weight_offset = weight_offset, .out = to}); });
      },
      "x"_a, "gamma"_a, "epsilon"_a = 1e-6, nb::kw_only(), "weight_offset"_a = 0.0, "out"_a = nb::none(),
      "x / sqrt(mean(x^2) + epsilon) * (gamma + weight_offset) over the last axis: x[..., H], H > 0; gamma [H], "
      "float32 or "
      "x's dtype.");

  m.def(
      "add_rms_norm",
      [](Array x, Array residual, Array gamma, Real epsilon, Real weight_offset, Out out) {
        Call call("add_rms_norm", out);
        const Tensor t = call.array("x", x), r = call.array("residual", residual), g = call.array("gamma", gamma);
        const AddNormResult to = outs(call);
        return run_add_norm(call, [&] {
          return add_rms_norm(t, r, g, {.epsilon = epsilon, .weight_offset = weight_offset, .out = to});
        });
      },
      "x"_a, "residual"_a, "gamma"_a, "epsilon"_a = 1e-6, nb::kw_only(), "weight_offset"_a = 0.0, "out"_a = nb::none(),
      "new_residual = x + residual, rounded to x's dtype; y = rms_norm(new_residual). Returns (y, new_residual), bit "
      "for bit "
      "what add and rms_norm give; out=(x, residual) works in place.");

  m.def(
      "add_layer_norm",
      [](Array x, Array residual, Array gamma, OptionalArray beta, Real epsilon, Out out) {
        Call call("add_layer_norm", out);
        const Tensor t = call.array("x", x), r = call.array("residual", residual), g = call.array("gamma", gamma),
                     b = call.array("beta", beta);
        const AddNormResult to = outs(call);
        return run_add_norm(call, [&] { return add_layer_norm(t, r, g, {.beta = b, .epsilon = epsilon, .out = to}); });
      },
      "x"_a, "residual"_a, "gamma"_a, "beta"_a = nb::none(), "epsilon"_a = 1e-5, nb::kw_only(), "out"_a = nb::none(),
      "new_residual = x + residual, rounded to x's dtype; y = layer_norm(new_residual). Returns (y, new_residual); "
      "out=(x, residual) works in place.");
}

void bind_along_dim(nb::module_& m) {
  const auto softmaxes = [&](const char* name, Tensor (*fn)(const Tensor&, const SoftmaxOptions&), const char* doc) {
    def_method(
        m, name,
        [name, fn](Array x, Int dim, Out out) {
          Call call(name, out);
          const Tensor t = call.array("x", x), to = call.out();
          return call.run([&] { return fn(t, {.dim = dim, .out = to}); });
        },
        "x"_a, "dim"_a = -1, nb::kw_only(), "out"_a = nb::none(), doc);
  };
  softmaxes("softmax", &softmax,
            "exp(x - max) / sum(exp(x - max)) along dim. A row that is all -inf, or holds +inf or NaN, gives NaN.");
  softmaxes("log_softmax", &log_softmax,
            "x - max - log(sum(exp(x - max))) along dim. A row that is all -inf, or holds +inf or NaN, gives NaN.");

  m.def(
      "softmax_last_axis",
      [](Array x, Out out) {
        Call call("softmax_last_axis", out);
        const Tensor t = call.array("x", x), to = call.out();
        return call.run([&] { return softmax_last_axis(t, {.out = to}); });
      },
      "x"_a, nb::kw_only(), "out"_a = nb::none(), "softmax over the last axis, whose length must be > 0.");

  m.def(
      "normalize",
      [](Array x, Real p, Int dim, Real epsilon, Out out) {
        Call call("normalize", out);
        const Tensor t = call.array("x", x), to = call.out();
        return call.run([&] { return normalize(t, {.p = p, .dim = dim, .epsilon = epsilon, .out = to}); });
      },
      "x"_a, "p"_a = 2.0, "dim"_a = -1, "epsilon"_a = 1e-12, nb::kw_only(), "out"_a = nb::none(),
      "x / max(norm_p(x), epsilon) along dim; p any number, infinities included.");
}

void bind_channel_norms(nb::module_& m) {
  m.def(
      "group_norm",
      [](Array x, Int groups, OptionalArray gamma, OptionalArray beta, Real epsilon, Out out) {
        Call call("group_norm", out);
        const Tensor t = call.array("x", x), g = call.array("gamma", gamma), b = call.array("beta", beta),
                     to = call.out();
        return call.run([&] { return group_norm(t, groups, {.gamma = g, .beta = b, .epsilon = epsilon, .out = to}); });
      },
      "x"_a, "groups"_a, "gamma"_a = nb::none(), "beta"_a = nb::none(), "epsilon"_a = 1e-5, nb::kw_only(),
      "out"_a = nb::none(),
      "x[N, C, *S], each of `groups` runs of channels normalised with its *S, then gamma[C] and beta[C].");

  m.def(
      "instance_norm",
      [](Array x, OptionalArray gamma, OptionalArray beta, Real epsilon, Out out) {
        Call call("instance_norm", out);
        const Tensor t = call.array("x", x), g = call.array("gamma", gamma), b = call.array("beta", beta),
                     to = call.out();
        return call.run([&] { return instance_norm(t, {.gamma = g, .beta = b, .epsilon = epsilon, .out = to}); });
      },
      "x"_a, "gamma"_a = nb::none(), "beta"_a = nb::none(), "epsilon"_a = 1e-5, nb::kw_only(), "out"_a = nb::none(),
      "x[N, C, *S], each channel of each sample normalised over its *S, then gamma[C] and beta[C].");

  m.def(
      "batch_norm",
      [](Array x, Array mean, Array variance, OptionalArray gamma, OptionalArray beta, Real epsilon, Out out) {
        Call call("batch_norm", out);
        const Tensor t = call.array("x", x), mu = call.array("mean", mean), v = call.array("variance", variance);
        const Tensor g = call.array("gamma", gamma), b = call.array("beta", beta), to = call.out();
        return call.run([&] { return batch_norm(t, mu, v, {.gamma = g, .beta = b, .epsilon = epsilon, .out = to}); });
      },
      "x"_a, "mean"_a, "variance"_a, "gamma"_a = nb::none(), "beta"_a = nb::none(), "epsilon"_a = 1e-5, nb::kw_only(),
      "out"_a = nb::none(),
      "(x - mean) / sqrt(variance + epsilon) * gamma + beta per channel of x[N, C, *S]: batch normalisation at "
      "inference.");
}

}  // namespace

void bind_norm(nb::module_& m) {
  bind_row_norms(m);
  bind_along_dim(m);
  bind_channel_norms(m);
}

}  // namespace tenor::python
