// The problems of the family's other operators: bias gradients, columns, deformable convolution.
#pragma once

#include "src/ops/conv/conv_problem.h"

namespace tenor::conv {

/// to[c * to_stride] = the sum of image[., c, .]: ascending over the batch, then row-major over pixels, in blocks that
/// depend on the sizes alone.
struct BiasProblem {
  DType dtype;
  int64_t batch, channels, size[kSpatial];
  Image image;
  char* to;
  int64_t to_stride;
};

/// Windows as columns: element (n, c, tap, window) of columns [N, C taps, windows], taps and windows row-major.
struct ColumnProblem {
  DType dtype;
  int64_t batch, channels;
  core::WindowDim window[kSpatial];
  Image image;
  char* columns;
  int64_t column_batch, column_row, column_window;  ///< strides

  int64_t taps() const { return window[0].kernel * window[1].kernel * window[2].kernel; }
  int64_t windows() const { return window[0].output * window[1].output * window[2].output; }
};

/// Deformable convolution, forward or backward; `window[0]` is one everywhere. Offsets are an image of 2 OG KH KW
/// channels, the mask one of OG KH KW; both have the output's pixels.
struct DeformProblem {
  DType dtype;
  int64_t batch, channels, out_channels, groups, offset_groups;
  core::WindowDim window[kSpatial];
  Image input, output, offset, mask;  ///< mask.data may be null; output is the gradient of the backward direction
  Filter weight;
  const char* bias = nullptr;
  int64_t bias_stride = 0;
  // Backward: null where not asked for; each has the layout of its own tensor.
  Image grad_input = {}, grad_offset = {}, grad_mask = {};
  Filter grad_weight = {};

  int64_t taps() const { return window[1].kernel * window[2].kernel; }
  int64_t pixels() const { return window[1].output * window[2].output; }
};

}  // namespace tenor::conv
