// What a scan is to its driver: functions over a piece of several lines. Elements and results are float32, float64,
// int64 or uint64; the driver converts others.
//
// The order of a float sum: a line is cut into blocks of kScanBlock, a block into groups of kScanGroup. In a group sums
// are formed by halves: both halves first, then the first half's sum is added to each of the second. A result is the
// sum before the block plus (the sum of the groups before it in the block, one after another, plus the sum in its
// group). Its error is that of about kScanBlock / kScanGroup + 4 + n / kScanBlock additions, vectors hold a group, and
// blocks can be computed at once. A float product runs through the whole line, one element after another: a block's
// product may overflow where the line's does not.
#pragma once

#include <cstdint>

#include "tenor/dtype.h"

namespace tenor::scan {

enum class Op : uint8_t { kSum, kProd, kMax, kMin, kLogSumExp };

inline constexpr int64_t kScanBlock = 1024;
inline constexpr int64_t kScanGroup = 16;
inline constexpr int64_t kRowLines = 4;  ///< lines that products interleave: as many as hide a multiplication's latency

/// A piece of `lines` lines, `n` elements of each. state holds two values a line, all first ones before all second
/// ones: what precedes the block, and the running value in it. A line begins with start(); a block of a sum with
/// next_block(). A piece of a sum begins at a group's first element.
struct Kernels {
  DType dtype;
  void (*start)(void* state, int64_t lines);
  void (*next_block)(void* state, int64_t lines);
  /// Lines side by side: element i of line l is x[i * x_stride + l].
  void (*columns)(const void* x, int64_t x_stride, void* y, int64_t y_stride, int64_t n, int64_t lines, void* state);
  /// Lines one after another: element i of line l is x[l * x_stride + i]. Null where there is no such form.
  void (*rows)(const void* x, int64_t x_stride, void* y, int64_t y_stride, int64_t n, int64_t lines, void* state);
};
/// float32, float64, int64.
const Kernels& sum_kernels(DType dtype);
/// kProd: float32, float64, int64; kLogSumExp: float64.
const Kernels& kernels(Op op, DType dtype);

/// Running extremes of lines side by side: the first NaN stays, else the first of equals; x, y and places are dense
/// [n, lines]. state holds `lines` values, `places_state` their indices; element 0 of a line starts them.
using ExtremeFn = void (*)(const void* x, void* y, int64_t* places, int64_t n, int64_t lines, int64_t first,
                           void* state, int64_t* places_state);
ExtremeFn extreme_kernel(bool largest, DType dtype);

}  // namespace tenor::scan
