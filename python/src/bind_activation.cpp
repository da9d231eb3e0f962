#include "call.h"
#include "tenor/activation.h"

namespace tenor::python {

void bind_activation(nb::module_& m) {
  // One operand is called x in error texts, two are gate and up.
  m.def(
      "silu_mul",
      [](Array gate, OptionalArray up, Out out) {
        Call call("silu_mul", out);
        const Tensor a = call.array(up.object.is_none() ? "x" : "gate", gate), b = call.array("up", up),
                     to = call.out();
        return call.run([&] { return b.defined() ? silu_mul(a, b, {.out = to}) : silu_mul(a, {.out = to}); });
      },
      "gate"_a, "up"_a = nb::none(), nb::kw_only(), "out"_a = nb::none(),
      "silu(gate) * up for two arrays of one shape; of one array x[..., 2d] the first half of the last axis is the "
      "gate, the "
      "second half is up. Computed in float32, one rounding.");

  m.def(
      "gelu_mul",
      [](Array gate, OptionalArray up, const std::string& approximate, Out out) {
        Call call("gelu_mul", out);
        const Tensor a = call.array(up.object.is_none() ? "x" : "gate", gate), b = call.array("up", up),
                     to = call.out();
        return call.run([&] {
          const GeluMulOptions options{.approximate = approximate, .out = to};
          return b.defined() ? gelu_mul(a, b, options) : gelu_mul(a, options);
        });
      },
      "gate"_a, "up"_a = nb::none(), nb::kw_only(), "approximate"_a = "none", "out"_a = nb::none(),
      "gelu(gate) * up, as silu_mul. approximate: 'none' (the normal distribution function) or 'tanh'.");
}

}  // namespace tenor::python
