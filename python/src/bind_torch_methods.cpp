// The short methods of tenor.Tensor that PyTorch's users write: each is one of the operators under another name.
#include <algorithm>

#include "call.h"
#include "operators.h"
#include "src/core/text.h"
#include "tenor/elementwise.h"
#include "tenor/reduce.h"
#include "tenor/view.h"

namespace tenor::python {
namespace {

using core::fail;

Tensor reversed(const Tensor& x) {
  Dims dims;
  for (int d = x.ndim() - 1; d >= 0; --d) dims.push_back(d);
  return permute(x, dims);
}
Tensor matrix_transpose(const char* op, const Tensor& x) {
  if (x.ndim() < 2)
    fail<ShapeError>("{}: the last two dims are exchanged, and x has shape {}", op, to_string(x.shape()));
  return transpose(x, -2, -1);
}
Tensor transpose_matrix(const Tensor& x) {
  if (x.ndim() > 2)
    fail<ShapeError>("t: x must have at most 2 dims, got shape {}; transpose(dim0, dim1) names two",
                     to_string(x.shape()));
  return reversed(x);
}

void bind_transposes(nb::class_<Tensor>& tensor) {
  tensor.def_prop_ro("T", &reversed, "The dims in reverse order: the transpose of a matrix, a 1-d tensor itself.")
      .def_prop_ro(
          "mT", [](const Tensor& x) { return matrix_transpose("mT", x); },
          "The last two dims exchanged. ShapeError below 2 dims.")
      .def_prop_ro(
          "mH", [](const Tensor& x) { return matrix_transpose("mH", x); },
          "As mT: real numbers are their own conjugates.")
      .def("t", &transpose_matrix, "The transpose of a matrix; a 1-d tensor itself. ShapeError above 2 dims.")
      .def(
          "swapaxes", [](const Tensor& x, Int axis0, Int axis1) { return transpose(x, axis0, axis1); }, "axis0"_a,
          "axis1"_a, "Exchanges two dims, as transpose().");
}

void bind_casts(nb::class_<Tensor>& tensor) {
  struct Row {
    const char* name;
    DType dtype;
  };
  static constexpr Row kRows[] = {{"float", float32}, {"double", float64}, {"half", float16}, {"bfloat16", bfloat16},
                                  {"bool", boolean},  {"byte", uint8},     {"char", int8},    {"short", int16},
                                  {"int", int32},     {"long", int64}};
  for (const Row& r : kRows) {
    // nanobind keeps the pointer of a docstring.
    const char* doc =
        (new std::string(core::text("x as {}, as to(\"{}\"); itself where it already is.", r.dtype, r.dtype)))->c_str();
    tensor.def(
        r.name,
        [dtype = r.dtype](nb::handle self) {
          const Tensor& x = *nb::inst_ptr<Tensor>(self);
          if (x.dtype() == dtype) return nb::borrow(self);
          Call call("to");
          const Tensor t = call.array("x", Array{self});
          return call.run([&] { return t.to(dtype); });
        },
        doc);
  }
  tensor.def(
      "type_as", [](const Tensor& x, const Tensor& other) { return x.to(other.device()).to(other.dtype()); }, "other"_a,
      nb::call_guard<nb::gil_scoped_release>(), "x in other's dtype, on its device.");
}

void bind_places(nb::class_<Tensor>& tensor) {
  tensor
      .def(
          "cpu", [](const Tensor& x) { return x.to(kCpu); }, nb::call_guard<nb::gil_scoped_release>(),
          "x in the host's memory; itself where it is there.")
      .def(
          "cuda",
          [](const Tensor& x, DeviceLike device) {
            const bool stays = device.object.is_none() && x.device().type == DeviceType::kCuda;
            const Device target = stays                     ? x.device()
                                  : device.object.is_none() ? Device{DeviceType::kCuda, 0}
                                                            : to_device(device.object);
            if (target.type != DeviceType::kCuda)
              fail<ValueError>("cuda: device must be a CUDA device, got {}", target);
            nb::gil_scoped_release unlocked;
            return x.to(target);
          },
          "device"_a = nb::none(), "x on a CUDA device (the first, if none is named); itself where it is there.")
      .def(
          "detach", [](nb::handle self) { return nb::borrow(self); }, "x itself: no gradients are recorded.");
}

void bind_facts(nb::class_<Tensor>& tensor) {
  tensor.def("dim", &Tensor::ndim, "The number of dims.")
      .def(
          "element_size", [](const Tensor& x) { return item_size(x.dtype()); }, "Bytes of one element.")
      .def(
          "stride",
          [](const Tensor& x, OptionalInt dim) -> nb::object {
            if (!dim) return to_tuple(x.strides());
            const int64_t at = *dim < 0 ? *dim + x.ndim() : *dim;
            if (at < 0 || at >= x.ndim())
              fail<IndexError>("stride: dim {} is out of range for {} dims", *dim, x.ndim());
            return nb::int_(x.strides()[static_cast<size_t>(at)]);
          },
          "dim"_a = nb::none(), "The strides in elements, a tuple; of one dim, its own.");
}

void bind_shapes_of_others(nb::class_<Tensor>& tensor) {
  tensor
      .def(
          "expand_as", [](const Tensor& x, const Tensor& other) { return expand(x, other.shape()); }, "other"_a,
          "expand() to other's shape.")
      .def(
          "view_as", [](const Tensor& x, const Tensor& other) { return view(x, other.shape()); }, "other"_a,
          "view() under other's shape.")
      .def(
          "reshape_as", [](const Tensor& x, const Tensor& other) { return reshape(x, other.shape()); }, "other"_a,
          "reshape() to other's shape.");
}

std::optional<Operand> bound(Call& call, const char* name, ArrayOrScalar x) {
  if (x.object.is_none()) return {};
  return call.operand(name, x);
}

void bind_bounds(nb::class_<Tensor>& tensor) {
  tensor.def(
      "clip",
      [](nb::handle self, ArrayOrScalar min, ArrayOrScalar max) {
        Call call("clip");
        const Tensor x = call.array("x", Array{self});
        const auto low = bound(call, "min", min), high = bound(call, "max", max);
        return call.run([&] { return clamp(x, low, high); });
      },
      nb::arg("min").none() = nb::none(), nb::arg("max").none() = nb::none(), "As clamp(): min(max(x, min), max).");
  tensor.def(
      "clamp_min",
      [](nb::handle self, ArrayOrScalar min) {
        Call call("clamp_min");
        const Tensor x = call.array("x", Array{self});
        const Operand low = call.operand("min", min);
        return call.run([&] { return clamp(x, low, {}); });
      },
      "min"_a, "x, but at least min.");
  tensor.def(
      "clamp_max",
      [](nb::handle self, ArrayOrScalar max) {
        Call call("clamp_max");
        const Tensor x = call.array("x", Array{self});
        const Operand high = call.operand("max", max);
        return call.run([&] { return clamp(x, {}, high); });
      },
      "max"_a, "x, but at most max.");
  tensor.def(
      "square", [](const Tensor& x) { return mul(x, x); }, nb::call_guard<nb::gil_scoped_release>(), "x * x.");
}

bool all_true(const Tensor& x) { return all(x).item_int() != 0; }

void bind_comparisons(nb::class_<Tensor>& tensor) {
  tensor.def(
      "equal",
      [](const Tensor& x, const Tensor& other) { return x.shape() == other.shape() && all_true(eq(x, other)); },
      "other"_a, nb::call_guard<nb::gil_scoped_release>(),
      "Whether shapes and all values are equal. Waits for the device.");
  tensor.def(
      "allclose",
      [](const Tensor& x, const Tensor& other, Real rtol, Real atol, bool equal_nan) {
        nb::gil_scoped_release unlocked;
        return all_true(isclose(x, other, {rtol, atol, equal_nan, {}}));
      },
      "other"_a, "rtol"_a = 1e-5, "atol"_a = 1e-8, "equal_nan"_a = false,
      "Whether isclose() holds everywhere. Waits for the device.");
}

}  // namespace

void bind_torch_methods(nb::class_<Tensor>& tensor) {
  bind_transposes(tensor);
  bind_casts(tensor);
  bind_places(tensor);
  bind_facts(tensor);
  bind_shapes_of_others(tensor);
  bind_bounds(tensor);
  bind_comparisons(tensor);
}

}  // namespace tenor::python
