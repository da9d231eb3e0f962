// Kernels that write along a dim whose places lie rows apart: a block keeps a few neighbouring columns of the table in
// shared memory, and a warp takes each column's entries in order, 32 at a time.
#pragma once

#include "src/cuda/convert.cuh"
#include "src/cuda/layout.h"
#include "src/ops/index/index_entries.cuh"
#include "src/ops/index/index_rule.cuh"

namespace tenor::index {

/// Columns of the table: `length` entries each, which name `places` rows.
struct Columns {
  Entries entries;
  cuda::Layout<3> layout;  ///< of where groups of columns begin: dense, index, table
  int64_t length, places;
  int64_t dense_step, index_step, table_step;  ///< from row to row
  int64_t dense_side, in_group;                ///< from column to column of the dense side; columns of a whole group
  int64_t groups;                              ///< of the innermost dim of the layout
};

inline constexpr int kColumnWarp = 32;

/// Entries of a block that are loaded together: so many rows.
inline constexpr int kColumnRows = 256;

/// A distance from column to column in shared memory such that a warp meets no bank twice, be it along one column or
/// across N.
template <int N>
TENOR_HOST_DEVICE constexpr int64_t column_pitch(int64_t rows) {
  return (rows + kColumnWarp - 1) / kColumnWarp * kColumnWarp + kColumnWarp / N;
}

/// Shared memory of a block: the rows in work; N columns of values and tags follow.
template <class V, int N>
struct ColumnSpace {
  static constexpr int kPitch = static_cast<int>(column_pitch<N>(kColumnRows));
  V staged[N * kPitch];
  int places[N * kPitch];

  static constexpr size_t kBytes = (sizeof(V) * N * kPitch + sizeof(int) * N * kPitch + 7) / 8 * 8;
  static size_t bytes(int64_t places) { return kBytes + N * column_pitch<N>(places) * (sizeof(V) + 1); }
};

/// The rows of a group of columns, kColumnRows at a time: fn(place, value) by the column's warp, places in order, 32 at
/// a time; a place is -1 where there is no entry.
template <class V, int N, class T, class F>
__device__ __forceinline__ void each_entry(const Columns& columns, const int64_t (&at)[3], int width, const T* dense,
                                           ColumnSpace<V, N>& space, F&& fn) {
  constexpr int kEach = kColumnRows / kColumnWarp, kPitch = ColumnSpace<V, N>::kPitch;
  const int column = static_cast<int>(threadIdx.x) % N, first = static_cast<int>(threadIdx.x) / N,
            warp = static_cast<int>(threadIdx.x) / kColumnWarp, lane = static_cast<int>(threadIdx.x) % kColumnWarp;
  int64_t raw[kEach];
  V x[kEach];
  const auto is_there = [&](int64_t j) { return j < columns.length && column < width; };
  const auto load = [&](int64_t base) {
    raw_entries(
        columns.entries,
        [&](int k) {
          const int64_t j = base + first + k * kColumnWarp;
          return is_there(j) ? at[1] + j * columns.index_step + column : -1;
        },
        raw);
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int64_t j = base + first + k * kColumnWarp;
      x[k] = is_there(j)
                 ? static_cast<V>(cuda::widen(dense[at[0] + j * columns.dense_step + column * columns.dense_side]))
                 : V{};
    }
  };
  load(0);
  for (int64_t base = 0; base < columns.length; base += kColumnRows) {
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int64_t j = base + first + k * kColumnWarp, position = at[1] + j * columns.index_step + column;
      space.places[column * kPitch + first + k * kColumnWarp] =
          is_there(j) ? static_cast<int>(place_of_raw(columns.entries, raw[k], position)) : -1;
      space.staged[column * kPitch + first + k * kColumnWarp] = x[k];
    }
    if (base + kColumnRows < columns.length) load(base + kColumnRows);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kEach; ++k)
      fn(space.places[warp * kPitch + k * kColumnWarp + lane], space.staged[warp * kPitch + k * kColumnWarp + lane]);
  }
  __syncthreads();
}

/// Where this block's columns begin, and how many there are.
__device__ __forceinline__ int group_of(const Columns& columns, int n, int64_t (&at)[3]) {
  cuda::offsets(columns.layout, blockIdx.x, at);
  const int64_t first = blockIdx.x % columns.groups * n;
  return static_cast<int>(min(static_cast<int64_t>(n), columns.in_group - first));
}

/// A column of the table in shared memory. A tag is 0 until an entry names its place.
template <class V>
struct ColumnPart {
  V* values;
  uint8_t* tags;

