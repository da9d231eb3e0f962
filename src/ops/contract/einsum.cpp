// einsum and tensordot: a path of pairwise contractions, each lowered to a GEMM (or a broadcast product where nothing
// is summed) on views of its operands.
#include <algorithm>
#include <sstream>

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/layout.h"
#include "src/core/modes.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/ops/contract/contraction.h"
#include "src/ops/contract/einsum_path.h"
#include "src/ops/contract/gemm_cuda.h"

namespace tenor {
namespace {

using contract::Equation;
using contract::LabelSet;
using contract::PathStep;
using core::fail;
using core::OpClass;
using core::Step;

const core::OpRegistration kOps({
    {"einsum", "contract", OpClass::kContraction, "'bij,bjk->bik' over operands, in the cheapest pairwise order",
     contract::all_gemm_strategies()},
    {"tensordot", "contract", OpClass::kContraction, "sum over pairs of dims of x and other",
     contract::all_gemm_strategies()},
});

/// An operand with one label a dim, none twice; labels of size 1 have no dim.
struct Labelled {
  Tensor tensor;
  std::vector<int> labels;

  bool has(int label) const { return std::find(labels.begin(), labels.end(), label) != labels.end(); }
  /// The stride along a label; 0 where it has none, so that it broadcasts.
  int64_t stride(int label) const {
    const auto at = std::find(labels.begin(), labels.end(), label);
    return at == labels.end() ? 0 : tensor.stride(static_cast<int>(at - labels.begin()));
  }
};

using LabelList = std::vector<int>;
constexpr const char* kBroadcast = "broadcast product";  // where nothing is summed, which is done in one way

class Executor {
 public:
  /// `dry`: allocates and computes nothing, only collects the copies that a run would make and the candidates it would
  /// take.
  Executor(const Equation& equation, DType compute, bool dry) : equation_(equation), compute_(compute), dry_(dry) {}

  void run(std::span<const Tensor> operands, const std::vector<PathStep>& path, const Tensor& out) {
    device_ = out.device();
    for (size_t i = 0; i < operands.size(); ++i) list_.push_back(labelled(operands[i], equation_.terms[i]));
    const Labelled target = labelled(out, equation_.out);
    for (size_t s = 0; s < path.size(); ++s) take(path[s], s + 1 == path.size() ? &target : nullptr);
    if (path.empty() && !dry_) core::copy_into(view(list_[0], target.labels), target.tensor);
  }

  std::vector<core::Copy> copies;
  /// Of a dry run: of each product the candidate taken and why others decline, as explain_gemm has it.
  std::vector<std::string> strategies;

 private:
  int64_t size(int label) const { return equation_.sizes[label]; }
  int64_t volume(const LabelList& labels) const {
    int64_t n = 1;
    for (int label : labels) n *= size(label);
    return n;
  }

  /// A repeated label becomes the diagonal; dims of size 1 go.
  Labelled labelled(const Tensor& x, const LabelList& term) const {
    Labelled out;
    Dims shape, strides;
    for (size_t d = 0; d < term.size(); ++d) {
      if (x.shape(static_cast<int>(d)) == 1) continue;
      const auto at = std::find(out.labels.begin(), out.labels.end(), term[d]);
      if (at != out.labels.end()) {
        strides[at - out.labels.begin()] += x.stride(static_cast<int>(d));
        continue;
      }
      out.labels.push_back(term[d]);
      shape.push_back(x.shape(static_cast<int>(d))), strides.push_back(x.stride(static_cast<int>(d)));
    }
    out.tensor = x.with_layout(shape, strides, x.offset());
    return out;
  }

  /// x with these dims, stride 0 along those it lacks.
  Tensor view(const Labelled& x, const LabelList& labels) const {
    Dims shape, strides;
    for (int label : labels) shape.push_back(size(label)), strides.push_back(x.stride(label));
    return x.tensor.with_layout(shape, strides, x.tensor.offset());
  }

  Labelled allocate(const LabelList& labels, DType dtype) const {
    Dims shape;
    for (int label : labels) shape.push_back(size(label));
    return {Tensor::empty(shape, dtype, dry_ ? Device{DeviceType::kMeta, 0} : device_), labels};
  }

  /// x copied so that these labels, all of its own, lie row-major.
  Labelled copied(const Labelled& x, const LabelList& labels, const std::string& reason) {
    Labelled out = allocate(labels, x.tensor.dtype());
    copies.push_back({"operand", out.tensor.numel() * static_cast<int64_t>(item_size(out.tensor.dtype())), reason});
    if (!dry_) core::copy_into(view(x, labels), out.tensor);
    return out;
  }

