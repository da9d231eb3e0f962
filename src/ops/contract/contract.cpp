// matmul, bmm, linear, outer, dot.
#include "tenor/contract.h"

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/view_of.h"
#include "src/ops/contract/contraction.h"
#include "src/ops/contract/epilogue.h"

namespace tenor {
namespace {

using core::check_given;
using core::fail;
using core::Named;
using core::OpClass;
using core::Step;

const core::OpRegistration kOps({
    {"matmul", "contract", OpClass::kContraction, "x[*, m, k] @ other[*, k, n] -> [*, m, n]",
     contract::all_gemm_strategies()},
    {"bmm", "contract", OpClass::kContraction, "x[b, m, k] @ mat2[b, k, n] -> [b, m, n]",
     contract::all_gemm_strategies()},
    {"linear", "contract", OpClass::kContraction, "x[*, k] @ weight[n, k]^T + bias[n] -> [*, n]",
     contract::all_gemm_strategies()},
    {"dot", "contract", OpClass::kContraction, "sum_i x[i] * tensor[i] -> []", contract::all_gemm_strategies()},
    {"outer", "contract", OpClass::kContraction, "x[i] * vec2[j] -> [m, n]"},
});

/// A product of matrices, ready to be checked for out= and run: views shaped [*batch, m, k], [*batch, k, n].
struct Product {
  const char* op;
  Named x, other;
  Tensor a, b;
  Tensor bias = {};
  Dims shape;        // of the result
  bool row, column;  // whether the result has the dims m and n
};

/// The result seen as [*batch, m, n].
Tensor as_matrices(const Tensor& c, const Product& p) {
  Dims shape = c.shape(), strides = c.strides();
  if (!p.row)
    shape.insert(shape.size() - (p.column ? 1 : 0), 1), strides.insert(strides.size() - (p.column ? 1 : 0), 0);
  if (!p.column) shape.push_back(1), strides.push_back(0);
  return c.with_layout(shape, strides, c.offset());
}

Step step_of(const Product& p, const contract::Types& types, const Tensor& out) {
  const int64_t k = p.a.shape(-1);
  Step step{p.op, OpClass::kContraction, {p.x.tensor, p.other.tensor}, {out}};
  step.flops = core::count_product(core::count_product(2, out.numel()), k);
  contract::state_conversion(p.x.name, p.x.tensor, types.compute, step.copies);
  contract::state_conversion(p.other.name, p.other.tensor, types.compute, step.copies);
  if (p.bias.defined()) step.inputs.push_back(p.bias), step.flops = core::count_sum(step.flops, out.numel());
  step.note = core::text("sums k ({})", k);
  contract::GemmProblem problem = contract::gemm_of(p.a, p.b, as_matrices(out, p), types.compute);
  problem.a.argument = p.x.name, problem.b.argument = p.other.name;
  contract::state_bias(problem, p.bias, out);
  step.strategy = contract::explain_gemm(problem, &step.copies);
  return step;
}

Tensor run_product(const Product& p, const ContractOptions& options);

/// A product that runs again, also with what follows it.
class Again final : public contract::ProductRecipe {
 public:
  Again(const Product& p, DType compute, const std::optional<DType>& dtype)
      : op_(p.op),
        x_(p.x.name),
        other_(p.other.name),
        a_(p.a, p.x.tensor),
        b_(p.b, p.other.tensor),
        biased_(p.bias.defined()),
        shape_(p.shape),
        row_(p.row),
        column_(p.column),
        compute_(compute),
        dtype_(dtype) {}
  void run(const std::vector<Tensor>& in, const std::vector<Tensor>& outs) const override {
    run_product(of(in), {.dtype = dtype_, .out = outs[0]});
  }
  std::string why_no_epilogue(const std::vector<Tensor>& in, const contract::Epilogue& epilogue,
                              const std::vector<Tensor>& operands, const Tensor& out) const override {
    return contract::epilogue_why_not(problem(of(in), operands, out), epilogue);
  }
  std::string explain_epilogue(const std::vector<Tensor>& in, const contract::Epilogue& epilogue,
                               const std::vector<Tensor>& operands, const Tensor& out) const override {
    return contract::explain_epilogue(problem(of(in), operands, out), epilogue);
  }
  void run_with(const std::vector<Tensor>& in, const contract::Epilogue& epilogue, const std::vector<Tensor>& operands,
                const Tensor& out) const override {
    const Product p = of(in);
    contract::run_into(p.a, p.b, as_matrices(out, p), compute_, p.bias, epilogue, as_matrices(operands, p));
  }

