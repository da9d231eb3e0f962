#include "call.h"
#include "src/core/text.h"
#include "tenor/interpolate.h"

namespace tenor::python {
namespace {

using core::fail;

double factor_of(const char* op, nb::handle x) {
  double value;
  if (PyBool_Check(x.ptr()) || !read_real(x, value))
    fail<DTypeError>("{}: scale_factor must be a number or a sequence of numbers, got {}", op, nb::repr(x).c_str());
  return value;
}

/// Entries of a sequence; -1 for what is a number: arrays without dims are sequences to Python, which have no length.
Py_ssize_t entries_of(nb::handle x) {
  if (!PySequence_Check(x.ptr()) || PyUnicode_Check(x.ptr())) return -1;
  const Py_ssize_t count = PySequence_Size(x.ptr());
  if (count >= 0) return count;
  const nb::python_error error;
  if (!error.matches(PyExc_TypeError)) throw error;
  return -1;
}

/// A number counts for every spatial dim; a sequence has one for each.
std::optional<std::vector<double>> factors_of(const char* op, nb::handle x, size_t dims) {
  if (x.is_none()) return {};
  std::vector<double> out;
  const Py_ssize_t count = entries_of(x);
  if (count < 0) {
    out.assign(dims, factor_of(op, x));
    return out;
  }
  if (static_cast<size_t>(count) > kMostDims)
    fail<ValueError>("{}: scale_factor must have an entry for each of {} spatial dims, got {}", op, dims, count);
  for (Py_ssize_t i = 0; i < count; ++i) out.push_back(factor_of(op, nb::steal(PySequence_GetItem(x.ptr(), i))));
  return out;
}

InterpolateOptions options_of(Call& call, const char* op, size_t ndim, DimList size, nb::handle scale_factor,
                              const std::string& mode, bool align_corners, bool antialias) {
  const size_t dims = ndim > 2 ? ndim - 2 : 1;
  InterpolateOptions o{.mode = mode, .align_corners = align_corners, .antialias = antialias};
  o.size = call.optional_dims("size", size);
  if (o.size && is_integer_object(size.object)) o.size = Dims(dims, (*o.size)[0]);
  o.scale_factor = factors_of(op, scale_factor, dims);
  return o;
}

}  // namespace

void bind_interpolate(nb::module_& m) {
  m.def(
      "interpolate",
      [](Array x, DimList size, nb::object scale_factor, std::string mode, bool align_corners, bool antialias, Out out,
         Workspace workspace) {
        Call call("interpolate", out, workspace);
        const Tensor t = call.array("x", x);
        InterpolateOptions o =
            options_of(call, "interpolate", t.shape().size(), size, scale_factor, mode, align_corners, antialias);
        o.out = call.out();
        return call.run([&] { return interpolate(t, o); });
      },
      "x"_a, "size"_a = nb::none(), "scale_factor"_a = nb::none(), "mode"_a = "nearest", "align_corners"_a = false,
      "antialias"_a = false, nb::kw_only(), "out"_a = nb::none(), "workspace"_a = nb::none(),
      "x [N, C, *S], one to three spatial dims, resampled to [N, C, *size]. Exactly one of size (an int or one a dim) "
      "and scale_factor (a\n"
      "number or one a dim; the size is floor(S * factor), and the factor is used as given but by 'area'). mode: "
      "'nearest', 'nearest-exact',\n"
      "'area' (1 to 3 dims), 'linear' (1), 'bilinear', 'bicubic' (A = -0.75; -0.5 with antialias), 'lanczos3' (2), "
      "'trilinear' (3).\n"
      "align_corners keeps the centres of the corners; antialias (bilinear, bicubic, lanczos3) widens the kernel where "
      "the image shrinks. Floats; the\n"
      "nearest modes uint8 too. Raises ValueError for options that the mode cannot honour, ShapeError for another rank "
      "or an empty\n"
      "image, DTypeError.");
  m.def(
      "interpolate_backward",
      [](Array grad_output, DimList input_shape, DimList size, nb::object scale_factor, std::string mode,
         bool align_corners, bool antialias, Out out, Workspace workspace) {
        Call call("interpolate_backward", out, workspace);
        const Tensor g = call.array("grad_output", grad_output);
        const Dims shape = call.dims("input_shape", input_shape);
        InterpolateOptions o =
            options_of(call, "interpolate_backward", shape.size(), size, scale_factor, mode, align_corners, antialias);
        o.out = call.out();
        return call.run([&] { return interpolate_backward(g, shape, o); });
      },
      "grad_output"_a, "input_shape"_a, "size"_a = nb::none(), "scale_factor"_a = nb::none(), "mode"_a = "nearest",
      "align_corners"_a = false, "antialias"_a = false, nb::kw_only(), "out"_a = nb::none(), "workspace"_a = nb::none(),
      "The gradient to the input of interpolate, of shape input_shape, with the same options. Every input sums over "
      "the outputs that read\n"
      "it in their order: the same bits on every run. Raises ShapeError when grad_output has not the result's shape; "
      "else as interpolate.");
}

}  // namespace tenor::python
