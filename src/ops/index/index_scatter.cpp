// scatter, scatter_add, scatter_reduce and index_add, functional and in place.
#include "src/core/backend.h"
#include "src/core/layout.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/scalar_value.h"
#include "src/core/step.h"
#include "src/ops/index/index_along.h"
#include "src/ops/index/index_arith.h"
#include "src/ops/index/index_check.h"
#include "src/ops/index/index_cuda.h"
#include "src/ops/index/index_rows.h"
#include "src/ops/index/index_scratch.h"
#include "tenor/index.h"

namespace tenor {
namespace {

using core::check_given;
using core::fail;
using core::normalize_dim;
using core::OpClass;
using core::Step;
using index::at_least_1d;
using index::checked_indices;
using index::Combine;

const core::OpRegistration kOps({
    {"scatter", "index", OpClass::kIndex, "x with src's elements written at index along dim; the last write wins"},
    {"scatter_add", "index", OpClass::kIndex, "x with src's elements added at index along dim, in index order"},
    {"scatter_reduce", "index", OpClass::kIndex,
     "x combined with src's elements at index along dim: sum, prod, mean, amax, amin"},
    {"index_add", "index", OpClass::kIndex, "x[..., index[i], ...] += alpha * source[..., i, ...], in index order"},
});

/// What a scatter does at a place.
enum class Kind : uint8_t { kPut, kSum, kProd, kMean, kMax, kMin };

Kind kind_of(std::string_view reduce) {
  if (reduce == "sum") return Kind::kSum;
  if (reduce == "prod") return Kind::kProd;
  if (reduce == "mean") return Kind::kMean;
  if (reduce == "amax") return Kind::kMax;
  if (reduce == "amin") return Kind::kMin;
  fail<ValueError>("scatter_reduce: reduce must be 'sum', 'prod', 'mean', 'amax' or 'amin', got '{}'",
                   std::string(reduce));
}

/// A checked scatter. `src` has the index's shape.
struct Scatter {
  const char* op;
  Kind kind;
  bool include_self;
  int dim;
  Tensor x, index, src;
};

/// src as x's dtype at the index's shape: the tensor's leading part, or one value repeated.
Tensor source_of(const char* op, const Tensor& x, const Tensor& at, const Operand& src) {
  const Tensor& given = src.tensor();
  if (!src.is_tensor() || (given.ndim() == 0 && at.ndim() > 0 && given.dtype() != x.dtype())) {
    const bool meta = x.device().type == DeviceType::kMeta;
    const Tensor one = !src.is_tensor() ? core::scalar_tensor(op, "src", src.scalar(), x.dtype(), x.device())
                       : meta           ? Tensor::empty({}, x.dtype(), x.device())
                                        : given.to(x.dtype());
    return one.with_layout(at.shape(), Dims(at.shape().size(), 0), one.offset());
  }
  core::check_same_device(op, {{"x", x}, {"src", given}});
  core::check_same_dtype(op, {"x", x}, {"src", given});
  if (given.ndim() == 0) return given.with_layout(at.shape(), Dims(at.shape().size(), 0), given.offset());
  if (given.ndim() != at.ndim())
    fail<ShapeError>("{}: src must have index's {} dims, got shape {}", op, at.ndim(), given.shape());
  for (int i = 0; i < at.ndim(); ++i)
    if (at.shape(i) > given.shape(i))
      fail<ShapeError>("{}: index of shape {} is larger than src of shape {} in dim {}", op, at.shape(), given.shape(),
                       i);
  return given.with_layout(at.shape(), given.strides(), given.offset());
}

Scatter check_scatter(const char* op, Kind kind, const Tensor& x, int64_t dim, const Tensor& index, const Operand& src,
                      bool include_self) {
  check_given(op, {"x", x});
  core::check_index_dtype(op, {"index", index});
  core::check_same_device(op, {{"x", x}, {"index", index}});
  const int d = normalize_dim(op, dim, x.ndim());
  const Tensor to = at_least_1d(x), at = at_least_1d(index);
  if (at.ndim() != to.ndim())
    fail<ShapeError>("{}: index must have x's {} dims, got shape {}", op, x.ndim(), index.shape());
  for (int i = 0; i < at.ndim(); ++i)
    if (i != d && at.shape(i) > to.shape(i))
      fail<ShapeError>("{}: index of shape {} is larger than x of shape {} in dim {}", op, index.shape(), x.shape(), i);
  Scatter s{op, kind, include_self, d, x, at, source_of(op, x, at, src)};
  if (x.device().type != DeviceType::kMeta) s.index = checked_indices(op, "index", at, to.shape(d));
  return s;
}

index::AlongMove move_of(const Scatter& s, const Tensor& table, const Tensor& dense) {
  return {.shape = s.index.shape(),
          .dim = s.dim,
          .size = table.shape(s.dim),
          .index = s.index.data<int64_t>(),
          .table = table.raw(),
          .table_strides = table.strides(),
          .dense = dense.raw(),
          .dense_strides = dense.strides()};
}

/// One value at every position of the scatter.
Tensor constant(const Scatter& s, const Scalar& value, DType dtype) {
  const Tensor one = core::scalar_tensor(s.op, "value", value, dtype, kCpu);
  return one.with_layout(s.index.shape(), Dims(s.index.shape().size(), 0), one.offset());
}

/// The value that leaves any other as it is.
Scalar identity_of(Kind kind, DType dtype) {
  if (kind == Kind::kProd) return 1;
  if (kind == Kind::kSum || kind == Kind::kMean) return 0;
  if (is_float(dtype)) return kind == Kind::kMax ? -INFINITY : INFINITY;
  return core::visit_integer(dtype == boolean ? uint8 : dtype, [&]<class T>() {
    if (dtype == boolean) return Scalar(kind == Kind::kMin);
    return kind == Kind::kMax ? Scalar(std::numeric_limits<T>::min()) : Scalar(std::numeric_limits<T>::max());
  });
}

Combine combine_of(Kind kind) {
  switch (kind) {
    case Kind::kProd:
      return Combine::kMultiply;
    case Kind::kMax:
      return Combine::kMaximum;
    case Kind::kMin:
      return Combine::kMinimum;
    default:
      return Combine::kAdd;
  }
}

/// A sum over its count: integers are floored, floats rounded once.
template <class T>
T mean_of(core::Compute<T> sum, int64_t count) {
  if (count <= 1) return core::cast<T>(sum);
  if constexpr (std::is_floating_point_v<core::Compute<T>>)
    return core::cast<T>(static_cast<double>(sum) / static_cast<double>(count));
  if constexpr (std::is_unsigned_v<T>) return core::cast<T>(static_cast<uint64_t>(sum) / static_cast<uint64_t>(count));
  const auto wide = static_cast<int64_t>(sum);
  return core::cast<T>(wide / count - (wide % count < 0));
}

void mean_into(const Scatter& s, const Tensor& sums, const Tensor& target) {
  const Tensor counts = Tensor::empty(sums.shape(), int64), dense = Tensor::empty(target.shape(), target.dtype());
  std::fill_n(counts.data<int64_t>(), counts.numel(), s.include_self ? 1 : 0);
  index::combine_along(move_of(s, counts, constant(s, 1, int64)), int64, Combine::kAdd);
  core::visit(target.dtype(), [&]<class T>() {
    const auto* sum = sums.data<core::Compute<T>>();
    const auto* count = counts.data<int64_t>();
    for (int64_t i = 0; i < sums.numel(); ++i) dense.data<T>()[i] = mean_of<T>(sum[i], count[i]);
  });
  core::copy_into(dense, target);
}

index::DeviceMove device_move_of(const Scatter& s, const Tensor& target) {
  Dims table_strides = target.strides();
  table_strides[s.dim] = 0;
  return {.at = {s.op, "index"},
          .shape = s.index.shape(),
          .index = s.index,
          .index_strides = s.index.strides(),
          .size = target.shape(s.dim),
          .place_stride = target.stride(s.dim),
          .table = target.raw(),
          .table_strides = table_strides,
          .dense = s.src.raw(),
          .dense_strides = s.src.strides()};
}

index::DeviceCombine device_combine_of(Kind kind) {
  switch (kind) {
    case Kind::kProd:
      return index::DeviceCombine::kMultiply;
    case Kind::kMean:
      return index::DeviceCombine::kMean;
    case Kind::kMax:
      return index::DeviceCombine::kMaximum;
    case Kind::kMin:
      return index::DeviceCombine::kMinimum;
    default:
      return index::DeviceCombine::kAdd;
  }
}

void run_on_cuda(const Scatter& s, const Tensor& target) {
  const index::DeviceMove move = device_move_of(s, target);
  if (s.kind == Kind::kPut) return index::scatter_on_device(move, target.dtype());
  index::combine_on_device(move, target.dtype(),
                           {.combine = device_combine_of(s.kind), .include_self = s.include_self});
}

/// The scatter, onto `target` that holds x.
void run_scatter(const Scatter& s, const Tensor& target) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(target)) return run_on_cuda(s, target);
  }
  if (s.kind == Kind::kPut) return index::scatter_along(move_of(s, target, s.src), target.dtype());
  const DType wide = compute_dtype(target.dtype());
  const bool mean = s.kind == Kind::kMean;
  const index::AlongMove direct = move_of(s, target, s.src);
  if (!mean && s.include_self && index::takes_lines(direct, target.dtype()))
    return index::combine_lines(direct, target.dtype(), combine_of(s.kind));
  const Tensor scratch = mean ? target.to(wide).contiguous() : target.to(wide);
  const Tensor sums = mean && scratch.raw() == target.raw() ? scratch.clone() : scratch;
  if (!s.include_self) index::scatter_along(move_of(s, sums, constant(s, identity_of(s.kind, wide), wide)), wide);
  index::combine_along(move_of(s, sums, s.src.to(wide)), wide, combine_of(s.kind));
  if (mean) return mean_into(s, sums, target);
  if (sums.raw() != target.raw()) core::copy_into(sums, target);
}

