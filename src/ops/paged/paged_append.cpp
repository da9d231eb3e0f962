// append and copy_pages: the cache's writers.
#include <unordered_map>
#include <unordered_set>

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/cuda/fill.h"
#include "src/ops/paged/paged_cuda.h"
#include "src/ops/paged/paged_plan.h"
#include "tenor/index.h"

namespace tenor::paged {
namespace {

using core::fail;
using core::Named;
using core::OpClass;
using core::Step;

const core::OpRegistration kOps({
    {"paged.append", "paged", OpClass::kIndex,
     "plan, k[N,Hkv,D], v[N,Hkv,Dv], key_cache, value_cache -> the caches with each row at its (sequence, position)"},
    {"paged.copy_pages", "paged", OpClass::kIndex,
     "cache[pages,...], src, dst -> the cache with cache[dst] = cache[src]"},
});

void check_rows(const char* op, Named rows, Named cache, const Capacity& size) {
  core::check_ndim(op, cache, 4);
  core::check_shape(op, cache, {size.pages, size.page_size, cache.tensor.shape(2), cache.tensor.shape(3)});
  core::check_float(op, cache);
  core::check_same_dtype(op, cache, rows);
  core::check_shape(op, rows, {size.queries, cache.tensor.shape(2), cache.tensor.shape(3)});
}

/// Where each row goes: page * page_size + slot, -1 for padding. @throws IndexError, ValueError
std::vector<int64_t> slots_of(const char* op, const HostPlan& host) {
  std::vector<int64_t> slots;
  std::unordered_map<int64_t, int64_t> taken;
  for (int64_t i = 0; i < host.queries(); ++i) {
    const int64_t s = host.sequence_ids()[i], at = host.positions()[i], size = host.page_size();
    if (s >= 0 && at >= host.lengths()[s])
      fail<IndexError>("{}: positions[{}] is {}, but sequence {} has {} keys", op, i, at, s, host.lengths()[s]);
    slots.push_back(s < 0 ? -1 : host.tables()[s][at / size] * size + at % size);
    if (s < 0) continue;
    const auto [first, fresh] = taken.try_emplace(slots.back(), i);
    if (!fresh)
      fail<ValueError>("{}: rows {} and {} go to the same slot {} of page {}", op, first->second, i,
                       slots.back() % size, slots.back() / size);
  }
  return slots;
}

void write_rows(const std::vector<int64_t>& slots, const Tensor& rows, const Tensor& cache) {
  const int64_t size = cache.shape(1);
  const Dims row{cache.shape(2), cache.shape(3)};
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] < 0) continue;
    const int64_t to = cache.offset() + slots[i] / size * cache.stride(0) + slots[i] % size * cache.stride(1);
    core::copy_into(rows.with_layout(row, {rows.stride(1), rows.stride(2)},
                                     rows.offset() + static_cast<int64_t>(i) * rows.stride(0)),
                    cache.with_layout(row, {cache.stride(2), cache.stride(3)}, to));
  }
}

/// x, copied where it shares memory with what will be written.
Tensor apart_from(const Tensor& x, const Tensor& a, const Tensor& b) {
  return core::spans_overlap(x, a) || core::spans_overlap(x, b) ? x.clone() : x;
}

void check_pages(const char* op, const char* name, const std::vector<int64_t>& list, int64_t pages) {
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i] < 0 || list[i] >= pages)
      fail<IndexError>("{}: {}[{}] is page {}, expected 0 to {}", op, name, i, list[i], pages - 1);
}

/// The list is part of the call: a graph that captures the call replays these pages.
Tensor on_device(const std::vector<int64_t>& list, Device device) {
  if constexpr (core::kHasCuda) {
    if (device.type == DeviceType::kCuda) return cuda::list_on(device, list);
  }
  const Tensor x = Tensor::empty({static_cast<int64_t>(list.size())}, int64);
  std::copy(list.begin(), list.end(), x.data<int64_t>());
  return x;
}

}  // namespace

std::shared_ptr<const core::Recipe> append_recipe(const DevicePlan& plan) {
  if (!core::current_tracer) return nullptr;
  return core::recipe([plan](const auto& in, const auto& outs) { plan.append_(in[0], in[1], outs[0], outs[1]); });
}

