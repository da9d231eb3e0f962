// The contract of sort, argsort, topk, kthvalue and median. Kernels: row_order.cpp.
#include "tenor/sort.h"

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/ops/sort/order_check.h"
#include "src/ops/sort/row_order.h"
#include "src/ops/sort/sort_cuda.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using core::fail;
using core::normalize_dim;
using core::OpClass;
using core::Output;
using core::Step;

const core::OpRegistration kOps({
    {"sort", "sort", OpClass::kReduction, "x[*S] -> values[*S], indices[*S], stable along dim, NaN greatest"},
    {"argsort", "sort", OpClass::kReduction, "x[*S] -> indices[*S] of sort"},
    {"topk", "sort", OpClass::kReduction, "x[..., n, ...] -> values, indices [..., k, ...], the first k of sort"},
    {"kthvalue", "sort", OpClass::kReduction, "x[..., n, ...] -> value, index [...], the k-th smallest, k from 1"},
    {"median", "sort", OpClass::kReduction, "x[..., n, ...] -> element (n - 1) / 2 of sort, or the first NaN"},
});

int64_t size_along(const Tensor& x, int dim) { return x.ndim() == 0 ? 1 : x.shape(dim); }

/// x's shape with another size along dim, or without dim.
Dims shape_with(const Tensor& x, int dim, int64_t size) {
  Dims shape = x.shape();
  if (x.ndim() > 0) shape[dim] = size;
  return shape;
}
Dims reduced_shape(const Tensor& x, int dim, bool keepdim) {
  Dims shape = shape_with(x, dim, 1);
  if (!keepdim && x.ndim() > 0) shape.erase(dim);
  return shape;
}

/// The two results, where they are written.
struct OrderOutputs {
  Output values, indices;

  OrderOutputs(const char* op, const SortResult& out, const Dims& shape, const Tensor& x)
      : values(op, out.values, shape, x.dtype(), x, {&x}, {.argument = "out.values", .cuda = core::kHasCuda}),
        indices(op, out.indices, shape, int64, x, {&x}, {.argument = "out.indices", .cuda = core::kHasCuda}) {}

  Step step(const char* op, const Tensor& x) const {
    return {op, OpClass::kReduction, {x}, {values.target(), indices.target()}};
  }
  SortResult targets() const { return {values.target(), indices.target()}; }
  SortResult finish() { return {values.finish(), indices.finish()}; }
};

/// The first k of the order along dim, on x's device.
void order_into(const char* op, const Tensor& x, int dim, cpu::KeyCode code, int64_t k, const Tensor& values,
                const Tensor& indices, void (*on_cpu)(const cpu::RowOrder&, int64_t)) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) return cuda::order_rows(op, x, dim, code, k, values, indices);
  }
  on_cpu(cpu::RowOrder(x, dim, code, values, indices), k);
}

/// Element k of it.
void select_into(const char* op, const Tensor& x, int dim, int64_t k, bool nan_wins, const Tensor& values,
                 const Tensor& indices) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) return cuda::pick_rows(op, x, dim, k, nan_wins, values, indices);
  }
  cpu::select_rows(cpu::RowOrder(x, dim, cpu::key_code(x.dtype()), values, indices), k, nan_wins);
}

SortResult select(const char* op, const Tensor& x, int dim, int64_t k, bool keepdim, bool nan_wins,
                  const SortResult& out) {
  OrderOutputs outs(op, out, reduced_shape(x, dim, keepdim), x);
  core::StepScope step([&] {
    return outs.step(op, x).with(core::recipe([=](const auto& in, const auto& to) {
      select(op, in[0], dim, k, keepdim, nan_wins, {to[0], to[1]});
    }));
  });
  if (step.shape_only(outs.values.target())) return outs.targets();
  const auto& [values, indices] = outs.targets();
  select_into(op, x, dim, k, nan_wins, values, indices);
  return outs.finish();
}

/// median over all elements: one row, which a copy makes where the strides do not.
SortResult median_of_all(const Tensor& x, const MedianOptions& options) {
  if (x.numel() == 0) fail<ShapeError>("median: x of shape {} has no elements, so no median", x.shape());
  if (options.out.indices.defined())
    fail<ValueError>("median: out.indices needs dim; over all elements there are no indices");
  Output out("median", options.out.values, options.keepdim ? Dims(x.shape().size(), 1) : Dims(), x.dtype(), x, {&x},
             {.cuda = core::kHasCuda});
  core::StepScope step([&] {
    Step made{"median", OpClass::kReduction, {x}, {out.target()}};
    made.recipe = core::recipe([keepdim = options.keepdim](const auto& in, const auto& to) {
      median_of_all(in[0], {.keepdim = keepdim, .out = {to[0], {}}});
    });
    if (!x.is_contiguous())
      made.copies.push_back(
          {"x", x.numel() * static_cast<int64_t>(item_size(x.dtype())), "a median over all elements reads one row"});
    return made;
  });
  if (step.shape_only(out.target())) return {out.target(), {}};
  const Tensor row = flatten(x.contiguous());
  const Tensor value = out.target().with_layout({}, {}, out.target().offset());
  select_into("median", row, 0, (x.numel() - 1) / 2, true, value, {});
  return {out.finish(), {}};
}

}  // namespace

