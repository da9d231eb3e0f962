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
};

/// The sum's divisor is that of every window, or what the counts of its dims give.
template <class Op, int V>
__device__ __forceinline__ void divide_sums(Pack<typename Op::Held, V>& sums, const FastGather& g, int th, int tw) {
  if constexpr (Op::kSum) divide_pack(sums, g.uniform != 0 ? g.uniform : g.count(1, th) * g.count(2, tw));
}

inline constexpr int kChannelThreads = 128;

/// Channels together: a thread has V channels of one output. Neighbouring warps have outputs above and beside one
/// another, so that a block reads few elements that others read too.
template <class Op, class T, int V, int K>
__global__ void __launch_bounds__(kChannelThreads)
    pool_small_channels(const T* __restrict__ x, T* __restrict__ y, SmallPlan p) {
  const uint32_t i = blockIdx.x * uint32_t{kChannelThreads} + threadIdx.x;
  if (i >= p.total) return;
  const FastGather& g = p.g;
  const uint32_t pixel = divide(i, p.inner), column = pixel / 2, pair = divide(column, p.rows), n = divide(pair, p.c);
  const int c = static_cast<int>(i - pixel * p.inner.divisor) * V,
            tw = static_cast<int>(column - pair * p.rows.divisor),
            th = static_cast<int>(2 * (pair - n * p.c.divisor) + pixel % 2);
  if (th >= g.dim[1].output) return;
  const int h0 = th * g.dim[1].stride - g.dim[1].before, w0 = tw * g.dim[2].stride - g.dim[2].before;
  const T* at = x + n * g.source.stride[0] + c + h0 * g.source.stride[3] + w0 * g.source.stride[4];
  Pack<T, V> v[K][K];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const bool row = static_cast<unsigned>(h0 + k) < static_cast<unsigned>(g.dim[1].input) && k < g.dim[1].kernel;
    const T* line = at + k * g.source.stride[3];
#pragma unroll
    for (int l = 0; l < K; ++l) {
      const bool inside = row && static_cast<unsigned>(w0 + l) < static_cast<unsigned>(g.dim[2].input);
#pragma unroll
      for (int e = 0; e < V; ++e) v[k][l].at[e] = Op::nothing();
      if (inside) v[k][l] = load_pack<V>(line + l * g.source.stride[4]);
    }
  }
  auto acc = identity_pack<Op, V>();
#pragma unroll
  for (int k = 0; k < K; ++k) {
    auto line = held<Op>(v[k][0]);
#pragma unroll
    for (int l = 1; l < K; ++l) Op::join(line, held<Op>(v[k][l]));
    Op::join(acc, line);
  }
  divide_sums<Op, V>(acc, g, th, tw);
  T* to = y + g.target.at(n, c, 0, th, tw);
  if constexpr (Op::kSum)
    store_pack(to, convert_pack<T>(acc.at));
  else
    store_pack(to, acc);
}

/// Rows together: a thread combines the up to K rows of V elements that its V / S outputs read, and one element on
/// either side of them, then reads its windows from registers. P is the padding before a row.
template <class Op, class T, int V, int K, int S, int P>
__global__ void __launch_bounds__(256) pool_small_rows(const T* __restrict__ x, T* __restrict__ y, SmallPlan p) {
  using Held = typename Op::Held;
  constexpr int kOut = V / S, kRight = K - S - P;  // elements past the V
  static_assert(P <= 1 && kRight <= 1);
  const uint32_t i = blockIdx.x * 256u + threadIdx.x;
  if (i >= p.total) return;
  const FastGather& g = p.g;
  const uint32_t row = divide(i, p.inner), plane = divide(row, p.rows), n = divide(plane, p.c);
  const int chunk = static_cast<int>(i - row * p.inner.divisor), th = static_cast<int>(row - plane * p.rows.divisor),
            w = chunk * V;
  const int64_t c = plane - n * p.c.divisor;
  const int h0 = th * g.dim[1].stride - g.dim[1].before, width = g.dim[2].input;
  const T* at = x + n * g.source.stride[0] + c * g.source.stride[1] + h0 * g.source.stride[3] + w;
  Pack<T, V> middle[K];
  T left[K], right[K];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const bool inside = static_cast<unsigned>(h0 + k) < static_cast<unsigned>(g.dim[1].input) && k < g.dim[1].kernel;
    const T* line = at + k * g.source.stride[3];
#pragma unroll
    for (int e = 0; e < V; ++e) middle[k].at[e] = Op::nothing();
    left[k] = right[k] = Op::nothing();
    if (inside && w < width) middle[k] = load_pack<V>(line);
    if (P > 0 && inside && w > 0) left[k] = line[-1];
    if (kRight > 0 && inside && w + V < width) right[k] = line[V];
  }
  Held e[V + 2];  // e[1 + k] is element w + k
  auto acc = held<Op>(middle[0]);
  e[0] = convert<Held>(left[0]), e[V + 1] = convert<Held>(right[0]);
#pragma unroll
  for (int k = 1; k < K; ++k) {
    Op::join(acc, held<Op>(middle[k]));
    e[0] = Op::join(e[0], convert<Held>(left[k])), e[V + 1] = Op::join(e[V + 1], convert<Held>(right[k]));
  }
#pragma unroll
  for (int k = 0; k < V; ++k) e[1 + k] = acc.at[k];
  const int t0 = chunk * kOut, targets = g.dim[2].output;
  const int64_t rows = Op::kSum && g.uniform == 0 ? g.count(1, th) : 1;
  Pack<T, kOut> out;