Caches append_to(const DevicePlan::State& plan, const char* op, const Tensor& k, const Tensor& v,
                 const Tensor& key_cache, const Tensor& value_cache, bool copy_key, bool copy_value,
                 const std::shared_ptr<const core::Recipe>& again) {
  check_rows(op, {"k", k}, {"key_cache", key_cache}, plan.size);
  check_rows(op, {"v", v}, {"value_cache", value_cache}, plan.size);
  core::check_same_dtype(op, {"key_cache", key_cache}, {"value_cache", value_cache});
  if (key_cache.shape(2) != value_cache.shape(2))
    fail<ShapeError>("{}: value_cache must have key_cache's {} heads, got {}", op, key_cache.shape(2),
                     value_cache.shape(2));
  core::check_same_device(op, {{"k", k}, {"v", v}, {"key_cache", key_cache}, {"value_cache", value_cache}});
  if (!core::StepScope::shape_only(k) && plan.device != k.device())
    fail<DeviceError>("{}: the plan is on {}, but k on {}", op, plan.device, k.device());
  if (!copy_key) core::check_writable(op, "key_cache", key_cache);
  if (!copy_value) core::check_writable(op, "value_cache", value_cache);
  if (!copy_key && !copy_value) core::check_distinct_outputs(op, {&key_cache, &value_cache});
  std::vector<int64_t> slots;
  if (plan.host) slots = slots_of(op, *plan.host);
  core::StepScope step([&] {
    Step s{op, OpClass::kIndex, {k, v}, {key_cache, value_cache}};
    s.writes = {k.numel(), v.numel()};
    if (!copy_key && !copy_value) s.recipe = again;
    return s;
  });
  if (step.shape_only(key_cache)) return {key_cache, value_cache};
  const Tensor rows_k = apart_from(k, key_cache, value_cache), rows_v = apart_from(v, key_cache, value_cache);
  const Caches caches{copy_key ? key_cache.clone() : key_cache, copy_value ? value_cache.clone() : value_cache};
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(k)) {
      cuda::paged_append(plan, rows_k, rows_v, caches.key, caches.value);
      return caches;
    }
  }
  write_rows(slots, rows_k, caches.key);
  write_rows(slots, rows_v, caches.value);
  return caches;
}

Caches DevicePlan::append(const Tensor& k, const Tensor& v, const Tensor& key_cache, const Tensor& value_cache) const {
  core::check_given("paged.append", {"key_cache", key_cache});
  core::check_given("paged.append", {"value_cache", value_cache});
  return append_to(*state_, "paged.append", k, v, key_cache, value_cache, is_shared(key_cache, 1),
                   is_shared(value_cache, 1));
}

void DevicePlan::append_(const Tensor& k, const Tensor& v, const Tensor& key_cache, const Tensor& value_cache) const {
  append_to(*state_, "paged.append_", k, v, key_cache, value_cache, false, false, append_recipe(*this));
}

Tensor copy_pages_of(const char* op, const Tensor& cache, const std::vector<int64_t>& src,
                     const std::vector<int64_t>& dst, bool copy) {
  core::check_given(op, {"cache", cache});
  if (cache.ndim() < 1) fail<ShapeError>("{}: cache must have at least 1 dim, got a 0-d array", op);
  if (src.size() != dst.size()) fail<ValueError>("{}: src has {} pages, but dst {}", op, src.size(), dst.size());
  check_pages(op, "src", src, cache.shape(0));
  check_pages(op, "dst", dst, cache.shape(0));
  std::unordered_set<int64_t> seen;
  for (int64_t page : dst)
    if (!seen.insert(page).second) fail<ValueError>("{}: dst has page {} twice", op, page);
  if (!copy) core::check_writable(op, "cache", cache);
  core::StepScope step([&] {
    const int64_t moved = cache.shape(0) == 0 ? 0 : cache.numel() / cache.shape(0) * static_cast<int64_t>(src.size());
    Step s{op, OpClass::kIndex, {cache}, {cache}};
    s.reads = {moved}, s.writes = {moved};
    return s;
  });
  if (step.shape_only(cache)) return cache;
  const Tensor target = copy ? cache.clone() : cache;
  if (src.empty()) return target;
  const Tensor pages = index_select(target, 0, on_device(src, cache.device()));
  index_put_(target, {on_device(dst, cache.device())}, pages);
  return target;
}

Tensor copy_pages(const Tensor& cache, const std::vector<int64_t>& src, const std::vector<int64_t>& dst) {
  core::check_given("paged.copy_pages", {"cache", cache});
  return copy_pages_of("paged.copy_pages", cache, src, dst, is_shared(cache, 1));
}

void copy_pages_(const Tensor& cache, const std::vector<int64_t>& src, const std::vector<int64_t>& dst) {
  copy_pages_of("paged.copy_pages_", cache, src, dst, false);
}

}  // namespace tenor::paged
