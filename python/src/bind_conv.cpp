// Convolutions and their gradients, im2col, deformable convolution.
#include "call.h"
#include "src/core/text.h"
#include "tenor/conv.h"

namespace tenor::python {

/// padding=: a number, one a dim, (lo, hi) a dim, "valid" or "same".
struct PaddingLike {
  nb::handle object;
};

}  // namespace tenor::python

template <>
struct nanobind::detail::type_caster<tenor::python::PaddingLike> {
  NB_TYPE_CASTER(
      tenor::python::PaddingLike,
      const_name("int | str | collections.abc.Sequence[int] | collections.abc.Sequence[collections.abc.Sequence[int]]"))
  bool from_python(handle src, uint8_t, cleanup_list*) noexcept {
    value.object = src;
    return true;
  }
  static handle from_cpp(tenor::python::PaddingLike src, rv_policy, cleanup_list*) noexcept {
    return src.object.inc_ref();
  }
};

namespace tenor::python {
namespace {

/// [(lo, hi), ...] of every dim.
ConvPadding sides_of(Call& call, const char* op, nb::handle pairs) {
  Dims before, after;
  for (nb::handle pair : pairs) {
    const Dims sides = call.dims("padding", DimList{pair});
    if (sides.size() != 2) core::fail<ValueError>("{}: padding must have (lo, hi) a dim, got {}", op, sides);
    before.push_back(sides[0]), after.push_back(sides[1]);
  }
  return ConvPadding(before, after);
}

ConvPadding padding_of(Call& call, const char* op, PaddingLike x) {
  if (nb::isinstance<nb::str>(x.object)) return ConvPadding(utf8_of(x.object).value_or("?"));
  const bool list = PySequence_Check(x.object.ptr()) && !is_array(x.object);
  if (list && nb::len(x.object) > 0 && nb::len(x.object) <= kMostDims) {
    const nb::object first = x.object[0];
    if (PySequence_Check(first.ptr()) && !is_integer_object(first)) return sides_of(call, op, x.object);
  }
  return ConvPadding(call.dims("padding", DimList{x.object}));
}

/// The options that convolutions and their gradients share.
struct Sliding {
  const char* op;
  DimList stride;
  PaddingLike padding;
  DimList dilation;
};

ConvOptions options_of(Call& call, const Sliding& s, Int groups, const std::string& strategy) {
  return {.stride = call.dims("stride", s.stride),
          .padding = padding_of(call, s.op, s.padding),
          .dilation = call.dims("dilation", s.dilation),
          .groups = call.count("groups", groups),
          .strategy = strategy,
          .out = call.out()};
}

ConvTransposeOptions transpose_options(Call& call, const Sliding& s, Int groups, DimList output_padding,
                                       const std::string& strategy) {
  return {.stride = call.dims("stride", s.stride),
          .padding = padding_of(call, s.op, s.padding),
          .dilation = call.dims("dilation", s.dilation),
          .groups = call.count("groups", groups),
          .output_padding = call.optional_dims("output_padding", output_padding),
          .strategy = strategy,
          .out = call.out()};
}

void forward(nb::module_& m, const char* name,
             Tensor (*fn)(const Tensor&, const Tensor&, const Tensor&, const ConvOptions&), const char* doc) {
  m.def(
      name,
      [name, fn](Array input, Array weight, OptionalArray bias, DimList stride, PaddingLike padding, DimList dilation,
                 Int groups, const std::string& strategy, Out out, Workspace workspace) {
        Call call(name, out, workspace);
        const Tensor x = call.array("input", input), w = call.array("weight", weight), b = call.array("bias", bias);
        const ConvOptions options = options_of(call, {name, stride, padding, dilation}, groups, strategy);
        return call.run([&] { return fn(x, w, b, options); });
      },
      "input"_a, "weight"_a, "bias"_a = nb::none(), nb::kw_only(), "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1,
      "groups"_a = 1, "strategy"_a = "auto", "out"_a = nb::none(), "workspace"_a = nb::none(), doc);
}

using Gradient = Tensor (*)(const Tensor&, const Tensor&, const Dims&, const ConvOptions&);

void gradient(nb::module_& m, const char* name, const char* first, const char* second, const char* shape, Gradient fn,
              const char* doc) {
  m.def(
      name,
      [=](Array x, Array y, DimList sizes, DimList stride, PaddingLike padding, DimList dilation, Int groups,
          const std::string& strategy, Out out, Workspace workspace) {
        Call call(name, out, workspace);
        const Tensor a = call.array(first, x), b = call.array(second, y);
        const Dims wanted = call.dims(shape, sizes);
        const ConvOptions options = options_of(call, {name, stride, padding, dilation}, groups, strategy);
        return call.run([&] { return fn(a, b, wanted, options); });
      },
      nb::arg(first), nb::arg(second), nb::arg(shape), nb::kw_only(), "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1,
      "groups"_a = 1, "strategy"_a = "auto", "out"_a = nb::none(), "workspace"_a = nb::none(), doc);
}

void bias_gradient(nb::module_& m, const char* name, Tensor (*fn)(const Tensor&, const ConvBiasBackwardOptions&),
                   const char* doc) {
  m.def(
      name,
      [name, fn](Array grad_output, Out out, Workspace workspace) {
        Call call(name, out, workspace);
        const Tensor g = call.array("grad_output", grad_output);
        return call.run([&] { return fn(g, {.out = call.out()}); });
      },
      "grad_output"_a, nb::kw_only(), "out"_a = nb::none(), "workspace"_a = nb::none(), doc);
}

using TransposedGradient = Tensor (*)(const Tensor&, const Tensor&, const Dims&, const ConvTransposeOptions&);

void transposed_gradient(nb::module_& m, const char* name, const char* first, const char* second, const char* shape,
                         TransposedGradient fn, const char* doc) {
  m.def(
      name,
      [=](Array x, Array y, DimList sizes, DimList stride, PaddingLike padding, DimList dilation, Int groups,
          DimList output_padding, const std::string& strategy, Out out, Workspace workspace) {
        Call call(name, out, workspace);
        const Tensor a = call.array(first, x), b = call.array(second, y);
        const Dims wanted = call.dims(shape, sizes);
        const ConvTransposeOptions options =
            transpose_options(call, {name, stride, padding, dilation}, groups, output_padding, strategy);
        return call.run([&] { return fn(a, b, wanted, options); });
      },
      nb::arg(first), nb::arg(second), nb::arg(shape), nb::kw_only(), "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1,
      "groups"_a = 1, "output_padding"_a = nb::none(), "strategy"_a = "auto", "out"_a = nb::none(),
      "workspace"_a = nb::none(), doc);
}

/// col2im's sizes: a lone int is meant for every dim, and where nothing says how many there are, for two.
Dims spread(Dims sizes, bool lone, size_t count) { return lone ? Dims(count, sizes[0]) : sizes; }

nb::object col2im_of(Array x, DimList output_size, DimList kernel_size, DimList stride, PaddingLike padding,
                     DimList dilation, Out out, Workspace workspace) {
  Call call("col2im", out, workspace);
  const Tensor columns = call.array("x", x);
  const Dims size = call.dims("output_size", output_size), kernel = call.dims("kernel_size", kernel_size);
  const bool lone = is_integer_object(output_size.object);
  const size_t dims = !lone ? size.size() : is_integer_object(kernel_size.object) ? 2 : kernel.size();
  const Im2colOptions options{.stride = call.dims("stride", stride),
                              .padding = padding_of(call, "col2im", padding),
                              .dilation = call.dims("dilation", dilation),
                              .out = call.out()};
  return call.run([&] { return col2im(columns, spread(size, lone, dims), kernel, options); });
}

void bind_columns(nb::module_& m) {
  m.def(
      "im2col",
      [](Array x, DimList kernel_size, DimList stride, PaddingLike padding, DimList dilation, Out out,
         Workspace workspace) {
        Call call("im2col", out, workspace);
        const Tensor image = call.array("x", x);
        const Dims kernel = call.dims("kernel_size", kernel_size);
        const Im2colOptions options{.stride = call.dims("stride", stride),
                                    .padding = padding_of(call, "im2col", padding),
                                    .dilation = call.dims("dilation", dilation),
                                    .out = call.out()};
        return call.run([&] { return im2col(image, kernel, options); });
      },
      "x"_a, "kernel_size"_a, nb::kw_only(), "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1, "out"_a = nb::none(),
      "workspace"_a = nb::none(),
      R"(Every window as a column: x [N, C, *S] of any dtype -> [N, C * prod(K), prod(P)].

Element (c, k) of window p is x[n, c, p * stride + k * dilation - lo], 0 on padding. stride, dilation, kernel_size: one number or
one a dim; padding as conv_forward. Raises ShapeError for a kernel that does not fit.)");
  m.def("col2im", &col2im_of, "x"_a, "output_size"_a, "kernel_size"_a, nb::kw_only(), "stride"_a = 1, "padding"_a = 0,
        "dilation"_a = 1, "out"_a = nb::none(), "workspace"_a = nb::none(),
        R"(The adjoint of im2col: columns [N, C * prod(K), prod(P)] added up in an image [N, C, *output_size].

Where windows overlap, in the order of the taps, in float32 for 16-bit floats; integers wrap. output_size: one number a dim; a
lone int is the size of both of two dims. Raises ShapeError for columns that are not the windows of that image.)");
}

const char* const kForwardDoc =
    R"(A convolution (cross-correlation) over 1 to 3 spatial dims: input [N, C, *S], weight [O, C/groups, *K] -> [N, O, *P].

bias [O] is added before the one rounding; sums are float32 (float64 for float64). padding: a number, one a dim, ((lo, hi), ...)
a dim, "valid", or "same" (stride 1 only; the odd zero at the end). strategy: "auto", "direct", "implicit_gemm" or "vendor".
Raises ShapeError for a dilated kernel larger than the padded input and channels that groups does not divide, ValueError for bad
options, UnsupportedError for a strategy that cannot do it.)";

void bind_transposed(nb::module_& m) {
  m.def(
      "conv_transpose",
      [](Array input, Array weight, OptionalArray bias, DimList stride, PaddingLike padding, DimList dilation,
         Int groups, DimList output_padding, const std::string& strategy, Out out, Workspace workspace) {
        Call call("conv_transpose", out, workspace);
        const Tensor x = call.array("input", input), w = call.array("weight", weight), b = call.array("bias", bias);
        const ConvTransposeOptions options =
            transpose_options(call, {"conv_transpose", stride, padding, dilation}, groups, output_padding, strategy);
        return call.run([&] { return conv_transpose(x, w, b, options); });
      },
      "input"_a, "weight"_a, "bias"_a = nb::none(), nb::kw_only(), "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1,
      "groups"_a = 1, "output_padding"_a = 0, "strategy"_a = "auto", "out"_a = nb::none(), "workspace"_a = nb::none(),
      R"(The data gradient of a convolution as an operator: input [N, C, *S], weight [C, O/groups, *K] -> [N, O, *P].

P = (S - 1) * stride - lo - hi + dilation * (K - 1) + 1 + output_padding, which is below max(stride, dilation). Otherwise as
conv_forward.)");
  transposed_gradient(
      m, "conv_transpose_data_backward", "grad_output", "weight", "input_shape", &conv_transpose_data_backward,
      "The gradient to conv_transpose's input: grad_output [N, O, *P], weight [C, O/groups, *K] -> input_shape "
      "[N, C, *S].\n"
      "output_padding None: whatever the shapes say.");
  transposed_gradient(
      m, "conv_transpose_weight_backward", "input", "grad_output", "weight_shape", &conv_transpose_weight_backward,
      "The gradient to conv_transpose's weight: input [N, C, *S], grad_output [N, O, *P] -> weight_shape "
      "[C, O/groups, *K].\n"
      "output_padding None: whatever the shapes say.");
}

template <class Options>
Options deform_options(Call& call, const Sliding& s, OptionalInt groups, OptionalInt offset_groups) {
  Options options;
  options.stride = call.dims("stride", s.stride);
  options.padding = padding_of(call, s.op, s.padding);
  options.dilation = call.dims("dilation", s.dilation);
  options.groups = groups, options.offset_groups = offset_groups;
  return options;
}

nb::object deform_gradients(Array grad_output, Array input, Array offset, Array weight, OptionalArray mask,
                            OptionalArray bias, DimList stride, PaddingLike padding, DimList dilation,
                            OptionalInt groups, OptionalInt offset_groups, Out out, Workspace workspace) {
  Call call("deform_conv2d_backward", out, workspace);
  const Tensor g = call.array("grad_output", grad_output), x = call.array("input", input),
               at = call.array("offset", offset), w = call.array("weight", weight), mk = call.array("mask", mask),
               b = call.array("bias", bias);
  auto options = deform_options<DeformConvBackwardOptions>(call, {"deform_conv2d_backward", stride, padding, dilation},
                                                           groups, offset_groups);
  const size_t count = 3 + (mk.defined() ? 1 : 0) + (b.defined() ? 1 : 0);
  size_t next = 0;
  for (Tensor* to : {&options.out.grad_input, &options.out.grad_offset, &options.out.grad_weight})
    *to = call.out(next++, count);
  if (mk.defined()) options.out.grad_mask = call.out(next++, count);
  if (b.defined()) options.out.grad_bias = call.out(next++, count);
  const DeformConvGrads grads = call.compute([&] { return deform_conv2d_backward(g, x, at, w, mk, b, options); });
  nb::list items;
  next = 0;
  for (const Tensor* t :
       {&grads.grad_input, &grads.grad_offset, &grads.grad_weight, &grads.grad_mask, &grads.grad_bias}) {
    if (!t->defined())
      items.append(nb::none());
    else if (out.object.is_none())
      items.append(call.wrap_one(*t));
    else
      items.append(nb::borrow<nb::sequence>(out.object)[next++]);
  }
  const nb::object type =
      named_tuple("DeformConvGrads", {"grad_input", "grad_offset", "grad_weight", "grad_mask", "grad_bias"});
  return type(*nb::tuple(items));
}

void bind_deform(nb::module_& m) {
  m.def(
      "deform_conv2d",
      [](Array input, Array offset, Array weight, OptionalArray mask, OptionalArray bias, DimList stride,
         PaddingLike padding, DimList dilation, OptionalInt groups, OptionalInt offset_groups, Out out,
         Workspace workspace) {
        Call call("deform_conv2d", out, workspace);
        const Tensor x = call.array("input", input), at = call.array("offset", offset),
                     w = call.array("weight", weight), mk = call.array("mask", mask), b = call.array("bias", bias);
        auto options = deform_options<DeformConvOptions>(call, {"deform_conv2d", stride, padding, dilation}, groups,
                                                         offset_groups);
        options.out = call.out();
        return call.run([&] { return deform_conv2d(x, at, w, mk, b, options); });
      },
      "input"_a, "offset"_a, "weight"_a, "mask"_a = nb::none(), "bias"_a = nb::none(), nb::kw_only(), "stride"_a = 1,
      "padding"_a = 0, "dilation"_a = 1, "groups"_a = nb::none(), "offset_groups"_a = nb::none(), "out"_a = nb::none(),
      "workspace"_a = nb::none(),
      R"(Deformable convolution: every tap reads at an offset of its own, bilinearly, zeros outside, times mask.

input [N, C, H, W], offset [N, 2 * OG * KH * KW, PH, PW] with (y, x) of each tap, weight [O, C/groups, KH, KW],
mask [N, OG * KH * KW, PH, PW], bias [O] -> [N, O, PH, PW]. groups and offset_groups follow from the shapes where they are None.
Source: arXiv 1811.11168. Raises ShapeError, ValueError, DTypeError.)");
  m.def("deform_conv2d_backward", &deform_gradients, "grad_output"_a, "input"_a, "offset"_a, "weight"_a,
        "mask"_a = nb::none(), "bias"_a = nb::none(), nb::kw_only(), "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1,
        "groups"_a = nb::none(), "offset_groups"_a = nb::none(), "out"_a = nb::none(), "workspace"_a = nb::none(),
        R"(The gradients of deform_conv2d: DeformConvGrads(grad_input, grad_offset, grad_weight, grad_mask, grad_bias).

The last two are None without a mask, without a bias; out= is a tuple of those that there are.)");
}

}  // namespace

