#include "call.h"
#include "src/core/text.h"
#include "tenor/contract.h"

namespace tenor::python {
namespace {

using Contraction = Tensor (*)(const Tensor&, const Tensor&, const ContractOptions&);

/// A function of two arrays with dtype= and out=.
void pairwise(nb::module_& m, const char* name, const char* second, Contraction fn, const char* doc) {
  def_method(
      m, name,
      [name, second, fn](Array x, Array other, DTypeLike dtype, Out out, Workspace workspace) {
        Call call(name, out, workspace);
        const Tensor a = call.array("x", x), b = call.array(second, other);
        const ContractOptions options{.dtype = call.dtype(dtype), .out = call.out()};
        return call.run([&] { return fn(a, b, options); });
      },
      "x"_a, nb::arg(second), nb::kw_only(), "dtype"_a = nb::none(), "out"_a = nb::none(), "workspace"_a = nb::none(),
      doc);
}

/// a @ b, or NotImplemented for what is no array.
nb::object matmul_operator(nb::handle a, nb::handle b) {
  if (!is_array(a) || !is_array(b)) return nb::borrow(nb::handle(Py_NotImplemented));
  Call call("matmul");
  const Tensor x = call.array("x", Array{a}), other = call.array("other", Array{b});
  return call.run([&] { return matmul(x, other); });
}

/// The equation, whose subscripts are ASCII letters.
std::string ascii_equation(nb::str text) {
  if (PyUnicode_IS_ASCII(text.ptr())) return text.c_str();
  for (Py_ssize_t i = 0;; ++i)
    if (PyUnicode_READ_CHAR(text.ptr(), i) > 127)
      core::fail<ValueError>("einsum: a subscript is a letter a-z or A-Z, got {} in {}",
                             nb::repr(nb::steal(PyUnicode_Substring(text.ptr(), i, i + 1))).c_str(),
                             nb::repr(text).c_str());
}

nb::object tensordot_of(Array x, Array b, nb::object dims, DTypeLike dtype, Out out, Workspace workspace) {
  Call call("tensordot", out, workspace);
  const Tensor a = call.array("x", x), other = call.array("b", b);
  const ContractOptions options{.dtype = call.dtype(dtype), .out = call.out()};
  if (is_integer_object(dims)) {
    const int64_t count = call.dims("dims", DimList{dims})[0];
    return call.run([&] { return tensordot(a, other, count, options); });
  }
  if (!PySequence_Check(dims.ptr()) || nb::len(dims) != 2)
    throw ValueError("tensordot: dims must be an int or a pair of lists of dims, one for each operand");
  const nb::object first = dims[0], second = dims[1];
  const Dims of_a = call.dims("dims", DimList{first}), of_b = call.dims("dims", DimList{second});
  return call.run([&] { return tensordot(a, other, of_a, of_b, options); });
}

}  // namespace

void bind_contract(nb::module_& m) {
  pairwise(m, "matmul", "other", &matmul,
           "x @ other: [*, m, k] @ [*, k, n] -> [*, m, n], leading dims broadcast; a 1-d operand is a row or a column "
           "whose dim the\n"
           "result lacks. Promotes; 16-bit accumulates in float32 and rounds once, at the end; integers wrap. `dtype` "
           "is the\n"
           "result's: float32 from 16-bit operands is the unrounded accumulator. ShapeError for a 0-d operand, unequal "
           "inner\n"
           "sizes or batches that do not broadcast; DTypeError for float8.");
  pairwise(m, "bmm", "mat2", &bmm,
           "[b, m, k] @ [b, k, n] -> [b, m, n], without broadcasting. ShapeError; otherwise as matmul.");
  pairwise(m, "dot", "tensor", &dot,
           "x [k], tensor [k] -> 0-d: their inner product. ShapeError unless both are 1-d of one size.");
  pairwise(m, "outer", "vec2", &outer, "x [m], vec2 [n] -> [m, n]: x[i] * vec2[j]. ShapeError unless both are 1-d.");
  m.def(
      "linear",
      [](Array x, Array weight, OptionalArray bias, DTypeLike dtype, Out out, Workspace workspace) {
        Call call("linear", out, workspace);
        const Tensor a = call.array("x", x), w = call.array("weight", weight), b = call.array("bias", bias);
        const ContractOptions options{.dtype = call.dtype(dtype), .out = call.out()};
        return call.run([&] { return linear(a, w, b, options); });
      },
      "x"_a, "weight"_a, "bias"_a = nb::none(), nb::kw_only(), "dtype"_a = nb::none(), "out"_a = nb::none(),
      "workspace"_a = nb::none(),
      "x [*, k], weight [n, k], bias [n] -> [*, n]: x @ weight^T + bias; the bias joins before the one rounding. "
      "ShapeError.");
  m.def(
      "einsum",
      [](nb::str subscripts, nb::args operands, DTypeLike dtype, Out out, Workspace workspace) {
        Call call("einsum", out, workspace);
        const std::string equation = ascii_equation(subscripts);
        const nb::object given = nb::len(operands) == 1 && PyList_Check(nb::object(operands[0]).ptr())
                                     ? nb::object(operands[0])
                                     : nb::object(operands);
        const std::vector<Tensor> xs = call.arrays("operands", ArrayList{given});
        const ContractOptions options{.dtype = call.dtype(dtype), .out = call.out()};
        return call.run([&] { return einsum(equation, xs, options); });
      },
      "equation"_a, "operands"_a, nb::kw_only(), "dtype"_a = nb::none(), "out"_a = nb::none(),
      "workspace"_a = nb::none(),
      "Einstein summation, einsum('bij,bjk->bik', x, y): a letter names a dim, '...' those between, a letter twice in "
      "one operand\n"
      "its diagonal; a letter that the output lacks is summed; without '->' the output is '...' and the letters that "
      "occur once,\n"
      "in order. Size 1 broadcasts. Several operands meet in pairs in the cheapest order. ShapeError names the "
      "subscript, the\n"
      "operand and both sizes; ValueError for a malformed equation.");
  m.def("tensordot", &tensordot_of, "x"_a, "b"_a, "dims"_a = 2, nb::kw_only(), "dtype"_a = nb::none(),
        "out"_a = nb::none(), "workspace"_a = nb::none(),
        "Sums over the last `dims` dims of x and the first of b, or over the pairs of a (dims of x, dims of b). "
        "ValueError for a\n"
        "count out of range, ShapeError for unequal sizes.");
  nb::handle tensor = m.attr("Tensor");
  tensor.attr("__matmul__") =
      nb::cpp_function([](nb::handle x, nb::handle other) { return matmul_operator(x, other); }, nb::scope(tensor),
                       nb::name("__matmul__"), nb::is_method(), nb::is_operator());
  tensor.attr("__rmatmul__") =
      nb::cpp_function([](nb::handle x, nb::handle other) { return matmul_operator(other, x); }, nb::scope(tensor),
                       nb::name("__rmatmul__"), nb::is_method(), nb::is_operator());
}

}  // namespace tenor::python
