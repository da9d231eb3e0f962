// Pooling of images by windows of up to 3 x 3, known when compiled: every element that a thread needs is under way
// before the first is used.
#pragma once

#include "src/cuda/launch.h"
#include "src/ops/pool/pool_device.cuh"
#include "src/ops/pool/pool_fast.cuh"
#include "src/ops/pool/pool_plan.h"
#include "src/ops/pool/pool_tuned.h"

namespace tenor::cuda {

struct SmallPlan {
  FastGather g;
  uint32_t total;  ///< threads
  Divider inner, rows,
      c;  ///< of rows: threads a row, rows of a plane, channels. Of channels: vectors, columns, pairs of rows
  bool whole_stores;  ///< rows: a thread's outputs are one aligned access
  bool whole_loads;   ///< so are the windows that a gradient reads
};

/// The divisor of a window, as quotient_of() takes it: that of every one, or what the counts of its dims give.
template <class T, class Held>
__device__ __forceinline__ Held window_divisor(const FastGather& g, int h, int w) {
  return g.uniform != 0 ? divisor_of<T, Held>(g.uniform) : divisor_of<T, Held>(g.count(1, h) * g.count(2, w));
}

inline constexpr int kChannelThreads = 128;

/// Row k of a window is read by the threads of target row `h`.
__device__ __forceinline__ bool row_inside(const FastGather& g, int h, int k) {
  const int at = h * g.dim[1].stride - g.dim[1].before + k;
  return static_cast<unsigned>(at) < static_cast<unsigned>(g.dim[1].input) && k < g.dim[1].kernel;
}
__device__ __forceinline__ bool column_inside(const FastGather& g, int w) {
  return static_cast<unsigned>(w) < static_cast<unsigned>(g.dim[2].input);
}

/// A thread's target of channels together: neighbouring warps have outputs above and beside one another, so that a
/// block reads few elements that others read too.
struct ChannelTarget {
  uint32_t n;
  int c, h, w;
};
template <int V>
__device__ __forceinline__ ChannelTarget channel_target(const SmallPlan& p, uint32_t i) {
  const uint32_t pixel = divide(i, p.inner), column = pixel / 2, pair = divide(column, p.rows), n = divide(pair, p.c);
  return {n, static_cast<int>(i - pixel * p.inner.divisor) * V,
          static_cast<int>(2 * (pair - n * p.c.divisor) + pixel % 2), static_cast<int>(column - pair * p.rows.divisor)};
}
/// A target's window of V channels each; `nothing` where it lies outside.
template <class T, int V, int K>
__device__ __forceinline__ void load_window(const T* x, const FastGather& g, const ChannelTarget& t, T nothing,
                                            Pack<T, V> (&v)[K][K], bool (&inside)[K][K]) {
  const int h0 = t.h * g.dim[1].stride - g.dim[1].before, w0 = t.w * g.dim[2].stride - g.dim[2].before;
  const T* at = x + t.n * g.source.stride[0] + t.c + h0 * g.source.stride[3] + w0 * g.source.stride[4];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const bool row = row_inside(g, t.h, k);
    const T* line = at + k * g.source.stride[3];
#pragma unroll
    for (int l = 0; l < K; ++l) {
      inside[k][l] = row && column_inside(g, w0 + l);
#pragma unroll
      for (int e = 0; e < V; ++e) v[k][l].at[e] = nothing;
      if (inside[k][l]) v[k][l] = load_pack<V>(line + l * g.source.stride[4]);
    }
  }
}

/// Channels together: a thread has V channels of one output.
template <class Op, class T, int V, int K>
__global__ void __launch_bounds__(kChannelThreads)
    pool_small_channels(const T* __restrict__ x, T* __restrict__ y, SmallPlan p) {
  const uint32_t i = blockIdx.x * uint32_t{kChannelThreads} + threadIdx.x;
  if (i >= p.total) return;
  const FastGather& g = p.g;
  const ChannelTarget t = channel_target<V>(p, i);
  if (t.h >= g.dim[1].output) return;
  Pack<T, V> v[K][K];
  bool inside[K][K];
  load_window(x, g, t, Op::nothing(), v, inside);
  auto acc = identity_pack<Op, V>();
#pragma unroll
  for (int k = 0; k < K; ++k) {
    auto line = held<Op>(v[k][0]);
#pragma unroll
    for (int l = 1; l < K; ++l) Op::join(line, held<Op>(v[k][l]));
    Op::join(acc, line);
  }
  if constexpr (Op::kSum) divide_pack<T>(acc, window_divisor<T, typename Op::Held>(g, t.h, t.w));
  T* to = y + g.target.at(t.n, t.c, 0, t.h, t.w);
  if constexpr (Op::kSum)
    store_pack(to, convert_pack<T>(acc.at));
  else
    store_pack(to, acc);
}

