// The blocked kernel's single-threaded part, compiled once per instruction set (gemm_blocked_cpu.cpp), and what
// gemm_blocked.cpp needs to know to cut a problem into tiles for it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/ops/contract/gemm.h"

namespace tenor::contract {

/// The register tile [rows, cols] and the length of a packed slice of k, in elements.
struct BlockShape {
  int64_t rows, cols, depth;
  bool fused;  ///< whether a step of an output's chain is one FMA; without that instruction it rounds the product too
};

/// A piece of c, with the data of its matrices.
struct GemmTile {
  const char *a, *b;
  char* c;
  int64_t row, rows;  ///< c's rows [row, row + rows)
  int64_t col, cols;
};

inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

inline int64_t workspace_elements(const BlockShape& block, int64_t rows, int64_t cols) {
  const int64_t r = round_up(rows, block.rows), c = round_up(cols, block.cols);
  return round_up(r * block.depth, 16) + round_up(c * block.depth, 16) + r * c;
}

}  // namespace tenor::contract

namespace tenor::cpu {

/// Of the instruction set in use. `compute` is float32 or float64.
contract::BlockShape block_shape(DType compute);
/// Computes a tile. `workspace`: workspace_elements() of the compute type, aligned to 64 bytes.
void blocked_tile(const contract::GemmProblem& p, const contract::GemmTile& tile, void* workspace);

}  // namespace tenor::cpu
