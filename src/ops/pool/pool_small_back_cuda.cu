// avg_pool's gradient by small windows: a thread has V inputs of a row, or two rows of them, whose windows are few and
// known when compiled.
#include "src/ops/pool/pool_small.cuh"

namespace tenor::cuda {
namespace {

constexpr int floor_over(int a, int b) { return (a >= 0 ? a : a - b + 1) / b; }

template <class T, int V, int K, int S, int P>
__global__ void __launch_bounds__(256)
    small_rows_backward(const T* __restrict__ grad, T* __restrict__ dx, SmallPlan p) {
  using C = core::Compute<T>;
  // Window o covers inputs o * S - P .. + K - 1: of inputs w .. w + V - 1, S dividing w, windows w / S + kFirst .. +
  // kLast.
  constexpr int kFirst = -floor_over(K - 1 - P, S), kLast = floor_over(V - 1 + P, S), kWindows = kLast - kFirst + 1;
  const uint32_t i = blockIdx.x * 256u + threadIdx.x;
  if (i >= p.total) return;
  const FastGather& g = p.g;
  const uint32_t row = divide(i, p.inner), plane = divide(row, p.rows), n = divide(plane, p.c);
  const int w = static_cast<int>(i - row * p.inner.divisor) * V, th = static_cast<int>(row - plane * p.rows.divisor);
  const int64_t c = plane - n * p.c.divisor;
  const int o = w / S + kFirst;
  const FastRange hr = g.dim[1].readers(th);
  const T* at = grad + n * g.source.stride[0] + c * g.source.stride[1] + o;
  C sums[kWindows] = {};
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int h = hr.first + k;
    if (h >= hr.last) break;
    const int64_t rows = g.uniform == 0 ? g.count(1, h) : 1;
#pragma unroll
    for (int l = 0; l < kWindows; ++l) {
      if (static_cast<unsigned>(o + l) >= static_cast<unsigned>(g.dim[2].output)) continue;
      C v = convert<C>(at[h * g.source.stride[3] + l]);
      if (g.uniform == 0) v = quotient_of<T>(v, divisor_of<T, C>(rows));
      sums[l] += v;
    }
  }
  if (g.uniform == 0) {
#pragma unroll
    for (int l = 0; l < kWindows; ++l)
      if (static_cast<unsigned>(o + l) < static_cast<unsigned>(g.dim[2].output))
        sums[l] = quotient_of<T>(sums[l], divisor_of<T, C>(g.count(2, o + l)));
  }
  C out[V];
  const C uniform = divisor_of<T, C>(g.uniform);
#pragma unroll
  for (int e = 0; e < V; ++e) {
    C v = 0;
#pragma unroll
    for (int l = 0; l < kWindows; ++l) {
      const int tap = e + P - (kFirst + l) * S;  // of that window on this input
      if (tap >= 0 && tap < K) v += sums[l];
    }
    out[e] = g.uniform != 0 ? quotient_of<T>(v, uniform) : v;
  }
  store_pack(dx + g.target.at(n, c, 0, th, w), convert_pack<T>(out));
}

/// A share of the windows at place `window` of a dim, where they have several divisors (windows that are not there have
/// 0, and no divisor); g.uniform divides the sums.
template <class T, class C>
__device__ __forceinline__ C window_share(const FastGather& g, int dim, int window) {
  if (g.uniform != 0 || static_cast<unsigned>(window) >= static_cast<unsigned>(g.dim[dim].output)) return 1;
  return 1 / static_cast<C>(g.count(dim, window));
}

/// 3 x 3, stride 2, padding 1: inputs 2 m - 1 of a dim lie in windows m - 1 and m, inputs 2 m in window m. A thread has
/// V elements of two rows.
template <class T, int V>
__global__ void __launch_bounds__(256)
    small_pairs_backward(const T* __restrict__ grad, T* __restrict__ dx, SmallPlan p) {
  using C = core::Compute<T>;
  constexpr int kOut = V / 2;
  const uint32_t i = blockIdx.x * 256u + threadIdx.x;
  if (i >= p.total) return;
  const FastGather& g = p.g;
  const RowTarget t = row_target(p, i, V);  // t.h: the pair of rows
  const int o = t.w / 2, columns = g.dim[2].output;
  const T* at = grad + t.n * g.source.stride[0] + t.c * g.source.stride[1] + o;
  Pack<T, kOut> middle[2];
  T right[2];
#pragma unroll
  for (int a = 0; a < 2; ++a) {
    const int h = t.h - 1 + a;
    const bool inside = static_cast<unsigned>(h) < static_cast<unsigned>(g.dim[1].output);
    const T* line = at + h * g.source.stride[3];
#pragma unroll
    for (int l = 0; l < kOut; ++l) middle[a].at[l] = T{};
    right[a] = T{};
    if (inside && p.whole_loads) middle[a] = load_pack<kOut>(line);
#pragma unroll
    for (int l = 0; l < kOut; ++l)
      if (inside && !p.whole_loads && o + l < columns) middle[a].at[l] = line[l];
    if (inside && o + kOut < columns) right[a] = line[kOut];
  }
  C row[2][kOut + 1];
#pragma unroll
  for (int a = 0; a < 2; ++a) {
    const C share = window_share<T, C>(g, 1, t.h - 1 + a);
#pragma unroll
    for (int l = 0; l <= kOut; ++l) row[a][l] = share * convert<C>(l < kOut ? middle[a].at[l] : right[a]);
  }
#pragma unroll
  for (int l = 0; l <= kOut; ++l) {
    const C share = window_share<T, C>(g, 2, o + l);
    row[0][l] = share * (row[0][l] + row[1][l]);
    row[1][l] *= share;
  }
  const C uniform = divisor_of<T, C>(g.uniform);
#pragma unroll
  for (int s = 0; s < 2; ++s) {
    const int h = 2 * t.h - 1 + s;
    if (static_cast<unsigned>(h) >= static_cast<unsigned>(g.dim[1].input)) continue;
    C out[V];
#pragma unroll
    for (int e = 0; e < V; ++e) {
      C v = row[s][e / 2];
      if (e % 2 == 1) v += row[s][e / 2 + 1];
      out[e] = g.uniform != 0 ? quotient_of<T>(v, uniform) : v;
    }
    T* to = dx + g.target.at(t.n, t.c, 0, h, t.w);
    const Pack<T, V> rounded = convert_pack<T>(out);
    if (V > 2 || p.whole_stores) {
      store_pack(to, rounded);
    } else {
      to[0] = rounded.at[0];
      if (t.w + 1 < g.dim[2].input) to[1] = rounded.at[1];
    }
  }
}

/// Channels together, K x K of stride 2: a thread has V channels of inputs 2 m - before, 2 m - before + 1 of both dims,
/// which lie in window m and, where K is 3, the first of them also in window m - 1.
template <class T, int V, int K>
__global__ void __launch_bounds__(kChannelThreads)
    small_quads_backward(const T* __restrict__ grad, T* __restrict__ dx, SmallPlan p) {
  using C = core::Compute<T>;
  constexpr int kFirst = K == 3 ? 0 : 1;
  const uint32_t i = blockIdx.x * uint32_t{kChannelThreads} + threadIdx.x;
  if (i >= p.total) return;
  const FastGather& g = p.g;
  const uint32_t quad = divide(i, p.inner), line = divide(quad, p.rows), n = divide(line, p.c);
  const int c = static_cast<int>(i - quad * p.inner.divisor) * V, mw = static_cast<int>(quad - line * p.rows.divisor),
            mh = static_cast<int>(line - n * p.c.divisor);
  C v[2][2][V] = {};  // of window (mh - 1 + a, mw - 1 + b)
#pragma unroll
  for (int a = kFirst; a < 2; ++a)
#pragma unroll
    for (int b = kFirst; b < 2; ++b) {
      const int h = mh - 1 + a, w = mw - 1 + b;
      if (static_cast<unsigned>(h) >= static_cast<unsigned>(g.dim[1].output) ||
          static_cast<unsigned>(w) >= static_cast<unsigned>(g.dim[2].output))
        continue;
      widen_pack(load_pack<V>(grad + g.source.at(n, c, 0, h, w)), v[a][b]);
      if (g.uniform != 0) continue;
      const C divisor = window_divisor<T, C>(g, h, w);
#pragma unroll
      for (int e = 0; e < V; ++e) v[a][b][e] = quotient_of<T>(v[a][b][e], divisor);
    }
  const C uniform = divisor_of<T, C>(g.uniform);
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const int h = 2 * mh - g.dim[1].before + r, w = 2 * mw - g.dim[2].before + s;
      if (static_cast<unsigned>(h) >= static_cast<unsigned>(g.dim[1].input) ||
          static_cast<unsigned>(w) >= static_cast<unsigned>(g.dim[2].input))
        continue;
      C out[V];
#pragma unroll
      for (int e = 0; e < V; ++e) {
        C sum = s == 0 && K == 3 ? v[1][0][e] + v[1][1][e] : v[1][1][e];
        if (r == 0 && K == 3) sum = (s == 0 ? v[0][0][e] + v[0][1][e] : v[0][1][e]) + sum;
        out[e] = g.uniform != 0 ? quotient_of<T>(sum, uniform) : sum;
      }
      store_pack(dx + g.target.at(n, c, 0, h, w), convert_pack<T>(out));
    }
}

