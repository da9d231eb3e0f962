// cu_seqlens of packed sequences in kernels: in memory that only they read.
#pragma once

#include <cstdint>

#include "src/cuda/content_error.cuh"

namespace tenor::cuda {

struct Offsets {
  const void* data;
  int64_t stride;
  bool wide;  ///< int64, else int32
  int op;     ///< the argument's id for a content error
};

#ifdef __CUDACC__
__device__ __forceinline__ int64_t offset_at(const Offsets& o, int64_t n) {
  return o.wide ? static_cast<const int64_t*>(o.data)[n * o.stride] : static_cast<const int32_t*>(o.data)[n * o.stride];
}

/// Raises the flag unless `count` entries rise from 0 to at most `total`. The threads of a block share the work.
__device__ __forceinline__ void check_offsets(const Offsets& o, int64_t count, int64_t total, ContentError* flag) {
  for (int64_t n = threadIdx.x; n < count; n += blockDim.x) {
    const int64_t at = offset_at(o, n), before = n == 0 ? 0 : offset_at(o, n - 1);
    if (at < before || at > total || (n == 0 && at != 0)) raise_content_error(flag, o.op, n, at);
  }
}
#endif

}  // namespace tenor::cuda
