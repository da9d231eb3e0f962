#include "call.h"
#include "tenor/sort.h"

namespace tenor::python {
namespace {

std::vector<Tensor> both(const SortResult& result) { return {result.values, result.indices}; }
SortResult out_pair(Call& call) { return {call.out(0, 2), call.out(1, 2)}; }  // undefined when out= is absent

nb::object run_median(Array x, OptionalInt dim, bool keepdim, Out out, Workspace workspace, nb::handle type) {
  Call call("median", out, workspace);
  const Tensor t = call.array("x", x);
  if (!dim) {
    const SortResult outs{call.out(), {}};
    return call.run([&] { return median(t, {.keepdim = keepdim, .out = outs}).values; });
  }
  const SortResult outs = out_pair(call);
  return call.run_named(type, [&] { return both(median(t, {.dim = dim, .keepdim = keepdim, .out = outs})); });
}

/// The named tuple of what unique was asked for; values alone are no tuple.
nb::object run_unique(Array x, bool sorted, bool inverse, bool counts, OptionalInt dim, Out out) {
  Call call("unique", out);
  const Tensor t = call.array("x", x);
  const size_t asked = 1 + inverse + counts;
  UniqueOptions options{sorted, inverse, counts, dim, {}};
  options.out.values = call.out(0, asked);
  if (inverse) options.out.inverse_indices = call.out(1, asked);
  if (counts) options.out.counts = call.out(asked - 1, asked);
  const auto run = [&] {
    const UniqueResult r = unique(t, options);
    std::vector<Tensor> results{r.values};
    if (inverse) results.push_back(r.inverse_indices);
    if (counts) results.push_back(r.counts);
    return results;
  };
  if (asked == 1) return call.run([&] { return run()[0]; });
  const nb::object type = asked == 3 ? named_tuple("UniqueResult", {"values", "inverse_indices", "counts"})
                          : inverse  ? named_tuple("UniqueResult", {"values", "inverse_indices"})
                                     : named_tuple("UniqueResult", {"values", "counts"});
  return call.run_named(type, run);
}

}  // namespace

void bind_sort(nb::module_& m) {
  const nb::object result = named_tuple("SortResult", {"values", "indices"});
  def_method(
      m, "sort",
      [result](Array x, Int dim, bool descending, bool stable, Out out, Workspace workspace) {
        Call call("sort", out, workspace);
        const Tensor t = call.array("x", x);
        const SortResult outs = out_pair(call);
        return call.run_named(result, [&] { return both(sort(t, {dim, descending, stable, outs})); });
      },
      "x"_a, "dim"_a = -1, "descending"_a = false, "stable"_a = true, nb::kw_only(), "out"_a = nb::none(),
      "workspace"_a = nb::none(),
      "x sorted along dim: (values of x's shape and dtype, indices int64). Always stable: of equal elements the lower "
      "index\n"
      "comes first, in both directions. NaN is the greatest whatever its sign bit, -0 equals +0. out= takes (values, "
      "indices).\n"
      "IndexError for a dim out of range, DTypeError for an 8-bit float.");
  def_method(
      m, "argsort",
      [](Array x, Int dim, bool descending, bool stable, Out out, Workspace workspace) {
        Call call("argsort", out, workspace);
        const Tensor t = call.array("x", x), into = call.out();
        return call.run([&] { return argsort(t, {dim, descending, stable, into}); });
      },
      "x"_a, "dim"_a = -1, "descending"_a = false, "stable"_a = true, nb::kw_only(), "out"_a = nb::none(),
      "workspace"_a = nb::none(), "The indices of sort, int64 of x's shape.");
  def_method(
      m, "topk",
      [result](Array x, Int k, Int dim, bool largest, bool sorted, Out out, Workspace workspace) {
        Call call("topk", out, workspace);
        const Tensor t = call.array("x", x);
        const SortResult outs = out_pair(call);
        return call.run_named(result, [&] { return both(topk(t, k, {dim, largest, sorted, outs})); });
      },
      "x"_a, "k"_a, "dim"_a = -1, "largest"_a = true, "sorted"_a = true, nb::kw_only(), "out"_a = nb::none(),
      "workspace"_a = nb::none(),
      "The k largest (or smallest) elements along dim, (values, indices int64), in sort's order: lower index first on "
      "ties,\n"
      "NaN the greatest. sorted=False gives the same. ValueError unless 0 <= k <= x.shape[dim].");
  def_method(
      m, "kthvalue",
      [result](Array x, Int k, Int dim, bool keepdim, Out out, Workspace workspace) {
        Call call("kthvalue", out, workspace);
        const Tensor t = call.array("x", x);
        const SortResult outs = out_pair(call);
        return call.run_named(result, [&] { return both(kthvalue(t, k, {dim, keepdim, outs})); });
      },
      "x"_a, "k"_a, "dim"_a = -1, "keepdim"_a = false, nb::kw_only(), "out"_a = nb::none(), "workspace"_a = nb::none(),
      "The k-th smallest element along dim, k counted from 1, and its index: element k - 1 of sort(x).\n"
      "ValueError unless 1 <= k <= x.shape[dim].");
  def_method(
      m, "median",
      [result](Array x, OptionalInt dim, bool keepdim, Out out, Workspace workspace) {
        return run_median(x, dim, keepdim, out, workspace, result);
      },
      "x"_a, "dim"_a = nb::none(), "keepdim"_a = false, nb::kw_only(), "out"_a = nb::none(), "workspace"_a = nb::none(),
      "The lower of the two middle elements, or the first NaN: over all elements one value, along dim (values, indices "
      "int64).\n"
      "ShapeError over an empty dim.");
  def_method(m, "unique", &run_unique, "x"_a, "sorted"_a = true, "return_inverse"_a = false, "return_counts"_a = false,
             "dim"_a = nb::none(), nb::kw_only(), "out"_a = nb::none(),
             "The distinct elements (or slices along dim, in lexicographic order), ascending. With return_inverse and "
             "return_counts a\n"
             "tuple (values, inverse_indices, counts) of what was asked for: x = values[inverse_indices]. Every NaN is "
             "distinct, -0\n"
             "equals +0; of equal elements the first is returned. The result is sorted whatever sorted says.");
  def_method(
      m, "bincount",
      [](Array x, OptionalArray weights, Int minlength, Out out) {
        Call call("bincount", out);
        const Tensor t = call.array("x", x), w = call.array("weights", weights), into = call.out();
        const int64_t least = call.count("minlength", minlength);
        return call.run([&] { return bincount(t, {w, least, into}); });
      },
      "x"_a, "weights"_a = nb::none(), "minlength"_a = 0, nb::kw_only(), "out"_a = nb::none(),
      "How often each of 0, 1, 2, ... occurs in the integers x [n]: int64 [max(max(x) + 1, minlength)], or the sums of "
      "the\n"
      "weights [n] in index order: float32 for float32 weights, else float64. ValueError for a negative element or "
      "minlength.");
  m.def(
      "searchsorted",
      [](Array sorted_sequence, ArrayOrScalar values, bool right, Out out) {
        Call call("searchsorted", out);
        const Tensor seq = call.array("sorted_sequence", sorted_sequence);
        const Operand v = call.operand("values", values);
        const Tensor into = call.out();
        return call.run([&] { return searchsorted(seq, v, {right, into}); });
      },
      "sorted_sequence"_a, "values"_a, "right"_a = false, nb::kw_only(), "out"_a = nb::none(),
      "Where each value would go to keep the order: how many elements are < value (<= with right), int64 of values' "
      "shape.\n"
      "sorted_sequence [n] takes values of any shape or a scalar, [*B, n] takes values [*B, m]. NaN is the greatest.\n"
      "ShapeError when the dims before the last differ.");
}

}  // namespace tenor::python
