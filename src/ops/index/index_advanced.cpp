// index_get and index_put: several index arrays and masks at once.
#include <algorithm>
#include <iterator>
#include <numeric>

#include "src/core/backend.h"
#include "src/core/layout.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/scalar_value.h"
#include "src/core/step.h"
#include "src/ops/index/index_check.h"
#include "src/ops/index/index_cuda.h"
#include "src/ops/index/index_plan.h"
#include "src/ops/index/index_recipe.h"
#include "src/ops/index/index_rows.h"
#include "tenor/index.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using core::check_given;
using core::fail;
using core::OpClass;
using core::Step;
using index::make_plan;
using index::Plan;

const core::OpRegistration kOps({
    {"index_get", "index", OpClass::kIndex, "x[indices]: index arrays and masks, one a dim"},
    {"index_put", "index", OpClass::kIndex, "x with x[indices] = values, or += values"},
});

Dims pick(const Dims& from, const Dims& dims) {
  Dims out;
  for (int64_t d : dims) out.push_back(from[d]);
  return out;
}

/// Adds index entries times stride to offsets, broadcasting over `shape`.
void add_places(const Tensor& entries, const Dims& shape, int64_t stride, int64_t* offsets) {
  const Dims strides = core::broadcast_strides(entries, shape);
  const auto* from = entries.data<int64_t>();
  const int64_t count = product(shape), last = shape.empty() ? 1 : shape.back(),
                step = shape.empty() ? 0 : strides.back();
  for (int64_t i = 0; i < count; i += last) {
    int64_t rest = i, base = 0;
    for (size_t d = shape.size(); d-- > 0;) {
      base += rest % shape[d] * strides[d];
      rest /= shape[d];
    }
    for (int64_t j = 0; j < last; ++j) offsets[i + j] += from[base + j * step] * stride;
  }
}

/// A move between `x` and `dense`, with the memory that it points into.
struct Move {
  index::RowMove rows;
  Tensor places;
};

/// `dense` has the plan's shape, one stride walking its places.
Move move_of(const Plan& plan, const Tensor& x, const Tensor& dense) {
  Move move{{.outer = pick(x.shape(), plan.before), .inner = pick(x.shape(), plan.after)}, {}};
  index::RowMove& rows = move.rows;
  rows.count = product(plan.place_shape);
  rows.place_stride = plan.arrays.size() == 1 ? x.strides()[plan.indexed[0]] : 1;
  if (plan.arrays.size() == 1) {
    move.places = plan.arrays[0];
  } else {
    move.places = Tensor::empty({rows.count}, int64);
    std::fill_n(move.places.data<int64_t>(), rows.count, 0);
    for (size_t i = 0; i < plan.arrays.size(); ++i)
      add_places(plan.arrays[i], plan.place_shape, x.strides()[plan.indexed[i]], move.places.data<int64_t>());
  }
  rows.places = move.places.data<int64_t>();
  rows.table = x.raw();
  rows.table_outer = pick(x.strides(), plan.before);
  rows.table_inner = pick(x.strides(), plan.after);
  rows.dense = dense.raw();
  const size_t first = plan.before.size(), last = first + plan.place_shape.size();
  rows.dense_outer = Dims(dense.strides().begin(), dense.strides().begin() + first);
  rows.dense_inner = Dims(dense.strides().begin() + last, dense.strides().end());
  for (size_t d = first; d < last; ++d)
    if (dense.shape()[d] != 1) rows.dense_stride = dense.strides()[d];  // the last one: that of consecutive places
  return move;
}

/// Several arrays as one: offsets in units of what divides every stride.
Tensor combined_places(const char* op, const Plan& plan, const Tensor& x, int64_t& unit, int64_t& size) {
  index::PlaceArrays given;
  given.at = {op, "index"};
  given.shape = plan.place_shape;
  given.resolved = plan.resolved;
  unit = 0;
  for (int64_t d : plan.indexed)
    if (x.shape()[d] > 1) unit = std::gcd(unit, x.strides()[d]);
  unit = std::max<int64_t>(unit, 1);
  size = 1;
  for (size_t k = 0; k < plan.arrays.size(); ++k) {
    const int64_t n = x.shape()[plan.indexed[k]], stride = n > 1 ? x.strides()[plan.indexed[k]] / unit : 0;
    given.arrays.push_back(plan.arrays[k]);
    given.array_strides.push_back(core::broadcast_strides(plan.arrays[k], plan.place_shape));
    given.sizes.push_back(n);
    given.strides.push_back(stride);
    size += (n - 1) * stride;
  }
  return index::resolve_places(given);
}

