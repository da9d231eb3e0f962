// What the decode kernel's blocks do, from the schedule: items in the order of rows, splits, heads.
#pragma once

#include "src/cuda/block_scan.cuh"
#include "src/cuda/ptx/mbarrier.cuh"
#include "src/ops/paged/paged_problem.cuh"

namespace tenor::cuda::paged {

inline constexpr int kTileRows = 16;

/// A row of the launch.
struct Row {
  Range seen;
  int sequence;  // -1: padding
  int position;
  Cut cut;
};

/// What an item is: splits of the keys of a tile, rows row .. row + rows - 1 of one sequence and the heads of one key
/// head.
struct Item {
  int row, rows;
  int kv_head, chunk;  // chunk: of 16 heads, where a group has more
  int first;           // number of the tile's first split
  int split, last;     // splits [split, last) of the sequence
  Cut cut;
  int begin, end;  // keys: begin a multiple of a stage's
};

/// Whether a row may share the tile of the row before: the next place of the same sequence.
__device__ __forceinline__ bool follows(const Decode& p, const Row* rows, int row) {
  if (row == 0) return false;
  const Row &a = rows[row - 1], &b = rows[row];
  return b.sequence >= 0 && a.sequence == b.sequence && b.position == a.position + 1 && row % p.rows_of_tile != 0;
}
/// Whether it does.
__device__ __forceinline__ bool continues_tile(const Decode& p, const Row* rows, int row) {
  return follows(p, rows, row) && rows[row - 1].cut == rows[row].cut;
}

/// Of all rows; each warp adds them up for itself.
__device__ __forceinline__ Load load_of_rows(const Decode& p, const Row* rows) {
  if (!p.joins) return {0, 0};
  float keys = 0;
#pragma unroll 1
  for (int row = threadIdx.x & 31; row < p.rows; row += 32)
    if (!follows(p, rows, row)) keys += static_cast<float>(rows[row].seen.end - rows[row].seen.begin);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) keys += __shfl_xor_sync(~0u, keys, step);
  // Whole rows in full rounds, and a quarter of a round or more of short splits.
  const int units = p.kv_heads * p.chunks, blocks = static_cast<int>(gridDim.x), all = p.rows * units;
  const int rounds = all / blocks, rest = all - rounds * blocks;
  const int last = rounds == 0 ? 0 : rounds > 1 && 4 * rest < blocks ? rest + blocks : rest;
  return {static_cast<int>(fminf(ceilf(keys * static_cast<float>(units) / static_cast<float>(blocks)), 1e9f)),
          (last + units - 1) / units};
}

/// Splits [first, last) of a tile.
__device__ __forceinline__ OwnSplits splits_of(const Row& top, const Row& bottom) {
  return own_splits({top.seen.begin, bottom.seen.end}, top.cut.length);
}
/// Those of them before `joined`: one item.
__device__ __forceinline__ int joined_end(const OwnSplits& splits, const Cut& cut) {
  return max(splits.first, min(cut.joined, splits.last));
}

template <class Shared>
__device__ __forceinline__ int items_of(const Decode& p, const Shared& shared) {
  return shared.first_item[0][p.rows] + shared.first_item[1][p.rows];
}
/// Item number `index` of `rows` rows with `units` items a split, `chunks` of them a key head. Items of several
/// splits come first, of all rows, then those of one. A call with its arguments in registers: a block's first
/// item waits for code that comes from memory, the less there is of it the sooner.
template <class Config, class Shared>
__device__ __noinline__ Item item_at(const Shared& shared, int rows, int units, int chunks, int index) {
  const bool joined = index < shared.first_item[0][rows];
  if (!joined) index -= shared.first_item[0][rows];
  const int* first_item = shared.first_item[joined ? 0 : 1];
  int low = 0, high = rows;  // the last row whose first item is at most `index`
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (first_item[middle] <= index ? low : high) = middle;
  }
  Item item;
  item.row = low;
  item.rows = shared.tile_rows[low];
  const Row &top = shared.rows[low], &bottom = shared.rows[low + item.rows - 1];
  const OwnSplits splits = splits_of(top, bottom);
  const int local = index - first_item[low], nth = local / units, unit = local - nth * units;
  item.cut = top.cut;
  item.first = splits.first;
  item.split = joined ? splits.first : joined_end(splits, item.cut) + nth;
  item.last = joined ? joined_end(splits, item.cut) : item.split + 1;
  item.kv_head = unit / chunks;
  item.chunk = unit - item.kv_head * chunks;
  item.begin = max(item.split * item.cut.length, top.seen.begin / Config::kKeys * Config::kKeys);
  item.end = static_cast<int>(min(int64_t{item.last} * item.cut.length, int64_t{bottom.seen.end}));
  return item;
}
template <class Config, class Shared>
__device__ __forceinline__ Item item_at(const Decode& p, const Shared& shared, int index) {
  return item_at<Config>(shared, p.rows, p.kv_heads * p.chunks, p.chunks, index);
}

/// Which items a block takes: blockIdx.x, blockIdx.x + gridDim.x, then the next that no block has, as the leading warp
/// asks for it and tells the others. No bit depends on it; blocks that memory serves faster do more.
inline constexpr int kTurnSlots = 4;
struct TurnSlots {
  int index[kTurnSlots];
  uint64_t full[kTurnSlots], empty[kTurnSlots];
};
__device__ __forceinline__ void init_turns(TurnSlots& slots, int readers) {
  for (int i = 0; i < kTurnSlots; ++i)
    ptx::mbarrier_init(&slots.full[i], 1), ptx::mbarrier_init(&slots.empty[i], readers);
}