  /// Whether every lane's place is its own: of lanes that tag one place a single one finds its own tag.
  __device__ bool tag(int place) const {
    const auto mine = static_cast<uint8_t>(threadIdx.x % kColumnWarp + 1);
    if (place >= 0) tags[place] = mine;
    __syncwarp();
    return __all_sync(~0u, place < 0 || tags[place] == mine);
  }
};

/// A block's columns of the table.
template <class V, int N>
struct ColumnParts {
  V* values;
  uint8_t* tags;
  int pitch, places;

  __device__ ColumnParts(const Columns& columns, char* memory)
      : values(reinterpret_cast<V*>(memory + ColumnSpace<V, N>::kBytes)),
        tags(reinterpret_cast<uint8_t*>(values + N * column_pitch<N>(columns.places))),
        pitch(static_cast<int>(column_pitch<N>(columns.places))),
        places(static_cast<int>(columns.places)) {}
  /// The one of this warp.
  __device__ ColumnPart<V> mine() const {
    const int at = static_cast<int>(threadIdx.x) / kColumnWarp * pitch;
    return {values + at, tags + at};
  }
  /// fn(where in the arrays, row, column) for every place of the first `width` columns, columns innermost.
  template <class F>
  __device__ void each(int width, F&& fn) const {
    const int column = static_cast<int>(threadIdx.x) % N;
    if (column >= width) return;
#pragma unroll 8
    for (int p = static_cast<int>(threadIdx.x) / N; p < places; p += kColumnWarp) fn(column * pitch + p, p, column);
  }
};

/// Of lanes that name one place the first combines first.
template <class T, int N>
__global__ void __launch_bounds__(N* kColumnWarp)
    combine_columns_kernel(const __grid_constant__ Columns columns, Rule<core::Compute<T>> rule,
                           const T* __restrict__ dense, T* __restrict__ table) {
  using C = core::Compute<T>;
  extern __shared__ __align__(16) char memory[];
  const ColumnParts<C, N> parts(columns, memory);
  int64_t at[3];
  const int width = group_of(columns, N, at);
  T* const to = table + at[2];
  parts.each(width, [&](int i, int row, int column) {
    parts.values[i] = cuda::widen(to[row * columns.table_step + column]);
    parts.tags[i] = 0;
  });
  const ColumnPart<C> mine = parts.mine();
  const unsigned earlier = (1u << threadIdx.x % kColumnWarp) - 1;
  each_entry(columns, at, width, dense, *reinterpret_cast<ColumnSpace<C, N>*>(memory), [&](int place, C x) {
    if (mine.tag(place)) {
      if (place >= 0) mine.values[place] = rule(mine.values[place], x);
    } else {
      const int rank = __popc(__match_any_sync(~0u, place) & earlier);
      const int rounds = __reduce_max_sync(~0u, place < 0 ? 0 : rank);
      for (int r = 0; r <= rounds; ++r) {
        if (place >= 0 && rank == r) mine.values[place] = rule(mine.values[place], x);
        __syncwarp();
      }
    }
    __syncwarp();
  });
  parts.each(width, [&](int i, int row, int column) {
    if (parts.tags[i] != 0) to[row * columns.table_step + column] = cuda::convert<T>(parts.values[i]);
  });
}

/// The last entry of each place writes it. T is an unsigned integer of the element's width.
template <class T, int N>
__global__ void __launch_bounds__(N* kColumnWarp)
    scatter_columns_kernel(const __grid_constant__ Columns columns, const T* __restrict__ dense,
                           T* __restrict__ table) {
  extern __shared__ __align__(16) char memory[];
  const ColumnParts<T, N> parts(columns, memory);
  int64_t at[3];
  const int width = group_of(columns, N, at);
  parts.each(N, [&](int i, int, int) { parts.tags[i] = 0; });
  const ColumnPart<T> mine = parts.mine();
  const unsigned later = ~1u << threadIdx.x % kColumnWarp;
  each_entry(columns, at, width, dense, *reinterpret_cast<ColumnSpace<T, N>*>(memory), [&](int place, T x) {
    const bool last = mine.tag(place) || (__match_any_sync(~0u, place) & later) == 0;
    if (place >= 0 && last) mine.values[place] = x;
    __syncwarp();
  });
  T* const to = table + at[2];
  parts.each(width, [&](int i, int row, int column) {
    if (parts.tags[i] != 0) to[row * columns.table_step + column] = parts.values[i];
  });
}

}  // namespace tenor::index