/// A move on CUDA between `x` and `dense` of the plan's shape.
index::DeviceMove device_move_of(const char* op, const Plan& plan, const Tensor& x, const Tensor& dense) {
  const size_t first = plan.before.size(), rank = plan.place_shape.size();
  index::DeviceMove move{.at = {op, "index"}, .shape = dense.shape()};
  if (plan.arrays.size() == 1) {
    move.index = plan.arrays[0];
    move.resolved = plan.resolved[0];
    move.size = x.shape()[plan.indexed[0]];
    move.place_stride = x.strides()[plan.indexed[0]];
  } else {
    move.index = combined_places(op, plan, x, move.place_stride, move.size);
    move.resolved = true;
  }
  const Dims along = contiguous_strides(plan.place_shape);
  move.table_strides = pick(x.strides(), plan.before);
  move.index_strides = Dims(first, 0);
  for (size_t d = 0; d < rank; ++d) {
    move.table_strides.push_back(0);
    move.index_strides.push_back(along[d]);
  }
  for (int64_t d : plan.after) move.table_strides.push_back(x.strides()[d]);
  move.index_strides.resize(dense.shape().size());
  move.table = x.raw();
  move.dense = dense.raw();
  move.dense_strides = dense.strides();
  return move;
}

/// Whether dims first..last of x lie one behind the other, so that one stride walks them.
bool one_stride(const Tensor& x, size_t first, size_t last) {
  int64_t expected = -1;
  for (size_t d = last; d-- > first;) {
    if (x.shape()[d] == 1) continue;
    if (expected >= 0 && x.strides()[d] != expected) return false;
    expected = x.strides()[d] * x.shape()[d];
  }
  return true;
}

/// @throws ShapeError unless x broadcasts to the shape.
void check_broadcast(const char* op, const char* argument, const Tensor& x, const Dims& shape) {
  const size_t rank = shape.size(), have = x.shape().size();
  bool fits = have <= rank;
  for (size_t i = 1; fits && i <= have; ++i) fits = x.shape()[have - i] == 1 || x.shape()[have - i] == shape[rank - i];
  if (!fits)
    fail<ShapeError>("{}: {} of shape {} cannot broadcast to the indexed shape {}", op, argument, x.shape(), shape);
}

/// values at the indexed shape. @throws DTypeError, ShapeError
Tensor values_at(const char* op, const Tensor& x, const Dims& shape, const Operand& values) {
  const Tensor given =
      values.is_tensor() ? values.tensor() : core::scalar_tensor(op, "values", values.scalar(), x.dtype(), x.device());
  core::check_same_device(op, {{"x", x}, {"values", given}});
  core::check_same_dtype(op, {"x", x}, {"values", given});
  check_broadcast(op, "values", given, shape);
  return given.with_layout(shape, core::broadcast_strides(given, shape), given.offset());
}

/// target += values, as the sums of places round: one entry that names all of the target.
void add_once(const char* op, const Tensor& target, const Tensor& values) {
  const index::DeviceMove move{.at = {op, "index"},
                               .shape = target.shape(),
                               .index = core::scalar_tensor(op, "index", 0, int64, target.device()),
                               .index_strides = Dims(target.shape().size(), 0),
                               .size = 1,
                               .table = target.raw(),
                               .table_strides = target.strides(),
                               .dense = values.raw(),
                               .dense_strides = values.strides()};
  index::combine_on_device(move, target.dtype(), {});
}

