// Copies between tensors that are dense along one and the same dim: their runs are rows of the row mover.
#pragma once

#include "src/cuda/rows.cuh"

namespace tenor::cuda {

/// Runs of a source (tensor 0) and a target (1). Two other dims are walked in squares: `along`, whose runs lie closest
/// in the target, and `across`, whose lie so in the source. 64 runs of both then lie close together, where a walk along
/// the target alone jumps in the source from run to run (measured on an H200, [16, 4096, 64, 128] bfloat16 to [16, 64,
/// 4096, 128]: 4.17 TB/s against 3.54).
struct RunMap {
  static constexpr int kLogSquare = 6, kLogSide = 3;

  const char* src;
  char* dst;
  int64_t bytes;  ///< of a run
  int64_t across, along, across_step[2], along_step[2];
  int log_along;  ///< of a square's runs along the target
  Divider across_squares, along_squares;
  Layout<2> outer;

  __device__ RowEnds operator()(int64_t r) const {
    const int place = static_cast<int>(r) & ((1 << kLogSquare) - 1);
    const auto square = static_cast<uint32_t>(r >> kLogSquare);
    const uint32_t rest = divide(square, along_squares), plane = divide(rest, across_squares);
    const int64_t j = (int64_t{square - rest * along_squares.divisor} << log_along) + (place & ((1 << log_along) - 1)),
                  i = (int64_t{rest - plane * across_squares.divisor} << (kLogSquare - log_along)) +
                      (place >> log_along);
    if (i >= across || j >= along) return {nullptr, nullptr, 0};
    int64_t at[2];
    offsets(outer, plane, at);
    return {src + at[0] + i * across_step[0] + j * along_step[0], dst + at[1] + i * across_step[1] + j * along_step[1],
            bytes};
  }
};

/// The map of runs whose places `runs` holds, with strides in bytes; returns the number of its rows, some of them
/// empty.
inline int64_t map_runs(const Layout<2>& runs, RunMap& map) {
  const int along = runs.ndim - 1;  // the target's innermost
  int across = along;               // the dim along which the source is densest
  for (int d = along; d-- > 0;)
    if (runs.stride[0][d] < runs.stride[0][across]) across = d;
  const bool both = across != along;
  map.log_along = both ? RunMap::kLogSide : RunMap::kLogSquare;
  map.along = runs.size[along];
  map.across = both ? runs.size[across] : 1;
  for (int t = 0; t < 2; ++t) {
    map.along_step[t] = runs.stride[t][along];
    map.across_step[t] = both ? runs.stride[t][across] : 0;
  }
  map.outer = without(runs, along);
  if (both) map.outer = without(map.outer, across);
  const auto squares = [](int64_t n, int log) { return (n + (int64_t{1} << log) - 1) >> log; };
  const int64_t columns = squares(map.along, map.log_along),
                rows = squares(map.across, RunMap::kLogSquare - map.log_along);
  if (map.outer.count * rows * columns > INT32_MAX) return -1;
  map.along_squares = make_divider(columns);
  map.across_squares = make_divider(rows);
  return (map.outer.count * rows * columns) << RunMap::kLogSquare;
}

/// Copies a walk whose innermost dim is dense in both tensors, of `item` bytes an element. False, and nothing done,
/// where there is no such dim, its runs are too short for the row mover, or too many.
inline bool move_runs(const char* op, const Layout<2>& layout, const void* src, void* dst, int64_t item,
                      Device device) {
  const int last = layout.ndim - 1;
  if (last < 1 || layout.stride[0][last] != 1 || layout.stride[1][last] != 1) return false;
  Layout<2> runs = without(layout, last);
  for (auto& strides : runs.stride)
    for (int d = 0; d < runs.ndim; ++d) strides[d] *= item;
  RunMap map{};
  map.src = static_cast<const char*>(src);
  map.dst = static_cast<char*>(dst);
  map.bytes = layout.size[last] * item;
  const bool aligned = rows_aligned(runs, 0, src, 1) && rows_aligned(runs, 1, dst, 1) && map.bytes % 16 == 0;
  constexpr int64_t kLeastUnaligned = 64;  // bytes of a run
  if (!aligned && map.bytes < kLeastUnaligned) return false;
  const int64_t rows = map_runs(runs, map);
  if (rows < 0) return false;
  move_rows(op, map, rows, map.bytes, static_cast<int>(item), aligned, device);
  return true;
}

}  // namespace tenor::cuda
