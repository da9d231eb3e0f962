// unique: one sort, then one pass over the places where a new element starts. Integers that lie close together are
// counted instead (unique_bins.h).
#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "src/core/backend.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/core/visit.h"
#include "src/ops/sort/order_check.h"
#include "src/ops/sort/row_order.h"
#include "src/ops/sort/sort_cuda.h"
#include "src/ops/sort/unique_bins.h"
#include "tenor/sort.h"

namespace tenor {
namespace {

using core::fail;
using core::OpClass;
using core::Output;

const core::OpRegistration kOps({
    {"unique", "sort", OpClass::kReduction, "x[*S] -> values[u], inverse_indices[*S], counts[u]"},
});

/// Elements (or slices) in order, and which of them start a group of equals.
struct Groups {
  std::vector<int64_t> order;
  std::unique_ptr<bool[]> starts;
  int64_t count = 0;

  explicit Groups(int64_t n) : order(static_cast<size_t>(n)), starts(new bool[static_cast<size_t>(n)]) {}
  void finish() { count = std::count(starts.get(), starts.get() + order.size(), true); }
};

Groups group_elements(const Tensor& x) {
  Groups groups(x.numel());
  cpu::order_whole(x, cpu::key_code(x.dtype()), groups.order.data(), groups.starts.get());
  groups.finish();
  return groups;
}

/// Slices slices[m, ...] (contiguous) in lexicographic order of their keys.
Groups group_slices(const Tensor& slices) {
  const int64_t m = slices.shape(0), length = m > 0 ? slices.numel() / m : 0;
  const cpu::KeyCode code = cpu::key_code(slices.dtype());
  Groups groups(m);
  core::visit_size(slices.dtype(), [&]<class K>() {
    std::vector<K> keys(static_cast<size_t>(slices.numel()));
    cpu::encode_all(slices.data<K>(), keys.size(), code, keys.data());
    const auto row = [&](int64_t i) { return keys.data() + i * length; };
    std::iota(groups.order.begin(), groups.order.end(), 0);
    std::sort(groups.order.begin(), groups.order.end(), [&](int64_t i, int64_t j) {
      const auto [a, b] = std::mismatch(row(i), row(i) + length, row(j));
      return a == row(i) + length ? i < j : *a < *b;
    });
    for (int64_t p = 0; p < m; ++p) {
      const K* mine = row(groups.order[p]);
      const bool nan =
          code.kind == cpu::KeyKind::kFloat && std::find(mine, mine + length, static_cast<K>(~K(0))) != mine + length;
      groups.starts[p] = p == 0 || nan || !std::equal(mine, mine + length, row(groups.order[p - 1]));
    }
  });
  groups.finish();
  return groups;
}

/// counts and inverse, where they are wanted.
void number_groups(const Groups& groups, int64_t* inverse, int64_t* counts) {
  int64_t group = -1;
  for (size_t p = 0; p < groups.order.size(); ++p) {
    if (groups.starts[p]) ++group;
    if (counts && groups.starts[p]) counts[group] = 0;
    if (counts) ++counts[group];
    if (inverse) inverse[groups.order[p]] = group;
  }
}

/// The first element (or slice of `length` elements) of each group, side by side.
void write_firsts(const Tensor& slices, int64_t length, const Groups& groups, const Tensor& values) {
  const size_t bytes = static_cast<size_t>(length) * item_size(slices.dtype());
  char* to = values.data<char>();
  for (size_t p = 0; p < groups.order.size(); ++p) {
    if (!groups.starts[p]) continue;
    std::memcpy(to, slices.data<char>() + static_cast<size_t>(groups.order[p]) * bytes, bytes);
    to += bytes;
  }
}

/// x with dim first. No step of its own, unlike movedim.
Tensor with_front(const Tensor& x, int dim) {
  Dims shape = x.shape(), strides = x.strides();
  std::rotate(shape.begin(), shape.begin() + dim, shape.begin() + dim + 1);
  std::rotate(strides.begin(), strides.begin() + dim, strides.begin() + dim + 1);
  return x.with_layout(shape, strides, x.offset());
}

/// What is grouped, every element or the slices along dim, and its groups: on the host, or on x's CUDA device.
struct Plan {
  Tensor data;  ///< contiguous; slices lie side by side
  int64_t members, length;
  int dim;
  bool by_slices;
  std::optional<IntegerBins> bins;
  Groups groups{0};
  cuda::Groups on_device = {};
  int64_t count = 0;

