#include <cmath>

#include "call.h"
#include "operators.h"
#include "src/core/text.h"
#include "src/ops/elementwise/elementwise_ops.h"
#include "tenor/elementwise.h"

namespace tenor::python {
namespace {

using core::fail;
using Unary = Tensor (*)(const Tensor&, const ElementwiseOptions&);
using Binary = Tensor (*)(const Operand&, const Operand&, const ElementwiseOptions&);
using UnaryWrite = Tensor (*)(const Tensor&);
using BinaryWrite = Tensor (*)(const Tensor&, const Operand&);

/// "exp(x): e^x. ..." from the row's formula.
std::string docstring(const char* name, const char* rest) {
  for (const auto& r : elementwise::table())
    if (std::string_view(r.name) == name) return core::text("{}. {}", r.formula, rest);
  return rest;
}
constexpr const char* kResult =
    "x: any shape and strides. out: written instead of new memory. DTypeError for 8-bit floats.";
constexpr const char* kBroadcast =
    "Arrays or a Python scalar, broadcast; dtypes promote (a scalar takes the array's dtype). ShapeError, DTypeError, "
    "ValueError (a scalar that does not fit).";
constexpr const char* kWritten = "In place: x keeps its shape and dtype. Returns x.";

const char* kept(const std::string& text) { return (new std::string(text))->c_str(); }  // nanobind keeps the pointer

void bind_unary(nb::module_& m, const char* name, Unary fn, UnaryWrite write) {
  def_method(
      m, name,
      [name, fn](Array x, Out out) {
        Call call(name, out);
        const Tensor t = call.array("x", x);
        return call.run([&] { return fn(t, {call.out()}); });
      },
      "x"_a, nb::kw_only(), "out"_a = nb::none(), kept(docstring(name, kResult)));
  if (!write) return;
  const char* written = kept(std::string(name) + "_");
  def_method(
      m, written,
      [written, write](Array x) {
        Call call(written);
        const Tensor t = call.array("x", x);
        call.compute([&] { return write(t); });
        return nb::borrow(x.object);
      },
      "x"_a, kept(docstring(name, kWritten)));
}

void bind_binary(nb::module_& m, const char* name, Binary fn, BinaryWrite write, bool by_value = false,
                 const char* second = "other") {
  def_method(
      m, name,
      [name, fn, by_value, second](ArrayOrScalar x, ArrayOrScalar other, Out out) {
        Call call(name, out);
        const OperandPair p(call, name, x, second, other, by_value);
        return call.run([&] { return fn(p.first, p.second, {call.out()}); });
      },
      "x"_a, nb::arg(second), nb::kw_only(), "out"_a = nb::none(), kept(docstring(name, kBroadcast)));
  if (!write) return;
  const char* written = kept(std::string(name) + "_");
  def_method(
      m, written,
      [written, write, by_value, second](Array x, ArrayOrScalar other) {
        Call call(written);
        const OperandPair p(call, written, {x.object}, second, other, by_value);
        call.compute([&] { return write(p.first.tensor(), p.second); });
        return nb::borrow(x.object);
      },
      "x"_a, nb::arg(second), kept(docstring(name, kWritten)));
}

void bind_unaries(nb::module_& m) {
  struct Row {
    const char* name;
    Unary fn;
    UnaryWrite write;
  };
  static constexpr Row kRows[] = {
      {"neg", &neg, &neg_},
      {"abs", &abs, &abs_},
      {"sign", &sign, &sign_},
      {"relu", &relu, &relu_},
      {"floor", &floor, &floor_},
      {"ceil", &ceil, &ceil_},
      {"round", &round, &round_},
      {"trunc", &trunc, &trunc_},
      {"exp", &exp, &exp_},
      {"exp2", &exp2, &exp2_},
      {"expm1", &expm1, &expm1_},
      {"log", &log, &log_},
      {"log2", &log2, &log2_},
      {"log10", &log10, &log10_},
      {"log1p", &log1p, &log1p_},
      {"sqrt", &sqrt, &sqrt_},
      {"rsqrt", &rsqrt, &rsqrt_},
      {"reciprocal", &reciprocal, &reciprocal_},
      {"sin", &sin, &sin_},
      {"cos", &cos, &cos_},
      {"tan", &tan, &tan_},
      {"asin", &asin, &asin_},
      {"acos", &acos, &acos_},
      {"atan", &atan, &atan_},
      {"sinh", &sinh, &sinh_},
      {"cosh", &cosh, &cosh_},
      {"tanh", &tanh, &tanh_},
      {"asinh", &asinh, &asinh_},
      {"acosh", &acosh, &acosh_},
      {"atanh", &atanh, &atanh_},
      {"erf", &erf, &erf_},
      {"sigmoid", &sigmoid, &sigmoid_},
      {"silu", &silu, &silu_},
      {"mish", &mish, &mish_},
      {"hardswish", &hardswish, &hardswish_},
      {"isnan", &isnan, nullptr},
      {"isinf", &isinf, nullptr},
      {"isfinite", &isfinite, nullptr},
      {"logical_not", &logical_not, &logical_not_},
      {"bitwise_not", &bitwise_not, &bitwise_not_},
  };
  for (const Row& r : kRows) bind_unary(m, r.name, r.fn, r.write);
}

void bind_binaries(nb::module_& m) {
  struct Row {
    const char* name;
    Binary fn;
    BinaryWrite write;
    bool by_value = false;
  };
  static constexpr Row kRows[] = {
      {"mul", &mul, &mul_},
      {"floor_divide", &floor_divide, &floor_divide_},
      {"remainder", &remainder, &remainder_},
      {"fmod", &fmod, &fmod_},
      {"maximum", &maximum, &maximum_},
      {"minimum", &minimum, &minimum_},
      {"atan2", &atan2, &atan2_},
      {"eq", &eq, &eq_, true},
      {"ne", &ne, &ne_, true},
      {"lt", &lt, &lt_, true},
      {"le", &le, &le_, true},
      {"gt", &gt, &gt_, true},
      {"ge", &ge, &ge_, true},
      {"logical_and", &logical_and, &logical_and_},
      {"logical_or", &logical_or, &logical_or_},
      {"logical_xor", &logical_xor, &logical_xor_},
      {"bitwise_and", &bitwise_and, &bitwise_and_},
      {"bitwise_or", &bitwise_or, &bitwise_or_},
      {"bitwise_xor", &bitwise_xor, &bitwise_xor_},
      {"bitwise_left_shift", &bitwise_left_shift, &bitwise_left_shift_},
      {"bitwise_right_shift", &bitwise_right_shift, &bitwise_right_shift_},
  };
  for (const Row& r : kRows) bind_binary(m, r.name, r.fn, r.write, r.by_value);
  bind_binary(m, "pow", &pow, &pow_, false, "exponent");
}

Scalar number(const char* op, const char* name, nb::handle x) {
  if (const auto s = to_scalar(x)) return *s;
  fail<DTypeError>("{}: {} must be a number, got {}", op, name, nb::repr(x).c_str());
}

void bind_sums(nb::module_& m) {
  struct Row {
    const char *name, *written;
    Tensor (*fn)(const Operand&, const Operand&, const AddOptions&);
    Tensor (*write)(const Tensor&, const Operand&, Scalar);
  };
  static constexpr Row kRows[] = {{"add", "add_", &add, &add_}, {"sub", "sub_", &sub, &sub_}};
  for (const Row& r : kRows) {
    def_method(
        m, r.name,
        [r](ArrayOrScalar x, ArrayOrScalar other, nb::handle alpha, Out out) {
          Call call(r.name, out);
          const OperandPair p(call, r.name, x, "other", other);
          const Scalar a = number(r.name, "alpha", alpha);
          return call.run([&] { return r.fn(p.first, p.second, {a, call.out()}); });
        },
        "x"_a, "other"_a, nb::kw_only(), "alpha"_a = 1, "out"_a = nb::none(),
        kept(docstring(r.name, kBroadcast) + " alpha multiplies other first."));
    def_method(
        m, r.written,
        [r](Array x, ArrayOrScalar other, nb::handle alpha) {
          Call call(r.written);
          const OperandPair p(call, r.written, {x.object}, "other", other);
          const Scalar a = number(r.written, "alpha", alpha);
          call.compute([&] { return r.write(p.first.tensor(), p.second, a); });
          return nb::borrow(x.object);
        },
        "x"_a, "other"_a, nb::kw_only(), "alpha"_a = 1, kept(docstring(r.name, kWritten)));
  }
  def_method(
      m, "div",
      [](ArrayOrScalar x, ArrayOrScalar other, std::optional<std::string> rounding_mode, Out out) {
        Call call("div", out);
        const OperandPair p(call, "div", x, "other", other);
        return call.run([&] { return div(p.first, p.second, {rounding_mode.value_or(""), call.out()}); });
      },
      "x"_a, "other"_a, nb::kw_only(), "rounding_mode"_a = nb::none(), "out"_a = nb::none(),
      kept(docstring("div",
                     "True division (float32 for integers), or the quotient by rounding_mode 'floor' or 'trunc'.")));
  def_method(
      m, "div_",
      [](Array x, ArrayOrScalar other, std::optional<std::string> rounding_mode) {
        Call call("div_");
        const OperandPair p(call, "div_", {x.object}, "other", other);
        call.compute([&] { return div_(p.first.tensor(), p.second, rounding_mode.value_or("")); });
        return nb::borrow(x.object);
      },
      "x"_a, "other"_a, nb::kw_only(), "rounding_mode"_a = nb::none(), kept(docstring("div", kWritten)));
}

/// An activation with one number as its option.
template <class Options>
void bind_activation_of(nb::module_& m, const char* name, const char* option, double fallback,
                        Tensor (*fn)(const Tensor&, const Options&), Tensor (*write)(const Tensor&, double)) {
  def_method(
      m, name,
      [name, fn](Array x, Real value, Out out) {
        Call call(name, out);
        const Tensor t = call.array("x", x);
        return call.run([&] { return fn(t, {value, call.out()}); });
      },
      "x"_a, nb::arg(option) = fallback, nb::kw_only(), "out"_a = nb::none(), kept(docstring(name, kResult)));
  const char* written = kept(std::string(name) + "_");
  def_method(
      m, written,
      [written, write](Array x, Real value) {
        Call call(written);
        const Tensor t = call.array("x", x);
        call.compute([&] { return write(t, value); });
        return nb::borrow(x.object);
      },
      "x"_a, nb::arg(option) = fallback, kept(docstring(name, kWritten)));
}

void bind_activations(nb::module_& m) {
  bind_activation_of(m, "leaky_relu", "negative_slope", 0.01, &leaky_relu, &leaky_relu_);
  bind_activation_of(m, "elu", "alpha", 1.0, &elu, &elu_);
  bind_activation_of(m, "softplus", "beta", 1.0, &softplus, &softplus_);
  def_method(
      m, "gelu",
      [](Array x, const std::string& approximate, Out out) {
        Call call("gelu", out);
        const Tensor t = call.array("x", x);
        return call.run([&] { return gelu(t, {approximate, call.out()}); });
      },
      "x"_a, "approximate"_a = "none", nb::kw_only(), "out"_a = nb::none(),
      kept(docstring("gelu", "approximate 'tanh' takes the tanh form.")));
  def_method(
      m, "gelu_",
      [](Array x, const std::string& approximate) {
        Call call("gelu_");
        const Tensor t = call.array("x", x);
        call.compute([&] { return gelu_(t, approximate); });
        return nb::borrow(x.object);
      },
      "x"_a, "approximate"_a = "none", kept(docstring("gelu", kWritten)));
}

std::optional<Operand> bound(Call& call, const char* name, ArrayOrScalar x) {
  if (x.object.is_none()) return {};
  return call.operand(name, x);
}

void bind_choices(nb::module_& m) {
  def_method(
      m, "where",
      [](Array condition, ArrayOrScalar x, ArrayOrScalar other, Out out) {
        Call call("where", out);
        const Tensor which = call.array("condition", condition);
        const Operand a = call.operand("x", x), b = call.operand("other", other);
        return call.run([&] { return where(which, a, b, {call.out()}); });
      },
      "condition"_a, "x"_a, "other"_a, nb::kw_only(), "out"_a = nb::none(),
      kept(docstring("where", "condition is bool. All three broadcast.")));
  def_method(
      m, "masked_fill",
      [](Array x, Array mask, ArrayOrScalar value, Out out) {
        Call call("masked_fill", out);
        const Tensor t = call.array("x", x), which = call.array("mask", mask);
        const Operand v = call.operand("value", value);
        return call.run([&] { return masked_fill(t, which, v, {call.out()}); });
      },
      "x"_a, "mask"_a, "value"_a, nb::kw_only(), "out"_a = nb::none(),
      kept(docstring("masked_fill", "In x's dtype; mask is bool and broadcasts.")));
  def_method(
      m, "masked_fill_",
      [](Array x, Array mask, ArrayOrScalar value) {
        Call call("masked_fill_");
        const Tensor t = call.array("x", x), which = call.array("mask", mask);
        const Operand v = call.operand("value", value);
        call.compute([&] { return masked_fill_(t, which, v); });
        return nb::borrow(x.object);
      },
      "x"_a, "mask"_a, "value"_a, kept(docstring("masked_fill", kWritten)));
  def_method(
      m, "clamp",
      [](Array x, ArrayOrScalar min, ArrayOrScalar max, Out out) {
        Call call("clamp", out);
        const Tensor t = call.array("x", x);
        const auto low = bound(call, "min", min), high = bound(call, "max", max);
        return call.run([&] { return clamp(t, low, high, {call.out()}); });
      },
      "x"_a, nb::arg("min").none() = nb::none(), nb::arg("max").none() = nb::none(), nb::kw_only(),
      "out"_a = nb::none(),
      "min(max(x, min), max): max wins where it is below min; NaN stays. ValueError without both.");
  def_method(
      m, "clamp_",
      [](Array x, ArrayOrScalar min, ArrayOrScalar max) {
        Call call("clamp_");
        const Tensor t = call.array("x", x);
        const auto low = bound(call, "min", min), high = bound(call, "max", max);
        call.compute([&] { return clamp_(t, low, high); });
        return nb::borrow(x.object);
      },
      "x"_a, nb::arg("min").none() = nb::none(), nb::arg("max").none() = nb::none(),
      kept(docstring("clamp", kWritten)));
  def_method(
      m, "lerp",
      [](ArrayOrScalar x, ArrayOrScalar end, ArrayOrScalar weight, Out out) {
        Call call("lerp", out);
        const Operand a = call.operand("x", x), b = call.operand("end", end), w = call.operand("weight", weight);
        return call.run([&] { return lerp(a, b, w, {call.out()}); });
      },
      "x"_a, "end"_a, "weight"_a, nb::kw_only(), "out"_a = nb::none(), kept(docstring("lerp", kBroadcast)));
  def_method(
      m, "lerp_",
      [](Array x, ArrayOrScalar end, ArrayOrScalar weight) {
        Call call("lerp_");
        const Tensor t = call.array("x", x);
        const Operand b = call.operand("end", end), w = call.operand("weight", weight);
        call.compute([&] { return lerp_(t, b, w); });
        return nb::borrow(x.object);
      },
      "x"_a, "end"_a, "weight"_a, kept(docstring("lerp", kWritten)));
  def_method(
      m, "isclose",
      [](ArrayOrScalar x, ArrayOrScalar other, Real rtol, Real atol, bool equal_nan, Out out) {
        Call call("isclose", out);
        const OperandPair p(call, "isclose", x, "other", other);
        return call.run([&] { return isclose(p.first, p.second, {rtol, atol, equal_nan, call.out()}); });
      },
      "x"_a, "other"_a, "rtol"_a = 1e-5, "atol"_a = 1e-8, "equal_nan"_a = false, nb::kw_only(), "out"_a = nb::none(),
      kept(docstring("isclose",
                     "Equal infinities are close; NaN with NaN where equal_nan. rtol, atol >= 0 (ValueError).")));
}

/// A device name, or a dtype.
bool is_device(nb::handle x) {
  if (!PyUnicode_Check(x.ptr())) return has_attribute(x, "type") && has_attribute(x, "index");  // torch.device
  const std::string text = utf8_of(x).value_or("");
  return text.starts_with("cpu") || text.starts_with("cuda") || text.starts_with("meta");
}

void bind_assignment(nb::module_& m) {
  def_method(
      m, "to",
      [](Array x, DTypeLike dtype, DeviceLike device, Out out) {
        Call call("to", out);
        const Tensor t = call.array("x", x);
        std::optional<DType> d;
        DeviceLike where = device;
        if (!dtype.object.is_none() && is_device(dtype.object))
          where.object = dtype.object;
        else
          d = call.dtype(dtype);
        const Device target = call.device(where, t.device());
        // What has nothing to do returns the caller's object.
        if ((!d || *d == t.dtype()) && target == t.device() && out.object.is_none()) return nb::borrow(x.object);
        return call.run([&] { return to(t.to(target), d.value_or(t.dtype()), {call.out()}); });
      },
      "x"_a, "dtype"_a = nb::none(), "device"_a = nb::none(), nb::kw_only(), "out"_a = nb::none(),
      "x in another dtype (rounded once; float to integer saturates, NaN to 0) or on another device; x itself where "
      "nothing changes.");
  def_method(
      m, "astype",
      [](Array x, DTypeLike dtype) {
        Call call("astype");
        const Tensor t = call.array("x", x);
        const auto d = call.dtype(dtype);
        if (!d) fail<DTypeError>("astype: dtype is required, got None");
        return call.run([&] { return *d == t.dtype() ? t.clone() : to(t, *d); });
      },
      "x"_a, "dtype"_a, "A copy of x in that dtype, by the rules of to().");
  def_method(
      m, "copy_",
      [](Array x, ArrayOrScalar src) {
        Call call("copy_");
        const Tensor t = call.array("x", x);
        const Operand from = call.operand("src", src);
        call.compute([&] { return copy_(t, from); });
        return nb::borrow(x.object);
      },
      "x"_a, "src"_a, "Copies src, broadcast and converted, into x. Returns x.");
  def_method(
      m, "fill_",
      [](Array x, ArrayOrScalar value) {
        Call call("fill_");
        const Tensor t = call.array("x", x);
        const Operand v = call.operand("value", value);
        call.compute([&] { return fill_(t, v); });
        return nb::borrow(x.object);
      },
      "x"_a, "value"_a, "Every element becomes value. Returns x.");
}

}  // namespace

void bind_elementwise(nb::module_& m) {
  bind_unaries(m);
  bind_binaries(m);
  bind_sums(m);
  bind_activations(m);
  bind_choices(m);
  bind_assignment(m);
  set_operator_module(m);
  m.attr("Tensor").attr("__array_ufunc__") = nb::none();  // ndarray + Tensor is Tensor's to compute
}

}  // namespace tenor::python
