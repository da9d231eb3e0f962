#include "call.h"
#include "src/core/text.h"
#include "tenor/elementwise.h"
#include "tenor/reduce.h"

namespace tenor::python {
namespace {

constexpr const char* kDimsDoc =
    "\n\ndim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit "
    "floats accumulate\n"
    "in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.";

/// nanobind keeps the pointer to a docstring, not its text.
const char* lasting(const std::string& text) { return (new std::string(text))->c_str(); }

nb::object& extreme_type(bool largest) {
  static auto* types =
      new nb::object[2]{named_tuple("min", {"values", "indices"}), named_tuple("max", {"values", "indices"})};
  return types[largest];
}

/// sum, mean, prod.
void bind_total(nb::module_& m, const char* name, Tensor (*fn)(const Tensor&, const SumOptions&), const char* doc) {
  def_method(
      m, name,
      [name, fn](Array x, DimList dim, bool keepdim, DTypeLike dtype, Out out, Workspace workspace) {
        Call call(name, out, workspace);
        const Tensor t = call.array("x", x);
        const SumOptions o{call.optional_dims("dim", dim), keepdim, call.dtype(dtype), call.out()};
        return call.run([&] { return fn(t, o); });
      },
      "x"_a, "dim"_a = nb::none(), "keepdim"_a = false, nb::kw_only(), "dtype"_a = nb::none(), "out"_a = nb::none(),
      "workspace"_a = nb::none(),
      lasting(std::string(doc) + " dtype: what the elements are converted to, and the result's." + kDimsDoc));
}

void bind_plain(nb::module_& m, const char* name, Tensor (*fn)(const Tensor&, const ReduceOptions&), const char* doc) {
  def_method(
      m, name,
      [name, fn](Array x, DimList dim, bool keepdim, Out out, Workspace workspace) {
        Call call(name, out, workspace);
        const Tensor t = call.array("x", x);
        const ReduceOptions o{call.optional_dims("dim", dim), keepdim, call.out()};
        return call.run([&] { return fn(t, o); });
      },
      "x"_a, "dim"_a = nb::none(), "keepdim"_a = false, nb::kw_only(), "out"_a = nb::none(), "workspace"_a = nb::none(),
      lasting(std::string(doc) + kDimsDoc));
}

void bind_variance(nb::module_& m, const char* name, Tensor (*fn)(const Tensor&, const VarOptions&), const char* doc) {
  def_method(
      m, name,
      [name, fn](Array x, DimList dim, bool keepdim, Real correction, Out out, Workspace workspace) {
        Call call(name, out, workspace);
        const Tensor t = call.array("x", x);
        const VarOptions o{call.optional_dims("dim", dim), keepdim, correction, call.out()};
        return call.run([&] { return fn(t, o); });
      },
      "x"_a, "dim"_a = nb::none(), "keepdim"_a = false, "correction"_a = 1.0, nb::kw_only(), "out"_a = nb::none(),
      "workspace"_a = nb::none(),
      lasting(std::string(doc) + " NaN where N - correction <= 0. Integers give float32." + kDimsDoc));
}

void bind_arg(nb::module_& m, const char* name, Tensor (*fn)(const Tensor&, const ArgOptions&), const char* doc) {
  def_method(
      m, name,
      [name, fn](Array x, OptionalInt dim, bool keepdim, Out out, Workspace workspace) {
        Call call(name, out, workspace);
        const Tensor t = call.array("x", x);
        const ArgOptions o{dim, keepdim, call.out()};
        return call.run([&] { return fn(t, o); });
      },
      "x"_a, "dim"_a = nb::none(), "keepdim"_a = false, nb::kw_only(), "out"_a = nb::none(), "workspace"_a = nb::none(),
      doc);
}

/// NumPy's integers, which name a dim; an array without dims is an array.
bool is_integer_scalar(nb::handle x) {
  return PyIndex_Check(x.ptr()) && nb::isinstance(x, nb::module_::import_("numpy").attr("generic"));
}

/// max and min: of everything a value, along a dim a named tuple, with another array elementwise.
void bind_extreme(nb::module_& m, const char* name, bool largest, const char* doc) {
  def_method(
      m, name,
      [name, largest](Array x, ArrayOrScalar dim, bool keepdim, Out out, Workspace workspace) -> nb::object {
        Call call(name, out, workspace);
        const Tensor t = call.array("x", x);
        if (dim.object.is_none()) {
          const ReduceOptions o{{}, keepdim, call.out()};
          return call.run([&] { return largest ? max(t, o) : min(t, o); });
        }
        if (is_array(dim.object) && !is_integer_scalar(dim.object)) {
          if (keepdim) core::fail<ValueError>("{}: keepdim needs a dim, got another array", name);
          const Tensor other = call.array("other", Array{dim.object});
          return call.run([&] { return largest ? maximum(t, other, {call.out()}) : minimum(t, other, {call.out()}); });
        }
        const Dims dims = call.dims("dim", {dim.object});
        if (!is_integer_object(dim.object))
          core::fail<ValueError>("{}: dim must be one int (amax and amin take several), got {}", name, dims);
        const ExtremeOptions o{keepdim, call.out(0, 2), call.out(1, 2)};
        return call.run_named(extreme_type(largest), [&] {
          const ExtremeResult r = largest ? max(t, dims[0], o) : min(t, dims[0], o);
          return std::vector<Tensor>{r.values, r.indices};
        });
      },
      "x"_a, "dim"_a = nb::none(), "keepdim"_a = false, nb::kw_only(), "out"_a = nb::none(), "workspace"_a = nb::none(),
      doc);
}

double to_power(nb::handle p) {
  if (const auto number = to_scalar(p, "norm", "p")) return number->as_double();
  if (const auto text = utf8_of(p)) {
    if (*text == "fro") return 2;
    if (*text == "inf" || *text == "-inf") return *text == "inf" ? HUGE_VAL : -HUGE_VAL;
  }
  core::fail<ValueError>("norm: p must be a number, 'fro', 'inf' or '-inf', got {}", nb::repr(p).c_str());
}

}  // namespace

void bind_reduce(nb::module_& m) {
  bind_total(m, "sum", &sum,
             "The sum over dim. Integers and bool give int64, unsigned integers uint64. Of nothing: 0.");
  bind_total(m, "mean", &mean, "The mean over dim. Integers give float32. Of nothing: NaN.");
  bind_total(m, "prod", &prod, "The product over dim, with sum's dtypes. Of nothing: 1.");
  bind_plain(m, "amax", &amax, "The largest element over dim. ShapeError for an empty axis.");
  bind_plain(m, "amin", &amin, "The smallest element over dim. ShapeError for an empty axis.");
  bind_plain(m, "any", &any, "Whether some element is not zero (NaN is not). Of nothing: False.");
  bind_plain(m, "all", &all, "Whether every element is not zero. Of nothing: True.");
  bind_plain(m, "count_nonzero", &count_nonzero, "How many elements are not zero, int64.");
  bind_plain(m, "logsumexp", &logsumexp,
             "log(sum exp(x)) about the maximum; of nothing, and of -inf alone: -inf. Integers give float32.");
  bind_variance(m, "var", &var, "sum (x - mean)^2 / (N - correction), in two passes.");
  bind_variance(m, "std", &std, "sqrt(var).");
  bind_arg(m, "argmax", &argmax,
           "The index (int64) of the first NaN, else of the first largest element; without dim, in the flattened x.");
  bind_arg(m, "argmin", &argmin,
           "The index (int64) of the first NaN, else of the first smallest element; without dim, in the flattened x.");
  bind_extreme(m, "max", true,
               "The largest element of x; with dim, (values, indices) along it: the first NaN, else the first of "
               "equals; with another array in its place, elementwise. ShapeError for an empty axis.");
  bind_extreme(m, "min", false,
               "The smallest element of x; with dim, (values, indices) along it: the first NaN, else the first of "
               "equals; with another array in its place, elementwise. ShapeError for an empty axis.");

  def_method(
      m, "norm",
      [](Array x, nb::handle p, DimList dim, bool keepdim, DTypeLike dtype, Out out, Workspace workspace) {
        Call call("norm", out, workspace);
        const Tensor t = call.array("x", x);
        const NormOptions o{to_power(p), call.optional_dims("dim", dim), keepdim, call.dtype(dtype), call.out()};
        return call.run([&] { return norm(t, o); });
      },
      "x"_a, "p"_a = 2, "dim"_a = nb::none(), "keepdim"_a = false, nb::kw_only(), "dtype"_a = nb::none(),
      "out"_a = nb::none(), "workspace"_a = nb::none(),
      lasting(std::string("(sum |x|^p)^(1/p) over dim; p = inf: the largest |x|, -inf: the smallest, 0: the count of x "
                          "!= 0. Integers give float32.") +
              kDimsDoc));
}

}  // namespace tenor::python
