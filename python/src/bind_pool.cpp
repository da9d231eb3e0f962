#include "call.h"
#include "tenor/pool.h"

namespace tenor::python {
namespace {

using MaxPool = MaxPoolResult (*)(const Tensor&, const Dims&, const MaxPoolOptions&);
using AvgPool = Tensor (*)(const Tensor&, const Dims&, const AvgPoolOptions&);
using LpPool = Tensor (*)(const Tensor&, double, const Dims&, const LpPoolOptions&);
using AdaptiveAvgPool = Tensor (*)(const Tensor&, const Dims&, const AdaptivePoolOptions&);
using AdaptiveMaxPool = MaxPoolResult (*)(const Tensor&, const Dims&, const AdaptiveMaxPoolOptions&);
using MaxPoolBackward = Tensor (*)(const Tensor&, const Tensor&, const Dims&, const MaxPoolBackwardOptions&);
using AvgPoolBackward = Tensor (*)(const Tensor&, const Dims&, const Dims&, const AvgPoolOptions&);
using AdaptiveAvgPoolBackward = Tensor (*)(const Tensor&, const Dims&, const AdaptivePoolOptions&);
using LpPoolBackward = Tensor (*)(const Tensor&, const Tensor&, double, const Dims&, const LpPoolOptions&);

/// values alone, or the named tuple of both.
template <class F>
nb::object run_max(Call& call, bool return_indices, F&& fn) {
  static auto* type = new nb::object(named_tuple("MaxPoolResult", {"values", "indices"}));
  if (!return_indices) return call.run([&] { return fn().values; });
  return call.run_named(*type, [&] {
    MaxPoolResult r = fn();
    return std::vector<Tensor>{std::move(r.values), std::move(r.indices)};
  });
}

MaxPoolResult max_outs(Call& call, bool return_indices) {
  if (!return_indices) return {call.out(), {}};
  return {call.out(0, 2), call.out(1, 2)};
}

/// An absent stride is the kernel's size.
Dims stride_of(Call& call, DimList stride) { return call.optional_dims("stride", stride).value_or(Dims()); }

/// None, whole or in an entry, is x's own size.
Dims output_size(Call& call, DimList given, const Tensor& x, int dims) {
  const auto own = [&](int i) { return x.ndim() >= dims ? x.shape(x.ndim() - dims + i) : 1; };
  const bool list = nb::isinstance<nb::tuple>(given.object) || nb::isinstance<nb::list>(given.object);
  const bool alone = list && nb::len(given.object) == 1 && given.object[0].is_none();
  if (given.object.is_none() || alone) {
    Dims all;
    for (int i = 0; i < dims; ++i) all.push_back(own(i));
    return all;
  }
  if (!list) return call.dims("output_size", given);
  nb::list sizes;
  int i = 0;
  for (nb::handle entry : given.object) {
    if (entry.is_none())
      sizes.append(i < dims ? own(i) : 1);
    else
      sizes.append(entry);
    ++i;
  }
  return call.dims("output_size", DimList{sizes});
}

void def_max_pool(nb::module_& m, const char* name, MaxPool fn) {
  m.def(
      name,
      [name, fn](Array x, DimList kernel_size, DimList stride, DimList padding, DimList dilation, bool ceil_mode,
                 bool return_indices, Out out, Workspace workspace) {
        Call call(name, out, workspace);
        const Tensor t = call.array("x", x);
        const Dims kernel = call.dims("kernel_size", kernel_size), s = stride_of(call, stride),
                   p = call.dims("padding", padding), d = call.dims("dilation", dilation);
        const MaxPoolResult to = max_outs(call, return_indices);
        return run_max(call, return_indices, [&] { return fn(t, kernel, {s, p, d, ceil_mode, return_indices, to}); });
      },
      "x"_a, "kernel_size"_a, "stride"_a = nb::none(), "padding"_a = 0, "dilation"_a = 1, "ceil_mode"_a = false,
      "return_indices"_a = false, nb::kw_only(), "out"_a = nb::none(), "workspace"_a = nb::none(),
      "The largest of each window of x [N, C, *S] or [C, *S]; a NaN where there is one. stride None is kernel_size; "
      "padding (on both "
      "sides, at most half of the window's span) holds the lowest value. return_indices: (values, indices), int64 "
      "places in the "
      "plane of the first NaN, else of the first of equals; -1 of a window that meets only padding. x: integers or "
      "floats.");
}

void def_avg_pool(nb::module_& m, const char* name, AvgPool fn) {
  m.def(
      name,
      [name, fn](Array x, DimList kernel_size, DimList stride, DimList padding, bool ceil_mode, bool count_include_pad,
                 OptionalInt divisor_override, Out out, Workspace workspace) {
        Call call(name, out, workspace);
        const Tensor t = call.array("x", x), to = call.out();
        const Dims kernel = call.dims("kernel_size", kernel_size), s = stride_of(call, stride),
                   p = call.dims("padding", padding);
        return call.run([&] { return fn(t, kernel, {s, p, ceil_mode, count_include_pad, divisor_override, to}); });
      },
      "x"_a, "kernel_size"_a, "stride"_a = nb::none(), "padding"_a = 0, "ceil_mode"_a = false,
      "count_include_pad"_a = true, "divisor_override"_a = nb::none(), nb::kw_only(), "out"_a = nb::none(),
      "workspace"_a = nb::none(),
      "The sum of each window of x [N, C, *S] or [C, *S] over the number of its elements, those of the padding "
      "included unless "
      "count_include_pad is off, or over divisor_override. What reaches past the padding never counts. x: floats.");
}

void def_lp_pool(nb::module_& m, const char* name, LpPool fn) {
  m.def(
      name,
      [name, fn](Array x, Real norm_type, DimList kernel_size, DimList stride, bool ceil_mode, Out out,
                 Workspace workspace) {
        Call call(name, out, workspace);
        const Tensor t = call.array("x", x), to = call.out();
        const Dims kernel = call.dims("kernel_size", kernel_size), s = stride_of(call, stride);
        return call.run([&] { return fn(t, norm_type, kernel, {s, ceil_mode, to}); });
      },
      "x"_a, "norm_type"_a, "kernel_size"_a, "stride"_a = nb::none(), "ceil_mode"_a = false, nb::kw_only(),
      "out"_a = nb::none(), "workspace"_a = nb::none(),
      "(sum |x|^p)^(1/p) over the inputs of each window of x [N, C, *S] or [C, *S], p = norm_type > 0; inf: the "
      "largest |x|.");
}

void def_adaptive_max_pool(nb::module_& m, const char* name, int dims, AdaptiveMaxPool fn) {
  m.def(
      name,
      [name, dims, fn](Array x, DimList size, bool return_indices, Out out, Workspace workspace) {
        Call call(name, out, workspace);
        const Tensor t = call.array("x", x);
        const Dims sizes = output_size(call, size, t, dims);
        const MaxPoolResult to = max_outs(call, return_indices);
        return run_max(call, return_indices, [&] { return fn(t, sizes, {return_indices, to}); });
      },
      "x"_a, nb::arg("output_size").none(), "return_indices"_a = false, nb::kw_only(), "out"_a = nb::none(),
      "workspace"_a = nb::none(),
      "The largest of each bin: bin i of n reads floor(i size / n) to ceil((i + 1) size / n). None in output_size "
      "keeps x's size. "
      "return_indices as in max_pool.");
}

void def_adaptive_avg_pool(nb::module_& m, const char* name, int dims, AdaptiveAvgPool fn) {
  m.def(
      name,
      [name, dims, fn](Array x, DimList size, Out out, Workspace workspace) {
        Call call(name, out, workspace);
        const Tensor t = call.array("x", x), to = call.out();
        const Dims sizes = output_size(call, size, t, dims);
        return call.run([&] { return fn(t, sizes, {to}); });
      },
      "x"_a, nb::arg("output_size").none(), nb::kw_only(), "out"_a = nb::none(), "workspace"_a = nb::none(),
      "The mean of each bin: bin i of n reads floor(i size / n) to ceil((i + 1) size / n). None in output_size keeps "
      "x's size.");
}

void def_max_pool_backward(nb::module_& m, const char* name, MaxPoolBackward fn) {
  m.def(
      name,
      [name, fn](Array grad_output, Array indices, DimList input_shape, Out out, Workspace workspace) {
        Call call(name, out, workspace);
        const Tensor g = call.array("grad_output", grad_output), at = call.array("indices", indices), to = call.out();
        const Dims shape = call.dims("input_shape", input_shape);
        return call.run([&] { return fn(g, at, shape, {to}); });
      },
      "grad_output"_a, "indices"_a, "input_shape"_a, nb::kw_only(), "out"_a = nb::none(), "workspace"_a = nb::none(),
      "Adds each element of grad_output at the place in its plane that indices names (-1: none), in order. An index "
      "outside of the "
      "plane is IndexError.");
}

void def_avg_pool_backward(nb::module_& m, const char* name, AvgPoolBackward fn) {
  m.def(
      name,
      [name, fn](Array grad_output, DimList input_shape, DimList kernel_size, DimList stride, DimList padding,
                 bool ceil_mode, bool count_include_pad, OptionalInt divisor_override, Out out, Workspace workspace) {
        Call call(name, out, workspace);
        const Tensor g = call.array("grad_output", grad_output), to = call.out();
        const Dims shape = call.dims("input_shape", input_shape), kernel = call.dims("kernel_size", kernel_size),
                   s = stride_of(call, stride), p = call.dims("padding", padding);
        return call.run([&] {
          return fn(g, shape, kernel, {s, p, ceil_mode, count_include_pad, divisor_override, to});
        });
      },
      "grad_output"_a, "input_shape"_a, "kernel_size"_a, "stride"_a = nb::none(), "padding"_a = 0,
      "ceil_mode"_a = false, "count_include_pad"_a = true, "divisor_override"_a = nb::none(), nb::kw_only(),
      "out"_a = nb::none(), "workspace"_a = nb::none(),
      "avg_pool's gradient: each input's sum of grad_output / divisor over the windows that cover it.");
}

void def_adaptive_avg_pool_backward(nb::module_& m, const char* name, AdaptiveAvgPoolBackward fn) {
  m.def(
      name,
      [name, fn](Array grad_output, DimList input_shape, Out out, Workspace workspace) {
        Call call(name, out, workspace);
        const Tensor g = call.array("grad_output", grad_output), to = call.out();
        const Dims shape = call.dims("input_shape", input_shape);
        return call.run([&] { return fn(g, shape, {to}); });
      },
      "grad_output"_a, "input_shape"_a, nb::kw_only(), "out"_a = nb::none(), "workspace"_a = nb::none(),
      "adaptive_avg_pool's gradient: each input's sum of grad_output / elements over the bins that hold it.");
}

void def_lp_pool_backward(nb::module_& m, const char* name, LpPoolBackward fn) {
  m.def(
      name,
      [name, fn](Array grad_output, Array x, Real norm_type, DimList kernel_size, DimList stride, bool ceil_mode,
                 Out out, Workspace workspace) {
        Call call(name, out, workspace);
        const Tensor g = call.array("grad_output", grad_output), t = call.array("x", x), to = call.out();
        const Dims kernel = call.dims("kernel_size", kernel_size), s = stride_of(call, stride);
        return call.run([&] { return fn(g, t, norm_type, kernel, {s, ceil_mode, to}); });
      },
      "grad_output"_a, "x"_a, "norm_type"_a, "kernel_size"_a, "stride"_a = nb::none(), "ceil_mode"_a = false,
      nb::kw_only(), "out"_a = nb::none(), "workspace"_a = nb::none(),
      "lp_pool's gradient: each input's sum of grad_output * sign(x) * (|x| / norm)^(p - 1) over the windows that "
      "cover it; a window "
      "whose norm is 0 passes nothing on, p = inf goes to the first largest |x|. Workspace: the windows' norms.");
}

}  // namespace

void bind_pool(nb::module_& m) {
  def_max_pool(m, "max_pool1d", &max_pool1d);
  def_max_pool(m, "max_pool2d", &max_pool2d);
  def_max_pool(m, "max_pool3d", &max_pool3d);
  def_avg_pool(m, "avg_pool1d", &avg_pool1d);
  def_avg_pool(m, "avg_pool2d", &avg_pool2d);
  def_avg_pool(m, "avg_pool3d", &avg_pool3d);
  def_lp_pool(m, "lp_pool1d", &lp_pool1d);
  def_lp_pool(m, "lp_pool2d", &lp_pool2d);
  def_lp_pool(m, "lp_pool3d", &lp_pool3d);
  def_adaptive_max_pool(m, "adaptive_max_pool1d", 1, &adaptive_max_pool1d);
  def_adaptive_max_pool(m, "adaptive_max_pool2d", 2, &adaptive_max_pool2d);
  def_adaptive_max_pool(m, "adaptive_max_pool3d", 3, &adaptive_max_pool3d);
  def_adaptive_avg_pool(m, "adaptive_avg_pool1d", 1, &adaptive_avg_pool1d);
  def_adaptive_avg_pool(m, "adaptive_avg_pool2d", 2, &adaptive_avg_pool2d);
  def_adaptive_avg_pool(m, "adaptive_avg_pool3d", 3, &adaptive_avg_pool3d);
  def_max_pool_backward(m, "max_pool1d_backward", &max_pool1d_backward);
  def_max_pool_backward(m, "max_pool2d_backward", &max_pool2d_backward);
  def_max_pool_backward(m, "max_pool3d_backward", &max_pool3d_backward);
  def_max_pool_backward(m, "adaptive_max_pool1d_backward", &adaptive_max_pool1d_backward);
  def_max_pool_backward(m, "adaptive_max_pool2d_backward", &adaptive_max_pool2d_backward);
  def_max_pool_backward(m, "adaptive_max_pool3d_backward", &adaptive_max_pool3d_backward);
  def_avg_pool_backward(m, "avg_pool1d_backward", &avg_pool1d_backward);
  def_avg_pool_backward(m, "avg_pool2d_backward", &avg_pool2d_backward);
  def_avg_pool_backward(m, "avg_pool3d_backward", &avg_pool3d_backward);
  def_adaptive_avg_pool_backward(m, "adaptive_avg_pool1d_backward", &adaptive_avg_pool1d_backward);
  def_adaptive_avg_pool_backward(m, "adaptive_avg_pool2d_backward", &adaptive_avg_pool2d_backward);
  def_adaptive_avg_pool_backward(m, "adaptive_avg_pool3d_backward", &adaptive_avg_pool3d_backward);
  def_lp_pool_backward(m, "lp_pool1d_backward", &lp_pool1d_backward);
  def_lp_pool_backward(m, "lp_pool2d_backward", &lp_pool2d_backward);
  def_lp_pool_backward(m, "lp_pool3d_backward", &lp_pool3d_backward);
}

}  // namespace tenor::python