Step step_of(const Scatter& s, const Tensor& target) {
  Step step{s.op, OpClass::kIndex, {s.x, s.index, s.src}, {target}};
  if (s.kind != Kind::kPut) step.copies = index::scratch_copies(target);
  return step;
}

/// What a scatter does, without tensors; and on those of a step, with the entries checked.
Scatter rule_of(const Scatter& s) { return {s.op, s.kind, s.include_self, s.dim, {}, {}, {}}; }
Scatter on(Scatter rule, const Tensor& x, const std::vector<Tensor>& inputs) {
  rule.x = x, rule.src = inputs[2];
  rule.index = checked_indices(rule.op, "index", inputs[1], at_least_1d(x).shape(rule.dim));
  return rule;
}

Tensor scattered(const Scatter& s, const Tensor& out_option) {
  core::Output out(s.op, out_option, s.x.shape(), s.x.dtype(), s.x, {&s.x, &s.index, &s.src}, {.cuda = core::kHasCuda});
  core::StepScope step([&] {
    return step_of(s, out.target()).with(core::recipe([again = rule_of(s)](const auto& in, const auto& outs) {
      scattered(on(again, in[0], in), outs[0]);
    }));
  });
  if (step.shape_only(out.target())) return out.target();
  core::copy_into(s.x, out.target());
  run_scatter(s, at_least_1d(out.target()));
  return out.finish();
}