/// One warp's view of them.
class Turns {
 public:
  __device__ Turns(const Decode& p, TurnSlots& slots, bool leads) : p_(p), slots_(slots), leads_(leads) {}
  /// The item after the one that the warp is at; called once an item, and late: what is asked for here is no other
  /// block's any more.
  __device__ __forceinline__ int next() {
    const int lane = threadIdx.x & 31, turn = turn_++;
    if (turn == 0) {
      if (leads_) ask();
      return static_cast<int>(blockIdx.x + gridDim.x);
    }
    const int slot = (turn - 1) % kTurnSlots, phase = (turn - 1) / kTurnSlots & 1;
    if (!leads_) {
      ptx::mbarrier_wait(&slots_.full[slot], phase);
      int index = 0;
      if (lane == 0) index = slots_.index[slot], ptx::mbarrier_arrive(&slots_.empty[slot]);  // who reads arrives
      return __shfl_sync(~0u, index, 0);
    }
    const int index = static_cast<int>(2 * gridDim.x) + __shfl_sync(~0u, asked_, 0);
    ptx::mbarrier_wait(&slots_.empty[slot], phase ^ 1);
    if (lane == 0) {
      slots_.index[slot] = index;
      ptx::mbarrier_arrive(&slots_.full[slot]);
    }
    ask();
    return index;
  }
  /// The leading warp's last word: the last block to say it leaves the words as it found them.
  __device__ __forceinline__ void leave() {
    if (!leads_ || (threadIdx.x & 31) != 0) return;
    __threadfence();
    if (atomicAdd(p_.turns + 1, 1) == static_cast<int>(gridDim.x) - 1) p_.turns[0] = p_.turns[1] = 0;
  }

 private:
  /// An item for the turn after next: the answer is not waited for. Behind an addition the assembler shuffles it among
  /// the lanes that it takes to add as well, and there the warp would stand still; so this counts up to a bound.
  __device__ __forceinline__ void ask() {
    if ((threadIdx.x & 31) == 0)
      asm volatile("atom.global.inc.u32 %0, [%1], %2;" : "=r"(asked_) : "l"(p_.turns), "r"(INT32_MAX) : "memory");
  }

  const Decode& p_;
  TurnSlots& slots_;
  bool leads_;
  int turn_ = 0, asked_ = 0;
};

/// Items before a row: of several splits, of one.
struct ItemCount {
  int joined, single;
};
/// Those of the tile that starts at a row, if one does.
template <class Shared>
__device__ __forceinline__ ItemCount count_items(const Decode& p, Shared& shared, int row) {
  int rows = 0;
  if (!continues_tile(p, shared.rows, row))
#pragma unroll 1
    for (rows = 1; row + rows < p.rows && continues_tile(p, shared.rows, row + rows);) ++rows;
  shared.tile_rows[row] = static_cast<unsigned short>(rows);
  if (rows == 0) return {0, 0};
  const OwnSplits splits = splits_of(shared.rows[row], shared.rows[row + rows - 1]);
  const int from = joined_end(splits, shared.rows[row].cut), units = p.kv_heads * p.chunks;
  return {from > splits.first ? units : 0, (splits.last - from) * units};
}

/// Fills rows, tile_rows and first_item: of each row, the items of those before it, of several splits and of one. No
/// loop is unrolled: a block's first item waits for these instructions to come from memory.
template <class Shared>
__device__ void read_schedule(const Decode& p, Shared& shared, int threads) {
#pragma unroll 1
  for (int row = threadIdx.x; row < p.rows; row += threads)
    shared.rows[row] = {visible(p, row), p.ids[row], p.positions[row], {own_keys(p, row), 0}};
  __syncthreads();
  const Load load = load_of_rows(p, shared.rows);
  if (p.joins && threadIdx.x == 0 && blockIdx.x == 0) p.turns[2] = load.share, p.turns[3] = load.last_rows;
#pragma unroll 1
  for (int row = threadIdx.x; row < p.rows; row += threads)
    shared.rows[row].cut = cut_of(p, load, row, shared.rows[row].seen, shared.rows[row].cut.length);
  __syncthreads();
  const int each = (p.rows + threads - 1) / threads, begin = min(p.rows, static_cast<int>(threadIdx.x) * each),
            end = min(p.rows, begin + each);
  int64_t sum = 0;  // both counts, which stay below 2^31 together
#pragma unroll 1
  for (int row = begin; row < end; ++row) {
    shared.first_item[0][row] = static_cast<int>(sum), shared.first_item[1][row] = static_cast<int>(sum >> 32);
    const ItemCount here = count_items(p, shared, row);
    sum += here.joined + (int64_t{here.single} << 32);
  }
  const int64_t last = block_scan(sum, shared.scan), before = last - sum;
  const int joined = static_cast<int>(before), single = static_cast<int>(before >> 32);
#pragma unroll 1
  for (int row = begin; row < end; ++row) shared.first_item[0][row] += joined, shared.first_item[1][row] += single;
  if (static_cast<int>(threadIdx.x) == threads - 1)
    shared.first_item[0][p.rows] = static_cast<int>(last), shared.first_item[1][p.rows] = static_cast<int>(last >> 32);
}

}  // namespace tenor::cuda::paged
