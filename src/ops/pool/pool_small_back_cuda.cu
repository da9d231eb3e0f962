// avg_pool's gradient by small windows, rows together: a thread has V inputs of a row, whose windows are few and known
// when compiled.
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
      if (g.uniform == 0) v = v / static_cast<C>(rows);
      sums[l] += v;
    }
  }
  if (g.uniform == 0) {
#pragma unroll
    for (int l = 0; l < kWindows; ++l)
      if (static_cast<unsigned>(o + l) < static_cast<unsigned>(g.dim[2].output))
        sums[l] = sums[l] / static_cast<C>(g.count(2, o + l));
  }
  C out[V];
#pragma unroll
  for (int e = 0; e < V; ++e) {
    C v = 0;
#pragma unroll
    for (int l = 0; l < kWindows; ++l) {
      const int tap = e + P - (kFirst + l) * S;  // of that window on this input
      if (tap >= 0 && tap < K) v += sums[l];
    }
    out[e] = g.uniform != 0 ? v / static_cast<C>(g.uniform) : v;
  }
  store_pack(dx + g.target.at(n, c, 0, th, w), convert_pack<T>(out));
}

template <class T, int V, int K, int S, int P>
bool launch_backward(const char* op, SmallPlan p, const Tensor& grad, const Tensor& dx) {
  if (!plan_rows_of(p, V)) return false;
  launch(op, small_rows_backward<T, V, K, S, P>, {dim3((p.total + 255) / 256), dim3(256)}, grad.device(),
         grad.data<T>(), dx.data<T>(), p);
  return true;
}

template <class T, int V>
bool backward_of(const char* op, const SmallPlan& p, const Tensor& grad, const Tensor& dx) {
  const FastDim& w = p.g.dim[2];
  if (w.kernel == 3 && w.stride == 2 && w.before == 1) return launch_backward<T, V, 3, 2, 1>(op, p, grad, dx);
  if (w.kernel == 3 && w.stride == 1 && w.before == 1) return launch_backward<T, V, 3, 1, 1>(op, p, grad, dx);
  if (w.kernel == 2 && w.stride == 2 && w.before == 0) return launch_backward<T, V, 2, 2, 0>(op, p, grad, dx);
  return false;
}

template <class T>
bool backward(const pool::Problem& p, const Gather& g, const Tensor& grad, const Tensor& dx) {
  constexpr int kWhole = kVector<T>;
  const auto fast = gather_fast(g);
  const bool flat = g.source.size[2] == 1 && g.target.size[2] == 1 && g.space.dim[0].kernel == 1;
  if (!fast || small_kernel(g) == 0 || !flat || g.target.stride[4] != 1 ||
      (g.source.size[4] > 1 && g.source.stride[4] != 1))
    return false;
  const SmallPlan plan{*fast, 0, {}, {}, {}, false};
  const int vector = row_vector_of(g.target, dx);
  if (vector == kWhole) return backward_of<T, kWhole>(p.op, plan, grad, dx);
  if constexpr (kWhole == 8) {
    if (vector == 4) return backward_of<T, 4>(p.op, plan, grad, dx);
  }
  return false;
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
