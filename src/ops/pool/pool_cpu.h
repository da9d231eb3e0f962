// What the gathering CPU kernels are told. A task is a row of targets (or a tile of a long one), of one plane or, where
// channels lie together, of several: first the rows of sources that it reads are combined into one row, then each
// target reads its window of that.
#pragma once

#include "src/ops/pool/pool_kernels.h"

namespace tenor::cpu {

/// Targets [first, last) of a row and the sources [from, to) that they read; `along` is their dim as if there were no
/// more.
struct PoolTile {
  int64_t first, last, from, to;
  pool::PoolDim along;

  int64_t targets() const { return last - first; }
  int64_t width() const { return to - from; }
};

struct PoolRows {
  PoolRows(const pool::Problem& p, const pool::PoolDivisor& divisor, bool backwards, const Tensor& x, const Tensor& y);

  /// The place of a task: its row, its tile, its first channel and their number.
  struct Task {
    int64_t n, c, d, h, tile, lanes;
  };
  Task task(int64_t i) const;
  /// The task after that one.
  void next(Task& task) const;
  PoolTile tile(int64_t i) const;
  /// The sources of target t of a tile, counted from its first.
  pool::WindowRange column(const PoolTile& tile, int64_t t) const;

  pool::Gather g;
  const Tensor& source;
  const Tensor& target;
  bool back;                         ///< inputs read windows
  int64_t lanes = 1;                 ///< channels of a task, at most
  int64_t groups = 1;                ///< tasks that share the channels of an image
  int64_t tile_size = 1, tiles = 1;  ///< targets of a task, and tasks a row
  int64_t count = 0;                 ///< of tasks, those of one tile after another
  int64_t bytes = 0;                 ///< that a task reads
  const Tensor* places = nullptr;
  pool::PoolGrid places_grid;
};

/// Tasks [begin, end), single-threaded.
void pool_max_rows(const PoolRows& rows, int64_t begin, int64_t end);
void pool_sum_rows(const PoolRows& rows, int64_t begin, int64_t end);
void pool_place_rows(const PoolRows& rows, int64_t begin, int64_t end);

/// sums [count][channels] += the sizes of channels that lie together, or their squares; the next ones `hop` elements
/// on. Of dtypes narrower than float64 (pool_sums_cpu.cpp).
void add_channel_sizes(DType dtype, const void* from, int64_t hop, int64_t count, int64_t channels, bool squares,
                       double* sums);
/// to[i] = the norm of that sum, as float32 and then as dtype.
void give_norms(const double* sums, int64_t n, bool squares, DType dtype, void* to);

}  // namespace tenor::cpu
