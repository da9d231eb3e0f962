#include "src/ops/paged/paged_plan.h"

#include <cstring>

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/output.h"
#include "src/core/step.h"
#include "src/core/visit.h"
#include "src/ops/paged/paged_cuda.h"
#include "tenor/create.h"

namespace tenor::paged {
namespace {

using core::fail;
using State = DevicePlan::State;

int64_t words(const Capacity& c) { return c.sequences * (c.pages_per_sequence + 1) + 2 * c.queries; }

std::shared_ptr<State> make_state(const Tensor& like, const Capacity& size) {
  auto state = std::make_shared<State>();
  state->device = like.device();
  state->size = size;
  state->longest = std::min(kMostKeys, core::count_product(size.pages_per_sequence, size.page_size));
  state->memory = Tensor::empty({words(size)}, int32, like.device());
  if (core::on_cuda(state->memory)) state->turns = zeros({4}, {.dtype = int32, .device = like.device()});
  int64_t at = 0;
  const auto part = [&](const Dims& shape) {
    const Tensor x = state->memory.with_layout(shape, contiguous_strides(shape), at);
    at += product(shape);
    return x;
  };
  state->tables = part({size.sequences, size.pages_per_sequence});
  state->lengths = part({size.sequences});
  state->sequence_ids = part({size.queries});
  state->positions = part({size.queries});
  return state;
}

void check_capacity(const char* name, int64_t have, int64_t most) {
  if (have > most) fail<ValueError>("paged.update_: {} {} exceed the plan's capacity of {}", have, name, most);
}

/// The schedule that int arrays on the CPU write down. @throws DTypeError, ShapeError, ValueError, IndexError
std::vector<int64_t> read_list(const Tensor& x) {
  std::vector<int64_t> values(static_cast<size_t>(x.numel()));
  core::visit_integer(x.dtype(), [&]<class I>() {
    for (int64_t i = 0; i < x.numel(); ++i) {
      const I value = x.data<I>()[i * x.stride(0)];
      values[i] = std::cmp_greater(value, INT64_MAX) ? INT64_MAX : static_cast<int64_t>(value);
    }
  });
  return values;
}

std::vector<std::vector<int64_t>> read_tables(const Tensor& x) {
  std::vector<std::vector<int64_t>> tables;
  for (int64_t s = 0; s < x.shape(0); ++s)
    tables.push_back(read_list(x.with_layout({x.shape(1)}, {x.stride(1)}, x.offset() + s * x.stride(0))));
  return tables;
}

}  // namespace

std::vector<RowRun> runs_of(const HostPlan& host, int64_t least) {
  std::vector<RowRun> runs;
  for (int64_t i = 0, next; i < host.queries(); i = next) {
    const int64_t sequence = host.sequence_ids()[i], position = host.positions()[i];
    for (next = i + 1; next < host.queries() && host.sequence_ids()[next] == sequence &&
                       host.positions()[next] == position + next - i;)
      ++next;
    if (sequence >= 0 && next - i >= least) runs.push_back({i, next - i, sequence, position});
  }
  return runs;
}

DevicePlan DevicePlan::upload(const HostPlan& host, const Tensor& like) {
  core::check_given("paged.DevicePlan.upload", {"like", like});
  const Capacity size{host.page_size(), host.pages(), host.queries(), host.sequences(), host.pages_per_sequence()};
  DevicePlan plan(make_state(like, size));
  plan.update_(host);
  return plan;
}

DevicePlan DevicePlan::reserve(const Tensor& like, const Capacity& c) {
  constexpr const char* kOp = "paged.DevicePlan.reserve";
  core::check_given(kOp, {"like", like});
  if (c.page_size < 1 || c.page_size > kMostKeys)
    fail<ValueError>("{}: page_size is {}, expected 1 to {}", kOp, c.page_size, kMostKeys);
  for (const auto& [name, count] : {std::pair{"pages", c.pages},
                                    {"queries", c.queries},
                                    {"sequences", c.sequences},
                                    {"pages_per_sequence", c.pages_per_sequence}})
    if (count < 0 || count > kMostKeys) fail<ValueError>("{}: {} is {}, expected 0 to {}", kOp, name, count, kMostKeys);
  DevicePlan plan(make_state(like, c));
  plan.update_(HostPlan(c.page_size, c.pages, {}, {}, {}, {}));
  return plan;
}

void DevicePlan::update_(const HostPlan& host) {
  State& plan = *state_;
  if (host.page_size() != plan.size.page_size)
    fail<ValueError>("paged.update_: page_size is {}, but the plan's is {}", host.page_size(), plan.size.page_size);
  if (host.pages() != plan.size.pages)
    fail<ValueError>("paged.update_: pages is {}, but the plan's is {}", host.pages(), plan.size.pages);
  check_capacity("queries", host.queries(), plan.size.queries);
  check_capacity("sequences", host.sequences(), plan.size.sequences);
  check_capacity("pages_per_sequence", host.pages_per_sequence(), plan.size.pages_per_sequence);
  const std::vector<int32_t> fresh = words_of(host, plan.size);
  plan.host = std::make_shared<HostPlan>(host);
  plan.runs = runs_of(host, kPrefillRows);
  if (plan.device.type == DeviceType::kMeta || fresh.empty()) return;
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(plan.memory)) return cuda::paged_write(plan, fresh);
  }
  std::memcpy(plan.memory.raw(), fresh.data(), fresh.size() * sizeof(int32_t));
}

