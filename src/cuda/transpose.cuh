// Copies between a tensor that is dense along one dim and one that is dense along another, through a tile in shared
// memory. Each thread turns squares of E x E elements in its registers, E elements being one access of 16 bytes, so
// that device and shared memory are read and written in such accesses on both sides.
#pragma once

#include "src/cuda/launch.h"
#include "src/cuda/layout.h"
#include "src/cuda/vector.cuh"

namespace tenor::cuda {

/// The two dims of a transposing walk, and the others as `outer`. Tensor 0 is the source, dense along rows; the others,
/// the result first, are dense along columns.
template <int N>
struct Turn {
  int64_t rows, columns;  ///< sizes of the dims along which the source, and the result, are dense
  int64_t source_step;    ///< of the source along columns
  int64_t row_step[N];    ///< of the others along rows
  int64_t row_tiles, column_tiles;
  Layout<N> outer;
  bool aligned;  ///< accesses of 16 bytes at every multiple of E rows and columns
};

/// A tile of kRows x kColumns elements: 32 KiB, of 4-byte elements 64. Measured on an H200 against registers alone (1.7
/// to 2.9 TB/s) and smaller tiles (3.65 to 3.75): 3.84 TB/s of 2-byte and 3.91 of 4-byte elements.
template <class T>
struct TurnTile {
  static constexpr int E = kVector<T>;
  static constexpr int kRows = sizeof(T) == 8 ? 64 : 128, kColumns = sizeof(T) == 1 ? 256 : kRows;
  static constexpr int kThreads = sizeof(T) == 1 ? 128 : 256;
  static constexpr int kRowVectors = kRows / E, kColumnVectors = kColumns / E;
  static constexpr size_t kBytes = static_cast<size_t>(kRows) * kColumns * sizeof(T);

