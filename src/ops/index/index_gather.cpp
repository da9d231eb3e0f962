// index_select, embedding, gather, take_along_dim.
#include "src/core/backend.h"
#include "src/core/layout.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/ops/index/index_along.h"
#include "src/ops/index/index_check.h"
#include "src/ops/index/index_cuda.h"
#include "src/ops/index/index_recipe.h"
#include "src/ops/index/index_rows.h"
#include "tenor/index.h"

namespace tenor {
namespace {

using core::broadcast_strides;
using core::check_given;
using core::fail;
using core::normalize_dim;
using core::OpClass;
using core::Output;
using core::Step;
using index::at_least_1d;
using index::checked_indices;

const core::OpRegistration kOps({
    {"index_select", "index", OpClass::kIndex,
     "x[..., n, ...], index [k] -> [..., k, ...]: rows of dim that index names"},
    {"embedding", "index", OpClass::kIndex, "index [*S], weight [V, *R] -> [*S, *R] = weight[index]"},
    {"gather", "index", OpClass::kIndex, "x, index of one rank -> index's shape: x at index along dim"},
    {"take_along_dim", "index", OpClass::kIndex, "gather, x and indices broadcast outside of dim"},
});

bool is_meta(const Tensor& x) { return x.device().type == DeviceType::kMeta; }

/// out and x at `places` along dim; x is seen through these strides at out's shape.
index::AlongMove move_of(const Tensor& x, const Dims& x_strides, int dim, int64_t size, const Tensor& places,
                         const Tensor& out) {
  return {.shape = out.shape(),
          .dim = dim,
          .size = size,
          .index = places.data<int64_t>(),
          .table = x.raw(),
          .table_strides = x_strides,
          .dense = out.raw(),
          .dense_strides = out.strides()};
}

/// The same on CUDA, where `places` may repeat along its strides.
void gather_on_cuda(index::Argument at, const Tensor& x, Dims x_strides, int dim, int64_t size, const Tensor& places,
                    const Tensor& out) {
  const int64_t step = x_strides[dim];
  x_strides[dim] = 0;
  index::gather_on_device({.at = at,
                           .shape = out.shape(),
                           .index = places,
                           .index_strides = places.strides(),
                           .size = size,
                           .place_stride = step,
                           .table = x.raw(),
                           .table_strides = x_strides,
                           .dense = out.raw(),
                           .dense_strides = out.strides()},
                          x.dtype());
}

void gather_into(index::Argument at, const Tensor& x, const Dims& x_strides, int dim, int64_t size,
                 const Tensor& places, const Tensor& out) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) return gather_on_cuda(at, x, x_strides, dim, size, places, out);
  }
  index::gather_along(move_of(x, x_strides, dim, size, places, out), x.dtype());
}

void check_index_arguments(const char* op, const Tensor& x, core::Named index) {
  check_given(op, {"x", x});
  core::check_index_dtype(op, index);
  core::check_same_device(op, {{"x", x}, index});
}

}  // namespace

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index, const IndexOptions& options) {
  const char* op = "index_select";
  check_index_arguments(op, x, {"index", index});
  const int d = normalize_dim(op, dim, x.ndim());
  if (index.ndim() > 1) fail<ShapeError>("{}: index must have at most 1 dim, got shape {}", op, index.shape());
  const Tensor from = at_least_1d(x);
  if (x.ndim() == 0 && index.numel() != 1)
    fail<ShapeError>("{}: index must have 1 element for a 0-d x, got shape {}", op, index.shape());
  const Tensor places = is_meta(x) ? index : checked_indices(op, "index", index, from.shape(d));
  Dims shape = x.shape();
  if (!shape.empty()) shape[d] = index.numel();
  Output out(op, options.out, shape, x.dtype(), x, {&x, &index}, {.cuda = core::kHasCuda});
  core::StepScope step([&] {
    return index::read_step(op, {x, index}, 0, out.target(), core::text("dim {} has the length of index", d))
        .with(index::gather_recipe({op, "index", 0, 1, d, false}, [dim](const auto& in, const auto& outs) {
          index_select(in[0], dim, in[1], {.out = outs[0]});
        }));
  });
  if (step.shape_only(out.target())) return out.target();
  index::select_rows({op, "index"}, from, d, places, at_least_1d(out.target()), 1);
  return out.finish();
}

Tensor embedding(const Tensor& index, const Tensor& weight, const IndexOptions& options) {
  const char* op = "embedding";
  check_given(op, {"index", index});
  check_given(op, {"weight", weight});
  core::check_index_dtype(op, {"index", index});
  core::check_same_device(op, {{"index", index}, {"weight", weight}});
  if (weight.ndim() == 0) fail<ShapeError>("{}: weight must have at least 1 dim, got shape ()", op);
  const Tensor places = is_meta(weight) ? index : checked_indices(op, "index", index, weight.shape(0));
  Dims shape = index.shape();
  for (int d = 1; d < weight.ndim(); ++d) shape.push_back(weight.shape(d));
  Output out(op, options.out, shape, weight.dtype(), index, {&index, &weight},
             {.contiguous = true, .cuda = core::kHasCuda});
  core::StepScope step([&] {
    return index::read_step(op, {index, weight}, 1, out.target(), "index's shape, then a row of weight")
        .with(index::gather_recipe({op, "index", 1, 0, 0, false}, [](const auto& in, const auto& outs) {
          embedding(in[0], in[1], {.out = outs[0]});
        }));
  });
  if (step.shape_only(out.target())) return out.target();
  index::select_rows({op, "index"}, weight, 0, places, out.target(), index.shape().size());
  return out.finish();
}

