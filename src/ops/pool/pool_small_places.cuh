// max_pool with places by windows of up to 3 x 3, known when compiled: as pool_small.cuh, and beside each maximum the
// row, then the column, that it comes from.
#pragma once

#include "src/ops/pool/pool_places.cuh"
#include "src/ops/pool/pool_small.cuh"

namespace tenor::cuda {

inline constexpr int kNoRow = 15;  ///< past every row: nothing was read

/// A candidate that comes after the best one in the order of places: the first NaN, else the first of the largest.
template <class C>
__device__ __forceinline__ void offer_row(C& best, int& row, C v, int k) {
  if (row == kNoRow || (!(v <= best) && best == best)) best = v, row = k;
}
/// Of the next column, where the lower row wins among equals.
template <class C>
__device__ __forceinline__ void meet_column(C& best, int& row, int& column, C v, int k, int l) {
  const bool nan = v != v, had_nan = best != best, same = v == best || (nan && had_nan);
  if (k != kNoRow && (row == kNoRow || (!(v <= best) && !had_nan) || (same && k < row))) best = v, row = k, column = l;
}

/// Channels together: a thread has V channels of one output.
template <class T, int V, int K>
__global__ void __launch_bounds__(kChannelThreads)
    small_channels_places(const T* __restrict__ x, T* __restrict__ y, PlacesTarget places, SmallPlan p) {
  using C = core::Compute<T>;
  const uint32_t i = blockIdx.x * uint32_t{kChannelThreads} + threadIdx.x;
  if (i >= p.total) return;
  const FastGather& g = p.g;
  const ChannelTarget t = channel_target<V>(p, i);
  if (t.h >= g.dim[1].output) return;
  Pack<T, V> v[K][K];
  bool inside[K][K];
  load_window(x, g, t, T{}, v, inside);
  const int h0 = t.h * g.dim[1].stride - g.dim[1].before, w0 = t.w * g.dim[2].stride - g.dim[2].before;
  C best[V];
  int at[V];
#pragma unroll
  for (int e = 0; e < V; ++e) best[e] = convert<C>(MaxOp<T>::identity()), at[e] = kNoRow;
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int l = 0; l < K; ++l) {
      if (!inside[k][l]) continue;
      C wide[V];
      widen_pack(v[k][l], wide);
#pragma unroll
      for (int e = 0; e < V; ++e) offer_row(best[e], at[e], wide[e], 4 * k + l);
    }
  store_pack(y + g.target.at(t.n, t.c, 0, t.h, t.w), convert_pack<T>(best));
  int64_t* to = places.data + places.grid.at(t.n, t.c, 0, t.h, t.w);
  const int width = g.dim[2].input;
#pragma unroll
  for (int e = 0; e < V; e += 2) {
    Pack<int64_t, 2> two;
#pragma unroll
    for (int k = 0; k < 2; ++k)
      two.at[k] = at[e + k] == kNoRow ? -1 : (h0 + at[e + k] / 4) * width + w0 + at[e + k] % 4;
    store_pack(to + e, two);
  }
}

/// Rows together: a thread has V elements of up to K rows and one element on either side of them.
template <class T, int V, int K, int S, int P>
__global__ void __launch_bounds__(256)
    small_rows_places(const T* __restrict__ x, T* __restrict__ y, PlacesTarget places, SmallPlan p) {
  using C = core::Compute<T>;
  constexpr int kOut = V / S, kRight = K - S - P;
  const uint32_t i = blockIdx.x * 256u + threadIdx.x;
  if (i >= p.total) return;
  const FastGather& g = p.g;
  const RowTarget t = row_target(p, i, V);
  const RowWindows<T, V, K> rows = load_rows<MaxOp<T>, T, V, K, (P > 0), (kRight > 0)>(x, g, t);
  const int h0 = t.h * g.dim[1].stride - g.dim[1].before, width = g.dim[2].input;
  C best[V + 2];  // [1 + k] is of column w + k
  int row[V + 2];
#pragma unroll
  for (int k = 0; k < V + 2; ++k) best[k] = convert<C>(MaxOp<T>::identity()), row[k] = kNoRow;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    if (!row_inside(g, t.h, k)) continue;
    C wide[V];
    widen_pack(rows.middle[k], wide);
    if (P > 0 && t.w > 0) offer_row(best[0], row[0], convert<C>(rows.left[k]), k);
    if (kRight > 0 && t.w + V < width) offer_row(best[V + 1], row[V + 1], convert<C>(rows.right[k]), k);
#pragma unroll
    for (int e = 0; e < V; ++e)
      if (t.w < width) offer_row(best[1 + e], row[1 + e], wide[e], k);
  }
  const int t0 = t.w / S, targets = g.dim[2].output;
  C values[kOut];
  int64_t at[kOut];
#pragma unroll
  for (int o = 0; o < kOut; ++o) {
    const int first = 1 + o * S - P;
    C v = best[first];
    int r = row[first], l = first;
#pragma unroll
    for (int k = 1; k < K; ++k) meet_column(v, r, l, best[first + k], row[first + k], first + k);
    values[o] = v;
    at[o] = r == kNoRow ? -1 : (h0 + r) * width + t.w + l - 1;
  }
  const Pack<T, kOut> out = convert_pack<T>(values);
  T* to = y + g.target.at(t.n, t.c, 0, t.h, t0);
  int64_t* places_to = places.data + places.grid.at(t.n, t.c, 0, t.h, t0);
  if (p.whole_stores) {
    store_pack(to, out);
#pragma unroll
    for (int o = 0; o < kOut; o += 2) store_pack(places_to + o, Pack<int64_t, 2>{at[o], at[o + 1]});
    return;
  }