/// A thread's targets of rows together: those whose windows begin in elements w .. w + V - 1.
struct RowTarget {
  uint32_t n;
  int64_t c;
  int h, w, chunk;
};
__device__ __forceinline__ RowTarget row_target(const SmallPlan& p, uint32_t i, int elements) {
  const uint32_t row = divide(i, p.inner), plane = divide(row, p.rows), n = divide(plane, p.c);
  const int chunk = static_cast<int>(i - row * p.inner.divisor);
  return {n, plane - n * p.c.divisor, static_cast<int>(row - plane * p.rows.divisor), chunk * elements, chunk};
}

/// The up to K rows of V elements that they read, and one element on either side: `Left`, `Right` say which.
template <class T, int V, int K>
struct RowWindows {
  Pack<T, V> middle[K];
  T left[K], right[K];
};
template <class Op, class T, int V, int K, bool Left, bool Right>
__device__ __forceinline__ RowWindows<T, V, K> load_rows(const T* x, const FastGather& g, const RowTarget& t) {
  const int h0 = t.h * g.dim[1].stride - g.dim[1].before, width = g.dim[2].input;
  const T* at = x + t.n * g.source.stride[0] + t.c * g.source.stride[1] + h0 * g.source.stride[3] + t.w;
  RowWindows<T, V, K> out;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const bool inside = row_inside(g, t.h, k);
    const T* line = at + k * g.source.stride[3];
#pragma unroll
    for (int e = 0; e < V; ++e) out.middle[k].at[e] = Op::nothing();
    out.left[k] = out.right[k] = Op::nothing();
    if (inside && t.w < width) out.middle[k] = load_pack<V>(line);
    if (Left && inside && t.w > 0) out.left[k] = line[-1];
    if (Right && inside && t.w + V < width) out.right[k] = line[V];
  }
  return out;
}

/// e[1 + k] is what the rows make of element w + k.
template <class Op, class T, int V, int K>
__device__ __forceinline__ void combine_columns(const RowWindows<T, V, K>& rows, typename Op::Held (&e)[V + 2]) {
  using Held = typename Op::Held;
  auto acc = held<Op>(rows.middle[0]);
  e[0] = convert<Held>(rows.left[0]), e[V + 1] = convert<Held>(rows.right[0]);
#pragma unroll
  for (int k = 1; k < K; ++k) {
    Op::join(acc, held<Op>(rows.middle[k]));
    e[0] = Op::join(e[0], convert<Held>(rows.left[k])), e[V + 1] = Op::join(e[V + 1], convert<Held>(rows.right[k]));
  }
#pragma unroll
  for (int k = 0; k < V; ++k) e[1 + k] = acc.at[k];
}

/// Rows together: a thread combines the rows that its V / S outputs read, then reads its windows from registers. P is
/// the padding before a row.
template <class Op, class T, int V, int K, int S, int P>
__global__ void __launch_bounds__(256) pool_small_rows(const T* __restrict__ x, T* __restrict__ y, SmallPlan p) {
  using Held = typename Op::Held;
  constexpr int kOut = V / S, kRight = K - S - P;  // elements past the V
  static_assert(P <= 1 && kRight <= 1);
  const uint32_t i = blockIdx.x * 256u + threadIdx.x;
  if (i >= p.total) return;
  const FastGather& g = p.g;
  const RowTarget t = row_target(p, i, V);
  Held e[V + 2];
  combine_columns<Op>(load_rows<Op, T, V, K, (P > 0), (kRight > 0)>(x, g, t), e);
  const int t0 = t.chunk * kOut, targets = g.dim[2].output;
  const int64_t rows = Op::kSum && g.uniform == 0 ? g.count(1, t.h) : 1;
  [[maybe_unused]] const auto uniform = divisor_of<T, core::Compute<T>>(g.uniform);
  Pack<T, kOut> out;
#pragma unroll
  for (int o = 0; o < kOut; ++o) {
    Held v = e[1 + o * S - P];
#pragma unroll
    for (int k = 1; k < K; ++k) v = Op::join(v, e[1 + o * S - P + k]);
    if constexpr (Op::kSum)
      v = quotient_of<T>(v, g.uniform != 0 ? uniform : divisor_of<T, Held>(rows * g.count(2, t0 + o)));
    out.at[o] = convert<T>(v);
  }
  T* to = y + g.target.at(t.n, t.c, 0, t.h, t0);
  if (p.whole_stores) return store_pack(to, out);
#pragma unroll
  for (int o = 0; o < kOut; ++o)
    if (t0 + o < targets) to[o * g.target.stride[4]] = out.at[o];
}