Tensor gather(const Tensor& x, int64_t dim, const Tensor& index, const IndexOptions& options) {
  const char* op = "gather";
  check_index_arguments(op, x, {"index", index});
  const int d = normalize_dim(op, dim, x.ndim());
  const Tensor from = at_least_1d(x), at = at_least_1d(index);
  if (at.ndim() != from.ndim())
    fail<ShapeError>("{}: index must have x's {} dims, got shape {}", op, x.ndim(), index.shape());
  for (int i = 0; i < at.ndim(); ++i)
    if (i != d && at.shape(i) > from.shape(i))
      fail<ShapeError>("{}: index of shape {} is larger than x of shape {} in dim {}", op, index.shape(), x.shape(), i);
  // A result of ours may be filled while the index is checked; the caller's is written only after that.
  const bool at_once =
      x.device().type == DeviceType::kCpu && !options.out.defined() && at.dtype() == int64 && at.is_contiguous();
  Tensor places = is_meta(x) || at_once ? at : checked_indices(op, "index", at, from.shape(d));
  Output out(op, options.out, index.shape(), x.dtype(), x, {&x, &index}, {.cuda = core::kHasCuda});
  core::StepScope step([&] {
    return index::read_step(op, {x, index}, 0, out.target(), "the shape of index")
        .with(index::gather_recipe({op, "index", 0, 1, d, true}, [dim](const auto& in, const auto& outs) {
          gather(in[0], dim, in[1], {.out = outs[0]});
        }));
  });
  if (step.shape_only(out.target())) return out.target();
  const Tensor target = at_least_1d(out.target());
  if (at_once && index::try_gather_along(move_of(from, from.strides(), d, from.shape(d), places, target), x.dtype()))
    return out.finish();
  if (at_once) places = checked_indices(op, "index", at, from.shape(d));
  gather_into({op, "index"}, from, from.strides(), d, from.shape(d), places, target);
  return out.finish();
}

Tensor take_along_dim(const Tensor& x, const Tensor& indices, std::optional<int64_t> dim, const IndexOptions& options) {
  const char* op = "take_along_dim";
  check_index_arguments(op, x, {"indices", indices});
  if (!dim) {
    const int64_t count = x.numel();
    const Tensor places = is_meta(x) ? indices : checked_indices(op, "indices", indices, count);
    Output out(op, options.out, {indices.numel()}, x.dtype(), x, {&x, &indices}, {.cuda = core::kHasCuda});
    core::StepScope step([&] {
      Step stated = index::read_step(op, {x, indices}, 0, out.target(), "the length of indices")
                        .with(core::recipe([](const auto& in, const auto& outs) {
                          take_along_dim(in[0], in[1], std::nullopt, {.out = outs[0]});
                        }));
      if (!x.is_contiguous())
        stated.copies.push_back(
            {"x", x.numel() * static_cast<int64_t>(item_size(x.dtype())), "without dim it reads one dense row"});
      return stated;
    });
    if (step.shape_only(out.target())) return out.target();
    const Tensor flat = places.with_layout({places.numel()}, {1}, places.offset());
    gather_into({op, "indices"}, x.contiguous(), {1}, 0, count, flat, out.target());
    return out.finish();
  }
  const Tensor from = at_least_1d(x), at = at_least_1d(indices);
  const int d = normalize_dim(op, *dim, x.ndim());
  if (at.ndim() != from.ndim())
    fail<ShapeError>("{}: indices must have x's {} dims, got shape {}", op, x.ndim(), indices.shape());
  Dims x_sizes = from.shape(), index_sizes = at.shape();
  x_sizes[d] = index_sizes[d] = 1;
  Dims shape = core::broadcast_shapes(op, x_sizes, index_sizes);
  const Tensor places = is_meta(x) ? at : checked_indices(op, "indices", at, from.shape(d));
  shape[d] = at.shape(d);
  const Tensor spread = places.with_layout(shape, broadcast_strides(places, shape), places.offset());
  Output out(op, options.out, x.ndim() == 0 ? indices.shape() : shape, x.dtype(), x, {&x, &indices},
             {.cuda = core::kHasCuda});
  core::StepScope step([&] {
    return index::read_step(op, {x, indices}, 0, out.target(), core::text("dim {} has the length of indices there", d))
        .with(index::gather_recipe({op, "indices", 0, 1, d, true}, [dim](const auto& in, const auto& outs) {
          take_along_dim(in[0], in[1], dim, {.out = outs[0]});
        }));
  });
  if (step.shape_only(out.target())) return out.target();
  Dims x_strides = from.strides();
  for (int i = 0; i < from.ndim(); ++i)
    if (i != d && from.shape(i) == 1) x_strides[i] = 0;
  gather_into({op, "indices"}, from, x_strides, d, from.shape(d), core::on_cuda(x) ? spread : spread.contiguous(),
              at_least_1d(out.target()));
  return out.finish();
}

}  // namespace tenor
