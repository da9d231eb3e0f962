// im2col's kernels: a copy of every window of an image, zeros where a tap lies on padding.
#pragma once

#include "src/ops/conv/conv_problem.h"

namespace tenor::conv {

struct Columns {
  DType dtype;
  Device device;
  int64_t batch, channels;
  core::WindowDim window[kSpatial];
  Image image;
  char* columns;
  /// Elements from one image, channel, tap of each dim, output of each dim to the next.
  int64_t to_batch, to_channel, to_tap[kSpatial], to_output[kSpatial];

  int64_t taps() const { return window[0].kernel * window[1].kernel * window[2].kernel; }
  int64_t outputs() const { return window[0].output * window[1].output * window[2].output; }
};

/// Of at least one element.
void im2col_cpu(const Columns& c);
void im2col_cuda(const Columns& c);

}  // namespace tenor::conv