void bind_conv(nb::module_& m) {
  forward(m, "conv_forward", &conv_forward, kForwardDoc);
  forward(m, "conv_forward_nhwc", &conv_forward_nhwc,
          "conv_forward of input [N, *S, C] and weight [O, *K, C/groups]: [N, *P, O].");
  gradient(m, "conv_data_backward", "grad_output", "weight", "input_shape", &conv_data_backward,
           "The gradient to conv_forward's input: grad_output [N, O, *P], weight [O, C/groups, *K] -> input_shape "
           "[N, C, *S].\n"
           "Inputs that no window reads get 0. Options as conv_forward.");
  gradient(m, "conv_data_backward_nhwc", "grad_output", "weight", "input_shape", &conv_data_backward_nhwc,
           "conv_data_backward of grad_output [N, *P, O], weight [O, *K, C/groups], input_shape [N, *S, C].");
  gradient(m, "conv_weight_backward", "input", "grad_output", "weight_shape", &conv_weight_backward,
           "The gradient to conv_forward's weight: input [N, C, *S], grad_output [N, O, *P] -> weight_shape "
           "[O, C/groups, *K].\n"
           "Options as conv_forward.");
  gradient(m, "conv_weight_backward_nhwc", "input", "grad_output", "weight_shape", &conv_weight_backward_nhwc,
           "conv_weight_backward of input [N, *S, C], grad_output [N, *P, O], weight_shape [O, *K, C/groups].");
  bias_gradient(m, "conv_bias_backward", &conv_bias_backward,
                "The gradient to conv_forward's bias: grad_output [N, O, *P] summed over all but O -> [O].");
  bias_gradient(m, "conv_bias_backward_nhwc", &conv_bias_backward_nhwc,
                "conv_bias_backward of grad_output [N, *P, O].");
  bind_transposed(m);
  bind_columns(m);
  bind_deform(m);
}

}  // namespace tenor::python
