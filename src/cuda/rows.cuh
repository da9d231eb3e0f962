// The row mover: rows of bytes from anywhere to anywhere, sixteen bytes an access whatever the alignment. A map says
// for each row where it comes from and where it goes.
#pragma once

#include <bit>

#include "src/core/sizes.h"
#include "src/cuda/bytes.cuh"
#include "src/cuda/launch.h"
#include "src/cuda/layout.h"

namespace tenor::cuda {

/// A row of `bytes` bytes. Without `src` it becomes zeros, without `dst` it is left out.
struct RowEnds {
  const char* src;
  char* dst;
  int64_t bytes;
};

/// How threads share rows: `lanes` neighbours take a slot, each four chunks of 16 bytes; a slot is a piece of one row,
/// or (short rows) one chunk of each of four rows.
struct RowGrid {
  int64_t rows;
  int item;  ///< bytes of an element
  int lanes_log2;
  int64_t pieces;  ///< slots of a row
};

inline constexpr int kRowThreads = 256;
inline constexpr int kRowUnroll = 4;

/// Where whole chunks of a row lie: from `head` on, which the target's alignment gives, `chunks` of them; in front of
/// and behind them there are elements.
struct RowBody {
  int64_t head, chunks;
};
template <bool kAligned>
__device__ __forceinline__ RowBody body_of(const RowEnds& row) {
  if constexpr (kAligned) return {0, row.bytes / 16};
  const int64_t head = min(row.bytes, -static_cast<int64_t>(reinterpret_cast<uintptr_t>(row.dst)) & 15);
  int64_t chunks = (row.bytes - head) / 16;
  // The last chunk's aligned source words may reach past the row.
  if (chunks > 0 && row.src && !stays_below(row.src + head + 16 * (chunks - 1), row.src + row.bytes)) --chunks;
  return {head, chunks};
}

/// A chunk on its way: nothing to store without `to`.
struct Chunk {
  UnalignedLoad load;
  char* to;
};
template <bool kAligned>
__device__ __forceinline__ Chunk load_chunk(const RowEnds& row, const RowBody& body, int64_t c) {
  Chunk chunk{{}, nullptr};
  if (!row.dst || c >= body.chunks) return chunk;
  const int64_t at = body.head + 16 * c;
  chunk.to = row.dst + at;
  if (!row.src) return chunk;
  if constexpr (kAligned) {
    chunk.load.low = *reinterpret_cast<const uint4*>(row.src + at);
  } else {
    chunk.load.start(row.src + at);
  }
  return chunk;
}
template <bool kAligned>
__device__ __forceinline__ void store_chunk(const Chunk& chunk) {
  if (chunk.to) *reinterpret_cast<uint4*>(chunk.to) = kAligned ? chunk.load.low : chunk.load.value();
}

/// The elements in front of and behind the body, one a lane.
template <class T>
__device__ __forceinline__ void move_edges(const RowEnds& row, const RowBody& body, int lane, int lanes) {
  const auto head = static_cast<int>(body.head / sizeof(T)),
             all = static_cast<int>((row.bytes - 16 * body.chunks) / sizeof(T));
  for (int e = lane; e < all; e += lanes) {
    const int64_t at = e * static_cast<int64_t>(sizeof(T)) + (e < head ? 0 : 16 * body.chunks);
    *reinterpret_cast<T*>(row.dst + at) = row.src ? *reinterpret_cast<const T*>(row.src + at) : T{};
  }
}
__device__ __forceinline__ void move_edges(const RowEnds& row, const RowBody& body, int item, int lane, int lanes) {
  if (!row.dst) return;
  if (item == 1) move_edges<uint8_t>(row, body, lane, lanes);
  if (item == 2) move_edges<uint16_t>(row, body, lane, lanes);
  if (item == 4) move_edges<uint32_t>(row, body, lane, lanes);
  if (item == 8) move_edges<uint64_t>(row, body, lane, lanes);
}

template <bool kAligned, bool kOneRow, class Map>
__global__ void __launch_bounds__(kRowThreads)
    move_rows_kernel(const __grid_constant__ Map map, const __grid_constant__ RowGrid grid) {
  const int lanes = 1 << grid.lanes_log2, lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int slot = static_cast<int>(threadIdx.x) >> grid.lanes_log2, slots = kRowThreads >> grid.lanes_log2;
  Chunk chunks[kRowUnroll];
  if constexpr (kOneRow) {
    const int64_t at = int64_t{blockIdx.x} * slots + slot, row = grid.pieces == 1 ? at : at / grid.pieces,
                  piece = at - row * grid.pieces;
    if (row >= grid.rows) return;
    const RowEnds ends = map(row);
    const RowBody body = body_of<kAligned>(ends);
    const int64_t first = piece * lanes * kRowUnroll + lane;
#pragma unroll
    for (int k = 0; k < kRowUnroll; ++k) chunks[k] = load_chunk<kAligned>(ends, body, first + int64_t{k} * lanes);
    if (!kAligned && piece == 0) move_edges(ends, body, grid.item, lane, lanes);
  } else {
    const int64_t first = int64_t{blockIdx.x} * slots * kRowUnroll + slot;
#pragma unroll
    for (int k = 0; k < kRowUnroll; ++k) {
      const int64_t row = first + int64_t{k} * slots;
      chunks[k].to = nullptr;
      if (row >= grid.rows) continue;
      const RowEnds ends = map(row);
      const RowBody body = body_of<kAligned>(ends);
      chunks[k] = load_chunk<kAligned>(ends, body, lane);
      if constexpr (!kAligned) move_edges(ends, body, grid.item, lane, lanes);
    }
  }
#pragma unroll
  for (int k = 0; k < kRowUnroll; ++k) store_chunk<kAligned>(chunks[k]);
}

/// Whether every row of tensor t, which starts at p, starts at a multiple of 16 bytes.
template <int N>
bool rows_aligned(const Layout<N>& rows, int t, const void* p, int64_t item) {
  for (int d = 0; d < rows.ndim; ++d)
    if (rows.stride[t][d] * item % 16 != 0) return false;
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

/// Moves `rows` rows of at most `bytes` bytes; `aligned`: every row starts and ends at multiples of 16 bytes on both
/// sides.
template <class Map>
void move_rows(const char* op, const Map& map, int64_t rows, int64_t bytes, int item, bool aligned, Device device) {
  if (rows == 0 || bytes == 0) return;
  constexpr int64_t kManyChunks = 48;
  const int64_t chunks = bytes / 16;
  const bool one_row = chunks >= kManyChunks;
  const auto wanted = static_cast<uint64_t>(one_row ? (chunks + kRowUnroll - 1) / kRowUnroll : chunks);
  RowGrid grid{rows, item, 0, 1};
  while (grid.lanes_log2 < 8 && (uint64_t{1} << grid.lanes_log2) < wanted) ++grid.lanes_log2;
  // A slot of fewer lanes, 128 bytes side by side at least, where that leaves fewer of them idle.
  const auto held = [&](int lanes_log2) { return core::div_up(chunks, kRowUnroll << lanes_log2) << lanes_log2; };
  for (int log2 = grid.lanes_log2 - 1; one_row && log2 >= 3; --log2)
    if (8 * held(log2) <= 7 * held(grid.lanes_log2)) grid.lanes_log2 = log2;
  const int64_t lanes = int64_t{1} << grid.lanes_log2, slots = kRowThreads / lanes;
  if (one_row) grid.pieces = (chunks + lanes * kRowUnroll - 1) / (lanes * kRowUnroll);
  const int64_t per_block = one_row ? slots : slots * kRowUnroll, work = rows * grid.pieces;
  const Grid blocks{static_cast<unsigned>((work + per_block - 1) / per_block), kRowThreads};
  if (one_row) {
    launch(op, aligned ? move_rows_kernel<true, true, Map> : move_rows_kernel<false, true, Map>, blocks, device, map,
           grid);
  } else {
    launch(op, aligned ? move_rows_kernel<true, false, Map> : move_rows_kernel<false, false, Map>, blocks, device, map,
           grid);
  }
}

}  // namespace tenor::cuda
