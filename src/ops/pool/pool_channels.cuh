// Pooling of images whose channels lie together: a thread has V neighbouring channels of a target.
#pragma once

#include "src/cuda/launch.h"
#include "src/ops/pool/pool_device.cuh"
#include "src/ops/pool/pool_fast.cuh"

namespace tenor::cuda {

struct ChannelsPlan {
  FastGather g;
  uint32_t total;  ///< threads
  Divider vectors, columns, rows, depths;
};

/// The place of a thread's target.
struct ChannelsPlace {
  int64_t n, c;
  int d, h, w;
};
template <int V>
__device__ __forceinline__ ChannelsPlace channels_place(const ChannelsPlan& p, uint32_t i) {
  const uint32_t pixel = divide(i, p.vectors), row = divide(pixel, p.columns), depth = divide(row, p.rows),
                 n = divide(depth, p.depths);
  return {n, int64_t{i - pixel * p.vectors.divisor} * V, static_cast<int>(depth - n * p.depths.divisor),
          static_cast<int>(row - depth * p.rows.divisor), static_cast<int>(pixel - row * p.columns.divisor)};
}

template <class Op, class T, int V, bool Back>
__global__ void __launch_bounds__(256) pool_channels(const T* __restrict__ x, T* __restrict__ y, ChannelsPlan p) {
  const uint32_t i = blockIdx.x * 256u + threadIdx.x;
  if (i >= p.total) return;
  const FastGather& g = p.g;
  const ChannelsPlace at = channels_place<V>(p, i);
  const FastRange dr = g.dim[0].template reach<Back>(at.d), hr = g.dim[1].template reach<Back>(at.h),
                  wr = g.dim[2].template reach<Back>(at.w);
  const int64_t stride = g.source.stride[4];
  auto acc = identity_pack<Op, V>();
  for (int d = dr.first; d < dr.last; d += dr.step)
    for (int h = hr.first; h < hr.last; h += hr.step) {
      const T* row = x + g.source.at(at.n, at.c, d, h, 0);
      auto line = identity_pack<Op, V>();
#pragma unroll 4
      for (int w = wr.first; w < wr.last; w += wr.step) {
        auto wide = held<Op>(load_pack<V>(row + w * stride));
        if constexpr (Back) {
          if (g.uniform == 0) divide_pack<T>(wide, volume<T, typename Op::Held>(g, d, h, w));
        }
        Op::join(line, wide);
      }
      Op::join(acc, line);
    }
  T* to = y + g.target.at(at.n, at.c, at.d, at.h, at.w);
  if constexpr (Op::kSum) {
    if (g.uniform != 0)
      divide_pack<T>(acc, divisor_of<T, typename Op::Held>(g.uniform));
    else if constexpr (!Back)
      divide_pack<T>(acc, volume<T, typename Op::Held>(g, at.d, at.h, at.w));
    store_pack(to, convert_pack<T>(acc.at));
  } else {
    store_pack(to, acc);
  }
}

}  // namespace tenor::cuda