  /// The vector of row r and column vector c; rows of a square's height shift by one, so that a warp's accesses meet no
  /// bank twice.
  static __device__ int slot(int r, int c) { return r * kColumnVectors + (c ^ (r / E % kColumnVectors)); }
};

/// What a tile's accesses may take for granted.
enum class Fit : uint8_t {
  kWhole,    ///< the tile is full and aligned
  kVectors,  ///< aligned, and the sizes whole vectors: a vector that begins inside ends there
  kElements,
};

/// E elements along the source's dense dim, from row `row` of column `column`.
template <class T, Fit F, int N>
__device__ __forceinline__ Pack<T, kVector<T>> load_column(const T* source, const Turn<N>& t, int64_t row,
                                                           int64_t column) {
  constexpr int E = kVector<T>;
  if constexpr (F == Fit::kWhole) {
    return load_pack<E>(source + row + column * t.source_step);
  } else if constexpr (F == Fit::kVectors) {
    return row < t.rows && column < t.columns ? load_pack<E>(source + row + column * t.source_step) : Pack<T, E>{};
  } else {
    Pack<T, E> out;
#pragma unroll
    for (int i = 0; i < E; ++i)
      if (row + i < t.rows && column < t.columns) out.at[i] = source[row + i + column * t.source_step];
    return out;
  }
}
template <class T, Fit F>
__device__ __forceinline__ void store_row(T* result, const Turn<2>& t, int64_t row, int64_t column,
                                          const Pack<T, kVector<T>>& x) {
  constexpr int E = kVector<T>;
  T* p = result + row * t.row_step[1] + column;
  if constexpr (F != Fit::kElements) {
    if (F == Fit::kWhole || (row < t.rows && column < t.columns)) store_pack<E>(p, x);
  } else {
    if (row >= t.rows) return;
#pragma unroll
    for (int j = 0; j < E; ++j)
      if (column + j < t.columns) p[j] = x.at[j];
  }
}

/// Fills the tile that starts at (row, column), turned: slot(r, c) holds E elements of row r.
template <class T, Fit F, int N>
__device__ __forceinline__ void load_turned(Pack<T, kVector<T>>* tile, const T* source, const Turn<N>& t, int64_t row,
                                            int64_t column) {
  using Tile = TurnTile<T>;
  constexpr int E = kVector<T>;
  for (int q = threadIdx.x; q < Tile::kRowVectors * Tile::kColumnVectors; q += Tile::kThreads) {
    const int r = q % Tile::kRowVectors, c = q / Tile::kRowVectors;
    Pack<T, E> in[E];
#pragma unroll
    for (int j = 0; j < E; ++j) in[j] = load_column<T, F>(source, t, row + r * E, column + c * E + j);
#pragma unroll
    for (int i = 0; i < E; ++i) {
      Pack<T, E> out;
#pragma unroll
      for (int j = 0; j < E; ++j) out.at[j] = in[j].at[i];
      store_pack<E>(reinterpret_cast<T*>(tile + Tile::slot(r * E + i, c)), out);
    }
  }
}

/// This block's tile.
template <int N>
struct TurnPlace {
  int64_t row, column, at[N];
  Fit fit;
};
template <class T, int N>
__device__ __forceinline__ TurnPlace<N> turn_place(const Turn<N>& t) {
  using Tile = TurnTile<T>;
  TurnPlace<N> p;
  const int64_t rest = blockIdx.x / t.column_tiles;
  p.column = blockIdx.x % t.column_tiles * Tile::kColumns;
  p.row = rest % t.row_tiles * Tile::kRows;
  offsets(t.outer, rest / t.row_tiles, p.at);
  const bool full = p.row + Tile::kRows <= t.rows && p.column + Tile::kColumns <= t.columns,
             vectors = t.rows % Tile::E == 0 && t.columns % Tile::E == 0;
  p.fit = !t.aligned ? Fit::kElements : full ? Fit::kWhole : vectors ? Fit::kVectors : Fit::kElements;
  return p;
}

template <class T, Fit F>
__device__ __forceinline__ void turn_tile(const T* source, T* result, const Turn<2>& t, int64_t row, int64_t column) {
  using Tile = TurnTile<T>;
  extern __shared__ uint4 shared[];
  auto* tile = reinterpret_cast<Pack<T, Tile::E>*>(shared);
  load_turned<T, F>(tile, source, t, row, column);
  __syncthreads();
  for (int q = threadIdx.x; q < Tile::kRows * Tile::kColumnVectors; q += Tile::kThreads) {
    const int r = q / Tile::kColumnVectors, c = q % Tile::kColumnVectors;
    store_row<T, F>(result, t, row + r, column + c * Tile::E, tile[Tile::slot(r, c)]);
  }
}

/// A block turns one tile: by vectors where it can, else element by element.
template <class T>
__global__ void __launch_bounds__(TurnTile<T>::kThreads)
    turn_kernel(const T* source, T* result, const __grid_constant__ Turn<2> t) {
  const TurnPlace<2> p = turn_place<T>(t);
  source += p.at[0];
  result += p.at[1];
  if (p.fit == Fit::kWhole)
    turn_tile<T, Fit::kWhole>(source, result, t, p.row, p.column);
  else if (p.fit == Fit::kVectors)
    turn_tile<T, Fit::kVectors>(source, result, t, p.row, p.column);
  else
    turn_tile<T, Fit::kElements>(source, result, t, p.row, p.column);
}

/// The dim of a collapsed layout along which the source (tensor 0) is dense while the result (1) is dense along the
/// last; -1 where the two agree, or a side is too short to be worth a tile.
template <int N>
int turned_dim(const Layout<N>& layout) {
  const int last = layout.ndim - 1;
  if (last < 1 || layout.stride[1][last] != 1 || layout.stride[0][last] <= 1 || layout.size[last] < 8) return -1;
  for (int d = 0; d < last; ++d)
    if (layout.stride[0][d] == 1 && layout.size[d] >= 8) return d;
  return -1;
}

/// The walk over tensors of `item` bytes an element, whose source is dense along `dim`.
template <int N>
Turn<N> make_turn(const Layout<N>& layout, int dim, const void* const (&data)[N], size_t item, int tile_rows,
                  int tile_columns) {
  const int last = layout.ndim - 1;
  Turn<N> t{};
  t.rows = layout.size[dim];
  t.columns = layout.size[last];
  t.source_step = layout.stride[0][last];
  t.row_tiles = (t.rows + tile_rows - 1) / tile_rows;
  t.column_tiles = (t.columns + tile_columns - 1) / tile_columns;
  t.outer = without(without(layout, last), dim);
  t.aligned = true;
  for (int n = 0; n < N; ++n) {
    t.row_step[n] = layout.stride[n][dim];
    t.aligned = t.aligned && is_aligned(data[n], n == 0 ? t.source_step : t.row_step[n], item);
    for (int d = 0; d < t.outer.ndim; ++d) t.aligned = t.aligned && is_aligned(nullptr, t.outer.stride[n][d], item);
  }
  return t;
}
template <class T, int N>
Grid turn_grid(const Turn<N>& t) {
  using Tile = TurnTile<T>;
  return {dim3(static_cast<unsigned>(t.outer.count * t.row_tiles * t.column_tiles)), dim3(Tile::kThreads),
          Tile::kBytes};
}

template <class T>
void turn(const char* op, const Layout<2>& layout, int dim, const T* source, T* result, Device device) {
  const Turn<2> t = make_turn<2>(layout, dim, {source, result}, sizeof(T), TurnTile<T>::kRows, TurnTile<T>::kColumns);
  launch(op, turn_kernel<T>, turn_grid<T>(t), device, source, result, t);
}

}  // namespace tenor::cuda