void put_on_cuda(const char* op, const Plan& plan, const Tensor& target, const Tensor& values, bool accumulate) {
  if (plan.arrays.empty() && !accumulate) return core::copy_into(values, target);
  if (plan.arrays.empty()) return add_once(op, target, values);
  const index::DeviceMove move = device_move_of(op, plan, target, values);
  if (accumulate) return index::combine_on_device(move, target.dtype(), {});
  index::scatter_on_device(move, target.dtype());
}

void run_put(const char* op, const Plan& plan, const Tensor& target, Tensor values, bool accumulate) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(target)) return put_on_cuda(op, plan, target, values, accumulate);
  }
  const size_t first = plan.before.size();
  if (!one_stride(values, first, first + plan.place_shape.size())) values = values.contiguous();
  const Move move = move_of(plan, target, values);
  if (!accumulate) return index::scatter_rows(move.rows, target.dtype());
  if (index::add_rows_grouped(move.rows, target.dtype(), 1)) return;
  if (compute_dtype(target.dtype()) == target.dtype()) return index::add_rows(move.rows, target.dtype(), 1);
  const Tensor scratch = target.to(float32);
  run_put(op, plan, scratch, values.to(float32), true);
  core::copy_into(scratch, target);
}

/// target[places] = values, or +=, whatever memory they share with the inputs.
void put_into(const char* op, Plan plan, const Tensor& target, Tensor values, bool accumulate) {
  values = index::read_first(values, core::spans_overlap(values, target));
  for (Tensor& entries : plan.arrays) entries = index::read_first(entries, core::spans_overlap(entries, target));
  run_put(op, plan, target, values, accumulate);
}

Step step_of(const char* op, const Tensor& x, const Tensor& values, const std::vector<Tensor>& indices,
             const Tensor& target) {
  Step step{op, OpClass::kIndex, {x}, {target}};
  for (const Tensor& entry : indices)
    if (entry.defined()) step.inputs.push_back(entry);
  if (values.defined()) step.inputs.push_back(values);
  return step;
}

/// A write in place, at that many places at most.
Step put_step(const char* op, const Tensor& x, const Tensor& values, const std::vector<Tensor>& indices, int64_t places,
              bool adds) {
  const Step all = step_of(op, x, values, indices, x);
  return index::write_step(op, all.inputs, x, places, adds);
}

/// Which of the index arrays there are; and those of a step, as step_of() lists them, with gaps.
std::vector<bool> defined_ones(const std::vector<Tensor>& indices) {
  std::vector<bool> there;
  for (const Tensor& entry : indices) there.push_back(entry.defined());
  return there;
}
std::vector<Tensor> places_of(const std::vector<bool>& there, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> indices(there.size());
  size_t next = 1;
  for (size_t i = 0; i < there.size(); ++i)
    if (there[i]) indices[i] = inputs[next++];
  return indices;
}

/// One index array that is no mask is what index_select has, with more dims.
std::shared_ptr<const core::Recipe> get_recipe(const Tensor& x, const std::vector<Tensor>& indices) {
  const auto again = [at = defined_ones(indices)](const auto& in, const auto& outs) {
    index_get(in[0], places_of(at, in), {.out = outs[0]});
  };
  const auto one = std::find_if(indices.begin(), indices.end(), [](const Tensor& i) { return i.defined(); });
  const bool only = one != indices.end() && one->dtype() != boolean && x.ndim() > 0 &&
                    std::all_of(one + 1, indices.end(), [](const Tensor& i) { return !i.defined(); });
  if (!only) return core::recipe(again);
  static constexpr const char* kNames[] = {"indices[0]", "indices[1]", "indices[2]", "indices[3]",
                                           "indices[4]", "indices[5]", "indices[6]", "indices[7]"};
  const auto dim = static_cast<size_t>(one - indices.begin());
  if (dim >= std::size(kNames)) return core::recipe(again);
  const char* name = core::runs_on(x.device()) == DeviceType::kCuda ? "index" : kNames[dim];  // as its kernels say it
  return index::gather_recipe({"index_get", name, 0, 1, static_cast<int>(dim), false}, again);
}