#pragma unroll
  for (int o = 0; o < kOut; ++o)
    if (t0 + o < targets) to[o * g.target.stride[4]] = out.at[o], places_to[o * places.grid.stride[4]] = at[o];
}

/// Rows of any length: a thread has one output, its elements one by one.
template <class T, int K>
__global__ void __launch_bounds__(256)
    small_single_places(const T* __restrict__ x, T* __restrict__ y, PlacesTarget places, SmallPlan p) {
  using C = core::Compute<T>;
  const uint32_t i = blockIdx.x * 256u + threadIdx.x;
  if (i >= p.total) return;
  const FastGather& g = p.g;
  const RowTarget t = row_target(p, i, 1);
  T v[K][K];
  bool inside[K][K];
  load_single<T, K>(x, g, t, T{}, v, inside);
  C best = convert<C>(MaxOp<T>::identity());
  int at = kNoRow;
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int l = 0; l < K; ++l)
      if (inside[k][l]) offer_row(best, at, convert<C>(v[k][l]), 4 * k + l);
  y[g.target.at(t.n, t.c, 0, t.h, t.w)] = convert<T>(best);
  const int h0 = t.h * g.dim[1].stride - g.dim[1].before, w0 = t.w * g.dim[2].stride - g.dim[2].before;
  places.data[places.grid.at(t.n, t.c, 0, t.h, t.w)] = at == kNoRow ? -1 : (h0 + at / 4) * g.dim[2].input + w0 + at % 4;
}

template <class T, int K>
bool small_single_places_of(const GatherCall<T>& call, SmallPlan p, const PlacesTarget& places) {
  if (!plan_rows_of(p, p.g.target.size[3], 1)) return false;
  launch(call.op, small_single_places<T, K>, {dim3((p.total + 255) / 256), dim3(256)}, call.source.device(),
         call.from(), call.to(), places, p);
  return true;
}

template <class T, int K>
bool small_channels_places_of(const GatherCall<T>& call, SmallPlan p, const PlacesTarget& places) {
  constexpr int kWhole = kVector<T>;
  const PoolGrid& target = p.g.target;
  const int64_t pairs = (target.size[3] + 1) / 2,
                total = target.size[1] / kWhole * 2 * target.size[4] * pairs * target.size[0];
  if (total > INT32_MAX) return false;
  plan_channels_of(p, total, target.size[1] / kWhole, pairs);
  launch(call.op, small_channels_places<T, kWhole, K>,
         {dim3((p.total + kChannelThreads - 1) / kChannelThreads), dim3(kChannelThreads)}, call.source.device(),
         call.from(), call.to(), places, p);
  return true;
}

template <class T, int V, int K, int S, int P>
bool small_rows_places_of(const GatherCall<T>& call, SmallPlan p, const PlacesTarget& places) {
  constexpr int kOut = V / S;
  if (!plan_rows_of(p, p.g.target.size[3], kOut)) return false;
  p.whole_stores = whole_rows(p.g.target, call.to(), kOut) && whole_rows(places.grid, places.data, 2);
  launch(call.op, small_rows_places<T, V, K, S, P>, {dim3((p.total + 255) / 256), dim3(256)}, call.source.device(),
         call.from(), call.to(), places, p);
  return true;
}

/// False where none of these kernels serves the problem.
template <class T>
bool small_places(const GatherCall<T>& call, const PlacesTarget& places) {
  constexpr int kWhole = kVector<T>;
  const Gather& g = call.g;
  const auto plan = small_plan(g);
  if (!plan || g.source.plane() > INT32_MAX) return false;
  const FastDim& w = plan->g.dim[2];
  const bool together = g.target.size[1] > 1 && g.source.stride[1] == 1 && g.target.stride[1] == 1;
  if (together) {
    bool whole = channel_vector(g, call.source, call.target) == kWhole && places.grid.stride[1] == 1 &&
                 is_aligned(places.data, 0, sizeof(int64_t));
    for (int d = 0; d < 5; ++d) whole = whole && (d == 1 || places.grid.size[d] == 1 || places.grid.stride[d] % 2 == 0);
    if (!whole) return false;
    return w.kernel == 3 ? small_channels_places_of<T, 3>(call, *plan, places)
                         : small_channels_places_of<T, 2>(call, *plan, places);
  }
  if (g.source.stride[4] != 1) return false;
  const int vector = row_vector(g, call.source);
  if (w.kernel == 3 && w.before == 1 && w.stride == 2) {
    if (vector == kWhole) return small_rows_places_of<T, kWhole, 3, 2, 1>(call, *plan, places);
    if (vector == 4) return small_rows_places_of<T, 4, 3, 2, 1>(call, *plan, places);
  }
  if (w.kernel == 2 && w.before == 0 && w.stride == 2) {
    if (vector == kWhole) return small_rows_places_of<T, kWhole, 2, 2, 0>(call, *plan, places);
    if (vector == 4) return small_rows_places_of<T, 4, 2, 2, 0>(call, *plan, places);
  }
  return w.kernel == 3 ? small_single_places_of<T, 3>(call, *plan, places)
                       : small_single_places_of<T, 2>(call, *plan, places);
}

}  // namespace tenor::cuda