/// The window of one output, element by element; `nothing` where it lies outside.
template <class T, int K>
__device__ __forceinline__ void load_single(const T* x, const FastGather& g, const RowTarget& t, T nothing,
                                            T (&v)[K][K], bool (&inside)[K][K]) {
  const int h0 = t.h * g.dim[1].stride - g.dim[1].before, w0 = t.w * g.dim[2].stride - g.dim[2].before;
  const T* at = x + t.n * g.source.stride[0] + t.c * g.source.stride[1] + h0 * g.source.stride[3] + w0;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const bool row = row_inside(g, t.h, k);
#pragma unroll
    for (int l = 0; l < K; ++l) {
      inside[k][l] = row && column_inside(g, w0 + l);
      v[k][l] = nothing;
      if (inside[k][l]) v[k][l] = at[k * g.source.stride[3] + l];
    }
  }
}

/// Rows of any length: a thread has one output, its elements one by one.
template <class Op, class T, int K>
__global__ void __launch_bounds__(256) pool_small_single(const T* __restrict__ x, T* __restrict__ y, SmallPlan p) {
  using Held = typename Op::Held;
  const uint32_t i = blockIdx.x * 256u + threadIdx.x;
  if (i >= p.total) return;
  const FastGather& g = p.g;
  const RowTarget t = row_target(p, i, 1);
  T v[K][K];
  bool inside[K][K];
  load_single(x, g, t, Op::nothing(), v, inside);
  Held acc = Op::identity();
#pragma unroll
  for (int l = 0; l < K; ++l) {  // columns first, as where rows are read in vectors
    Held column = convert<Held>(v[0][l]);
#pragma unroll
    for (int k = 1; k < K; ++k) column = Op::join(column, convert<Held>(v[k][l]));
    acc = l == 0 ? column : Op::join(acc, column);
  }
  if constexpr (Op::kSum) acc = quotient_of<T>(acc, window_divisor<T, Held>(g, t.h, t.w));
  y[g.target.at(t.n, t.c, 0, t.h, t.w)] = convert<T>(acc);
}

/// The plan of a thread for every vector of channels of an output, pairs of rows together.
inline void plan_channels_of(SmallPlan& p, int64_t total, int64_t vectors, int64_t pairs) {
  p.total = static_cast<uint32_t>(total);
  p.inner = make_divider(vectors), p.rows = make_divider(p.g.target.size[4]), p.c = make_divider(pairs);
}

template <class Op, class T, int K>
bool small_channels(const char* op, SmallPlan p, const Tensor& x, const Tensor& y) {
  constexpr int kWhole = kVector<T>;
  const FastGather& g = p.g;
  const int64_t c = g.target.size[1], pairs = (g.target.size[3] + 1) / 2;
  const int64_t total = c / kWhole * 2 * g.target.size[4] * pairs * g.target.size[0];
  if (total > INT32_MAX) return false;
  plan_channels_of(p, total, c / kWhole, pairs);
  launch(op, pool_small_channels<Op, T, kWhole, K>,
         {dim3((p.total + kChannelThreads - 1) / kChannelThreads), dim3(kChannelThreads)}, x.device(), x.data<T>(),
         y.data<T>(), p);
  return true;
}

/// The plan of a thread for every `outputs` neighbours of each of a plane's `rows`; false beyond 32 bits.
inline bool plan_rows_of(SmallPlan& p, int64_t rows, int outputs) {
  const PoolGrid& target = p.g.target;
  const int64_t chunks = (target.size[4] + outputs - 1) / outputs, total = chunks * rows * target.planes();
  if (total > INT32_MAX) return false;
  p.total = static_cast<uint32_t>(total);
  p.inner = make_divider(chunks), p.rows = make_divider(rows), p.c = make_divider(target.size[1]);
  return true;
}