bool has_mask(const std::vector<Tensor>& indices) {
  return std::any_of(indices.begin(), indices.end(),
                     [](const Tensor& i) { return i.defined() && i.dtype() == boolean; });
}

/// x[mask] = values of a traced x: how many places the mask names is not known, x's shape does not depend on it. One
/// value is checked as at run time, several are not counted.
Tensor put_at_mask(const char* op, const Tensor& x, const std::vector<Tensor>& indices, const Operand& values,
                   const IndexPutOptions& options) {
  size_t dim = 0;
  for (const Tensor& entry : indices) {
    const size_t covers = entry.defined() && entry.dtype() == boolean ? entry.shape().size() : 1;
    if (dim + covers > x.shape().size()) fail<IndexError>("{}: too many indices for x of shape {}", op, x.shape());
    for (size_t d = 0; covers > 0 && entry.defined() && entry.dtype() == boolean && d < covers; ++d)
      if (entry.shape()[d] != x.shape()[dim + d])
        fail<ShapeError>("{}: mask has shape {}, which does not fit x of shape {} at dim {}", op, entry.shape(),
                         x.shape(), dim + d);
    dim += covers;
  }
  const Tensor from = values.is_tensor() ? values.tensor() : Tensor::empty({}, x.dtype(), x.device());
  core::check_same_dtype(op, {"x", x}, {"values", from});
  core::StepScope step([&] {
    return put_step(op, x, from, indices, x.numel(), options.accumulate)
        .with(core::recipe([at = defined_ones(indices), adds = options.accumulate](const auto& in, const auto& outs) {
          index_put_(outs[0], places_of(at, in), in.back(), {.accumulate = adds});
        }));
  });
  return x;
}

void read_into(const char* op, const Plan& plan, const Tensor& x, const Tensor& out) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) {
      if (plan.arrays.empty()) return core::copy_into(x, out);
      return index::gather_on_device(device_move_of(op, plan, x, out), x.dtype());
    }
  }
  index::gather_rows(move_of(plan, x, out).rows, x.dtype());
}

/// Dims of the indexed shape behind the places: those that no entry indexes, but for the ones that stay in front.
size_t dims_behind(const Tensor& x, const std::vector<Tensor>& indices) {
  size_t dim = 0, covered = 0, first = SIZE_MAX, last = 0;
  for (const Tensor& entry : indices) {
    const size_t dims = entry.defined() && entry.dtype() == boolean ? entry.shape().size() : 1;
    if (entry.defined() && dims > 0) {
      first = std::min(first, dim);
      last = dim + dims;
      covered += dims;
    }
    dim += dims;
  }
  const size_t free = x.shape().size() - std::min(covered, x.shape().size());
  return covered > 0 && last - first == covered ? free - std::min(free, first) : free;
}

/// How many places a mask on CUDA must have for these values: the values' size where the mask's places stand, nothing
/// where any number will do.
std::optional<int64_t> mask_count(const Tensor& x, const std::vector<Tensor>& indices, const Operand& values) {
  const auto is_mask = [](const Tensor& entry) { return entry.defined() && entry.dtype() == boolean; };
  if (!core::on_cuda(x) || !values.is_tensor() || std::none_of(indices.begin(), indices.end(), is_mask)) return {};
  const size_t have = values.tensor().shape().size(), behind = dims_behind(x, indices);
  if (have <= behind || values.tensor().shape()[have - 1 - behind] == 1) return {};
  return values.tensor().shape()[have - 1 - behind];
}

}  // namespace

Tensor index_get(const Tensor& x, const std::vector<Tensor>& indices, const IndexOptions& options) {
  const char* op = "index_get";
  check_given(op, {"x", x});
  if (index::is_whole_mask(x, indices)) return masked_select(x, indices[0], options);
  const Plan plan = make_plan(op, x, indices);
  // Several dims of places are walked by one stride; one dim may lie anywhere, as x's order has it.
  core::Output out(op, options.out, plan.shape_for(x.shape()), x.dtype(), x, {&x},
                   {.contiguous = plan.place_shape.size() > 1, .cuda = core::kHasCuda});
  core::StepScope step([&] {
    Step stated = step_of(op, x, {}, indices, out.target());
    stated.reads = std::vector<int64_t>(stated.inputs.size(), -1);
    stated.reads[0] = out.target().numel();
    stated.note = "the indexed dims give way to the index arrays' shape";
    stated.recipe = get_recipe(x, indices);
    return stated;
  });
  if (step.shape_only(out.target())) return out.target();
  read_into(op, plan, x, out.target());
  return out.finish();
}

