// max_pool with places: the kernels of pool_channels.cuh, pool_rows.cuh and pool_any.cuh that carry where each maximum
// is.
#pragma once

#include "src/ops/pool/pool_gather.cuh"

namespace tenor::cuda {

/// A maximum and its index; none yet where the index is negative.
template <class C, class I>
struct Best {
  C value;
  I index;

  /// Candidates that come in the order of their indices: the first NaN, else the first of equals.
  __device__ __forceinline__ void offer(C v, I at) {
    if (index < 0 || v > value || (v != v && value == value)) value = v, index = at;
  }
  /// In any order.
  __device__ __forceinline__ void meet(C v, I at) {
    if (at < 0) return;
    const bool same = v == value || (v != v && value != value);
    if (index < 0 || v > value || (v != v && value == value) || (same && at < index)) value = v, index = at;
  }
};

template <class T>
__device__ __forceinline__ Best<core::Compute<T>, int> no_best() {
  return {convert<core::Compute<T>>(MaxOp<T>::identity()), -1};
}

struct PlacesTarget {
  int64_t* data;
  PoolGrid grid;
};

template <class T, int V>
__global__ void __launch_bounds__(256)
    pool_channels_places(const T* __restrict__ x, T* __restrict__ y, PlacesTarget places, ChannelsPlan p) {
  using C = core::Compute<T>;
  const uint32_t i = blockIdx.x * 256u + threadIdx.x;
  if (i >= p.total) return;
  const FastGather& g = p.g;
  const ChannelsPlace at = channels_place<V>(p, i);
  const FastRange dr = g.dim[0].inputs(at.d), hr = g.dim[1].inputs(at.h), wr = g.dim[2].inputs(at.w);
  Best<C, int> best[V];
#pragma unroll
  for (int v = 0; v < V; ++v) best[v] = no_best<T>();
  for (int d = dr.first; d < dr.last; d += dr.step)
    for (int h = hr.first; h < hr.last; h += hr.step) {
      const T* line = x + g.source.at(at.n, at.c, d, h, 0);
      const int base = static_cast<int>(g.source.flat(d, h, 0));
#pragma unroll 3
      for (int w = wr.first; w < wr.last; w += wr.step) {
        C wide[V];
        widen_pack(load_pack<V>(line + w * g.source.stride[4]), wide);
#pragma unroll
        for (int v = 0; v < V; ++v) best[v].offer(wide[v], base + w);
      }
    }
  C values[V];
#pragma unroll
  for (int v = 0; v < V; ++v) values[v] = best[v].value;
  store_pack(y + g.target.at(at.n, at.c, at.d, at.h, at.w), convert_pack<T>(values));
  int64_t* to = places.data + places.grid.at(at.n, at.c, at.d, at.h, at.w);
#pragma unroll
  for (int v = 0; v < V; ++v) to[v * places.grid.stride[1]] = best[v].index;
}

template <class T, int V>
__global__ void __launch_bounds__(kRowsThreads)
    pool_rows_places(const T* __restrict__ x, T* __restrict__ y, PlacesTarget places, RowsPlan p) {
  using C = core::Compute<T>;
  extern __shared__ __align__(16) char shared[];
  T* values = reinterpret_cast<T*>(shared);
  const size_t after_values = (sizeof(T) * p.rows * p.pitch + 15) / 16 * 16;
  int* lines = reinterpret_cast<int*>(shared + after_values);  // the flat index of the source row's first element
  BlockRow* rows = reinterpret_cast<BlockRow*>(shared + after_values + (sizeof(int) * p.rows * p.pitch + 15) / 16 * 16);

  const FastGather& g = p.g;
  const FastDim& along = g.dim[2];
  const BlockTile tile = block_tile<V, false>(p);
  for (int r = threadIdx.x; r < p.rows; r += kRowsThreads) rows[r] = block_row<false>(p, tile.group * p.rows + r);
  __syncthreads();
  for (int i = threadIdx.x; i < p.rows * tile.chunks; i += kRowsThreads) {
    const int r = quotient(i, tile.chunks, p.by_chunks), chunk = i - r * tile.chunks;
    const BlockRow row = rows[r];
    if (row.target < 0) break;
    Best<C, int> best[V];
#pragma unroll
    for (int v = 0; v < V; ++v) best[v] = no_best<T>();
    const T* at = x + row.source + tile.origin + chunk * V;
    for (int d = row.d_first; d < row.d_last; d += row.d_step)
#pragma unroll 3
      for (int h = row.h_first; h < row.h_last; h += row.h_step) {
        C wide[V];
        widen_pack(load_pack<V>(at + d * g.source.stride[2] + h * g.source.stride[3]), wide);
        const int base = static_cast<int>(g.source.flat(d, h, 0));
#pragma unroll
        for (int v = 0; v < V; ++v) best[v].offer(wide[v], base);
      }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      values[r * p.pitch + chunk * V + v] = convert<T>(best[v].value);
      lines[r * p.pitch + chunk * V + v] = best[v].index;
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < p.rows * tile.targets; i += kRowsThreads) {
    const int r = quotient(i, tile.targets, p.by_tile), t = tile.first + i - r * tile.targets;
    if (rows[r].target < 0) break;
    const FastRange wr = along.inputs(t);
    Best<C, int> best = no_best<T>();
    for (int w = wr.first; w < wr.last; w += wr.step) {
      const int line = lines[r * p.pitch + w - tile.origin];
      best.meet(convert<C>(values[r * p.pitch + w - tile.origin]), line < 0 ? -1 : line + w);
    }
    y[rows[r].target + t * g.target.stride[4]] = convert<T>(best.value);
    // The places' own strides: a row's number gives its place again.
    const uint32_t row = tile.group * p.rows + r, depth = divide(row, p.heights), plane = divide(depth, p.depths),
                   n = divide(plane, p.channels);
    places.data[places.grid.at(n, plane - n * p.channels.divisor, depth - plane * p.depths.divisor,
                               row - depth * p.heights.divisor, t)] = best.index;
  }
}

template <class T>
__global__ void __launch_bounds__(256)
    pool_any_places(const T* __restrict__ x, T* __restrict__ y, PlacesTarget places, Gather g, TargetOrder order) {
  using C = core::Compute<T>;
  for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < order.count; i += gridDim.x * 256ll) {
    int64_t at[5];
    target_place(order, g.target, i, at);
    Best<C, int64_t> best{convert<C>(MaxOp<T>::identity()), -1};
    for_sources<false>(g, at, [&](int64_t d, int64_t h, int64_t w, int64_t offset) {
      best.offer(convert<C>(x[offset]), g.source.flat(d, h, w));
    });
    y[g.target.at(at[0], at[1], at[2], at[3], at[4])] = convert<T>(best.value);
    places.data[places.grid.at(at[0], at[1], at[2], at[3], at[4])] = best.index;
  }
}