 private:
  Product of(const std::vector<Tensor>& in) const {
    return {op_, {x_, in[0]}, {other_, in[1]}, a_(in[0]), b_(in[1]), biased_ ? in[2] : Tensor(), shape_, row_, column_};
  }
  static std::vector<Tensor> as_matrices(const std::vector<Tensor>& all, const Product& p) {
    std::vector<Tensor> seen;
    for (const Tensor& x : all) seen.push_back(tenor::as_matrices(x, p));
    return seen;
  }
  static Tensor as_matrices(const Tensor& x, const Product& p) { return tenor::as_matrices(x, p); }
  contract::GemmProblem problem(const Product& p, const std::vector<Tensor>& operands, const Tensor& out) const {
    const Tensor c = as_matrices(out, p);
    contract::GemmProblem made = contract::epilogue_problem(p.a, p.b, c, compute_, as_matrices(operands, p));
    contract::state_bias(made, p.bias, c);
    return made;
  }

  const char *op_, *x_, *other_;
  core::ViewOf a_, b_;
  bool biased_;
  Dims shape_;
  bool row_, column_;
  DType compute_;
  std::optional<DType> dtype_;
};

Tensor run_product(const Product& p, const ContractOptions& options) {
  core::check_same_device(p.op, {p.x, p.other, {"bias", p.bias}});
  std::vector<Tensor> operands = {p.x.tensor, p.other.tensor};
  if (p.bias.defined()) operands.push_back(p.bias);
  const contract::Types types = contract::contraction_types(p.op, operands, options.dtype);
  core::Output out(p.op, options.out, p.shape, types.result, p.x.tensor, {&p.x.tensor, &p.other.tensor, &p.bias},
                   {.cuda = core::kHasCuda});
  core::StepScope step(
      [&] { return step_of(p, types, out.target()).with(std::make_shared<Again>(p, types.compute, options.dtype)); });
  if (step.shape_only(out.target())) return out.target();
  contract::run_into(p.a, p.b, as_matrices(out.target(), p), types.compute, p.bias);
  return out.finish();
}

/// x with its last two dims as given and the batch expanded.
Tensor expanded(const Tensor& x, const Dims& batch, int64_t rows, int64_t row_stride, int64_t cols, int64_t col_stride,
                int lead) {
  const Tensor own = x.with_layout(Dims(x.shape().begin(), x.shape().begin() + lead),
                                   Dims(x.strides().begin(), x.strides().begin() + lead), x.offset());
  Dims shape = batch, strides = core::broadcast_strides(own, batch);
  shape.push_back(rows), shape.push_back(cols);
  strides.push_back(row_stride), strides.push_back(col_stride);
  return x.with_layout(shape, strides, x.offset());
}

Dims batch_of(const Tensor& x) { return x.ndim() <= 2 ? Dims() : Dims(x.shape().begin(), x.shape().end() - 2); }

/// matmul's shapes, for operators that come down to it.
Product matmul_product(const char* op, Named x, Named other) {
  const Tensor &a = x.tensor, &b = other.tensor;
  if (a.ndim() == 0 || b.ndim() == 0)
    fail<ShapeError>("{}: {} must have at least one dim, got shapes {} and {}", op, a.ndim() == 0 ? x.name : other.name,
                     a.shape(), b.shape());
  const bool row = a.ndim() > 1, column = b.ndim() > 1;
  const int64_t k = a.shape(-1), k_b = column ? b.shape(-2) : b.shape(0);
  if (k != k_b)
    fail<ShapeError>("{}: inner sizes differ: {} of shape {} has {} columns, {} of shape {} has {} rows", op, x.name,
                     a.shape(), k, other.name, b.shape(), k_b);
  const Dims batch = core::broadcast_shapes(op, batch_of(a), batch_of(b));
  Product p{op, x, other, {}, {}, {}, batch, row, column};
  const int64_t m = row ? a.shape(-2) : 1, n = column ? b.shape(-1) : 1;
  p.a = expanded(a, batch, m, row ? a.stride(-2) : 0, k, a.stride(-1), row ? a.ndim() - 2 : 0);
  p.b = expanded(b, batch, k, column ? b.stride(-2) : b.stride(0), n, column ? b.stride(-1) : 0,
                 column ? b.ndim() - 2 : 0);
  if (row) p.shape.push_back(m);
  if (column) p.shape.push_back(n);
  return p;
}

}  // namespace

Tensor matmul(const Tensor& x, const Tensor& other, const ContractOptions& options) {
  check_given("matmul", {"x", x}), check_given("matmul", {"other", other});
  return run_product(matmul_product("matmul", {"x", x}, {"other", other}), options);
}

Tensor bmm(const Tensor& x, const Tensor& mat2, const ContractOptions& options) {
  core::check_ndim("bmm", {"x", x}, 3), core::check_ndim("bmm", {"mat2", mat2}, 3);
  if (x.shape(0) != mat2.shape(0))
    fail<ShapeError>("bmm: x and mat2 must have the same batch size, got {} and {} in shapes {} and {}", x.shape(0),
                     mat2.shape(0), x.shape(), mat2.shape());
  return run_product(matmul_product("bmm", {"x", x}, {"mat2", mat2}), options);
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const ContractOptions& options) {
  check_given("linear", {"x", x});
  core::check_ndim("linear", {"weight", weight}, 2);
  if (x.ndim() == 0) fail<ShapeError>("linear: x must have at least one dim, got shape ()");
  if (x.shape(-1) != weight.shape(1))
    fail<ShapeError>("linear: x of shape {} has {} columns, weight of shape {} takes {}", x.shape(), x.shape(-1),
                     weight.shape(), weight.shape(1));
  if (bias.defined()) core::check_shape("linear", {"bias", bias}, {weight.shape(0)});
  const Tensor b =
      weight.with_layout({weight.shape(1), weight.shape(0)}, {weight.stride(1), weight.stride(0)}, weight.offset());
  Product p = matmul_product("linear", {"x", x}, {"weight", b});
  return run_product(Product{p.op, {"x", x}, {"weight", weight}, p.a, p.b, bias, p.shape, p.row, p.column}, options);
}

Tensor dot(const Tensor& x, const Tensor& tensor, const ContractOptions& options) {
  core::check_ndim("dot", {"x", x}, 1), core::check_ndim("dot", {"tensor", tensor}, 1);
  if (x.shape(0) != tensor.shape(0))
    fail<ShapeError>("dot: x has {} elements, tensor has {}", x.shape(0), tensor.shape(0));
  return run_product(matmul_product("dot", {"x", x}, {"tensor", tensor}), options);
}

Tensor outer(const Tensor& x, const Tensor& vec2, const ContractOptions& options) {
  core::check_ndim("outer", {"x", x}, 1), core::check_ndim("outer", {"vec2", vec2}, 1);
  core::check_same_device("outer", {{"x", x}, {"vec2", vec2}});
  const Tensor operands[] = {x, vec2};
  const contract::Types types = contract::contraction_types("outer", operands, options.dtype);
  const Dims shape = {x.shape(0), vec2.shape(0)};
  core::Output out("outer", options.out, shape, types.result, x, {&x, &vec2}, {.cuda = core::kHasCuda});
  core::StepScope step([&] {
    Step stated{"outer", OpClass::kContraction, {x, vec2}, {out.target()}, out.target().numel()};
    contract::state_conversion("x", x, types.compute, stated.copies),
        contract::state_conversion("vec2", vec2, types.compute, stated.copies);
    stated.note = "sums nothing: a broadcast product";
    stated.recipe = core::recipe([dtype = options.dtype](const auto& in, const auto& outs) {
      outer(in[0], in[1], {.dtype = dtype, .out = outs[0]});
    });
    return stated;
  });
  if (step.shape_only(out.target())) return out.target();
  contract::multiply_into(x.with_layout(shape, {x.stride(0), 0}, x.offset()),
                          vec2.with_layout(shape, {0, vec2.stride(0)}, vec2.offset()), out.target(), types.compute);
  return out.finish();
}

}  // namespace tenor