  /// The one stride that walks these labels in order, if there is one.
  std::optional<int64_t> merged(const Labelled& x, const LabelList& labels) const {
    for (size_t i = 0; i + 1 < labels.size(); ++i)
      if (x.stride(labels[i]) != x.stride(labels[i + 1]) * size(labels[i + 1])) return {};
    return labels.empty() ? 0 : x.stride(labels.back());
  }

  void sort_by_stride(LabelList& labels, const Labelled& x) const {
    std::stable_sort(labels.begin(), labels.end(), [&](int a, int b) { return x.stride(a) > x.stride(b); });
  }

  void take(const PathStep& step, const Labelled* target) {
    const Labelled a = list_[static_cast<size_t>(step.first)];
    const Labelled b = step.first == step.second ? ones(a.tensor.dtype()) : list_[static_cast<size_t>(step.second)];
    list_.erase(list_.begin() + step.second);
    if (step.first != step.second) list_.erase(list_.begin() + step.first);
    list_.push_back(pair(a, b, step, target));
  }

  /// A 1, which broadcasts: an operand that is only summed meets it in the same kernels as any other. On CUDA most of
  /// them want both of one dtype.
  Labelled ones(DType dtype) const {
    if constexpr (core::kHasCuda) {
      if (device_.type == DeviceType::kCuda) {
        const Labelled one = allocate({}, contract::reads_directly(dtype, compute_) ? dtype : compute_);
        if (!dry_) contract::fill_one_cuda(one.tensor);
        return one;
      }
    }
    const Labelled one = allocate({}, compute_);
    if (dry_) return one;
    const double value = 1;
    core::copy_into(Tensor::wrap(const_cast<double*>(&value), kCpu, float64, {}), one.tensor);
    return one;
  }

  struct Groups {
    LabelList batch, rows, cols, inner;
  };
  Groups groups_of(const Labelled& a, const Labelled& b, const LabelSet& kept) const {
    Groups g;
    for (int label : a.labels) {
      if (!kept[static_cast<size_t>(label)])
        g.inner.push_back(label);
      else
        (b.has(label) ? g.batch : g.rows).push_back(label);
    }
    for (int label : b.labels) {
      if (a.has(label)) continue;
      (kept[static_cast<size_t>(label)] ? g.cols : g.inner).push_back(label);
    }
    return g;
  }

  Labelled pair(Labelled a, Labelled b, const PathStep& step, const Labelled* target) {
    Groups g = groups_of(a, b, step.kept);
    const bool sums = !g.inner.empty();
    if (!target) sort_by_stride(g.batch, a), sort_by_stride(g.rows, a), sort_by_stride(g.cols, b);
    Labelled c = target ? *target : allocate(joined(g.batch, g.rows, g.cols), compute_);
    if (sums) {
      gemm(std::move(a), std::move(b), c, g);
    } else if (dry_) {
      strategies.emplace_back(kBroadcast);
    } else {
      contract::multiply_into(view(a, c.labels), view(b, c.labels), c.tensor, compute_);
    }
    return c;
  }

  static LabelList joined(LabelList a, const LabelList& b, const LabelList& c = {}) {
    a.insert(a.end(), b.begin(), b.end());
    a.insert(a.end(), c.begin(), c.end());
    return a;
  }

  void gemm(Labelled a, Labelled b, const Labelled& c, Groups g) {
    // The summed dims need one stride in both operands, in whichever order gives it; else an operand is copied.
    sort_by_stride(g.inner, a.has(g.inner[0]) ? a : b);
    if (!merged(a, g.inner) || !merged(b, g.inner)) {
      LabelList other = g.inner;
      sort_by_stride(other, b);
      if (merged(a, other) && merged(b, other)) g.inner = other;
    }
    sort_by_stride(g.rows, c), sort_by_stride(g.cols, c);
    const std::string inner = "no one stride walks its summed dims";
    if (!merged(a, g.inner)) a = copied(a, joined(g.batch, g.rows, g.inner), inner);
    if (!merged(b, g.inner)) b = copied(b, joined(g.batch, g.cols, g.inner), inner);
    const LabelList outer_rows = split_rows(a, c, g.rows, joined(g.batch, g.inner)),
                    outer_cols = split_rows(b, c, g.cols, joined(g.batch, g.inner));
    const LabelList batch = joined(g.batch, outer_rows, outer_cols);
    const Matrix3 m{matrix(a, batch, g.rows, g.inner), matrix(b, batch, g.inner, g.cols),
                    matrix(c, batch, g.rows, g.cols)};
    if (!dry_) return contract::run_into(m.a, m.b, m.c, compute_);
    contract::GemmProblem problem = contract::gemm_of(m.a, m.b, m.c, compute_);
    problem.a.argument = problem.b.argument = "operand";
    strategies.push_back(contract::explain_gemm(problem, &copies));
  }
  struct Matrix3 {
    Tensor a, b, c;
  };