SortResult sort(const Tensor& x, const SortOptions& options) {
  core::check_orderable("sort", {"x", x});
  const int dim = normalize_dim("sort", options.dim, x.ndim());
  core::check_out_pair("sort", options.out.values, options.out.indices);
  OrderOutputs outs("sort", options.out, x.shape(), x);
  core::StepScope step([&] {
    return outs.step("sort", x).with(core::recipe([options](const auto& in, const auto& to) {
      SortOptions again = options;
      again.out = {to[0], to[1]};
      sort(in[0], again);
    }));
  });
  if (step.shape_only(outs.values.target())) return outs.targets();
  const auto& [values, indices] = outs.targets();
  order_into("sort", x, dim, cpu::key_code(x.dtype(), options.descending), size_along(x, dim), values, indices,
             cpu::sort_rows);
  return outs.finish();
}

Tensor argsort(const Tensor& x, const ArgsortOptions& options) {
  core::check_orderable("argsort", {"x", x});
  const int dim = normalize_dim("argsort", options.dim, x.ndim());
  Output out("argsort", options.out, x.shape(), int64, x, {&x}, {.cuda = core::kHasCuda});
  core::StepScope step([&] {
    return Step{"argsort", OpClass::kReduction, {x}, {out.target()}}.with(
        core::recipe([options](const auto& in, const auto& to) {
          ArgsortOptions again = options;
          again.out = to[0];
          argsort(in[0], again);
        }));
  });
  if (step.shape_only(out.target())) return out.target();
  order_into("argsort", x, dim, cpu::key_code(x.dtype(), options.descending), size_along(x, dim), {}, out.target(),
             cpu::sort_rows);
  return out.finish();
}

SortResult topk(const Tensor& x, int64_t k, const TopkOptions& options) {
  core::check_orderable("topk", {"x", x});
  const int dim = normalize_dim("topk", options.dim, x.ndim());
  const int64_t n = size_along(x, dim);
  if (k < 0 || k > n) fail<ValueError>("topk: k must be in 0..{}, the size of dim {}, got {}", n, options.dim, k);
  core::check_out_pair("topk", options.out.values, options.out.indices);
  OrderOutputs outs("topk", options.out, shape_with(x, dim, k), x);
  core::StepScope step([&] {
    return outs.step("topk", x).with(core::recipe([k, options](const auto& in, const auto& to) {
      TopkOptions again = options;
      again.out = {to[0], to[1]};
      topk(in[0], k, again);
    }));
  });
  if (step.shape_only(outs.values.target())) return outs.targets();
  const auto& [values, indices] = outs.targets();
  // A 0-d result holds its one element whatever k is.
  order_into("topk", x, dim, cpu::key_code(x.dtype(), options.largest), x.ndim() == 0 ? 1 : k, values, indices,
             cpu::topk_rows);
  return outs.finish();
}

SortResult kthvalue(const Tensor& x, int64_t k, const KthvalueOptions& options) {
  core::check_orderable("kthvalue", {"x", x});
  const int dim = normalize_dim("kthvalue", options.dim, x.ndim());
  const int64_t n = size_along(x, dim);
  if (k < 1 || k > n) fail<ValueError>("kthvalue: k must be in 1..{}, the size of dim {}, got {}", n, options.dim, k);
  core::check_out_pair("kthvalue", options.out.values, options.out.indices);
  return select("kthvalue", x, dim, k - 1, options.keepdim, false, options.out);
}

SortResult median(const Tensor& x, const MedianOptions& options) {
  core::check_orderable("median", {"x", x});
  if (!options.dim) return median_of_all(x, options);
  const int dim = normalize_dim("median", *options.dim, x.ndim());
  const int64_t n = size_along(x, dim);
  if (n == 0 && product(reduced_shape(x, dim, false)) > 0)
    fail<ShapeError>("median: dim {} of x of shape {} is empty, so it has no median", *options.dim, x.shape());
  core::check_out_pair("median", options.out.values, options.out.indices);
  return select("median", x, dim, (n - 1) / 2, options.keepdim, true, options.out);
}

}  // namespace tenor
