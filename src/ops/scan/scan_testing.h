// What the tests of scans on both devices share.
#pragma once

#include "src/core/testing.h"
#include "tenor/view.h"

namespace tenor::testing {

using Line = std::vector<double>;
inline constexpr DType kAll[] = {float32, float64, float16, bfloat16, boolean, int8,  int16,
                                 int32,   int64,   uint8,   uint16,   uint32,  uint64};

/// The lines of x along dim.
inline std::vector<Line> lines(const Tensor& x, int64_t dim) {
  const Tensor y = movedim(x, {dim}, {-1});
  const int64_t n = y.shape(-1);
  std::vector<Line> out(static_cast<size_t>(n ? y.numel() / n : 0));
  for (int64_t i = 0; i < y.numel(); ++i) out[static_cast<size_t>(i / n)].push_back(get(y, offset_of(y, i)));
  return out;
}

}  // namespace tenor::testing
