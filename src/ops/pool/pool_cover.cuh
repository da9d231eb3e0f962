// The gradient of averages by wide windows, rows together: a thread has V inputs of a row, which few windows cover.
#pragma once

#include "src/cuda/launch.h"
#include "src/ops/pool/pool_device.cuh"
#include "src/ops/pool/pool_fast.cuh"

namespace tenor::cuda {

struct CoverPlan {
  FastGather g;
  uint32_t total;  ///< threads
  Divider chunks, heights, depths, channels;
};

/// The sum of what an input's windows along D and H hold in one of their columns, each over its elements there.
template <class T, class C>
__device__ __forceinline__ C covering_column(const FastGather& g, const T* column, const FastRange& dr,
                                             const FastRange& hr) {
  C sum = 0;
  for (int d = dr.first; d < dr.last; ++d)
    for (int h = hr.first; h < hr.last; ++h) {
      const C v = convert<C>(column[d * g.source.stride[2] + h * g.source.stride[3]]);
      sum += g.uniform != 0 ? v : quotient_of<T>(v, divisor_of<T, C>(g.count(0, d) * g.count(1, h)));
    }
  return sum;
}

template <class T, int V>
__global__ void __launch_bounds__(256) pool_cover(const T* __restrict__ grad, T* __restrict__ dx, CoverPlan p) {
  using C = core::Compute<T>;
  const uint32_t i = blockIdx.x * 256u + threadIdx.x;
  if (i >= p.total) return;
  const FastGather& g = p.g;
  const uint32_t row = divide(i, p.chunks), depth = divide(row, p.heights), plane = divide(depth, p.depths),
                 n = divide(plane, p.channels);
  const int w = static_cast<int>(i - row * p.chunks.divisor) * V, h = static_cast<int>(row - depth * p.heights.divisor),
            d = static_cast<int>(depth - plane * p.depths.divisor);
  const int64_t c = plane - n * p.channels.divisor;
  const FastRange dr = g.dim[0].readers(d), hr = g.dim[1].readers(h);
  const int first = g.dim[2].readers(w).first, last = g.dim[2].readers(w + V - 1).last;
  const T* at = grad + n * g.source.stride[0] + c * g.source.stride[1];
  C out[V] = {};
  for (int o = first; o < last; ++o) {
    C v = covering_column<T, C>(g, at + o * g.source.stride[4], dr, hr);
    if (g.uniform == 0) v = quotient_of<T>(v, divisor_of<T, C>(g.count(2, o)));
    const FastRange covered = g.dim[2].inputs(o);
#pragma unroll
    for (int e = 0; e < V; ++e)
      if (w + e >= covered.first && w + e < covered.last) out[e] += v;
  }
  if (g.uniform != 0) {
    const C by = divisor_of<T, C>(g.uniform);
#pragma unroll
    for (int e = 0; e < V; ++e) out[e] = quotient_of<T>(out[e], by);
  }
  store_pack(dx + g.target.at(n, c, d, h, w), convert_pack<T>(out));
}

/// Windows of which an input has few in every dim, and V neighbours not many more.
inline bool is_cover(const Gather& g) {
  for (const PoolDim& dim : g.space.dim) {
    const bool few = dim.bins ? dim.input >= dim.output : dim.dilation == 1 && dim.kernel <= 2 * dim.stride;
    if (!few) return false;
  }
  const PoolDim& along = g.space.dim[2];
  return along.bins ? along.input >= 2 * along.output : along.stride >= 2;
}

/// False: not served.
template <class T, int V>
bool launch_cover(const char* op, const Gather& g, const Tensor& grad, const Tensor& dx) {
  const auto fast = gather_fast(g);
  const PoolGrid& target = g.target;
  const int64_t chunks = target.size[4] / V, total = chunks * target.size[3] * target.size[2] * target.planes();
  if (!fast || total > INT32_MAX) return false;
  const CoverPlan plan{*fast,
                       static_cast<uint32_t>(total),
                       make_divider(chunks),
                       make_divider(target.size[3]),
                       make_divider(target.size[2]),
                       make_divider(target.size[1])};
  launch(op, pool_cover<T, V>, {dim3((plan.total + 255) / 256), dim3(256)}, grad.device(), grad.data<T>(), dx.data<T>(),
         plan);
  return true;
}

}  // namespace tenor::cuda
