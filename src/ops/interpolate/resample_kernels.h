// Resampling on the CPU: the plan that all threads read, and the kernels, single-threaded over a range of strips.
#pragma once

#include "src/ops/interpolate/resample_problem.h"

namespace tenor::cpu {

/// An image of one side. Strides count elements.
struct ResampleSide {
  char* data;
  int64_t n, c, d, h, w;
};

/// Strips of output rows of one image plane and depth. Rows run along W; where channels lie densely they are rows of
/// pixels with all their channels.
struct ResamplePlan {
  DType dtype;
  ResampleSide from, to;
  core::ResampleTable depth, height, width;
  bool by_channel;
  int64_t channels;  ///< of the image
  int64_t planes;    ///< images by channels, or with by_channel images
  int64_t strip;     ///< output rows of one
  int64_t strips;    ///< a plane and depth

  int64_t items() const { return planes * depth.rows * strips; }
  /// Elements of an output row.
  int64_t length() const { return width.rows * (by_channel ? channels : 1); }
};

/// One strip: where it lies, and its rows.
struct ResampleStrip {
  const char* from;  ///< of its plane
  char* to;          ///< of its plane and depth
  int64_t d, row, end;
};
inline ResampleStrip strip_of(const ResamplePlan& p, int64_t item) {
  const int64_t strip = item % p.strips, rest = item / p.strips, d = rest % p.depth.rows, plane = rest / p.depth.rows;
  const int64_t n = p.by_channel ? plane : plane / p.channels, c = p.by_channel ? 0 : plane % p.channels;
  const auto size = static_cast<int64_t>(item_size(p.dtype));
  return {p.from.data + (n * p.from.n + c * p.from.c) * size, p.to.data + (n * p.to.n + c * p.to.c + d * p.to.d) * size,
          d, strip * p.strip, std::min((strip + 1) * p.strip, p.height.rows)};
}

/// Weighted sums.
void resample_strips(const ResamplePlan& p, int64_t begin, int64_t end);
/// Elements moved as they lie, for tables of one tap.
void move_strips(const ResamplePlan& p, int64_t begin, int64_t end);

/// The whole problem, on all threads.
void resample(const ResampleProblem& problem);

}  // namespace tenor::cpu
