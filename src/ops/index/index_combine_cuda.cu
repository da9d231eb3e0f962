// Adding and otherwise combining at named places on CUDA: entries sorted by place, and each place's entries combined
// one after the other in the index's order, in registers. No atomics, and no scratch copy of the table.
#include "src/core/sizes.h"
#include "src/cuda/convert.cuh"
#include "src/cuda/launch.h"
#include "src/cuda/layout.h"
#include "src/cuda/reduce.cuh"
#include "src/cuda/vector.cuh"
#include "src/ops/index/index_add_rows.cuh"
#include "src/ops/index/index_columns_cuda.h"
#include "src/ops/index/index_entries.cuh"
#include "src/ops/index/index_few_rows.cuh"
#include "src/ops/index/index_lines_cuda.h"
#include "src/ops/index/index_rule.cuh"
#include "src/ops/index/index_sorted.cuh"

namespace tenor::index {

namespace {

using cuda::Grid;
using cuda::launch;
using cuda::Layout;
using cuda::offsets;

constexpr int kThreads = 256;
constexpr int kAhead = 4;  // elements of a place that are loaded before the first is used

/// A sum over its count: integers are floored, floats rounded once.
template <class T, class C>
__device__ T mean_of(C sum, int64_t count) {
  if (count <= 1) return cuda::convert<T>(sum);
  if constexpr (std::is_floating_point_v<C>) {
    return core::cast<T>(static_cast<double>(sum) / static_cast<double>(count));
  } else if constexpr (std::is_unsigned_v<C>) {
    return core::cast<T>(static_cast<uint64_t>(sum) / static_cast<uint64_t>(count));
  } else {
    const auto wide = static_cast<int64_t>(sum);
    return core::cast<T>(wide / count - (wide % count < 0));
  }
}

/// How many of the next kAhead entries, from j on, belong to `key`: they stand first.
__device__ __forceinline__ int run_ahead(const SortedView& entries, int64_t j, uint64_t key) {
  int count = 0;
#pragma unroll
  for (int q = 0; q < kAhead; ++q) count += j + q < entries.count && entries.key(j + q) == key;
  return count;
}

/// One element of the table a thread. Neighbouring threads are neighbouring columns, or neighbouring entries; then a
/// place with more than kAlone entries is taken over by its warp, which loads 32 at a time and still adds in order.
template <class T>
struct Combiner {
  using C = core::Compute<T>;
  SortedView entries;
  Rule<C> rule;
  const T* dense;
  T* table;
  Layout<1> entry;
  Layout<2> columns;
  bool entries_first;

  static constexpr int64_t kAlone = 4 * kAhead;

  __device__ C value(int64_t j, int64_t column) const {
    int64_t from[1];
    offsets(entry, entries.position(j), from);
    return cuda::widen(dense[from[0] + column]);
  }

  /// Entries j and on of a place, at most `limit` of them; j behind them.
  __device__ C alone(C sum, int64_t& j, uint64_t key, int64_t column, int64_t limit) const {
    const int64_t end = j + limit;
    for (int found = kAhead; found == kAhead && j < end; j += found) {
      found = run_ahead(entries, j, key);
      C x[kAhead];
#pragma unroll
      for (int q = 0; q < kAhead; ++q) x[q] = q < found ? value(j + q, column) : C{};
#pragma unroll
      for (int q = 0; q < kAhead; ++q)
        if (q < found) sum = rule(sum, x[q]);
    }
    return sum;
  }

  /// The same by a whole warp whose arguments agree.
  __device__ C together(C sum, int64_t& j, uint64_t key, int64_t column) const {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
    for (bool more = true; more;) {
      const bool mine = j + lane < entries.count && entries.key(j + lane) == key;
      const C x = mine ? value(j + lane, column) : C{};
      const int found = __popc(__ballot_sync(~0u, mine));
      for (int q = 0; q < found; ++q) sum = rule(sum, lane_value(x, q));
      j += found;
      more = found == cuda::kWarp;
    }
    return sum;
  }

  static __device__ C lane_value(C x, int lane) {
    if constexpr (sizeof(C) < 4)
      return static_cast<C>(__shfl_sync(~0u, static_cast<int>(x), lane));
    else
      return __shfl_sync(~0u, x, lane);
  }

