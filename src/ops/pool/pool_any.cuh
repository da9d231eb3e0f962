// Pooling of any layout and size: a thread a target, everything in 64 bits. Neighbouring threads have targets that are
// neighbours in memory.
#pragma once

#include "src/cuda/launch.h"
#include "src/ops/pool/pool_device.cuh"

namespace tenor::cuda {

/// The targets in the order of their memory.
struct TargetOrder {
  int64_t count;
  int dim[5];  ///< the widest stride first
};
TargetOrder order_of(const PoolGrid& target);

/// The place [N, C, D, H, W] of target i.
__device__ __forceinline__ void target_place(const TargetOrder& order, const PoolGrid& grid, int64_t i,
                                             int64_t (&at)[5]) {
  int64_t place[5] = {};
#pragma unroll
  for (int k = 4; k >= 0; --k) {
#pragma unroll
    for (int d = 0; d < 5; ++d) {  // an index known when compiling keeps `place` in registers
      if (d != order.dim[k]) continue;
      const int64_t next = i / grid.size[d];
      place[d] = i - next * grid.size[d];
      i = next;
    }
  }
#pragma unroll
  for (int d = 0; d < 5; ++d) at[d] = place[d];
}

/// fn(d, h, w, offset in the source) for every source of a target.
template <bool Back, class F>
__device__ __forceinline__ void for_sources(const Gather& g, const int64_t (&at)[5], F fn) {
  const WindowRange dr = reach<Back>(g.space.dim[0], at[2]), hr = reach<Back>(g.space.dim[1], at[3]),
                    wr = reach<Back>(g.space.dim[2], at[4]);
  for (int64_t d = dr.first; d < dr.last; d += dr.step)
    for (int64_t h = hr.first; h < hr.last; h += hr.step)
      for (int64_t w = wr.first; w < wr.last; w += wr.step) fn(d, h, w, g.source.at(at[0], at[1], d, h, w));
}

template <class Op, class T, bool Back>
__global__ void __launch_bounds__(256)
    pool_any(const T* __restrict__ x, T* __restrict__ y, Gather g, TargetOrder order) {
  using Held = typename Op::Held;
  for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < order.count; i += gridDim.x * 256ll) {
    int64_t at[5];
    target_place(order, g.target, i, at);
    Held acc = Op::identity();
    for_sources<Back>(g, at, [&](int64_t d, int64_t h, int64_t w, int64_t offset) {
      Held v = convert<Held>(x[offset]);
      if constexpr (Back) {
        if (g.uniform == 0) v = quotient_of<T>(v, volume<T, Held>(g, d, h, w));
      }
      acc = Op::join(acc, v);
    });
    if constexpr (Op::kSum) {
      if (g.uniform != 0)
        acc = quotient_of<T>(acc, divisor_of<T, Held>(g.uniform));
      else if constexpr (!Back)
        acc = quotient_of<T>(acc, volume<T, Held>(g, at[2], at[3], at[4]));
    }
    y[g.target.at(at[0], at[1], at[2], at[3], at[4])] = convert<T>(acc);
  }
}

}  // namespace tenor::cuda