Tensor scattered_in_place(Scatter s) {
  core::check_writable(s.op, "x", s.x);
  core::StepScope step([&] {
    Step stated = index::write_step(s.op, {s.x, s.index, s.src}, s.x, s.index.numel(), s.kind != Kind::kPut);
    if (s.kind != Kind::kPut)
      for (core::Copy& copy : index::scratch_copies(s.x)) stated.copies.push_back(std::move(copy));
    stated.recipe = core::recipe(
        [again = rule_of(s)](const auto& in, const auto& outs) { scattered_in_place(on(again, outs[0], in)); });
    return stated;
  });
  if (step.shape_only(s.x)) return s.x;
  s.src = index::read_first(s.src, core::spans_overlap(s.src, s.x));
  s.index = index::read_first(s.index, core::spans_overlap(s.index, s.x));
  run_scatter(s, at_least_1d(s.x));
  return s.x;
}

// ---- index_add
// ----------------------------------------------------------------------------------------------------------

struct RowAdd {
  const char* op;
  int dim;
  Tensor x, index, source;
  Scalar alpha;
};

RowAdd check_index_add(const char* op, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                       const Scalar& alpha) {
  check_given(op, {"x", x});
  core::check_index_dtype(op, {"index", index});
  check_given(op, {"source", source});
  core::check_same_device(op, {{"x", x}, {"index", index}, {"source", source}});
  core::check_same_dtype(op, {"x", x}, {"source", source});
  const int d = normalize_dim(op, dim, x.ndim());
  if (index.ndim() > 1) fail<ShapeError>("{}: index must have at most 1 dim, got shape {}", op, index.shape());
  const Tensor to = at_least_1d(x), from = at_least_1d(source);
  Dims expected = to.shape();
  expected[d] = index.numel();
  if (from.shape() != expected)
    fail<ShapeError>("{}: source must have shape {} (x's, with index's size in dim {}), got {}", op, expected, d,
                     source.shape());
  core::check_fits(op, "alpha", alpha, x.dtype());
  RowAdd a{op, d, x, index, from, alpha};
  if (x.device().type != DeviceType::kMeta) a.index = checked_indices(op, "index", index, to.shape(d));
  return a;
}

/// The rows of `sums`, of x's shape, and of `from`, of source's.
index::RowMove move_of(const RowAdd& a, const Tensor& sums, const Tensor& from) {
  const auto d = static_cast<size_t>(a.dim);
  const auto before = [&](const Dims& dims) { return Dims(dims.begin(), dims.begin() + d); };
  const auto after = [&](const Dims& dims) { return Dims(dims.begin() + d + 1, dims.end()); };
  index::RowMove move{.outer = before(sums.shape()), .inner = after(sums.shape())};
  move.table = sums.raw();
  move.table_outer = before(sums.strides());
  move.table_inner = after(sums.strides());
  move.places = a.index.data<int64_t>();
  move.place_stride = sums.strides()[d];
  move.dense = from.raw();
  move.dense_outer = before(from.strides());
  move.dense_inner = after(from.strides());
  move.dense_stride = from.strides()[d];
  move.count = a.index.numel();
  return move;
}