template <class T, int V, int K, int S, int P>
bool launch_backward(const char* op, SmallPlan p, const Tensor& grad, const Tensor& dx) {
  if (!plan_rows_of(p, p.g.target.size[3], V)) return false;
  launch(op, small_rows_backward<T, V, K, S, P>, {dim3((p.total + 255) / 256), dim3(256)}, grad.device(),
         grad.data<T>(), dx.data<T>(), p);
  return true;
}

/// Both dims have windows of K x K with a stride of 2.
bool is_square(const SmallPlan& p, int kernel) {
  const auto fits = [&](const FastDim& d) { return d.kernel == kernel && d.stride == 2; };
  return fits(p.g.dim[1]) && fits(p.g.dim[2]);
}

bool is_pairs(const SmallPlan& p) { return is_square(p, 3) && p.g.dim[1].before == 1 && p.g.dim[2].before == 1; }

template <class T, int V>
bool launch_pairs(const char* op, SmallPlan p, const Tensor& grad, const Tensor& dx) {
  constexpr int kOut = V / 2;
  if (!plan_rows_of(p, p.g.dim[1].input / 2 + 1, V)) return false;
  p.whole_loads = whole_rows(p.g.source, grad.data<T>(), kOut);
  p.whole_stores = whole_rows(p.g.target, dx.data<T>(), V);
  launch(op, small_pairs_backward<T, V>, {dim3((p.total + 255) / 256), dim3(256)}, grad.device(), grad.data<T>(),
         dx.data<T>(), p);
  return true;
}

