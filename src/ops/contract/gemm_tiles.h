// The kernels of the "tiles" candidate: Intel AMX, bfloat16 products of 16 x 32 by 32 x 16 accumulated in float32.
//
// The left operand enters as rows of k, the right one as pairs of k beside each other for every column. Both are packed
// into tiles of 1 KiB: tile (i, t) holds 16 rows (or columns) from 16 i and 32 values of k from 32 t, zeros past the
// end. An output's order over k is the instruction's own within 32 values and ascending between them, whatever the
// shape.
#pragma once

#include <cstdint>

#include "src/ops/contract/gemm.h"

namespace tenor::contract::tiles {

inline constexpr int64_t kSide = 16;                  ///< rows and columns of a tile of results
inline constexpr int64_t kDepth = 32;                 ///< values of k in a tile
inline constexpr int64_t kElements = kSide * kDepth;  ///< of a packed tile
inline constexpr int64_t kSums = kSide * kSide;       ///< of a tile of results

inline int64_t tiles_of(int64_t n, int64_t size) { return (n + size - 1) / size; }

/// Whether this CPU has the instructions and the system lets the process use them.
bool available();

/// Rows (or columns, `step` apart) [first, first + count) and k in [k, k + depth) of a matrix whose k is `k_step`
/// apart, into tiles [row tile][k tile], `pitch` elements between row tiles.
struct Source {
  const BFloat16* data;
  int64_t step, k_step;
};
void pack_left(const Source& from, int64_t first, int64_t count, int64_t k, int64_t depth, BFloat16* to, int64_t pitch);
void pack_right(const Source& from, int64_t first, int64_t count, int64_t k, int64_t depth, BFloat16* to,
                int64_t pitch);

/// sums [left tile][right tile][16][16] += left x right over `k_tiles` tiles of k; `first`: starts from zero.
/// Configures the thread's tile registers and releases them.
struct Panel {
  const BFloat16* data;
  int64_t pitch, tiles;        ///< between row tiles; how many of them
  int64_t row_step = kDepth;   ///< between rows of a tile; the left operand's k may also be read where it lies
  int64_t k_step = kElements;  ///< between tiles along k
};
void multiply(const Panel& left, const Panel& right, int64_t k_tiles, float* sums, bool first);

/// Where a block of sums goes: element (l, r) of the block to data[l * left_step + r * right_step], in float32 or
/// bfloat16.
struct Target {
  char* data;
  DType dtype;
  int64_t left_step, right_step;
  const float* bias;  ///< or nullptr; element (l, r) gets bias[l * bias_left + r * bias_right]
  int64_t bias_left, bias_right;
};
void store(const float* sums, int64_t left_count, int64_t right_count, const Target& to);

}  // namespace tenor::contract::tiles
