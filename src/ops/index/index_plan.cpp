#include "src/ops/index/index_plan.h"

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/layout.h"
#include "src/core/untraceable.h"
#include "src/ops/index/index_check.h"
#include "src/ops/index/index_cuda.h"
#include "src/ops/index/index_mask_cuda.h"
#include "tenor/index.h"
#include "tenor/view.h"

namespace tenor::index {
namespace {

using core::fail;

/// Entries as integer arrays or undefined ones, one a dim of x; `resolved` as in Plan.
struct Arrays {
  std::vector<Tensor> list;
  std::vector<bool> resolved;

  void add(const Tensor& entries, bool is_resolved) {
    list.push_back(entries);
    resolved.push_back(is_resolved);
  }
};

/// The true places of a mask on CUDA without asking how many there are: `count` of them, the rest -1.
Tensor padded_places(const char* op, const Tensor& mask, int64_t count) {
  const Tensor places = Tensor::empty({mask.ndim(), count}, int64, mask.device());
  const int64_t none = -1;
  core::backend(mask.device()).fill(places, &none);
  if constexpr (core::kHasCuda) {
    const Tensor starts = device_true_starts(op, mask);
    write_places_on_device(op, mask, starts, places.with_layout({count, mask.ndim()}, {1, count}, 0));
    if (count != mask.numel()) expect_count_on_device({op, "values for a mask"}, starts, count);
  }
  return places;
}

/// Masks as the index arrays of their true places, so that every entry is an integer array or undefined, one a dim.
/// `writes`: on CUDA how many there are is not asked for; `mask_count` places are taken, or without it as many as the
/// mask has elements.
Arrays without_masks(const char* op, const Tensor& x, const std::vector<Tensor>& indices, bool writes,
                     std::optional<int64_t> mask_count) {
  Arrays out;
  size_t covered = 0;
  for (const Tensor& entry : indices) covered += entry.defined() && entry.dtype() == boolean ? entry.ndim() : 1;
  if (covered > x.shape().size())
    fail<IndexError>("{}: too many indices: {} for x of shape {}", op, covered, x.shape());
  for (size_t i = 0; i < indices.size(); ++i) {
    const Tensor& entry = indices[i];
    const std::string name = "indices[" + std::to_string(i) + "]";
    if (entry.defined()) core::check_same_device(op, {{"x", x}, {name.c_str(), entry}});
    if (!entry.defined() || entry.dtype() != boolean) {
      if (entry.defined()) core::check_index_dtype(op, {name.c_str(), entry});
      out.add(entry, false);
      continue;
    }
    for (int d = 0; d < entry.ndim(); ++d)
      if (entry.shape(d) != x.shape()[out.list.size() + d])
        fail<ShapeError>("{}: mask {} has shape {}, which does not fit x of shape {} at dim {}", op, name,
                         entry.shape(), x.shape(), out.list.size() + d);
    if (entry.device().type == DeviceType::kMeta)
      core::fail_untraceable<UnsupportedError>("{}: the size of a boolean read depends on data", op);
    const bool padded = writes && core::on_cuda(entry);
    if (!padded && core::on_cuda(entry)) core::backend(entry.device()).check_may_wait(op, entry.device());
    const Tensor where =
        padded ? padded_places(op, entry, mask_count.value_or(entry.numel())) : transpose(nonzero(entry), 0, 1);
    for (int d = 0; d < entry.ndim(); ++d) out.add(select(where, 0, d), padded);
  }
  out.list.resize(x.shape().size());
  out.resolved.resize(x.shape().size());
  return out;
}

}  // namespace

Plan make_plan(const char* op, const Tensor& x, const std::vector<Tensor>& indices, bool writes,
               std::optional<int64_t> mask_count) {
  const Arrays entries = without_masks(op, x, indices, writes, mask_count);
  const std::vector<Tensor>& arrays = entries.list;
  Plan plan;
  Dims free;
  for (size_t d = 0; d < arrays.size(); ++d)
    (arrays[d].defined() ? plan.indexed : free).push_back(static_cast<int64_t>(d));
  const Dims& indexed = plan.indexed;
  for (int64_t d : indexed) plan.place_shape = core::broadcast_shapes(op, plan.place_shape, arrays[d].shape());
  // Neighbours keep their place, others go to the front.
  const bool adjacent = indexed.empty() || indexed.back() - indexed[0] + 1 == static_cast<int64_t>(indexed.size());
  for (int64_t d : free) (adjacent && !indexed.empty() && d < indexed[0] ? plan.before : plan.after).push_back(d);
  for (int64_t d : indexed) {
    const std::string name = indexed.size() == 1 ? "index" : "index array " + std::to_string(plan.arrays.size());
    const bool meta = x.device().type == DeviceType::kMeta;
    plan.resolved.push_back(entries.resolved[d]);
    plan.arrays.push_back(meta ? arrays[d] : checked_indices(op, name.c_str(), arrays[d], x.shape()[d]));
  }
  return plan;
}

}  // namespace tenor::index