  __device__ void store(T* place, C sum, int64_t count) const {
    *place =
        rule.combine == DeviceCombine::kMean ? mean_of<T, C>(sum, count + rule.include_self) : cuda::convert<T>(sum);
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) combine_kernel(const __grid_constant__ Combiner<T> c) {
  using C = core::Compute<T>;
  const int64_t at = blockIdx.x * int64_t{kThreads} + threadIdx.x,
                whole = at / (c.entries_first ? c.entries.count : c.columns.count);
  const int64_t i = c.entries_first ? at - whole * c.entries.count : whole,
                which = c.entries_first ? whole : at - whole * c.columns.count;
  int64_t column[2] = {0, 0}, j = i;  // dense, table
  uint64_t key = c.entries.past_end;
  if (i < c.entries.count && which < c.columns.count) {
    key = c.entries.key(i);
    offsets(c.columns, which, column);
  }
  const bool head = key != c.entries.past_end && c.entries.is_head(i, key);
  T* const place = c.table + static_cast<int64_t>(key) * c.entries.key_stride + column[1];
  C sum{};
  if (head) {
    sum = c.rule.include_self ? cuda::widen(*place) : c.rule.identity;
    sum = c.alone(sum, j, key, column[0], c.entries_first ? Combiner<T>::kAlone : INT64_MAX / 2);
  }
  const bool pending = head && c.entries_first && j - i == Combiner<T>::kAlone;
  for (unsigned waiting = __ballot_sync(~0u, pending); waiting; waiting &= waiting - 1) {
    const int lane = __ffs(static_cast<int>(waiting)) - 1;
    int64_t next = __shfl_sync(~0u, static_cast<long long>(j), lane);
    const C result = c.together(Combiner<T>::lane_value(sum, lane), next,
                                __shfl_sync(~0u, static_cast<unsigned long long>(key), lane),
                                __shfl_sync(~0u, static_cast<long long>(column[0]), lane));
    if (static_cast<int>(threadIdx.x) % cuda::kWarp == lane) {
      sum = result;
      j = next;
    }
  }
  if (head) c.store(place, sum, j - i);
}

unsigned blocks_of(int64_t threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }

/// A combination, whose entries sort() puts in order.
struct Combination {
  const DeviceMove& move;
  SplitMove split;
  SortedView entries;
  Layout<1> entry;
  Layout<2> columns;
  Tensor memory = {};

  explicit Combination(const DeviceMove& m)
      : move(m),
        split(split_move(m)),
        entries(describe_entries(m)),
        entry(cuda::collapse(m.at.op, split.entry_shape, {split.entry_dense}, -1)),
        columns(cuda::collapse(m.at.op, split.column_shape, {split.column_dense, split.column_table}, 1)) {}
  void sort() {
    const SortedEntries sorted = sort_entries(move);
    entries = sorted.view;
    memory = sorted.memory;
  }
};

/// Turns the columns into packs of n elements where both sides allow it.
bool make_packs(Combination& c, int n, size_t item) {
  const auto bytes = static_cast<int64_t>(item);
  bool fits =
      reinterpret_cast<uintptr_t>(c.move.dense) % 16 == 0 && reinterpret_cast<uintptr_t>(c.move.table) % 16 == 0;
  for (int64_t stride : c.split.entry_dense) fits = fits && stride * bytes % 16 == 0;
  fits = fits && (c.split.keys == 1 || c.entries.key_stride * bytes % 16 == 0);
  Layout<2>& columns = c.columns;
  const int last = columns.ndim - 1;
  if (!fits || last < 0 || columns.stride[0][last] != 1 || columns.stride[1][last] != 1 || columns.size[last] % n != 0)
    return false;
  for (int d = 0; d < last; ++d)
    if (columns.stride[0][d] % n != 0 || columns.stride[1][d] % n != 0) return false;
  if (!c.split.by_place) return false;
  cuda::group_innermost(columns, n);
  return true;
}

template <class T>
void add_rows(Combination& c, const Rule<float>& rule) {
  c.sort();
  const int64_t packs = c.columns.count, wanted = core::div_up(packs, kPacksOf<T>);
  RowSlots slots{0, 1, packs};
  while (slots.lanes_log2 < 8 && (int64_t{1} << slots.lanes_log2) < wanted) ++slots.lanes_log2;
  slots.pieces = core::div_up(wanted, int64_t{1} << slots.lanes_log2);
  const Grid grid{blocks_of((c.entries.count * slots.pieces) << slots.lanes_log2), kAddThreads};
  launch(c.move.at.op, add_rows_kernel<T>, grid, c.move.index.device(), c.entries, rule,
         static_cast<const T*>(c.move.dense), static_cast<T*>(c.move.table), c.entry, c.columns, slots);
}

template <class T>
void run(Combination& c, const CombineRule& given) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    const bool adds = given.combine == DeviceCombine::kAdd && given.include_self;
    FewRows few{};
    if (adds && find_few_rows(c.move, sizeof(T), few))
      return launch(c.move.at.op, add_few_kernel<T>, few_rows_grid(few), c.move.index.device(), few,
                    rule_of<float>(given), static_cast<const T*>(c.move.dense), static_cast<T*>(c.move.table));
    if (adds && make_packs(c, cuda::kVector<T>, sizeof(T))) return add_rows<T>(c, rule_of<float>(given));
  }
  c.sort();
  const int last = c.columns.ndim - 1;
  const Combiner<T> combiner{c.entries,
                             rule_of<core::Compute<T>>(given),
                             static_cast<const T*>(c.move.dense),
                             static_cast<T*>(c.move.table),
                             c.entry,
                             c.columns,
                             last < 0 || c.columns.stride[1][last] != 1};
  launch(c.move.at.op, combine_kernel<T>, Grid{blocks_of(c.entries.count * c.columns.count), kThreads},
         c.move.index.device(), combiner);
}

}  // namespace

void combine_on_device(const DeviceMove& m, DType dtype, const CombineRule& rule) {
  const cuda::DeviceGuard guard(m.index.device());
  if (m.size == 0 || product(m.shape) == 0) return look_at_entries(m);
  if (combine_lines_on_device(m, dtype, rule)) return;
  if (combine_columns_on_device(m, dtype, rule)) return;
  Combination c(m);
  core::visit(dtype, [&]<class T>() { run<T>(c, rule); });
}

}  // namespace tenor::index