  /// Leaves in `rows` those that one stride walks in both x and c, and returns the others, which become dims of the
  /// batch. x is copied where that would leave slivers.
  LabelList split_rows(Labelled& x, const Labelled& c, LabelList& rows, const LabelList& others) {
    const auto tail_of = [&](size_t start) { return LabelList(rows.begin() + static_cast<long>(start), rows.end()); };
    const auto first_merged = [&] {
      size_t start = rows.empty() ? 0 : rows.size() - 1;
      while (start > 0 && merged(x, tail_of(start - 1)) && merged(c, tail_of(start - 1))) --start;
      return start;
    };
    size_t start = first_merged();
    if (start > 0 && volume(tail_of(start)) < 32 && merged(c, rows)) {
      x = copied(x, joined(rows, others_of(x, others)), "no one stride walks its kept dims");
      start = first_merged();
    }
    const LabelList outer(rows.begin(), rows.begin() + static_cast<long>(start));
    rows = tail_of(start);
    return outer;
  }
  /// Those of `labels` that x has.
  static LabelList others_of(const Labelled& x, const LabelList& labels) {
    LabelList own;
    for (int label : labels)
      if (x.has(label)) own.push_back(label);
    return own;
  }

  Tensor matrix(const Labelled& x, const LabelList& batch, const LabelList& rows, const LabelList& cols) const {
    Dims shape, strides;
    for (int label : batch) shape.push_back(size(label)), strides.push_back(x.stride(label));
    for (const LabelList* group : {&rows, &cols})
      shape.push_back(volume(*group)), strides.push_back(*merged(x, *group));
    return x.tensor.with_layout(shape, strides, x.tensor.offset());
  }