Tensor index_put(const Tensor& x, const std::vector<Tensor>& indices, const Operand& values,
                 const IndexPutOptions& options) {
  const char* op = "index_put";
  check_given(op, {"x", x});
  Plan plan = make_plan(op, x, indices, true, mask_count(x, indices, values));
  const Tensor from = values_at(op, x, plan.shape_for(x.shape()), values);
  core::Output out(op, options.out, x.shape(), x.dtype(), x, {&x, &from}, {.cuda = core::kHasCuda});
  core::StepScope step([&] {
    return step_of(op, x, from, indices, out.target())
        .with(core::recipe([at = defined_ones(indices), adds = options.accumulate](const auto& in, const auto& outs) {
          index_put(in[0], places_of(at, in), in.back(), {.accumulate = adds, .out = outs[0]});
        }));
  });
  if (step.shape_only(out.target())) return out.target();
  for (Tensor& entries : plan.arrays) entries = index::read_first(entries, core::spans_overlap(entries, out.target()));
  core::copy_into(x, out.target());
  put_into(op, plan, out.target(), from, options.accumulate);
  return out.finish();
}

Tensor index_put_(const Tensor& x, const std::vector<Tensor>& indices, const Operand& values,
                  const IndexPutOptions& options) {
  const char* op = "index_put_";
  check_given(op, {"x", x});
  if (!options.accumulate && index::is_whole_mask(x, indices) && x.device().type != DeviceType::kMeta) {
    const Tensor from = values.is_tensor() ? values.tensor()
                                           : core::scalar_tensor(op, "values", values.scalar(), x.dtype(), x.device());
    core::check_same_device(op, {{"x", x}, {"indices[0]", indices[0]}, {"values", from}});
    core::check_same_dtype(op, {"x", x}, {"values", from});
    core::StepScope step([&] { return put_step(op, x, from, indices, x.numel(), false); });
    index::put_masked(op, x, indices[0], from);
    return x;
  }
  if (x.device().type == DeviceType::kMeta && has_mask(indices)) return put_at_mask(op, x, indices, values, options);
  const Plan plan = make_plan(op, x, indices, true, mask_count(x, indices, values));
  const Tensor from = values_at(op, x, plan.shape_for(x.shape()), values);
  core::check_writable(op, "x", x);
  core::StepScope step([&] {
    return put_step(op, x, from, indices, from.numel(), options.accumulate)
        .with(core::recipe([at = defined_ones(indices), adds = options.accumulate](const auto& in, const auto& outs) {
          index_put_(outs[0], places_of(at, in), in.back(), {.accumulate = adds});
        }));
  });
  if (!step.shape_only(x)) put_into(op, plan, x, from, options.accumulate);
  return x;
}

Tensor assign_(const Tensor& x, const Operand& value) {
  const char* op = "setitem";
  check_given(op, {"x", x});
  Tensor from =
      value.is_tensor() ? value.tensor() : core::scalar_tensor(op, "value", value.scalar(), x.dtype(), x.device());
  core::check_same_device(op, {{"x", x}, {"value", from}});
  check_broadcast(op, "value", from, x.shape());
  core::check_writable(op, "x", x);
  core::StepScope step([&] {
    return Step{op, OpClass::kIndex, {from}, {x}}.with(
        core::recipe([](const auto& in, const auto& outs) { assign_(outs[0], in[0]); }));
  });
  if (step.shape_only(x)) return x;
  from = index::read_first(from, core::spans_overlap(from, x) && !core::same_elements(from, x));
  core::copy_into(from.with_layout(x.shape(), core::broadcast_strides(from, x.shape()), from.offset()), x);
  return x;
}

}  // namespace tenor