#pragma unroll
  for (int o = 0; o < kOut; ++o) {
    Held v = e[1 + o * S - P];
#pragma unroll
    for (int k = 1; k < K; ++k) v = Op::join(v, e[1 + o * S - P + k]);
    if constexpr (Op::kSum) v = v / static_cast<Held>(g.uniform != 0 ? g.uniform : rows * g.count(2, t0 + o));
    out.at[o] = convert<T>(v);
  }
  T* to = y + g.target.at(n, c, 0, th, t0);
  if (p.whole_stores) return store_pack(to, out);
#pragma unroll
  for (int o = 0; o < kOut; ++o)
    if (t0 + o < targets) to[o * g.target.stride[4]] = out.at[o];
}

/// Rows of any length: a thread has one output, its elements one by one.
template <class Op, class T, int K>
__global__ void __launch_bounds__(256) pool_small_single(const T* __restrict__ x, T* __restrict__ y, SmallPlan p) {
  using Held = typename Op::Held;
  const uint32_t i = blockIdx.x * 256u + threadIdx.x;
  if (i >= p.total) return;
  const FastGather& g = p.g;
  const uint32_t row = divide(i, p.inner), plane = divide(row, p.rows), n = divide(plane, p.c);
  const int tw = static_cast<int>(i - row * p.inner.divisor), th = static_cast<int>(row - plane * p.rows.divisor);
  const int64_t c = plane - n * p.c.divisor;
  const int h0 = th * g.dim[1].stride - g.dim[1].before, w0 = tw * g.dim[2].stride - g.dim[2].before;
  const T* at = x + n * g.source.stride[0] + c * g.source.stride[1] + h0 * g.source.stride[3] + w0;
  T v[K][K];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const bool inside = static_cast<unsigned>(h0 + k) < static_cast<unsigned>(g.dim[1].input) && k < g.dim[1].kernel;
#pragma unroll
    for (int l = 0; l < K; ++l) {
      v[k][l] = Op::nothing();
      if (inside && static_cast<unsigned>(w0 + l) < static_cast<unsigned>(g.dim[2].input))
        v[k][l] = at[k * g.source.stride[3] + l];
    }
  }
  Held acc = Op::identity();
#pragma unroll
  for (int l = 0; l < K; ++l) {  // columns first, as where rows are read in vectors
    Held column = convert<Held>(v[0][l]);
#pragma unroll
    for (int k = 1; k < K; ++k) column = Op::join(column, convert<Held>(v[k][l]));
    acc = l == 0 ? column : Op::join(acc, column);
  }
  if constexpr (Op::kSum) acc = acc / static_cast<Held>(g.uniform != 0 ? g.uniform : g.count(1, th) * g.count(2, tw));
  y[g.target.at(n, c, 0, th, tw)] = convert<T>(acc);
}

template <class Op, class T, int K>
bool small_channels(const char* op, SmallPlan p, const Tensor& x, const Tensor& y) {
  constexpr int kWhole = kVector<T>;
  const FastGather& g = p.g;
  const int64_t c = g.target.size[1], pairs = (g.target.size[3] + 1) / 2;
  const int64_t total = c / kWhole * 2 * g.target.size[4] * pairs * g.target.size[0];
  if (total > INT32_MAX) return false;
  p.total = static_cast<uint32_t>(total);
  p.inner = make_divider(c / kWhole), p.rows = make_divider(g.target.size[4]), p.c = make_divider(pairs);
  launch(op, pool_small_channels<Op, T, kWhole, K>,
         {dim3((p.total + kChannelThreads - 1) / kChannelThreads), dim3(kChannelThreads)}, x.device(), x.data<T>(),
         y.data<T>(), p);
  return true;
}

/// The plan of a thread for every `outputs` neighbours of a row; false beyond 32 bits.
inline bool plan_rows_of(SmallPlan& p, int outputs) {
  const PoolGrid& target = p.g.target;
  const int64_t chunks = (target.size[4] + outputs - 1) / outputs, total = chunks * target.size[3] * target.planes();
  if (total > INT32_MAX) return false;
  p.total = static_cast<uint32_t>(total);
  p.inner = make_divider(chunks), p.rows = make_divider(target.size[3]), p.c = make_divider(target.size[1]);
  return true;
}

template <class Op, class T, int K>
bool small_single(const char* op, SmallPlan p, const Tensor& x, const Tensor& y) {
  if (!plan_rows_of(p, 1)) return false;
  launch(op, pool_small_single<Op, T, K>, {dim3((p.total + 255) / 256), dim3(256)}, x.device(), x.data<T>(),
         y.data<T>(), p);
  return true;
}

template <class Op, class T, int V, int K, int S, int P>
bool small_rows(const char* op, SmallPlan p, const Tensor& x, const Tensor& y) {
  constexpr int kOut = V / S;
  if (!plan_rows_of(p, kOut)) return false;
  const FastGather& g = p.g;
  p.whole_stores =
      g.target.size[4] % kOut == 0 && g.target.stride[4] == 1 && is_aligned(y.raw(), 0, sizeof(T), sizeof(T) * kOut);
  for (int d = 0; d < 4; ++d)
    p.whole_stores = p.whole_stores && (g.target.size[d] == 1 || g.target.stride[d] % kOut == 0);
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

/// False where none of these kernels serves the problem.
template <template <class> class OpOf, class T>
bool small(const pool::Problem& p, const Gather& g, const Tensor& x, const Tensor& y) {
  using Op = OpOf<T>;
  const auto fast = gather_fast(g);
  const int kernel = small_kernel(g);
  const bool flat = g.source.size[2] == 1 && g.target.size[2] == 1 && g.space.dim[0].kernel == 1;
  if (!fast || kernel == 0 || !flat) return false;
  SmallPlan plan{*fast, 0, {}, {}, {}, false};
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
