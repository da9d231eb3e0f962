// Wide windows and bins of images whose channels lie together: too few outputs for a thread each to hide the memory's
// latency. A block has one output of some channels; its threads share the window's rows and columns.
#pragma once

#include "src/cuda/launch.h"
#include "src/ops/pool/pool_channels.cuh"

namespace tenor::cuda {

inline constexpr int kWideThreads = 256, kWideRows = 8, kWideAhead = 8;

struct WidePlan {
  FastGather g;
  int lanes;  ///< that have a vector of channels each, a power of two
  Divider columns, rows, depths;
};

/// Sources first, first + hop, ... below last of a row: kWideAhead loads under way at once.
template <class Op, class T, int V>
__device__ __forceinline__ void join_row(Pack<typename Op::Held, V>& acc, const T* row, int first, int last, int hop,
                                         int64_t stride) {
  for (int w = first; w < last; w += kWideAhead * hop) {
    Pack<T, V> some[kWideAhead];
#pragma unroll
    for (int k = 0; k < kWideAhead; ++k)
      some[k] = load_or_nothing<Op, V>(row + (w + k * hop) * stride, w + k * hop < last);
#pragma unroll
    for (int k = 0; k < kWideAhead; ++k) Op::join(acc, held<Op>(some[k]));
  }
}

/// Blocks (output, group of channels). Rows are dealt to kWideRows shares, columns to as many as threads are left for.
template <class Op, class T>
__global__ void __launch_bounds__(kWideThreads) pool_wide(const T* __restrict__ x, T* __restrict__ y, WidePlan p) {
  using Held = typename Op::Held;
  constexpr int kV = kVector<T>;
  __shared__ Pack<Held, kV> parts[kWideThreads];
  const FastGather& g = p.g;
  const int lane = static_cast<int>(threadIdx.x) % p.lanes, share = static_cast<int>(threadIdx.x) / p.lanes,
            shares = kWideThreads / p.lanes, across = shares / kWideRows, row_share = share % kWideRows,
            column_share = share / kWideRows;
  const uint32_t row = divide(blockIdx.x, p.columns), depth = divide(row, p.rows), n = divide(depth, p.depths);
  const int tw = static_cast<int>(blockIdx.x - row * p.columns.divisor),
            th = static_cast<int>(row - depth * p.rows.divisor), td = static_cast<int>(depth - n * p.depths.divisor);
  const int64_t first = int64_t{blockIdx.y} * p.lanes * kV, c = first + lane * kV;
  const FastRange dr = g.dim[0].template reach<false>(td), hr = g.dim[1].template reach<false>(th),
                  wr = g.dim[2].template reach<false>(tw);
  auto acc = identity_pack<Op, kV>();
  if (c < g.target.size[1])
    for (int d = dr.first; d < dr.last; d += dr.step)
      for (int h = hr.first + row_share * hr.step; h < hr.last; h += kWideRows * hr.step)
        join_row<Op, T, kV>(acc, x + g.source.at(n, c, d, h, 0), wr.first + column_share * wr.step, wr.last,
                            across * wr.step, g.source.stride[4]);
  parts[threadIdx.x] = acc;
  __syncthreads();
  const int own = static_cast<int>(threadIdx.x);
  if (own >= p.lanes * kV || first + own >= g.target.size[1]) return;
  const Held* values = reinterpret_cast<const Held*>(parts);
  Held sum = values[own];
  for (int k = 1; k < shares; ++k) sum = Op::join(sum, values[k * p.lanes * kV + own]);
  if constexpr (Op::kSum)
    sum = quotient_of<T>(sum, g.uniform != 0 ? divisor_of<T, Held>(g.uniform) : volume<T, Held>(g, td, th, tw));
  y[g.target.at(n, first + own, td, th, tw)] = convert<T>(sum);
}

}  // namespace tenor::cuda