  const Equation& equation_;
  DType compute_;
  bool dry_;
  Device device_;
  std::vector<Labelled> list_;
};

/// "sums i (4096)": what the subscripts leave to be read out of them.
std::string summed_labels(const Equation& equation) {
  std::string sums;
  for (size_t label = 0; label < equation.names.size(); ++label) {
    if (std::find(equation.out.begin(), equation.out.end(), static_cast<int>(label)) != equation.out.end()) continue;
    sums += core::text("{}{} ({})", sums.empty() ? "sums " : ", ", equation.names[label], equation.sizes[label]);
  }
  return sums.empty() ? "sums nothing: a broadcast product" : sums;
}

/// Step::strategy of the products in their order: one as it is, several by their number.
std::string strategy_text(const std::vector<std::string>& products) {
  if (products.size() == 1) return products[0] == kBroadcast ? "" : products[0];
  std::string names, reasons, last;
  for (size_t i = 0; i < products.size(); ++i) {
    std::istringstream lines(products[i]);
    std::string name, reason;
    if (std::getline(lines, name) && name != last) names += (names.empty() ? "" : ", then ") + (last = name);
    while (std::getline(lines, reason))
      if (const size_t colon = reason.find(':'); colon != std::string::npos)
        reasons += core::text("{} for product {}{}\n", reason.substr(0, colon), i + 1, reason.substr(colon));
  }
  return names.empty() ? "" : names + "\n" + reasons;
}

Tensor run_equation(const Equation& equation, std::span<const Tensor> operands, std::span<const Dims> shapes,
                    const ContractOptions& options) {
  const contract::Types types = contract::contraction_types(equation.op, operands, options.dtype);
  Dims shape;
  for (int label : equation.out) shape.push_back(equation.sizes[label]);
  const Tensor* overlapping = &operands[0];
  for (const Tensor& x : operands)
    if (options.out.defined() && core::spans_overlap(x, options.out)) overlapping = &x;
  core::Output out(equation.op, options.out, shape, types.result, operands[0], {overlapping}, {.cuda = core::kHasCuda});
  const std::vector<PathStep> path = contract::plan_path(equation, shapes, core::batch_invariant());
  core::StepScope step([&] {
    Step stated{equation.op, OpClass::kContraction, {operands.begin(), operands.end()}, {out.target()}};
    for (const PathStep& s : path) stated.flops = core::count_sum(stated.flops, s.flops);
    for (const Tensor& x : operands) contract::state_conversion("operand", x, types.compute, stated.copies);
    Executor dry(equation, types.compute, true);
    dry.run(operands, path, out.target());
    stated.copies.insert(stated.copies.end(), dry.copies.begin(), dry.copies.end());
    stated.strategy = strategy_text(dry.strategies);
    stated.note = summed_labels(equation);
    stated.recipe = core::recipe(
        [equation, sizes = std::vector<Dims>(shapes.begin(), shapes.end()), dtype = options.dtype](
            const auto& in, const auto& outs) { run_equation(equation, in, sizes, {.dtype = dtype, .out = outs[0]}); });
    return stated;
  });
  if (step.shape_only(out.target())) return out.target();
  Executor(equation, types.compute, false).run(operands, path, out.target());
  return out.finish();
}

}  // namespace

Tensor einsum(std::string_view equation, std::span<const Tensor> operands, const ContractOptions& options) {
  std::vector<Dims> shapes;
  for (const Tensor& x : operands) {
    core::check_given("einsum", {"operand", x});
    core::check_same_device("einsum", {{"operand 0", operands[0]}, {"an operand", x}});
    shapes.push_back(x.shape());
  }
  return run_equation(contract::parse_equation(equation, shapes), operands, shapes, options);
}

Tensor tensordot(const Tensor& x, const Tensor& b, int64_t dims, const ContractOptions& options) {
  core::check_given("tensordot", {"x", x}), core::check_given("tensordot", {"b", b});
  if (dims < 0 || dims > std::min(x.ndim(), b.ndim()))
    fail<ValueError>("tensordot: dims must be between 0 and {}, the dims that both operands have, got {}",
                     std::min(x.ndim(), b.ndim()), dims);
  Dims last, first;
  for (int64_t d = 0; d < dims; ++d) last.push_back(x.ndim() - dims + d), first.push_back(d);
  return tensordot(x, b, last, first, options);
}

Tensor tensordot(const Tensor& x, const Tensor& b, const Dims& dims_x, const Dims& dims_b,
                 const ContractOptions& options) {
  const char* op = "tensordot";
  core::check_given(op, {"x", x}), core::check_given(op, {"b", b});
  core::check_same_device(op, {{"x", x}, {"b", b}});
  if (dims_x.size() != dims_b.size())
    fail<ValueError>("{}: dims must pair up, got {} of x and {} of b", op, dims_x, dims_b);
  const Dims of_x = core::normalize_dims(op, dims_x, x.ndim(), "dim of x");
  const Dims of_b = core::normalize_dims(op, dims_b, b.ndim(), "dim of b");
  Equation equation{
      op, {std::vector<int>(static_cast<size_t>(x.ndim())), std::vector<int>(static_cast<size_t>(b.ndim()), -1)}, {}};
  for (int d = 0; d < x.ndim(); ++d)
    equation.terms[0][static_cast<size_t>(d)] = d, equation.names.push_back("dim " + std::to_string(d) + " of x");
  for (size_t i = 0; i < of_x.size(); ++i) {
    if (x.shape(static_cast<int>(of_x[i])) != b.shape(static_cast<int>(of_b[i])))
      fail<ShapeError>("{}: dims pair dim {} of x, of size {}, with dim {} of b, of size {}; shapes {} and {}", op,
                       of_x[i], x.shape(static_cast<int>(of_x[i])), of_b[i], b.shape(static_cast<int>(of_b[i])),
                       x.shape(), b.shape());
    equation.terms[1][static_cast<size_t>(of_b[i])] = static_cast<int>(of_x[i]);
  }
  for (int d = 0; d < x.ndim(); ++d)
    if (std::find(of_x.begin(), of_x.end(), d) == of_x.end()) equation.out.push_back(d);
  for (int& label : equation.terms[1]) {
    if (label >= 0) continue;
    label = static_cast<int>(equation.names.size());
    equation.names.push_back("dim of b");
    equation.out.push_back(label);
  }
  const Dims shapes[] = {x.shape(), b.shape()};
  contract::set_sizes(equation, shapes);
  const Tensor operands[] = {x, b};
  return run_equation(equation, operands, shapes, options);
}

}  // namespace tenor
