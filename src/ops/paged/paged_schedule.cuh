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
  int own;       // keys that splits go by
  int sequence;  // -1: padding
};

/// What an item is: splits of the keys of a tile, rows row .. row + rows - 1 of one sequence and the heads of one key
/// head.
struct Item {
  int row, rows;
  int kv_head, chunk;  // chunk: of 16 heads, where a group has more
  int split, length;   // number split of the sequence's, each of `length` keys
  int first;           // number of the tile's first split
  int begin, end;      // stages of keys: begin a multiple of kKeys
};

/// Whether a row belongs to the tile of the row before.
__device__ __forceinline__ bool continues_tile(const Decode& p, const Row* rows, int row) {
  if (row == 0 || row % p.rows_of_tile == 0) return false;
  const Row &a = rows[row - 1], &b = rows[row];
  if (b.sequence < 0 || a.sequence != b.sequence || p.positions[row] != p.positions[row - 1] + 1) return false;
  return length_of_splits(p, a.own) == length_of_splits(p, b.own);
}

/// Splits [first, last) of a tile.
struct Splits {
  int first, last, length;
};
__device__ __forceinline__ Splits splits_of(const Decode& p, const Row& top, const Row& bottom) {
  const int length = length_of_splits(p, top.own);
  if (bottom.seen.end <= top.seen.begin) return {0, 0, length};
  return {top.seen.begin / length, (bottom.seen.end + length - 1) / length, length};
}

template <class Config, class Shared>
__device__ __forceinline__ Item item_at(const Decode& p, const Shared& shared, int index) {
  int low = 0, high = p.rows;  // the last row whose first item is at most `index`
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (shared.first_item[middle] <= index ? low : high) = middle;
  }
  Item item;
  item.row = low;
  item.rows = shared.tile_rows[low];
  const Row &top = shared.rows[low], &bottom = shared.rows[low + item.rows - 1];
  const Splits splits = splits_of(p, top, bottom);
  const int local = index - shared.first_item[low], units = p.kv_heads * p.chunks;
  item.split = splits.first + local / units;
  item.first = splits.first;
  item.length = splits.length;
  const int unit = local % units;
  item.kv_head = unit / p.chunks;
  item.chunk = unit - item.kv_head * p.chunks;
  const int from = item.split * splits.length;
  item.begin = max(from, top.seen.begin / Config::kKeys * Config::kKeys);
  item.end = min(from + splits.length, bottom.seen.end);
  return item;
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
  /// The item after the one that the warp is at; called once an item.
  __device__ __forceinline__ int next() {
    const int lane = threadIdx.x & 31, turn = turn_++;
    if (turn == 0) {
      if (leads_) ask();
      return static_cast<int>(blockIdx.x + gridDim.x);
    }
    const int slot = (turn - 1) % kTurnSlots, phase = (turn - 1) / kTurnSlots & 1;
    if (!leads_) {
      ptx::mbarrier_wait(&slots_.full[slot], phase);
      const int index = slots_.index[slot];
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(&slots_.empty[slot]);
      return index;
    }
    const int index = __shfl_sync(~0u, asked_, 0);
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
  /// An item for the turn after next: the answer is not waited for.
  __device__ __forceinline__ void ask() {
    if ((threadIdx.x & 31) == 0) asked_ = static_cast<int>(2 * gridDim.x) + atomicAdd(p_.turns, 1);
  }

  const Decode& p_;
  TurnSlots& slots_;
  bool leads_;
  int turn_ = 0, asked_ = 0;
};

/// Fills rows, tile_rows and first_item: of each row, the items of those before it.
template <class Shared>
__device__ void read_schedule(const Decode& p, Shared& shared, int threads) {
  for (int row = threadIdx.x; row < p.rows; row += threads)
    shared.rows[row] = {visible(p, row), own_keys(p, row), p.ids[row]};
  __syncthreads();
  const int units = p.kv_heads * p.chunks, each = (p.rows + threads - 1) / threads;
  const int begin = min(p.rows, static_cast<int>(threadIdx.x) * each), end = min(p.rows, begin + each);
  int sum = 0;
  for (int row = begin; row < end; ++row) {
    int rows = 0;
    if (!continues_tile(p, shared.rows, row))
      for (rows = 1; row + rows < p.rows && continues_tile(p, shared.rows, row + rows);) ++rows;
    shared.tile_rows[row] = static_cast<unsigned short>(rows);
    shared.first_item[row] = sum;
    if (rows == 0) continue;
    const Splits splits = splits_of(p, shared.rows[row], shared.rows[row + rows - 1]);
    sum += (splits.last - splits.first) * units;
  }
  const int before = block_scan(sum, shared.scan) - sum;
  for (int row = begin; row < end; ++row) shared.first_item[row] += before;
  if (threadIdx.x == threads - 1) shared.first_item[p.rows] = before + sum;
}

}  // namespace tenor::cuda::paged
