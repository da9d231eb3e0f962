// What the tests of index operators share, on the CPU and on CUDA.
#pragma once

#include "src/core/testing.h"
#include "tenor/index.h"

namespace tenor::testing {

inline constexpr DType kIndexTypes[] = {int64, int32, int16, int8, uint8, uint16, uint32, uint64};
inline constexpr DType kMoved[] = {boolean, int8,     uint16,  int32,   int64,
                                   float16, bfloat16, float32, float64, float8_e4m3fn};

/// Small integers: exact in every dtype, also after a few additions.
inline Tensor small(Draw& draw, const Dims& shape, DType dtype, int64_t least = 0, int64_t most = 5) {
  const Tensor x = draw.any_layout(shape, dtype);
  std::vector<double> v(static_cast<size_t>(product(shape)));
  for (double& e : v) e = static_cast<double>(least + draw.upto(most - least));
  assign(x, v);
  return x;
}

}  // namespace tenor::testing