void DevicePlan::update_(const Tensor& tables, const Tensor& lengths, const Tensor& sequence_ids,
                         const Tensor& positions) {
  constexpr const char* kOp = "paged.update_";
  for (const auto& [x, ndim] : {std::pair{core::Named{"tables", tables}, 2},
                                {core::Named{"lengths", lengths}, 1},
                                {core::Named{"sequence_ids", sequence_ids}, 1},
                                {core::Named{"positions", positions}, 1}}) {
    core::check_index_dtype(kOp, x);
    core::check_ndim(kOp, x, ndim);
  }
  if (tables.shape(0) != lengths.shape(0))
    fail<ValueError>("{}: tables holds {} sequences, but lengths {}", kOp, tables.shape(0), lengths.shape(0));
  if (sequence_ids.shape(0) != positions.shape(0))
    fail<ValueError>("{}: sequence_ids has {} rows, but positions {}", kOp, sequence_ids.shape(0), positions.shape(0));
  const Tensor* all[] = {&tables, &lengths, &sequence_ids, &positions};
  if (std::all_of(std::begin(all), std::end(all), [](const Tensor* x) { return x->device().type == DeviceType::kCpu; }))
    return update_(HostPlan(state_->size.page_size, state_->size.pages, read_tables(tables), read_list(lengths),
                            read_list(sequence_ids), read_list(positions)));
  check_capacity("queries", positions.shape(0), state_->size.queries);
  check_capacity("sequences", lengths.shape(0), state_->size.sequences);
  check_capacity("pages_per_sequence", tables.shape(1), state_->size.pages_per_sequence);
  for (const Tensor* x : all)
    if (x->device().type != DeviceType::kCpu && x->device() != state_->device)
      fail<DeviceError>("{}: the plan is on {}, but an array on {}", kOp, state_->device, x->device());
  state_->host = nullptr;
  state_->runs.clear();
  if constexpr (core::kHasCuda) {
    const auto here = [&](const Tensor& x) { return x.to(state_->device); };
    cuda::paged_refill(*state_, here(tables), here(lengths), here(sequence_ids), here(positions));
  }
}

Device DevicePlan::device() const { return state_->device; }
Capacity DevicePlan::capacity() const { return state_->size; }
Tensor DevicePlan::lengths() const { return state_->lengths; }
Tensor DevicePlan::sequence_ids() const { return state_->sequence_ids; }
Tensor DevicePlan::positions() const { return state_->positions; }

}  // namespace tenor::paged
