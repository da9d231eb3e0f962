// Cuts a problem into tiles of c, which threads compute on their own: no tile waits for another, and since an output's
// chain over k does not depend on its tile, tiles may be cut to suit the machine.
#include "src/ops/contract/gemm_blocked.h"

#include <algorithm>

#include "src/cpu/parallel.h"
#include "src/ops/contract/gemm_kernels.h"

namespace tenor::contract {
namespace {

/// `n` cut into pieces of at most `most`, as equal as multiples of `unit` allow.
int64_t even_size(int64_t n, int64_t most, int64_t unit) {
  const int64_t pieces = (n + most - 1) / most;
  return round_up((n + pieces - 1) / pieces, unit);
}

struct Tiling {
  int64_t rows, cols, down, across;  // a tile's size; tiles in a column and in a row of c
  int64_t count() const { return down * across; }
};

Tiling cut(const GemmProblem& p, const BlockShape& block) {
  int64_t rows = even_size(p.m, 24 * block.rows, block.rows), cols = even_size(p.n, 12 * block.cols, block.cols);
  const int64_t wanted = 3 * num_threads(), matrices = product(p.batch);
  const auto tiles = [&](int64_t r, int64_t c) { return matrices * ((p.m + r - 1) / r) * ((p.n + c - 1) / c); };
  // Smaller tiles pack more often, so only as many as the threads need, and only where there is work to share.
  const bool worth_sharing = static_cast<double>(matrices) * p.m * p.n * p.k > 65536;
  while (worth_sharing && tiles(rows, cols) < wanted) {
    if (cols >= rows && cols > 2 * block.cols) cols = round_up(cols / 2, block.cols);
    else if (rows > 2 * block.rows) rows = round_up(rows / 2, block.rows);
    else if (cols > block.cols) cols = block.cols;
    else break;
  }
  return {rows, cols, (p.m + rows - 1) / rows, (p.n + cols - 1) / cols};
}

}  // namespace

std::string blocked_why_not(const GemmProblem& p) {
  const bool single = p.compute == DType::kFloat32 && reads_as_float(p.a.dtype) && reads_as_float(p.b.dtype) && reads_as_float(p.c.dtype);
  const bool twofold = p.compute == DType::kFloat64 && p.a.dtype == p.compute && p.b.dtype == p.compute && p.c.dtype == p.compute;
  return single || twofold ? "" : "takes float32, bfloat16, float16, or float64 throughout";
}

void blocked_run(const GemmProblem& p) {
  const BlockShape block = cpu::block_shape(p.compute);
  const Tiling tiling = cut(p, block);
  const int64_t tile_flops = tiling.rows * tiling.cols * p.k;
  cpu::parallel_for(product(p.batch) * tiling.count(), std::max<int64_t>(1, 32768 / std::max<int64_t>(tile_flops, 1)), [&](int64_t first, int64_t last) {
    const Tensor workspace = Tensor::empty({workspace_elements(block, std::min(tiling.rows, p.m), std::min(tiling.cols, p.n))}, p.compute);
    for (int64_t t = first; t < last; ++t) {
      const int64_t matrix = t / tiling.count(), at = t % tiling.count();
      const int64_t row = at % tiling.down * tiling.rows, col = at / tiling.down * tiling.cols;
      for_each_matrix(p, matrix, matrix + 1, [&](const char* a, const char* b, char* c) {
        const GemmTile tile{a, b, c, row, std::min(tiling.rows, p.m - row), col, std::min(tiling.cols, p.n - col)};
        cpu::blocked_tile(p, tile, workspace.raw());
      });
    }
  });
}

}  // namespace tenor::contract
