// Cuts a problem into tiles of c, which threads compute on their own: no tile waits for another, and since an output's
// chain over k does not depend on its tile, tiles may be cut to suit the machine.
#include "src/ops/contract/gemm_blocked.h"

#include <algorithm>

#include "src/core/sizes.h"
#include "src/cpu/parallel.h"
#include "src/cpu/thread_buffer.h"
#include "src/ops/contract/gemm_kernels.h"

namespace tenor::contract {
namespace {

/// `n` cut into pieces of at most `most`, as equal as multiples of `unit` allow.
int64_t even_size(int64_t n, int64_t most, int64_t unit) {
  const int64_t pieces = core::div_up(n, most);
  return round_up(core::div_up(n, pieces), unit);
}

constexpr int64_t kMostRows = 24, kMostCols = 12;  // of a tile, in register tiles: what the nearer caches hold
constexpr int64_t kPacking = 12;                   // an element packed takes as long as so many multiply-adds

struct Tiling {
  int64_t rows, cols, down, across;  // a tile's size; tiles in a column and in a row of c
  int64_t count() const { return down * across; }
};

Tiling tiling_of(const GemmProblem& p, int64_t rows, int64_t cols) {
  return {rows, cols, core::div_up(p.m, rows), core::div_up(p.n, cols)};
}

/// The time of the thread that has most to do, in multiply-adds of one k. Threads take equally many tiles, and each
/// tile packs for itself.
int64_t slowest(const Tiling& t, int64_t matrices) {
  return core::div_up(matrices * t.count(), num_threads()) * (t.rows * t.cols + kPacking * (t.rows + t.cols));
}

/// Of tiles that fit the caches those with which the slowest thread ends first; of equals the largest.
Tiling cut(const GemmProblem& p, const BlockShape& block) {
  const int64_t matrices = product(p.batch);
  Tiling best = tiling_of(p, even_size(p.m, kMostRows * block.rows, block.rows),
                          even_size(p.n, kMostCols * block.cols, block.cols));
  const bool worth_sharing = static_cast<double>(matrices) * p.m * p.n * p.k > 65536;
  if (!worth_sharing || num_threads() == 1) return best;
  int64_t least = slowest(best, matrices);
  for (int64_t rows = even_size(p.m, kMostRows * block.rows, block.rows); rows > 0; rows -= block.rows) {
    if (rows != even_size(p.m, rows, block.rows)) continue;
    for (int64_t cols = even_size(p.n, kMostCols * block.cols, block.cols); cols > 0; cols -= block.cols) {
      const Tiling t = tiling_of(p, rows, cols);
      if (const int64_t time = slowest(t, matrices); time < least) best = t, least = time;
    }
  }
  return best;
}

}  // namespace

std::string blocked_why_not(const GemmProblem& p) {
  const bool single = p.compute == DType::kFloat32 && reads_as_float(p.a.dtype) && reads_as_float(p.b.dtype) &&
                      reads_as_float(p.c.dtype);
  const bool twofold =
      p.compute == DType::kFloat64 && p.a.dtype == p.compute && p.b.dtype == p.compute && p.c.dtype == p.compute;
  return single || twofold ? "" : "takes float32, bfloat16, float16, or float64 throughout";
}

void blocked_run(const GemmProblem& p) {
  const BlockShape block = cpu::block_shape(p.compute);
  const Tiling tiling = cut(p, block);
  const int64_t tile_flops = tiling.rows * tiling.cols * p.k;
  cpu::parallel_for(product(p.batch) * tiling.count(), std::max<int64_t>(1, 32768 / std::max<int64_t>(tile_flops, 1)),
                    [&](int64_t first, int64_t last) {
                      const cpu::ThreadBuffer workspace(
                          static_cast<int64_t>(item_size(p.compute)) *
                          workspace_elements(block, std::min(tiling.rows, p.m), std::min(tiling.cols, p.n)));
                      for (int64_t t = first; t < last; ++t) {
                        const int64_t matrix = t / tiling.count(), at = t % tiling.count();
                        const int64_t row = at % tiling.down * tiling.rows, col = at / tiling.down * tiling.cols;
                        for_each_matrix(p, matrix, matrix + 1, [&](const char* a, const char* b, char* c) {
                          const GemmTile tile{
                              a, b, c, row, std::min(tiling.rows, p.m - row), col, std::min(tiling.cols, p.n - col)};
                          cpu::blocked_tile(p, tile, workspace.data());
                        });
                      }
                    });
}

}  // namespace tenor::contract
