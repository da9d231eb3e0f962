#include <utility>

#include "call.h"
#include "tenor/view.h"

namespace tenor::python {

void bind_view(nb::module_& m) {
  const auto shaped = [&](const char* name, Tensor (*fn)(const Tensor&, const Dims&), const char* doc) {
    m.def(
        name,
        [name, fn](Array x, nb::args shape) {
          Call call(name);
          const Tensor t = call.array("x", x);
          // Both x.view(2, 3) and x.view((2, 3)).
          const nb::object sizes = nb::len(shape) == 1 ? nb::object(shape[0]) : nb::object(shape);
          const Dims dims = call.dims(fn == &permute ? "dims" : "shape", {sizes});
          return call.run([&] { return fn(t, dims); });
        },
        "x"_a, "shape"_a, doc);
    method_names().push_back(name);
  };
  shaped("view", &view,
         "x under another shape (one size may be -1) without a copy; ShapeError where the strides do not allow it.");
  shaped("reshape", &reshape, "x under another shape; copies only where a view is not possible.");
  shaped("permute", &permute, "Dim i of the result is dim dims[i] of x.");
  shaped("expand", &expand, "Repeats dims of size 1 and new leading dims by stride 0; -1 keeps a size.");
  shaped("broadcast_to", &broadcast_to, "As expand.");

  def_method(
      m, "flatten",
      [](Array x, Int start_dim, Int end_dim) {
        Call call("flatten");
        const Tensor t = call.array("x", x);
        return call.run([&] { return flatten(t, start_dim, end_dim); });
      },
      "x"_a, "start_dim"_a = 0, "end_dim"_a = -1, "Dims start_dim..end_dim as one.");
  def_method(
      m, "unflatten",
      [](Array x, Int dim, DimList sizes) {
        Call call("unflatten");
        const Tensor t = call.array("x", x);
        const Dims parts = call.dims("sizes", sizes);
        return call.run([&] { return unflatten(t, dim, parts); });
      },
      "x"_a, "dim"_a, "sizes"_a, "Dim `dim` as several; one size may be -1.");
  using Exchange = Tensor (*)(const Tensor&, int64_t, int64_t);
  for (const auto& [name, exchange] :
       {std::pair<const char*, Exchange>{"transpose", &transpose}, {"swapdims", &swapdims}})
    def_method(
        m, name,
        [name = name, exchange = exchange](Array x, Int dim0, Int dim1) {
          Call call(name);
          const Tensor t = call.array("x", x);
          return call.run([&] { return exchange(t, dim0, dim1); });
        },
        "x"_a, "dim0"_a, "dim1"_a, "Exchanges two dims.");
  def_method(
      m, "movedim",
      [](Array x, DimList source, DimList destination) {
        Call call("movedim");
        const Tensor t = call.array("x", x);
        const Dims from = call.dims("source", source), to = call.dims("destination", destination);
        return call.run([&] { return movedim(t, from, to); });
      },
      "x"_a, "source"_a, "destination"_a, "Moves dims; the others keep their order.");
  def_method(
      m, "unsqueeze",
      [](Array x, Int dim) {
        Call call("unsqueeze");
        const Tensor t = call.array("x", x);
        return call.run([&] { return unsqueeze(t, dim); });
      },
      "x"_a, "dim"_a, "A new dim of size 1 before `dim`.");
  def_method(
      m, "squeeze",
      [](Array x, DimList dim) {
        Call call("squeeze");
        const Tensor t = call.array("x", x);
        const auto dims = call.optional_dims("dim", dim);
        return call.run([&] { return dims ? squeeze(t, *dims) : squeeze(t); });
      },
      "x"_a, "dim"_a = nb::none(), "Without dims of size 1: all, or those named.");
  def_method(
      m, "select",
      [](Array x, Int dim, Int index) {
        Call call("select");
        const Tensor t = call.array("x", x);
        return call.run([&] { return select(t, dim, index); });
      },
      "x"_a, "dim"_a, "index"_a, "Element `index` of `dim`, which disappears.");
  def_method(
      m, "narrow",
      [](Array x, Int dim, Int start, Int length) {
        Call call("narrow");
        const Tensor t = call.array("x", x);
        return call.run([&] { return narrow(t, dim, start, length); });
      },
      "x"_a, "dim"_a, "start"_a, "length"_a, "`length` elements of `dim` from `start`.");
  def_method(
      m, "slice",
      [](Array x, Int dim, OptionalInt start, OptionalInt stop, Int step) {
        Call call("slice");
        const Tensor t = call.array("x", x);
        return call.run([&] { return slice(t, dim, start, stop, step); });
      },
      "x"_a, "dim"_a = 0, "start"_a = nb::none(), "stop"_a = nb::none(), "step"_a = 1,
      "start:stop:step of `dim`, clamped as in Python; step > 0.");
  def_method(
      m, "split",
      [](Array x, DimList sizes, Int dim) {
        Call call("split");
        const Tensor t = call.array("x", x);
        const bool one = is_integer_object(sizes.object);
        const Dims parts = call.dims("split_size_or_sections", sizes, kAnyCount);
        return call.run([&] { return one ? split(t, parts[0], dim) : split(t, parts, dim); });
      },
      "x"_a, "split_size_or_sections"_a, "dim"_a = 0, "Pieces of one size (the last smaller), or of the sizes given.");
  def_method(
      m, "chunk",
      [](Array x, Int chunks, Int dim) {
        Call call("chunk");
        const Tensor t = call.array("x", x);
        return call.run([&] { return chunk(t, chunks, dim); });
      },
      "x"_a, "chunks"_a, "dim"_a = 0, "At most `chunks` pieces of equal size but the last.");
  def_method(
      m, "unbind",
      [](Array x, Int dim) {
        Call call("unbind");
        const Tensor t = call.array("x", x);
        return call.run([&] { return unbind(t, dim); });
      },
      "x"_a, "dim"_a = 0, "Every element along `dim`, which disappears.");
  def_method(
      m, "diagonal",
      [](Array x, Int offset, Int dim1, Int dim2) {
        Call call("diagonal");
        const Tensor t = call.array("x", x);
        return call.run([&] { return diagonal(t, offset, dim1, dim2); });
      },
      "x"_a, "offset"_a = 0, "dim1"_a = 0, "dim2"_a = 1, "The diagonal of two dims as a new last dim.");
  def_method(
      m, "unfold",
      [](Array x, Int dim, Int size, Int step) {
        Call call("unfold");
        const Tensor t = call.array("x", x);
        return call.run([&] { return unfold(t, dim, size, step); });
      },
      "x"_a, "dim"_a, "size"_a, "step"_a, "Windows of `size` every `step` along `dim`, as a new last dim.");
}

}  // namespace tenor::python