void run_on_cuda(const RowAdd& a, const Tensor& target) {
  Dims index_strides(a.source.shape().size(), 0), table_strides = target.strides();
  index_strides[a.dim] = 1;
  table_strides[a.dim] = 0;
  const index::DeviceMove move{.at = {a.op, "index"},
                               .shape = a.source.shape(),
                               .index = a.index,
                               .index_strides = index_strides,
                               .size = target.shape(a.dim),
                               .place_stride = target.stride(a.dim),
                               .table = target.raw(),
                               .table_strides = table_strides,
                               .dense = a.source.raw(),
                               .dense_strides = a.source.strides()};
  index::combine_on_device(move, target.dtype(), {.alpha = a.alpha});
}

/// The addition, onto `target` that holds x.
void run_index_add(const RowAdd& a, const Tensor& target) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(target)) return run_on_cuda(a, target);
  }
  if (index::add_rows_grouped(move_of(a, target, a.source), target.dtype(), a.alpha)) return;
  const DType wide = compute_dtype(target.dtype());
  const Tensor sums = target.to(wide);
  const Tensor from = a.source.to(wide);
  index::add_rows(move_of(a, sums, from), wide, a.alpha);
  if (sums.raw() != target.raw()) core::copy_into(sums, target);
}

}  // namespace

Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Operand& src, const IndexOptions& options) {
  return scattered(check_scatter("scatter", Kind::kPut, x, dim, index, src, true), options.out);
}
Tensor scatter_(const Tensor& x, int64_t dim, const Tensor& index, const Operand& src) {
  return scattered_in_place(check_scatter("scatter_", Kind::kPut, x, dim, index, src, true));
}
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Operand& src, const IndexOptions& options) {
  return scattered(check_scatter("scatter_add", Kind::kSum, x, dim, index, src, true), options.out);
}
Tensor scatter_add_(const Tensor& x, int64_t dim, const Tensor& index, const Operand& src) {
  return scattered_in_place(check_scatter("scatter_add_", Kind::kSum, x, dim, index, src, true));
}
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Operand& src, std::string_view reduce,
                      const ScatterReduceOptions& options) {
  return scattered(check_scatter("scatter_reduce", kind_of(reduce), x, dim, index, src, options.include_self),
                   options.out);
}
Tensor scatter_reduce_(const Tensor& x, int64_t dim, const Tensor& index, const Operand& src, std::string_view reduce,
                       const ScatterReduceOptions& options) {
  return scattered_in_place(
      check_scatter("scatter_reduce_", kind_of(reduce), x, dim, index, src, options.include_self));
}

Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                 const IndexAddOptions& options) {
  const char* op = "index_add";
  const RowAdd a = check_index_add(op, x, dim, index, source, options.alpha);
  core::Output out(op, options.out, x.shape(), x.dtype(), x, {&x, &index, &source}, {.cuda = core::kHasCuda});
  core::StepScope step([&] {
    return Step{op, OpClass::kIndex, {x, index, source}, {out.target()}, 0, {}, index::scratch_copies(x)}.with(
        core::recipe([dim, alpha = options.alpha](const auto& in, const auto& outs) {
          index_add(in[0], dim, in[1], in[2], {.alpha = alpha, .out = outs[0]});
        }));
  });
  if (step.shape_only(out.target())) return out.target();
  core::copy_into(x, out.target());
  run_index_add(a, at_least_1d(out.target()));
  return out.finish();
}

Tensor index_add_(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                  const IndexAddOptions& options) {
  const char* op = "index_add_";
  RowAdd a = check_index_add(op, x, dim, index, source, options.alpha);
  core::check_writable(op, "x", x);
  core::StepScope step([&] {
    Step stated = index::write_step(op, {x, index, source}, x, source.numel(), true);
    for (core::Copy& copy : index::scratch_copies(x)) stated.copies.push_back(std::move(copy));
    stated.recipe = core::recipe([dim, alpha = options.alpha](const auto& in, const auto& outs) {
      index_add_(outs[0], dim, in[1], in[2], {.alpha = alpha});
    });
    return stated;
  });
  if (step.shape_only(x)) return x;
  a.source = index::read_first(a.source, core::spans_overlap(a.source, x));
  a.index = index::read_first(a.index, core::spans_overlap(a.index, x));
  run_index_add(a, at_least_1d(x));
  return x;
}

}  // namespace tenor
