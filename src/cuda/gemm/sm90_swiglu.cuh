// SwiGLU on accumulators: a product with two matrices whose columns are multiplied, the first's after silu.
#pragma once

#include <cuda_runtime.h>

namespace tenor::cuda::gemm {

/// silu(gate) * up, within a few units of float32's last place; the limit 0 where gate is -inf.
__device__ __forceinline__ float swiglu(float gate, float up) {
  const float activated = __fdividef(gate, 1.0f + __expf(-gate));  // 0 where the denominator overflows
  return (gate < -88.0f ? 0.0f : activated) * up;
}

/// The first half of accumulators, the gate's columns, becomes its activation with the second half, the up's.
template <int kCount>
__device__ __forceinline__ void fold_swiglu(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) d[i] = swiglu(d[i], d[i + kCount / 2]);
}

}  // namespace tenor::cuda::gemm
