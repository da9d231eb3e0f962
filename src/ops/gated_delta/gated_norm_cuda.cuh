// gated_rms_norm on CUDA of rows that a few lanes hold.
#pragma once

#include <cfloat>

#include "src/cuda/layout.h"
#include "src/cuda/reduce.cuh"
#include "src/ops/gated_delta/silu_cuda.cuh"

namespace tenor::delta {

inline constexpr int kNormThreads = 256;

/// 1 / sqrt(mean + epsilon), finite where a row of zeros has an epsilon that vanishes; NaN stays.
template <class C>
__device__ __forceinline__ C inverse_root(C square, int64_t length, double epsilon) {
  const C root = C(1) / sqrt(square / static_cast<C>(length) + static_cast<C>(epsilon));
  const C most = sizeof(C) == sizeof(float) ? static_cast<C>(FLT_MAX) : static_cast<C>(DBL_MAX);
  return root > most ? most : root;
}

/// Rows of at most kLanes vectors, a vector a lane; the tensors of the layout are x, gate, y.
template <class T, int kLanes>
__global__ void __launch_bounds__(kNormThreads)
    gated_norm_lanes_kernel(const T* x, const T* gate, T* y, Parameter gamma, double epsilon, int length,
                            const __grid_constant__ cuda::Layout<3> rows) {
  constexpr int V = cuda::kVector<T>;
  const int column = threadIdx.x % kLanes * V;
  const int64_t row = blockIdx.x * int64_t{kNormThreads / kLanes} + threadIdx.x / kLanes;
  const bool inside = column < length && row < rows.count;
  cuda::Pack<T, V> values{}, gates{};
  float scale[V] = {};
  int64_t at[3] = {};
  if (inside) {
    cuda::offsets(rows, row, at);
    values = cuda::load_pack<V>(x + at[0] + column), gates = cuda::load_pack<V>(gate + at[1] + column);
#pragma unroll
    for (int k = 0; k < V; ++k) scale[k] = gamma.template at<T>(column + k);
  }
  float v[V], g[V], square = 0;
  cuda::widen_pack(values, v), cuda::widen_pack(gates, g);
#pragma unroll
  for (int k = 0; k < V; ++k) square = fmaf(v[k], v[k], square);
  square = cuda::warp_reduce<kLanes>(square, [](float a, float b) { return a + b; });
  const float inverse = inverse_root(square, length, epsilon);
#pragma unroll
  for (int k = 0; k < V; ++k) v[k] = v[k] * inverse * scale[k] * silu_for<T>(g[k]);
  if (inside) cuda::store_pack(y + at[2] + column, cuda::convert_pack<T>(v));
}

}  // namespace tenor::delta
