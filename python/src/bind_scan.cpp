#include "call.h"
#include "tenor/scan.h"

namespace tenor::python {
namespace {

nb::object& extreme_type(bool largest) {
  static auto* types =
      new nb::object[2]{named_tuple("cummin", {"values", "indices"}), named_tuple("cummax", {"values", "indices"})};
  return types[largest];
}

void bind_linear(nb::module_& m, const char* name, Tensor (*fn)(const Tensor&, int64_t, const ScanOptions&),
                 const char* doc) {
  def_method(
      m, name,
      [name, fn](Array x, Int dim, DTypeLike dtype, Out out, Workspace workspace) {
        Call call(name, out, workspace);
        const Tensor t = call.array("x", x);
        const ScanOptions o{call.dtype(dtype), call.out()};
        return call.run([&] { return fn(t, dim, o); });
      },
      "x"_a, "dim"_a, nb::kw_only(), "dtype"_a = nb::none(), "out"_a = nb::none(), "workspace"_a = nb::none(), doc);
}

void bind_extreme(nb::module_& m, const char* name, bool largest, const char* doc) {
  def_method(
      m, name,
      [name, largest](Array x, Int dim, Out out, Workspace workspace) {
        Call call(name, out, workspace);
        const Tensor t = call.array("x", x);
        const ExtremeScanOptions o{call.out(0, 2), call.out(1, 2)};
        return call.run_named(extreme_type(largest), [&] {
          const ExtremeScanResult r = largest ? cummax(t, dim, o) : cummin(t, dim, o);
          return std::vector<Tensor>{r.values, r.indices};
        });
      },
      "x"_a, "dim"_a, nb::kw_only(), "out"_a = nb::none(), "workspace"_a = nb::none(), doc);
}

}  // namespace

void bind_scan(nb::module_& m) {
  bind_linear(m, "cumsum", &cumsum,
              "x[0] + .. + x[i] along dim. Integers and bool give int64, unsigned integers uint64; 16-bit floats "
              "accumulate in float32.\n\n"
              "dtype: what the elements are converted to, and the result's. IndexError for a dim out of range.");
  bind_linear(m, "cumprod", &cumprod,
              "x[0] * .. * x[i] along dim, with cumsum's dtypes. IndexError for a dim out of range.");
  bind_extreme(m, "cummax", true,
               "(values, indices) of the largest of x[0..i] along dim: the first of equals; a NaN stays. IndexError "
               "for a dim out of range.");
  bind_extreme(m, "cummin", false,
               "(values, indices) of the smallest of x[0..i] along dim: the first of equals; a NaN stays. IndexError "
               "for a dim out of range.");
  def_method(
      m, "logcumsumexp",
      [](Array x, Int dim, Out out, Workspace workspace) {
        Call call("logcumsumexp", out, workspace);
        const Tensor t = call.array("x", x);
        const LogScanOptions o{call.out()};
        return call.run([&] { return logcumsumexp(t, dim, o); });
      },
      "x"_a, "dim"_a, nb::kw_only(), "out"_a = nb::none(), "workspace"_a = nb::none(),
      "log(e^x[0] + .. + e^x[i]) along dim, relative to the running maximum. DTypeError for integers, IndexError for a "
      "dim out of range.");
}

}  // namespace tenor::python
