// What the decode kernel's blocks do, from the schedule: items in the order of rows, splits, heads.
#pragma once

#include "src/cuda/block_scan.cuh"
#include "src/ops/paged/paged_problem.cuh"

namespace tenor::cuda::paged {

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
  int begin, end;      // stages of keys: begin a multiple of kKeys
};

/// Whether a row belongs to the tile of the row before.
__device__ __forceinline__ bool continues_tile(const Decode& p, const Row* rows, int row) {
  if (row == 0 || row % p.rows_of_tile == 0) return false;
  const Row &a = rows[row - 1], &b = rows[row];
  if (b.sequence < 0 || a.sequence != b.sequence || p.positions[row] != p.positions[row - 1] + 1) return false;
  return split_length(a.own, p.asked) == split_length(b.own, p.asked);
}

/// Splits [first, last) of a tile.
struct Splits {
  int first, last, length;
};
__device__ __forceinline__ Splits splits_of(const Decode& p, const Row& top, const Row& bottom) {
  const int length = split_length(top.own, p.asked);
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
  item.length = splits.length;
  const int unit = local % units;
  item.kv_head = unit / p.chunks;
  item.chunk = unit - item.kv_head * p.chunks;
  const int from = item.split * splits.length;
  item.begin = max(from, top.seen.begin / Config::kKeys * Config::kKeys);
  item.end = min(from + splits.length, bottom.seen.end);
  return item;
}

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
