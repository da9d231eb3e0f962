// The experts' products on the CPU, by the contraction block: groups that would keep the threads waiting for one
// another are multiplied by all threads, one after the other; the others side by side, a thread each.
#include <algorithm>
#include <vector>

#include "src/core/modes.h"
#include "src/cpu/parallel.h"
#include "src/ops/contract/contraction.h"
#include "src/ops/moe/moe_kernels.h"
#include "src/ops/moe/moe_plan.h"

namespace tenor::moe {
namespace {

/// Rows that an expert's products are computed for at once: bounds the memory of gate and up.
constexpr int64_t kMostRows = 1024;

/// Group `g`'s matrix of weight [G,N,K] as the right operand [K,N].
Tensor matrix_of(const Tensor& weight, int64_t g) {
  return weight.with_layout({weight.shape(2), weight.shape(1)}, {weight.stride(2), weight.stride(1)},
                            weight.offset() + g * weight.stride(0));
}
Tensor rows_of(const Tensor& x, int64_t first, int64_t count) {
  return x.with_layout({count, x.shape(1)}, x.strides(), x.offset() + first * x.stride(0));
}

struct Group {
  int64_t number, first, last;
  int64_t rows() const { return last - first; }
};

/// fn(group) for the groups that have rows.
template <class F>
void for_each_group(const Tensor& offsets, F&& fn) {
  std::vector<Group> shared, alone;
  const int64_t* at = offsets.data<int64_t>();
  const int64_t groups = offsets.shape(0) - 1, threads = num_threads();
  for (int64_t g = 0; g < groups; ++g) {
    if (at[g] == at[g + 1]) continue;
    const bool large = (at[g + 1] - at[g]) * threads > at[groups];  // more than a thread's share
    (large ? alone : shared).push_back({g, at[g], at[g + 1]});
  }
  if (static_cast<int64_t>(shared.size()) < 2 * threads)
    alone.insert(alone.end(), shared.begin(), shared.end()), shared.clear();
  for (const Group& group : alone) fn(group);
  // The largest first, dealt in turn: the threads end together.
  std::stable_sort(shared.begin(), shared.end(), [](const Group& a, const Group& b) { return a.rows() > b.rows(); });
  cpu::parallel_for(threads, 1, [&](int64_t first, int64_t last) {
    for (int64_t thread = first; thread < last; ++thread)
      for (auto i = static_cast<size_t>(thread); i < shared.size(); i += static_cast<size_t>(threads)) fn(shared[i]);
  });
}

}  // namespace

void experts_cpu(const ExpertRows& p, bool scalar) {
  const int64_t I = p.gate.shape(1);
  const DType wide = compute_dtype(p.x.dtype());
  const bool invariant = core::batch_invariant();
  for_each_group(p.offsets, [&](const Group& group) {
    const BatchInvariantGuard mode(invariant);
    const contract::StrategyGuard strategy(scalar ? "blocked" : "auto");  // one chain an element
    const int64_t most = std::min(kMostRows, group.last - group.first);
    const Tensor gate = Tensor::empty({most, I}, wide), up = Tensor::empty({most, I}, wide),
                 act = Tensor::empty({most, I}, p.x.dtype());
    for (int64_t row = group.first; row < group.last; row += most) {
      const int64_t count = std::min(most, group.last - row);
      const Tensor x = rows_of(p.x, row, count), y = rows_of(p.y, row, count), a = rows_of(act, 0, count);
      contract::run_into(x, matrix_of(p.gate, group.number), rows_of(gate, 0, count), wide);
      contract::run_into(x, matrix_of(p.up, group.number), rows_of(up, 0, count), wide);
      cpu::parallel_for(count, cpu::grain_of(16 * I), [&](int64_t first, int64_t last) {
        const auto at = [&](const Tensor& t) {
          return static_cast<char*>(t.raw()) + first * I * static_cast<int64_t>(item_size(t.dtype()));
        };
        cpu::gated_row(p.x.dtype(), at(gate), at(up), at(act), static_cast<size_t>((last - first) * I));
      });
      contract::run_into(a, matrix_of(p.down, group.number), y, wide);
    }
  });
}

void grouped_matmul_cpu(const GroupedRows& p) {
  const bool invariant = core::batch_invariant();
  for_each_group(p.offsets, [&](const Group& group) {
    const BatchInvariantGuard mode(invariant);
    const int64_t count = group.last - group.first;
    contract::run_into(rows_of(p.x, group.first, count), matrix_of(p.weight, group.number),
                       rows_of(p.y, group.first, count), compute_dtype(p.x.dtype()));
  });
}

}  // namespace tenor::moe
