#include "call.h"
#include "number.h"
#include "src/core/text.h"
#include "tenor/index.h"
#include "tenor/view.h"

namespace tenor::python {

void bind_indexing(nb::module_& m);

namespace {

/// fn(x, ...) without the GIL; the array that was passed as x is the result.
template <class F>
nb::object in_place(Call& call, Array x, F&& fn) {
  call.compute(fn);
  return nb::borrow(x.object);
}

/// src, or value= in its place.
Operand source_of(Call& call, const char* op, ArrayOrScalar src, ArrayOrScalar value) {
  const bool by_value = src.object.is_none();
  if (by_value == value.object.is_none()) core::fail<ValueError>("{}: give either src or value", op);
  return by_value ? call.operand("value", value) : call.operand("src", src);
}

/// Index arrays, masks and None, one a dim.
std::vector<Tensor> entries_of(Call& call, const char* op, nb::handle indices) {
  if (is_array(indices) || !PySequence_Check(indices.ptr()))
    core::fail<DTypeError>("{}: indices must be a sequence of arrays", op);
  std::vector<Tensor> entries;
  for (nb::handle entry : nb::borrow<nb::sequence>(indices))
    entries.push_back(call.array("indices", OptionalArray{entry}));
  return entries;
}

/// The one list argument of x.fn(2, 3), x.fn((2, 3)) and x.fn(name=(2, 3)).
Dims listed(Call& call, const char* op, const char* name, nb::args values, nb::kwargs named) {
  for (auto [key, value] : named) {
    const std::string text = utf8_of(key).value_or("?");
    if (text != name && text != "out") core::fail<DTypeError>("{}: unexpected argument '{}'", op, text);
  }
  if (named.contains(name) && nb::len(values) > 0)
    core::fail<DTypeError>("{}: {} is given both by position and by name", op, name);
  if (named.contains(name)) return call.dims(name, {named[name]});
  if (nb::len(values) == 0) core::fail<DTypeError>("{}: {} is required", op, name);
  const nb::object list = nb::len(values) == 1 ? nb::object(values[0]) : nb::object(values);
  return call.dims(name, {list});
}

void bind_reads(nb::module_& m) {
  def_method(
      m, "index_select",
      [](Array x, Int dim, Array index, Out out) {
        Call call("index_select", out);
        const Tensor t = call.array("x", x), i = call.array("index", index);
        return call.run([&] { return index_select(t, dim, i, {.out = call.out()}); });
      },
      "x"_a, "dim"_a, "index"_a, nb::kw_only(), "out"_a = nb::none(),
      "Rows of `dim` that a 1-d integer index names: [..., n, ...] -> [..., len(index), ...]. Indices -n..n-1 "
      "(IndexError).");
  m.def(
      "embedding",
      [](Array indices, Array weight, Out out) {
        Call call("embedding", out);
        const Tensor i = call.array("indices", indices), w = call.array("weight", weight);
        return call.run([&] { return embedding(i, w, {.out = call.out()}); });
      },
      "indices"_a, "weight"_a, nb::kw_only(), "out"_a = nb::none(),
      "weight[indices]: indices [*S], weight [V, *R] -> [*S, *R].");
  def_method(
      m, "gather",
      [](Array x, Int dim, Array index, Out out) {
        Call call("gather", out);
        const Tensor t = call.array("x", x), i = call.array("index", index);
        return call.run([&] { return gather(t, dim, i, {.out = call.out()}); });
      },
      "x"_a, "dim"_a, "index"_a, nb::kw_only(), "out"_a = nb::none(),
      "out[i][j][k] = x[index[i][j][k]][j][k] for dim 0. index has x's rank, and is no larger than x outside of dim.");
  def_method(
      m, "take_along_dim",
      [](Array x, Array indices, OptionalInt dim, Out out) {
        Call call("take_along_dim", out);
        const Tensor t = call.array("x", x), i = call.array("indices", indices);
        return call.run([&] { return take_along_dim(t, i, dim, {.out = call.out()}); });
      },
      "x"_a, "indices"_a, "dim"_a = nb::none(), nb::kw_only(), "out"_a = nb::none(),
      "As gather, x and indices broadcast outside of dim; without dim, over the flattened arrays.");
}

void bind_scatter(nb::module_& m, const char* name,
                  Tensor (*fn)(const Tensor&, int64_t, const Tensor&, const Operand&, const IndexOptions&),
                  const char* doc) {
  def_method(
      m, name,
      [name, fn](Array x, Int dim, Array index, ArrayOrScalar src, ArrayOrScalar value, Out out, Workspace workspace) {
        Call call(name, out, workspace);
        const Tensor t = call.array("x", x), i = call.array("index", index);
        const Operand s = source_of(call, name, src, value);
        return call.run([&] { return fn(t, dim, i, s, {.out = call.out()}); });
      },
      "x"_a, "dim"_a, "index"_a, "src"_a = nb::none(), nb::kw_only(), "value"_a = nb::none(), "out"_a = nb::none(),
      "workspace"_a = nb::none(), doc);
}

void bind_scatter_in_place(nb::module_& m, const char* name,
                           Tensor (*fn)(const Tensor&, int64_t, const Tensor&, const Operand&)) {
  def_method(
      m, name,
      [name, fn](Array x, Int dim, Array index, ArrayOrScalar src, ArrayOrScalar value) {
        Call call(name);
        const Tensor t = call.array("x", x), i = call.array("index", index);
        const Operand s = source_of(call, name, src, value);
        return in_place(call, x, [&] { return fn(t, dim, i, s); });
      },
      "x"_a, "dim"_a, "index"_a, "src"_a = nb::none(), nb::kw_only(), "value"_a = nb::none(),
      "The same, written into x, which is returned.");
}

void bind_writes(nb::module_& m) {
  bind_scatter(m, "scatter", &scatter,
               "x with out[index[i][j][k]][j][k] = src[i][j][k] for dim 0; src is an array of x's dtype or one value. "
               "The last write wins.");
  bind_scatter(m, "scatter_add", &scatter_add,
               "As scatter, adding in index order; 16-bit data in float32, rounded once.");
  bind_scatter_in_place(m, "scatter_", &scatter_);
  bind_scatter_in_place(m, "scatter_add_", &scatter_add_);
  def_method(
      m, "scatter_reduce",
      [](Array x, Int dim, Array index, ArrayOrScalar src, const std::string& reduce, bool include_self, Out out,
         Workspace workspace) {
        Call call("scatter_reduce", out, workspace);
        const Tensor t = call.array("x", x), i = call.array("index", index);
        const Operand s = call.operand("src", src);
        return call.run(
            [&] { return scatter_reduce(t, dim, i, s, reduce, {.include_self = include_self, .out = call.out()}); });
      },
      "x"_a, "dim"_a, "index"_a, "src"_a, "reduce"_a, nb::kw_only(), "include_self"_a = true, "out"_a = nb::none(),
      "workspace"_a = nb::none(),
      "As scatter, combining by reduce: 'sum', 'prod', 'mean', 'amax' or 'amin'; include_self: whether x's own value "
      "takes part.");
  def_method(
      m, "scatter_reduce_",
      [](Array x, Int dim, Array index, ArrayOrScalar src, const std::string& reduce, bool include_self) {
        Call call("scatter_reduce_");
        const Tensor t = call.array("x", x), i = call.array("index", index);
        const Operand s = call.operand("src", src);
        return in_place(call, x, [&] { return scatter_reduce_(t, dim, i, s, reduce, {.include_self = include_self}); });
      },
      "x"_a, "dim"_a, "index"_a, "src"_a, "reduce"_a, nb::kw_only(), "include_self"_a = true,
      "The same, written into x, which is returned.");
  def_method(
      m, "index_add",
      [](Array x, Int dim, Array index, Array source, ArrayOrScalar alpha, Out out, Workspace workspace) {
        Call call("index_add", out, workspace);
        const Tensor t = call.array("x", x), i = call.array("index", index), s = call.array("source", source);
        const Scalar a = number_of("index_add", "alpha", alpha);
        return call.run([&] { return index_add(t, dim, i, s, {.alpha = a, .out = call.out()}); });
      },
      "x"_a, "dim"_a, "index"_a, "source"_a, nb::kw_only(), "alpha"_a = 1, "out"_a = nb::none(),
      "workspace"_a = nb::none(),
      "x with alpha * source[..., i, ...] added to x[..., index[i], ...], in index order; 16-bit data in float32, "
      "rounded once.");
  def_method(
      m, "index_add_",
      [](Array x, Int dim, Array index, Array source, ArrayOrScalar alpha) {
        Call call("index_add_");
        const Tensor t = call.array("x", x), i = call.array("index", index), s = call.array("source", source);
        const Scalar a = number_of("index_add_", "alpha", alpha);
        return in_place(call, x, [&] { return index_add_(t, dim, i, s, {.alpha = a}); });
      },
      "x"_a, "dim"_a, "index"_a, "source"_a, nb::kw_only(), "alpha"_a = 1,
      "The same, written into x, which is returned.");
  def_method(
      m, "index_put",
      [](Array x, nb::handle indices, ArrayOrScalar values, bool accumulate, Out out, Workspace workspace) {
        Call call("index_put", out, workspace);
        const Tensor t = call.array("x", x);
        const std::vector<Tensor> entries = entries_of(call, "index_put", indices);
        const Operand v = call.operand("values", values);
        return call.run([&] { return index_put(t, entries, v, {.accumulate = accumulate, .out = call.out()}); });
      },
      "x"_a, "indices"_a, "values"_a, "accumulate"_a = false, nb::kw_only(), "out"_a = nb::none(),
      "workspace"_a = nb::none(),
      "x with x[indices] = values (the last write wins), or += values with accumulate. indices: integer arrays, masks "
      "or None, one a dim.");
  def_method(
      m, "index_put_",
      [](Array x, nb::handle indices, ArrayOrScalar values, bool accumulate) {
        Call call("index_put_");
        const Tensor t = call.array("x", x);
        const std::vector<Tensor> entries = entries_of(call, "index_put_", indices);
        const Operand v = call.operand("values", values);
        return in_place(call, x, [&] { return index_put_(t, entries, v, {.accumulate = accumulate}); });
      },
      "x"_a, "indices"_a, "values"_a, "accumulate"_a = false, "The same, written into x, which is returned.");
}

void bind_masks(nb::module_& m) {
  def_method(
      m, "masked_select",
      [](Array x, Array mask, Out out) {
        Call call("masked_select", out);
        const Tensor t = call.array("x", x), k = call.array("mask", mask);
        return call.run([&] { return masked_select(t, k, {.out = call.out()}); });
      },
      "x"_a, "mask"_a, nb::kw_only(), "out"_a = nb::none(),
      "The elements of x where the bool mask holds, in row-major order; x and mask broadcast.");
  def_method(
      m, "masked_scatter",
      [](Array x, Array mask, Array source, Out out, Workspace workspace) {
        Call call("masked_scatter", out, workspace);
        const Tensor t = call.array("x", x), k = call.array("mask", mask), s = call.array("source", source);
        return call.run([&] { return masked_scatter(t, k, s, {.out = call.out()}); });
      },
      "x"_a, "mask"_a, "source"_a, nb::kw_only(), "out"_a = nb::none(), "workspace"_a = nb::none(),
      "x with its places where mask holds, row-major, set to source's elements in order.");
  def_method(
      m, "masked_scatter_",
      [](Array x, Array mask, Array source) {
        Call call("masked_scatter_");
        const Tensor t = call.array("x", x), k = call.array("mask", mask), s = call.array("source", source);
        return in_place(call, x, [&] { return masked_scatter_(t, k, s); });
      },
      "x"_a, "mask"_a, "source"_a, "The same, written into x, which is returned.");
  def_method(
      m, "nonzero",
      [](Array x, bool as_tuple, Out out) -> nb::object {
        Call call("nonzero", out);
        const Tensor t = call.array("x", x);
        if (!as_tuple) return call.run([&] { return nonzero(t, {.out = call.out()}); });
        if (!out.object.is_none()) core::fail<ValueError>("nonzero: out= goes with as_tuple=False");
        return call.run([&] { return unbind(nonzero(t.ndim() > 0 ? t : unsqueeze(t, 0)), 1); });
      },
      "x"_a, nb::kw_only(), "as_tuple"_a = false, "out"_a = nb::none(),
      "The places of x that are not zero, row-major: int64 [count, ndim], or with as_tuple one array a dim.");
}

/// x.fn(2, 3), x.fn((2, 3)): a list of ints.
void bind_listed(nb::module_& m, const char* name, const char* argument,
                 Tensor (*fn)(const Tensor&, const Dims&, const IndexOptions&), const char* doc) {
  def_method(
      m, name,
      [name, argument, fn](Array x, nb::args values, nb::kwargs named) {
        const nb::object out = named.contains("out") ? nb::object(named["out"]) : nb::none();
        Call call(name, Out{out});
        const Tensor t = call.array("x", x);
        const Dims list = listed(call, name, argument, values, named);
        return call.run([&] { return fn(t, list, {.out = call.out()}); });
      },
      "x"_a, nb::arg(argument), "named"_a, doc);
}

void bind_rearrangements(nb::module_& m) {
  m.def(
      "cat",
      [](ArrayList tensors, Int dim, Out out) {
        Call call("cat", out);
        const std::vector<Tensor> ts = call.arrays("tensors", tensors);
        return call.run([&] { return cat(ts, dim, {.out = call.out()}); });
      },
      "tensors"_a, "dim"_a = 0, nb::kw_only(), "out"_a = nb::none(),
      "The arrays one after the other along dim; equal sizes elsewhere, also for empty ones. The dtype is the "
      "promotion of all.");
  m.def(
      "stack",
      [](ArrayList tensors, Int dim, Out out) {
        Call call("stack", out);
        const std::vector<Tensor> ts = call.arrays("tensors", tensors);
        return call.run([&] { return stack(ts, dim, {.out = call.out()}); });
      },
      "tensors"_a, "dim"_a = 0, nb::kw_only(), "out"_a = nb::none(), "Arrays of one shape along a new dim.");
  bind_listed(m, "tile", "dims", &tile, "x laid out dims[d] times along each dim; missing leading entries count as 1.");
  bind_listed(m, "repeat", "sizes", &repeat,
              "x laid out sizes[d] times along each dim; at least one entry a dim of x.");
  bind_listed(m, "flip", "dims", &flip, "Elements in reverse order along each of dims.");
  def_method(
      m, "repeat_interleave",
      [](Array x, nb::handle repeats, OptionalInt dim, OptionalInt output_size, Out out) {
        Call call("repeat_interleave", out);
        const Tensor t = call.array("x", x);
        const auto options = [&] {
          return RepeatInterleaveOptions{.dim = dim, .output_size = output_size, .out = call.out()};
        };
        if (is_array(repeats)) {
          const Tensor r = call.array("repeats", Array{repeats});
          return call.run([&] { return repeat_interleave(t, r, options()); });
        }
        const Dims r = call.dims("repeats", {repeats}, kAnyCount);
        if (is_integer_object(repeats)) return call.run([&] { return repeat_interleave(t, r[0], options()); });
        const Tensor counts =
            Tensor::wrap(const_cast<int64_t*>(r.data()), kCpu, int64, {static_cast<int64_t>(r.size())}).to(t.device());
        return call.run([&] { return repeat_interleave(t, counts, options()); });
      },
      "x"_a, "repeats"_a, "dim"_a = nb::none(), nb::kw_only(), "output_size"_a = nb::none(), "out"_a = nb::none(),
      "Each element along dim (of the flattened x without one) repeats times in a row: a count for all, or one each.");
  def_method(
      m, "roll",
      [](Array x, DimList shifts, DimList dims, Out out) {
        Call call("roll", out);
        const Tensor t = call.array("x", x);
        const Dims s = call.dims("shifts", shifts), d = call.optional_dims("dims", dims).value_or(Dims());
        return call.run([&] { return roll(t, s, d, {.out = call.out()}); });
      },
      "x"_a, "shifts"_a, "dims"_a = nb::none(), nb::kw_only(), "out"_a = nb::none(),
      "Elements moved by shifts[i] along dims[i], around the end; without dims, along the flattened x.");
  m.def(
      "one_hot",
      [](Array x, Int num_classes, Out out) {
        Call call("one_hot", out);
        const Tensor t = call.array("x", x);
        const int64_t classes = call.count("num_classes", num_classes);
        return call.run([&] { return one_hot(t, {.num_classes = classes, .out = call.out()}); });
      },
      "x"_a, "num_classes"_a = -1, nb::kw_only(), "out"_a = nb::none(),
      "int64 [*S, num_classes], 1 at x's class; classes are 0..num_classes-1 (IndexError), -1 means the largest + 1.");
}

}  // namespace

void bind_index(nb::module_& m) {
  bind_reads(m);
  bind_writes(m);
  bind_masks(m);
  bind_rearrangements(m);
  bind_indexing(m);
}

}  // namespace tenor::python