  Plan(const Tensor& x, bool slices, int dim_in)
      : data((slices ? with_front(x, dim_in) : x).contiguous()),
        members(slices ? data.shape(0) : data.numel()),
        length(!slices       ? 1
               : members > 0 ? data.numel() / members
                             : 0),
        dim(slices ? dim_in : 0),
        by_slices(slices) {
    if constexpr (core::kHasCuda) {
      if (core::on_cuda(x)) {
        on_device = cuda::group_slices(data, members, length);
        count = on_device.count;
        return;
      }
    }
    if (!slices && (bins = IntegerBins::of(data))) {
      count = bins->count();
      return;
    }
    groups = slices ? group_slices(data) : group_elements(data);
    count = groups.count;
  }
  Dims values_shape(const Tensor& x) const {
    if (!by_slices) return {count};
    Dims shape = x.shape();
    shape[dim] = count;
    return shape;
  }
};

/// The groups' first members side by side, and where wanted the numbers.
void write_groups(const Plan& plan, const Tensor& values, const Tensor& inverse, const Tensor& counts) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(plan.data))
      return cuda::write_groups(plan.data, plan.length, plan.on_device, values, inverse, counts);
  }
  int64_t* places = inverse.defined() ? inverse.data<int64_t>() : nullptr;
  int64_t* sizes = counts.defined() ? counts.data<int64_t>() : nullptr;
  if (plan.bins) return plan.bins->write(plan.data, values, places, sizes);
  write_firsts(plan.data, plan.length, plan.groups, values);
  number_groups(plan.groups, places, sizes);
}

void write_results(const Plan& plan, const Tensor& values, const Tensor& inverse, const Tensor& counts) {
  if (plan.dim == 0 && values.is_contiguous()) return write_groups(plan, values, inverse, counts);
  const Tensor view = with_front(values, plan.dim),
               packed = Tensor::empty(view.shape(), values.dtype(), values.device());
  write_groups(plan, packed, inverse, counts);
  core::copy_into(packed, view);
}

}  // namespace

UniqueResult unique(const Tensor& x, const UniqueOptions& options) {
  core::check_orderable("unique", {"x", x});
  const bool by_slices = options.dim && x.ndim() > 0;
  const int dim = options.dim ? core::normalize_dim("unique", *options.dim, x.ndim()) : 0;
  const UniqueResult& given = options.out;
  if (given.inverse_indices.defined() && !options.return_inverse)
    fail<ValueError>("unique: out.inverse_indices needs return_inverse");
  if (given.counts.defined() && !options.return_counts) fail<ValueError>("unique: out.counts needs return_counts");
  core::check_distinct_outputs("unique", {&given.values, &given.inverse_indices, &given.counts});
  core::check_has_data("unique", {"x", x});

  const Plan plan(x, by_slices, dim);
  std::optional<Output> inverse, counts;
  Output values("unique", given.values, plan.values_shape(x), x.dtype(), x, {&x},
                {.argument = "out.values", .cuda = core::kHasCuda});
  if (options.return_inverse)
    inverse.emplace("unique", given.inverse_indices, by_slices ? Dims{x.shape(dim)} : x.shape(), int64, x,
                    std::initializer_list<const Tensor*>{&x},
                    core::OutputRules{.contiguous = true, .argument = "out.inverse_indices", .cuda = core::kHasCuda});
  if (options.return_counts)
    counts.emplace("unique", given.counts, Dims{plan.count}, int64, x, std::initializer_list<const Tensor*>{&x},
                   core::OutputRules{.contiguous = true, .argument = "out.counts", .cuda = core::kHasCuda});
  core::StepScope step([&] {
    core::Step made{"unique", OpClass::kReduction, {x}, {values.target()}};
    if (inverse) made.outputs.push_back(inverse->target());
    if (counts) made.outputs.push_back(counts->target());
    if (plan.data.raw() != x.raw())
      made.copies.push_back({"x", x.numel() * static_cast<int64_t>(item_size(x.dtype())),
                             "unique reads one row, or slices side by side"});
    return made;
  });
  write_results(plan, values.target(), inverse ? inverse->target() : Tensor(), counts ? counts->target() : Tensor());
  return {values.finish(), inverse ? inverse->finish() : Tensor(), counts ? counts->finish() : Tensor()};
}

}  // namespace tenor
