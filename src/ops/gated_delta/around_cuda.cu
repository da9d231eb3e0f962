// gated_delta_gate and gated_rms_norm on CUDA.
#include "src/cuda/stride_loop.cuh"
#include "src/ops/gated_delta/gated_delta_around_kernels.h"
#include "src/ops/gated_delta/gated_delta_launch.h"
#include "src/ops/gated_delta/gated_norm_cuda.cuh"

namespace tenor::delta {
namespace {

constexpr int kThreads = 256;

// ---- the gate

struct GateArgs {
  Rows a, out;
  Parameter a_log, bias;
  int64_t count, heads, steps, width;
  bool bounded;
  double lower_bound;
};

template <class T, class C = core::Compute<T>>
__global__ void __launch_bounds__(kThreads) gate_kernel(const __grid_constant__ GateArgs p) {
  cuda::for_each_item(p.count, [&](int64_t i) {
    const int64_t c = i % p.width, step = i / p.width % p.steps, row = i / p.width / p.steps;
    const int64_t head = row % p.heads, batch = row / p.heads;
    const auto place = [&](const Rows& x) { return batch * x.batch + head * x.head + step * x.step + c * x.dim; };
    const C x = cuda::widen(static_cast<const T*>(p.a.data)[place(p.a)]) + p.bias.template at<T>(head, c);
    const C rate = exp(p.a_log.template at<T>(head));
    const C positive = x < C(0) ? C(0) : x;  // NaN stays
    const C value =
        p.bounded ? static_cast<C>(p.lower_bound) * sigmoid(rate * x) : -(rate * (positive + log1p(exp(-fabs(x)))));
    static_cast<float*>(p.out.data)[place(p.out)] = static_cast<float>(value);
  });
}

// ---- the norm

/// One row a warp; the tensors of the layout are x, gate, y.
template <class T, int V, class C = core::Compute<T>>
__global__ void __launch_bounds__(kThreads)
    gated_norm_kernel(const T* x, const T* gate, T* y, Parameter gamma, double epsilon, int64_t length,
                      const __grid_constant__ cuda::Layout<3> rows, longlong3 inner) {
  const int lane = threadIdx.x % 32;
  const int64_t row = blockIdx.x * int64_t{kThreads / 32} + threadIdx.x / 32;
  if (row >= rows.count) return;
  int64_t at[3];
  cuda::offsets(rows, row, at);
  x += at[0], gate += at[1], y += at[2];
  const auto load = [&](const T* from, int64_t i, int64_t stride, C(&to)[V]) {
    if constexpr (V > 1)
      cuda::widen_pack(cuda::load_pack<V>(from + i), to);
    else
      to[0] = cuda::widen(from[i * stride]);
  };
  C square = 0;
  for (int64_t i = lane * V; i < length; i += 32 * V) {
    C values[V];
    load(x, i, inner.x, values);
    for (C v : values) square += v * v;
  }
  square = cuda::warp_reduce(square, [](C a, C b) { return a + b; });
  const C inverse = inverse_root(square, length, epsilon);
  for (int64_t i = lane * V; i < length; i += 32 * V) {
    C values[V], gates[V];
    load(x, i, inner.x, values);
    load(gate, i, inner.y, gates);
    for (int k = 0; k < V; ++k) values[k] = values[k] * inverse * gamma.template at<T>(i + k) * silu(gates[k]);
    if constexpr (V > 1)
      cuda::store_pack(y + i, cuda::convert_pack<T>(values));
    else
      y[i * inner.z] = cuda::convert<T>(values[0]);
  }
}

template <class T>
void run_norm(const Tensor& x, const Tensor& gate, const Tensor& gamma, double epsilon, const Tensor& y) {
  constexpr const char* kOp = "gated_rms_norm";
  const Dims outer(x.shape().begin(), x.shape().end() - 1);
  const auto less = [](const Tensor& t) { return Dims(t.strides().begin(), t.strides().end() - 1); };
  const auto rows = cuda::collapse<3>(kOp, outer, {less(x), less(gate), less(y)}, 2);
  const auto wide = [](const Tensor& t) {
    bool fits = t.stride(-1) == 1 && cuda::is_aligned(t.raw(), 0, sizeof(T));
    for (int d = 0; d + 1 < t.ndim(); ++d) fits = fits && cuda::is_aligned(nullptr, t.stride(d), sizeof(T));
    return fits && t.shape(-1) % cuda::kVector<T> == 0;
  };
  const auto go = [&]<int V>() {
    const unsigned blocks = blocks_of(kOp, (rows.count + kThreads / 32 - 1) / (kThreads / 32), 1, 1);
    cuda::launch(kOp, gated_norm_kernel<T, V>, {dim3(blocks), dim3(kThreads)}, x.device(), x.data<T>(), gate.data<T>(),
                 y.data<T>(), parameter(gamma), epsilon, x.shape(-1), rows,
                 longlong3{x.stride(-1), gate.stride(-1), y.stride(-1)});
  };
  const bool is_wide = wide(x) && wide(gate) && wide(y);
  if constexpr (!std::is_same_v<T, double>) {
    const auto in_lanes = [&]<int kLanes>() {
      constexpr int64_t kRows = kNormThreads / kLanes;
      const unsigned blocks = blocks_of(kOp, (rows.count + kRows - 1) / kRows, 1, 1);
      cuda::launch(kOp, gated_norm_lanes_kernel<T, kLanes>, {dim3(blocks), dim3(kNormThreads)}, x.device(), x.data<T>(),
                   gate.data<T>(), y.data<T>(), parameter(gamma), epsilon, static_cast<int>(x.shape(-1)), rows);
    };
    const int64_t vectors = x.shape(-1) / cuda::kVector<T>;
    if (is_wide && vectors <= 8) return in_lanes.template operator()<8>();
    if (is_wide && vectors <= 16) return in_lanes.template operator()<16>();
    if (is_wide && vectors <= 32) return in_lanes.template operator()<32>();
  }
  if (is_wide) return go.template operator()<cuda::kVector<T>>();
  go.template operator()<1>();
}

}  // namespace

void gate_cuda(const Gate& g) {
  if (g.a.numel() == 0) return;
  const cuda::DeviceGuard guard(g.a.device());
  const auto rows = [](const Tensor& x) {
    return Rows{x.raw(), x.stride(0), x.stride(1), x.stride(2), x.ndim() == 4 ? x.stride(3) : 0};
  };
  const GateArgs p{rows(g.a),   rows(g.out),  parameter(g.a_log), parameter(g.bias),
                   g.a.numel(), g.a.shape(1), g.a.shape(2),       g.a.ndim() == 4 ? g.a.shape(3) : 1,
                   g.bounded,   g.lower_bound};
  core::visit_float(g.a.dtype(), [&]<class T>() {
    cuda::launch("gated_delta_gate", gate_kernel<T>,
                 {dim3(cuda::blocks_for(p.count, kThreads, g.a.device())), dim3(kThreads)}, g.a.device(), p);
  });
}

void gated_rms_norm_cuda(const Tensor& x, const Tensor& gate, const Tensor& gamma, double epsilon, const Tensor& y) {
  if (x.numel() == 0) return;
  const cuda::DeviceGuard guard(x.device());
  core::visit_float(x.dtype(), [&]<class T>() { run_norm<T>(x, gate, gamma, epsilon, y); });
}

}  // namespace tenor::delta
