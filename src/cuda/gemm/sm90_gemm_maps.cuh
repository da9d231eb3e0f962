// What kernels are handed their operands by.
#pragma once

#include <cuda.h>

namespace tenor::cuda::gemm {

/// The tensor maps of a product C = A B^T; `up` is that of a second matrix beside B, or of one that an epilogue reads
/// beside C, where there is one.
struct GemmMaps {
  const CUtensorMap &a, &b, &c, &up;
};

}  // namespace tenor::cuda::gemm
