// Pooling of images whose rows lie together. A block has R rows of targets: first the rows of sources that each reads
// are combined into one, in vectors as they lie in memory; that row waits in shared memory, where each target then
// reads its window of it. So a source is fetched in whole vectors, whatever the window, and a window of K x K costs 2
// K. Of tall windows and bins all rows' loads of a thread are under way at once (`Deep`).
#pragma once

#include "src/cuda/launch.h"
#include "src/ops/pool/pool_device.cuh"
#include "src/ops/pool/pool_fast.cuh"

namespace tenor::cuda {

inline constexpr int kRowsThreads = 256;
inline constexpr int kDeepRows = 12;  ///< under way at once
inline constexpr int kWorthDeep = 6;  ///< rows of a window

struct RowsPlan {
  FastGather g;
  int rows;                                                      ///< of targets, a block
  int tile;                                                      ///< targets of a row, a block
  int pitch;                                                     ///< elements of a combined row in shared memory
  uint32_t count;                                                ///< rows of targets in all
  Divider tiles, heights, depths, channels, by_tile, by_chunks;  ///< the last two of whole tiles
};

/// What a block knows of each of its rows.
struct BlockRow {
  int64_t source, target;  ///< the plane's and the row's first element
  int64_t divisor;         ///< of the outer dims
  int d_first, d_last, d_step, h_first, h_last, h_step;
};
/// What it knows of each of its columns: the sources that a target reads, from the combined row's first.
struct BlockColumn {
  int first, last, count;
};

template <bool Back>
__device__ __forceinline__ BlockRow block_row(const RowsPlan& p, uint32_t row) {
  const FastGather& g = p.g;
  if (row >= p.count) return {0, -1, 1, 0, 0, 1, 0, 0, 1};
  const uint32_t depth = divide(row, p.heights), plane = divide(depth, p.depths), n = divide(plane, p.channels);
  const int th = static_cast<int>(row - depth * p.heights.divisor),
            td = static_cast<int>(depth - plane * p.depths.divisor);
  const int64_t c = plane - n * p.channels.divisor;
  const FastRange dr = g.dim[0].template reach<Back>(td), hr = g.dim[1].template reach<Back>(th);
  BlockRow out;
  out.source = n * g.source.stride[0] + c * g.source.stride[1];
  out.target = g.target.at(n, c, td, th, 0);
  out.divisor = Back || g.uniform != 0 ? 1 : g.count(0, td) * g.count(1, th);
  out.d_first = dr.first, out.d_last = dr.last, out.d_step = dr.step;
  out.h_first = hr.first, out.h_last = hr.last, out.h_step = hr.step;
  return out;
}

/// Sources [first, last) that targets t0 .. t1 - 1 reach.
template <bool Back>
__device__ __forceinline__ FastRange tile_reach(const FastDim& dim, int t0, int t1) {
  if (Back || dim.bins) return {dim.reach<Back>(t0).first, dim.reach<Back>(t1 - 1).last, 1};
  const int first = t0 * dim.stride - dim.before, last = (t1 - 1) * dim.stride - dim.before + dim.span;
  return {max(first, 0), min(last, dim.input), 1};
}

/// A block's part of the problem.
struct BlockTile {
  uint32_t group;      ///< rows group * RowsPlan::rows and on
  int first, targets;  ///< of its rows' targets
  int origin, chunks;  ///< the first source, a multiple of V, and the vectors from there
};
template <int V, bool Back>
__device__ __forceinline__ BlockTile block_tile(const RowsPlan& p) {
  const FastDim& along = p.g.dim[2];
  BlockTile out;
  out.group = divide(blockIdx.x, p.tiles);
  out.first = static_cast<int>(blockIdx.x - out.group * p.tiles.divisor) * p.tile;
  out.targets = min(p.tile, static_cast<int>(p.g.target.size[4]) - out.first);
  const FastRange sources = tile_reach<Back>(along, out.first, out.first + out.targets);
  out.origin = sources.first / V * V;
  out.chunks = (sources.last - out.origin + V - 1) / V;
  return out;
}
/// i / n, by a product where n is what `by` divides by.
__device__ __forceinline__ int quotient(int i, int n, const Divider& by) {
  return static_cast<uint32_t>(n) == by.divisor ? static_cast<int>(divide(static_cast<uint32_t>(i), by)) : i / n;
}

/// Where element w of a combined row waits: pieces of V one apart, so that windows V or 2 V apart lie in different
/// banks.
template <int V, bool Deep>
__device__ __forceinline__ int waiting_place(int w) {
  return Deep ? w + w / V : w;
}

/// Forwards, kDeepRows rows at once.
template <class Op, class T, int V>
__device__ __forceinline__ Pack<typename Op::Held, V> combine_deep(const T* at, const FastGather& g,
                                                                   const BlockRow& row) {
  auto acc = identity_pack<Op, V>();
  for (int d = row.d_first; d < row.d_last; d += row.d_step) {
    const T* plane = at + d * g.source.stride[2];
    for (int h = row.h_first; h < row.h_last; h += kDeepRows * row.h_step) {
      Pack<T, V> some[kDeepRows];
#pragma unroll
      for (int k = 0; k < kDeepRows; ++k) {
        const int from = h + k * row.h_step;
        some[k] = load_or_nothing<Op, V>(plane + from * g.source.stride[3], from < row.h_last);
      }
#pragma unroll
      for (int k = 0; k < kDeepRows; ++k) Op::join(acc, held<Op>(some[k]));
    }
  }
  return acc;
}

/// V sources of every row that a row of targets reads, combined.
template <class Op, class T, int V, bool Back>
__device__ __forceinline__ Pack<typename Op::Held, V> combine_rows(const T* at, const FastGather& g,
                                                                   const BlockRow& row) {
  auto acc = identity_pack<Op, V>();
  for (int d = row.d_first; d < row.d_last; d += row.d_step) {
    const T* plane = at + d * g.source.stride[2];
#pragma unroll 4
    for (int h = row.h_first; h < row.h_last; h += row.h_step) {
      auto wide = held<Op>(load_pack<V>(plane + h * g.source.stride[3]));
      if constexpr (Back) {
        if (g.uniform == 0) divide_pack<T>(wide, divisor_of<T, typename Op::Held>(g.count(0, d) * g.count(1, h)));
      }
      Op::join(acc, wide);
    }
  }
  return acc;
}

/// A target's window of the combined row.
template <class Op, class T, int V, bool Back, bool Deep>
__device__ __forceinline__ T combine_window(const typename Op::Held* row, const FastGather& g,
                                            const BlockColumn& column, int step, int64_t divisor, int origin) {
  using Held = typename Op::Held;
  Held acc = Op::identity();
  for (int w = column.first; w < column.last; w += step) {
    Held x = row[waiting_place<V, Deep>(w)];
    if constexpr (Back) {
      if (g.uniform == 0) x = quotient_of<T>(x, divisor_of<T, Held>(g.count(2, origin + w)));
    }
    acc = Op::join(acc, x);
  }
  if constexpr (Op::kSum) {
    if (g.uniform != 0)
      acc = quotient_of<T>(acc, divisor_of<T, Held>(g.uniform));
    else if constexpr (!Back)
      acc = quotient_of<T>(acc, divisor_of<T, Held>(static_cast<Held>(divisor) * static_cast<Held>(column.count)));
    return convert<T>(acc);
  } else {
    return acc;
  }
}

/// To shared memory, in accesses of 16 bytes at most.
template <class H, int V>
__device__ __forceinline__ void store_held(H* to, const Pack<H, V>& x) {
  if constexpr (sizeof(x) <= kVectorBytes) {
    store_pack(to, x);
  } else {
    constexpr int kPart = kVector<H>;
#pragma unroll
    for (int i = 0; i < V; i += kPart) {
      Pack<H, kPart> part;
      memcpy(&part, x.at + i, sizeof(part));
      store_pack(to + i, part);
    }
  }
}

template <class Op, class T, int V, bool Back, bool Deep = false>
__global__ void __launch_bounds__(kRowsThreads, Deep ? 3 : 1)
    pool_rows(const T* __restrict__ x, T* __restrict__ y, RowsPlan p) {
  using Held = typename Op::Held;
  extern __shared__ __align__(16) char shared[];
  Held* combined = reinterpret_cast<Held*>(shared);
  BlockRow* rows = reinterpret_cast<BlockRow*>(shared + (size_t{sizeof(Held)} * p.rows * p.pitch + 15) / 16 * 16);
  BlockColumn* columns = reinterpret_cast<BlockColumn*>(rows + p.rows);

  const FastGather& g = p.g;
  const FastDim& along = g.dim[2];
  const BlockTile tile = block_tile<V, Back>(p);
  for (int r = threadIdx.x; r < p.rows; r += kRowsThreads) rows[r] = block_row<Back>(p, tile.group * p.rows + r);
  for (int t = threadIdx.x; t < tile.targets; t += kRowsThreads) {
    const FastRange wr = along.reach<Back>(tile.first + t);
    const int count = !Op::kSum || Back || g.uniform != 0 ? 1 : static_cast<int>(g.count(2, tile.first + t));
    columns[t] = {wr.first - tile.origin, wr.last - tile.origin, count};
  }
  __syncthreads();
  for (int i = threadIdx.x; i < p.rows * tile.chunks; i += kRowsThreads) {
    const int r = quotient(i, tile.chunks, p.by_chunks), chunk = i - r * tile.chunks;
    if (rows[r].target < 0) break;
    const T* at = x + rows[r].source + tile.origin + chunk * V;
    if constexpr (Deep) {
      const auto wide = combine_deep<Op, T, V>(at, g, rows[r]);
#pragma unroll
      for (int e = 0; e < V; ++e) combined[r * p.pitch + chunk * (V + 1) + e] = wide.at[e];
    } else {
      store_held(combined + r * p.pitch + chunk * V, combine_rows<Op, T, V, Back>(at, g, rows[r]));
    }
  }
  __syncthreads();
  const int step = Back || along.bins ? 1 : along.dilation;
  for (int i = threadIdx.x; i < p.rows * tile.targets; i += kRowsThreads) {
    const int r = quotient(i, tile.targets, p.by_tile), t = i - r * tile.targets;
    if (rows[r].target < 0) break;
    y[rows[r].target + (tile.first + t) * g.target.stride[4]] =
        combine_window<Op, T, V, Back, Deep>(combined + r * p.pitch, g, columns[t], step, rows[r].divisor, tile.origin);
  }
}

}  // namespace tenor::cuda
