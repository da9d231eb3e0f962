// From a plan and an operator to launches: how a pass is shared out, by sizes alone (and the bits do not depend on it).
#pragma once

#include <bit>

#include "src/core/sizes.h"
#include "src/core/visit.h"
#include "src/cuda/capability.h"
#include "src/ops/reduce/reduce_columns.cuh"
#include "src/ops/reduce/reduce_line.cuh"
#include "src/ops/reduce/reduce_narrow.cuh"
#include "src/ops/reduce/reduce_rows.cuh"
#include "src/ops/reduce/reduce_tree.cuh"
#include "tenor/tensor.h"

namespace tenor::reduce {

using core::div_up;
using core::log_above;

/// Warps that fill the device once.
inline int64_t warps_wanted(Device device) { return int64_t{32} * cuda::multiprocessors(device); }

/// The least blocks of a row that a warp takes where it could take more: of rows that need one stage, and of longer
/// ones.
struct LeastShare {
  int short_row, long_row;
};
/// Blocks whose loads are in flight together, where what a share ends with costs little, which finding the place of an
/// extreme does not.
template <class T, class Op, int V, Walk W>
inline constexpr LeastShare kLeastShare = kMeetsAtOnce<Op> ? LeastShare{4, kWarp}
                                          : kHasGroups<Op> ? LeastShare{kWarp, kWarp}
                                                           : LeastShare{kBlocksAhead<T, V, W>, kBlocksAhead<T, V, W>};

inline RowGrid row_grid(const Plan& plan, int vector, int64_t elements, LeastShare least) {
  const int64_t count = plan.shape.count, rows = plan.shape.outputs;
  if (count <= int64_t{kWarp / 2} * vector) return {log_above(div_up(count, vector)), 0, 1, 1, false};
  const int64_t blocks = div_up(count, elements);
  int log_each = std::min(log_above(blocks), 5);
  // Rows of one stage in small shares: the last blocks to end leave little idle. More shares make a second stage
  // longer.
  const auto are_fewer = [&](int log, int64_t shares) { return rows * div_up(blocks, int64_t{1} << log) < shares; };
  const int64_t wanted = warps_wanted(plan.device);
  if (blocks <= 64)
    while (log_each > log_above(least.short_row) && are_fewer(log_each, 8 * wanted)) --log_each;
  while (log_each > 0 && are_fewer(log_each, wanted)) --log_each;
  // One thread block a row, without a second stage, as long as that costs a warp few blocks.
  if (blocks <= 64) log_each = std::max(log_each, log_above(div_up(blocks, kWarps)));
  // Of longer rows as well: as many partial results as the second stage takes in one go.
  while (blocks > 64 && log_each > log_above(least.long_row) &&
         rows * div_up(blocks, int64_t{kWarps} << (log_each - 1)) <= kPartialsAtOnce * kPartialRowThreads)
    --log_each;
  const int64_t units = div_up(blocks, int64_t{1} << log_each);
  const int log_sharing = std::min(log_above(units), log_above(kWarps));
  const int64_t splits = div_up(units, int64_t{1} << log_sharing);
  return {log_above(kWarp), log_sharing, 1 << log_each, static_cast<int>(splits), splits > UINT16_MAX};
}

template <bool kOrdered>
ColumnGrid column_grid(const Plan& plan, int vector, int step) {
  const int64_t columns = div_up(plan.shape.outputs, vector), leaves = column_leaves<kOrdered>(plan.shape.count);
  const int64_t blocks_wanted = warps_wanted(plan.device) / kWarps;
  // Narrow tensors turn threads from across to down, short columns from down to across.
  int log_across = std::min(log_above(columns), log_above(kWarp));
  while (log_across < log_above(kThreads) && int64_t{1} << log_across < columns &&
         ((kThreads >> log_across) * step > leaves || columns >> log_across >= 8 * blocks_wanted))
    ++log_across;
  const int64_t down = kThreads >> log_across, tiles = div_up(columns, int64_t{1} << log_across);
  int log_each = std::clamp(log_above(div_up(leaves, down)), log_above(step), log_above(step * kSteps));
  while (log_each > log_above(2 * step) && tiles * div_up(leaves, down << log_each) < 2 * blocks_wanted) --log_each;
  const int64_t splits = std::max<int64_t>(div_up(leaves, down << log_each), 1);
  return {log_across, 1 << log_each, static_cast<int>(splits), splits > UINT16_MAX};
}

/// Blocks over x, or over y and x.
inline dim3 grid_of(const Plan& plan, int64_t blocks, int64_t splits, bool swapped) {
  if (std::max(blocks, splits) > INT32_MAX || (swapped ? blocks : splits) > UINT16_MAX)
    throw UnsupportedError(std::string(plan.op) + ": x has more outputs than a launch can hold");
  const auto x = static_cast<unsigned>(blocks), y = static_cast<unsigned>(splits);
  return swapped ? dim3(y, x) : dim3(x, y);
}

/// Memory for what several blocks leave of each output.
template <class Op>
Tensor partials_of(const Plan& plan, int64_t splits) {
  return splits > 1
             ? Tensor::empty({splits * plan.shape.outputs * static_cast<int64_t>(sizeof(typename Op::Core::Acc))},
                             uint8, plan.device)
             : Tensor();
}

/// The second stage. Its launch overlaps the end of the first, for whose results it waits (programmatic dependent
/// launch).
template <class Core>
void meet(const Plan& plan, const Core& core, int splits, const Result& result) {
  if (plan.shape.outputs <= kWarp && splits > 8 * kPartialsAtOnce && splits <= kMostOfRow * kPartialRowThreads) {
    const cuda::Grid grid{
        .blocks = dim3(static_cast<unsigned>(plan.shape.outputs)), .threads = kPartialRowThreads, .early = true};
    const int each = 1 << log_above(div_up(splits, kPartialRowThreads));
    return cuda::launch(plan.op, partial_row_kernel<Core>, grid, plan.device, core, plan.shape, each, splits, result);
  }
  // About eight partial results a thread, as long as neighbouring threads share sectors.
  const int log_across = std::min(log_above(plan.shape.outputs),
                                  std::max(log_above(kThreads) - log_above(div_up(splits, kPartialsAtOnce)), 3));
  const int each = 1 << log_above(div_up(splits, kThreads >> log_across));
  const cuda::Grid grid{.blocks = grid_of(plan, div_up(plan.shape.outputs, 1 << log_across), 1, false),
                        .threads = kThreads,
                        .early = true};
  cuda::launch(plan.op, partial_kernel<Core>, grid, plan.device, core, plan.shape, log_across, each, splits, result);
}

template <int V, Walk W, class T, class Op>
void reduce_rows(const Plan& plan, const Op& op, Result result) {
  const RowGrid grid = row_grid(plan, V, int64_t{kWarp} * kSlots<V> * kChain, kLeastShare<T, Op, V, W>);
  const Tensor partials = partials_of<Op>(plan, grid.splits);
  if (grid.splits > 1) result.partials = partials.raw();
  const int64_t blocks = div_up(plan.shape.outputs, kThreads >> (grid.log_lanes + grid.log_sharing));
  cuda::launch(plan.op, row_kernel<T, Op, V, W>, {grid_of(plan, blocks, grid.splits, grid.swapped), kThreads},
               plan.device, static_cast<const T*>(plan.x), op, plan.shape, grid, result);
  if (grid.splits > 1) meet(plan, op.core, grid.splits, result);
}

/// One dense row of whole shares, of which every multiprocessor has one.
template <class T>
bool is_line(const Plan& plan) {
  constexpr int64_t kShare = kLineBlocks<T> * cuda::kOrderBlock;
  const int64_t shares = plan.shape.count / kShare;
  return plan.shape.outputs == 1 && plan.shape.count % kShare == 0 && shares >= cuda::multiprocessors(plan.device) &&
         shares <= INT32_MAX;
}
template <class T, class Op>
void reduce_line(const Plan& plan, const Op& op, Result result) {
  using A = typename Op::Core::Acc;
  const int64_t blocks = plan.shape.count / (kLineBlocks<T> * cuda::kOrderBlock);
  const Tensor partials = Tensor::empty({blocks * static_cast<int64_t>(sizeof(A))}, uint8, plan.device);
  result.partials = partials.raw();
  const cuda::ZeroedCounter ended(plan.device, plan.op);
  const int each = 1 << log_above(div_up(blocks, kLineThreads));
  cuda::launch(plan.op, line_kernel<T, Op>, {dim3(static_cast<unsigned>(blocks)), kLineThreads}, plan.device,
               static_cast<const T*>(plan.x), op, result, each, ended.get());
}

template <int V, Walk W, bool kShort, class T, class Op>
void reduce_columns(const Plan& plan, const Op& op, Result result) {
  const ColumnGrid grid = column_grid<Op::Core::kOrdered>(plan, V, kLeaves<kShort>);
  const Tensor partials = partials_of<Op>(plan, grid.splits);
  if (grid.splits > 1) result.partials = partials.raw();
  const int64_t tiles = div_up(plan.shape.outputs, int64_t{V} << grid.log_across);
  cuda::launch(plan.op, column_kernel<T, Op, V, W, kShort>, {grid_of(plan, tiles, grid.splits, grid.swapped), kThreads},
               plan.device, static_cast<const T*>(plan.x), op, plan.shape, grid, result);
  if (grid.splits > 1) meet(plan, op.core, grid.splits, result);
}

/// Columns of a vector: fewer where the accumulators of a block would not fit shared memory, or a thread's not its
/// registers.
template <class T, class Op, bool kShort>
inline constexpr int kColumnVector =
    std::min<int>({cuda::kVector<T>, Op::Core::kOrdered && !(kShort && kIsPlain<T, Op>) ? 4 : 8,
                   static_cast<int>(std::bit_floor(64 / sizeof(typename Op::Core::Acc)))});

inline NarrowGrid narrow_grid(const Plan& plan, int vector) {
  constexpr int64_t kStage = 16 << 10;  // bytes of a stage, where the least number of rows does not take more
  const int64_t columns = plan.shape.outputs, leaves = column_leaves<true>(plan.shape.count);
  NarrowGrid grid{std::min(log_above(columns), log_above(kThreads)), vector, 1, 0, 0, 1};
  const int64_t threads = int64_t{1} << grid.log_threads, groups = kThreads >> grid.log_threads;
  const int64_t row = columns * (cuda::kVectorBytes / vector);
  while (groups * kChain * 2 * grid.rows * row <= kStage && grid.rows < cuda::kOrderLanes) grid.rows *= 2;
  grid.piece = static_cast<int>(grid.rows * row);
  // Groups stand in shared memory so that a warp's threads meet no bank twice.
  constexpr int64_t kBanks = 128;  // bytes
  const int64_t own = kChain * grid.piece, wanted = std::max<int64_t>(threads * (cuda::kVectorBytes / vector), 16);
  grid.pitch = static_cast<int>(own + (wanted - own % kBanks + kBanks) % kBanks);
  // Of many columns the partial results are worth fewer blocks.
  const int64_t step = groups * grid.rows,
                blocks_wanted = warps_wanted(plan.device) / kWarps / (columns > kThreads ? 2 : 1);
  while (grid.rounds * grid.rows < vector << (kNarrowLevels - 1) &&
         div_up(leaves, 2 * step * grid.rounds) >= blocks_wanted)
    grid.rounds *= 2;
  grid.splits = static_cast<int>(std::max<int64_t>(div_up(leaves, step * grid.rounds), 1));
  return grid;
}
/// Bytes of the ring.
inline size_t narrow_ring(const NarrowGrid& grid) {
  return static_cast<size_t>(kNarrowStages) * (kThreads >> grid.log_threads) * static_cast<size_t>(grid.pitch);
}
/// Whether the columns make a dense matrix that is narrow, or whose rows are no whole vectors, and
/// whose ring the device has room for.
inline bool is_narrow(const Plan& plan, int vector) {
  const Shape& s = plan.shape;
  if (plan.walk != Walk::kStride || s.kept.ndim != 1 || s.kept.stride[0][0] != 1) return false;
  if (s.reduced.ndim != 1 || s.reduced.stride[0][0] != s.outputs || !cuda::is_aligned(plan.x, 0, 1)) return false;
  if (s.outputs > kNarrowColumns * kThreads || (plan.vectors && s.outputs >= 8 * vector)) return false;
  return narrow_ring(narrow_grid(plan, vector)) <= cuda::capability(plan.device).shared;
}
template <int K, class T, class Op>
void reduce_narrow(const Plan& plan, const Op& op, Result result) {
  const NarrowGrid grid = narrow_grid(plan, cuda::kVector<T>);
  const Tensor partials = partials_of<Op>(plan, grid.splits);
  if (grid.splits > 1) result.partials = partials.raw();
  const size_t shared = std::max(narrow_ring(grid), size_t{kThreads} * sizeof(typename Op::Core::Acc));
  cuda::launch(plan.op, narrow_kernel<T, Op, K>, {dim3(static_cast<unsigned>(grid.splits)), kThreads, shared},
               plan.device, static_cast<const T*>(plan.x), op, plan.shape, grid, result);
  if (grid.splits > 1) meet(plan, op.core, grid.splits, result);
}

/// Where threads take `leaves` leaves each.
inline ColumnGrid tree_grid(const Plan& plan, int vector, int leaves) {
  constexpr int kLogAcross = 4;  // threads
  const int64_t columns = div_up(plan.shape.outputs, vector), all = column_leaves<true>(plan.shape.count);
  int log_across = std::min(log_above(columns), kLogAcross);
  while (log_across < log_above(kThreads) && int64_t{1} << log_across < columns &&
         (kThreads >> log_across) * leaves > all)
    ++log_across;
  const int64_t splits = div_up(all, int64_t{kThreads >> log_across} * leaves);
  return {log_across, leaves, static_cast<int>(splits), splits > UINT16_MAX};
}
/// Operators whose columns a thread folds as a subtree.
template <class T, class Op>
inline constexpr bool kIsTree = kIsPlain<T, Op> || kHasLevels<typename Op::Core>;
template <class T, class Op>
void reduce_tree(const Plan& plan, const Op& op, Result result) {
  // As many leaves as registers hold the subtrees of.
  constexpr int V = cuda::kVector<T>, kMany = V * sizeof(typename Op::Core::Acc) > 64 ? kTreeFew : kTreeMany;
  ColumnGrid grid = tree_grid(plan, V, kMany);
  const auto tiles = [&] { return div_up(plan.shape.outputs, int64_t{V} << grid.log_across); };
  const bool many = tiles() * grid.splits * kWarps >= warps_wanted(plan.device) / 4;
  if (!many) grid = tree_grid(plan, V, kTreeFew);
  const Tensor partials = partials_of<Op>(plan, grid.splits);
  if (grid.splits > 1) result.partials = partials.raw();
  cuda::launch(plan.op, many ? tree_kernel<T, Op, V, kMany> : tree_kernel<T, Op, V, kTreeFew>,
               {grid_of(plan, tiles(), grid.splits, grid.swapped), kThreads}, plan.device,
               static_cast<const T*>(plan.x), op, plan.shape, grid, result);
  if (grid.splits > 1) meet(plan, op.core, grid.splits, result);
}

/// The one table of kernels of an operator.
template <class T, class Op>
void reduce_with(const Plan& plan, const Op& op, const Result& result) {
  const cuda::DeviceGuard guard(plan.device);
  constexpr int kRow = cuda::kVector<T>;
  const bool brief = plan.shape.count <= cuda::kOrderLanes;
  if constexpr (kIsPlain<T, Op> && sizeof(T) <= 4 && sizeof(typename Op::Core::Acc) == 4)
    if (plan.by_rows && plan.walk == Walk::kRun && is_line<T>(plan)) return reduce_line<T>(plan, op, result);
  if (plan.by_rows) {
    switch (plan.walk) {
      case Walk::kRun:
        return reduce_rows<kRow, Walk::kRun, T>(plan, op, result);
      case Walk::kShift:
        return reduce_rows<kRow, Walk::kShift, T>(plan, op, result);
      case Walk::kPlane:
        return reduce_rows<kRow, Walk::kPlane, T>(plan, op, result);
      case Walk::kStride:
        return reduce_rows<1, Walk::kStride, T>(plan, op, result);
      case Walk::kAny:
        return reduce_rows<1, Walk::kAny, T>(plan, op, result);
    }
  }
  if (plan.walk == Walk::kAny) return reduce_columns<1, Walk::kAny, false, T>(plan, op, result);
  if constexpr (kIsPlain<T, Op>) {
    if (!brief && is_narrow(plan, kRow))
      return plan.shape.outputs <= kThreads ? reduce_narrow<1, T>(plan, op, result)
                                            : reduce_narrow<kNarrowColumns, T>(plan, op, result);
  }
  if constexpr (kIsTree<T, Op>)
    if (!brief && plan.vectors && plan.shape.reduced.ndim == 1) return reduce_tree<T>(plan, op, result);
  if (!plan.vectors)
    return brief ? reduce_columns<1, Walk::kStride, true, T>(plan, op, result)
                 : reduce_columns<1, Walk::kStride, false, T>(plan, op, result);
  if (brief) return reduce_columns<kColumnVector<T, Op, true>, Walk::kStride, true, T>(plan, op, result);
  if constexpr (!kIsTree<T, Op>) reduce_columns<kColumnVector<T, Op, false>, Walk::kStride, false, T>(plan, op, result);
}

}  // namespace tenor::reduce