template <class T, int K>
bool launch_quads(const char* op, SmallPlan p, const Tensor& grad, const Tensor& dx) {
  constexpr int kWhole = kVector<T>;
  const PoolGrid& target = p.g.target;
  const auto quads = [&](int d) { return (p.g.dim[d].input - 1 + p.g.dim[d].before) / 2 + 1; };
  const int64_t vectors = target.size[1] / kWhole, total = vectors * quads(2) * quads(1) * target.size[0];
  if (total > INT32_MAX) return false;
  p.total = static_cast<uint32_t>(total);
  p.inner = make_divider(vectors), p.rows = make_divider(quads(2)), p.c = make_divider(quads(1));
  launch(op, small_quads_backward<T, kWhole, K>,
         {dim3((p.total + kChannelThreads - 1) / kChannelThreads), dim3(kChannelThreads)}, grad.device(),
         grad.data<T>(), dx.data<T>(), p);
  return true;
}

template <class T, int V>
bool backward_of(const char* op, const SmallPlan& p, const Tensor& grad, const Tensor& dx) {
  const FastDim& w = p.g.dim[2];
  if (is_pairs(p)) return launch_pairs<T, V>(op, p, grad, dx);
  if (w.kernel == 3 && w.stride == 2 && w.before == 1) return launch_backward<T, V, 3, 2, 1>(op, p, grad, dx);
  if (w.kernel == 3 && w.stride == 1 && w.before == 1) return launch_backward<T, V, 3, 1, 1>(op, p, grad, dx);
  if (w.kernel == 2 && w.stride == 2 && w.before == 0) return launch_backward<T, V, 2, 2, 0>(op, p, grad, dx);
  return false;
}

template <class T>
bool backward(const pool::Problem& p, const Gather& g, const Tensor& grad, const Tensor& dx) {
  constexpr int kWhole = kVector<T>;
  const auto fits = small_plan(g);
  if (!fits) return false;
  const SmallPlan& plan = *fits;
  const bool together = g.target.size[1] > 1 && g.source.stride[1] == 1 && g.target.stride[1] == 1;
  if (together && channel_vector(g, grad, dx) == kWhole) {
    if (is_square(plan, 3)) return launch_quads<T, 3>(p.op, plan, grad, dx);
    if (is_square(plan, 2)) return launch_quads<T, 2>(p.op, plan, grad, dx);
  }
  if (g.target.stride[4] != 1 || (g.source.size[4] > 1 && g.source.stride[4] != 1)) return false;
  const int vector = row_vector_of(g.target, dx);
  if (vector == kWhole) return backward_of<T, kWhole>(p.op, plan, grad, dx);
  if constexpr (kWhole == 8) {
    if (vector == 4) return backward_of<T, 4>(p.op, plan, grad, dx);
  }
  return is_pairs(plan) && launch_pairs<T, 2>(p.op, plan, grad, dx);
}

}  // namespace

bool small_avg_pool_backward(const pool::Problem& p, const Gather& g, const Tensor& grad, const Tensor& dx) {
  switch (grad.dtype()) {
    case DType::kBFloat16:
      return backward<BFloat16>(p, g, grad, dx);
    case DType::kFloat16:
      return backward<Float16>(p, g, grad, dx);
    case DType::kFloat32:
      return backward<float>(p, g, grad, dx);
    default:
      return false;
  }
}

}  // namespace tenor::cuda