template <class T, int V>
bool launch_places(const GatherCall<T>& call, const PlacesTarget& places) {
  const Device device = call.source.device();
  if (const auto plan = plan_channels(call.g, V)) {
    launch(call.op, pool_channels_places<T, V>, {dim3((plan->total + 255) / 256), dim3(256)}, device, call.from(),
           call.to(), places, *plan);
    return true;
  }
  return false;
}
template <class T, int V>
bool launch_row_places(const GatherCall<T>& call, const PlacesTarget& places) {
  const auto rows = plan_rows(call.g, V, sizeof(T) + sizeof(int), false);
  if (!rows) return false;
  const Grid grid{dim3(rows->blocks), dim3(kRowsThreads), rows->shared + 32};
  launch(call.op, pool_rows_places<T, V>, grid, call.source.device(), call.from(), call.to(), places, rows->plan);
  return true;
}

template <class T>
void gather_places(const GatherCall<T>& call, const PlacesTarget& places) {
  constexpr int kWhole = kVector<T>;
  const bool narrow = call.g.source.plane() <= INT32_MAX;  // 32 bits hold every index
  if constexpr (kTuned<T>) {
    if (narrow && channel_vector(call.g, call.source, call.target) == kWhole && launch_places<T, kWhole>(call, places))
      return;
    if (narrow && row_vector(call.g, call.source) == kWhole && launch_row_places<T, kWhole>(call, places)) return;
  }
  const bool channels = call.g.source.stride[1] == 1 && call.g.source.size[1] > 1;  // coalesced as they are
  if (narrow && !channels && launch_row_places<T, 1>(call, places)) return;
  const TargetOrder order = order_of(call.g.target);
  launch(call.op, pool_any_places<T>, {dim3(blocks_for(order.count, 256, call.source.device())), dim3(256)},
         call.source.device(), call.from(), call.to(), places, call.g, order);
}

}  // namespace tenor::cuda