/// Whether `n` neighbours of a row, from each multiple of n on, are one aligned access.
template <class T>
bool whole_rows(const PoolGrid& grid, const T* data, int n) {
  bool whole = grid.size[4] % n == 0 && (grid.size[4] == 1 || grid.stride[4] == 1) &&
               is_aligned(data, 0, sizeof(T), static_cast<int>(sizeof(T)) * n);
  for (int d = 0; d < 4; ++d) whole = whole && (grid.size[d] == 1 || grid.stride[d] % n == 0);
  return whole;
}

template <class Op, class T, int K>
bool small_single(const char* op, SmallPlan p, const Tensor& x, const Tensor& y) {
  if (!plan_rows_of(p, p.g.target.size[3], 1)) return false;
  launch(op, pool_small_single<Op, T, K>, {dim3((p.total + 255) / 256), dim3(256)}, x.device(), x.data<T>(),
         y.data<T>(), p);
  return true;
}

template <class Op, class T, int V, int K, int S, int P>
bool small_rows(const char* op, SmallPlan p, const Tensor& x, const Tensor& y) {
  constexpr int kOut = V / S;
  if (!plan_rows_of(p, p.g.target.size[3], kOut)) return false;
  p.whole_stores = whole_rows(p.g.target, y.data<T>(), kOut);
  launch(op, pool_small_rows<Op, T, V, K, S, P>, {dim3((p.total + 255) / 256), dim3(256)}, x.device(), x.data<T>(),
         y.data<T>(), p);
  return true;
}

/// The windows that models have: 3 x 3 with a stride of 2 or 1, 2 x 2 with one of 2.
template <class Op, class T, int V>
bool small_rows_of(const char* op, const SmallPlan& p, const Tensor& x, const Tensor& y) {
  const FastDim& w = p.g.dim[2];
  if (w.kernel == 3 && w.stride == 2 && w.before == 1) return small_rows<Op, T, V, 3, 2, 1>(op, p, x, y);
  if (w.kernel == 3 && w.stride == 2 && w.before == 0) return small_rows<Op, T, V, 3, 2, 0>(op, p, x, y);
  if (w.kernel == 3 && w.stride == 1 && w.before == 1) return small_rows<Op, T, V, 3, 1, 1>(op, p, x, y);
  if (w.kernel == 2 && w.stride == 2 && w.before == 0) return small_rows<Op, T, V, 2, 2, 0>(op, p, x, y);
  return false;
}

/// The plan of windows of up to 3 x 3 in two dims, where 32 bits count.
inline std::optional<SmallPlan> small_plan(const Gather& g) {
  const auto fast = gather_fast(g);
  const bool flat = g.source.size[2] == 1 && g.target.size[2] == 1 && g.space.dim[0].kernel == 1;
  if (!fast || small_kernel(g) == 0 || !flat) return {};
  return SmallPlan{*fast, 0, {}, {}, {}, false, false};
}

/// False where none of these kernels serves the problem.
template <template <class> class OpOf, class T>
bool small(const pool::Problem& p, const Gather& g, const Tensor& x, const Tensor& y) {
  using Op = OpOf<T>;
  const auto fits = small_plan(g);
  if (!fits) return false;
  const SmallPlan& plan = *fits;
  const int kernel = small_kernel(g);
  constexpr int kWhole = kVector<T>;
  const bool together = g.target.size[1] > 1 && g.source.stride[1] == 1 && g.target.stride[1] == 1;
  if (together && channel_vector(g, x, y) == kWhole)
    return kernel == 3 ? small_channels<Op, T, 3>(p.op, plan, x, y) : small_channels<Op, T, 2>(p.op, plan, x, y);
  if (g.source.stride[4] != 1) return false;
  const int vector = row_vector(g, x);
  if (vector == kWhole && small_rows_of<Op, T, kWhole>(p.op, plan, x, y)) return true;
  if constexpr (kWhole == 8) {
    if (vector == 4 && small_rows_of<Op, T, 4>(p.op, plan, x, y)) return true;
  }
  return kernel == 3 ? small_single<Op, T, 3>(p.op, plan, x, y) : small_single<Op, T, 2>(p.op, plan, x, y);
}

/// For the dtypes that models run in.
template <template <class> class OpOf>
bool small_windows(const pool::Problem& p, const Gather& g, const Tensor& x, const Tensor& y) {
  switch (x.dtype()) {
    case DType::kBFloat16:
      return small<OpOf, BFloat16>(p, g, x, y);
    case DType::kFloat16:
      return small<OpOf, Float16>(p, g, x, y);
    case DType::kFloat32:
      return small<OpOf, float>(p, g, x, y);
    default:
      return false;
  }
}

}  // namespace tenor::cuda
