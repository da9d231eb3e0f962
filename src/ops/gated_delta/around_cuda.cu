// gated_delta_gate, causal_conv1d and gated_rms_norm on CUDA.
#include <cfloat>

#include "src/cuda/layout.h"
#include "src/cuda/reduce.cuh"
#include "src/ops/gated_delta/gated_delta_around_kernels.h"
#include "src/ops/gated_delta/gated_delta_launch.h"

namespace tenor::delta {
namespace {

constexpr int kThreads = 256;

/// A parameter of float32 or of the operand's own type.
struct Parameter {
  const void* data;
  int64_t row, column;
  bool is_float;

  template <class T, class C = core::Compute<T>>
  __device__ C at(int64_t r, int64_t c = 0) const {
    const int64_t i = r * row + c * column;
    return is_float ? static_cast<C>(static_cast<const float*>(data)[i])
                    : static_cast<C>(cuda::widen(static_cast<const T*>(data)[i]));
  }
};
Parameter parameter(const Tensor& x) {
  if (!x.defined()) return {};
  return {x.raw(), x.ndim() > 0 ? x.stride(0) : 0, x.ndim() > 1 ? x.stride(1) : 0, x.dtype() == float32};
}

template <class C>
__device__ __forceinline__ C sigmoid(C v) {
  const C e = exp(-fabs(v));
  return (v < C(0) ? e : C(1)) / (C(1) + e);
}
/// v * sigmoid(v), 0 at -inf.
template <class C>
__device__ __forceinline__ C silu(C v) {
  return v == -static_cast<C>(INFINITY) ? C(0) : v * sigmoid(v);
}

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
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < p.count; i += int64_t{gridDim.x} * kThreads) {
    const int64_t c = i % p.width, step = i / p.width % p.steps, row = i / p.width / p.steps;
    const int64_t head = row % p.heads, batch = row / p.heads;
    const auto place = [&](const Rows& x) { return batch * x.batch + head * x.head + step * x.step + c * x.dim; };
    const C x = cuda::widen(static_cast<const T*>(p.a.data)[place(p.a)]) + p.bias.template at<T>(head, c);
    const C rate = exp(p.a_log.template at<T>(head));
    const C positive = x < C(0) ? C(0) : x;  // NaN stays
    const C value =
        p.bounded ? static_cast<C>(p.lower_bound) * sigmoid(rate * x) : -(rate * (positive + log1p(exp(-fabs(x)))));
    static_cast<float*>(p.out.data)[place(p.out)] = static_cast<float>(value);
  }
}

// ---- the convolution

struct ConvArgs {
  DeviceSequences sequences;
  Rows x, y;           // heads are channels
  States first, last;  // heads are channels, rows places
  Parameter weight, bias;
  int64_t channels, taps;
  bool silu, along_channels;  // whether neighbouring threads take neighbouring channels, else neighbouring steps
};

/// Input t of a sequence's channel: from its state where t < 0.
template <class T, class C = core::Compute<T>>
__device__ __forceinline__ C input_at(const ConvArgs& p, const DeviceSequence& s, int64_t place, bool from_state,
                                      int64_t channel, int64_t t) {
  if (t >= 0) return cuda::widen(row_of<T>(p.x, s, channel, t)[0]);
  if (!from_state) return C(0);
  return cuda::widen(static_cast<const T*>(
      p.first.data)[place * p.first.place + channel * p.first.head + (p.taps - 1 + t) * p.first.row]);
}

/// Blocks: parts of a sequence's outputs, then sequences.
template <class T, class C = core::Compute<T>>
__global__ void __launch_bounds__(kThreads) conv_kernel(const __grid_constant__ ConvArgs p, unsigned parts) {
  const int64_t n = blockIdx.x / parts, part = blockIdx.x % parts;
  const int64_t place = place_of(p.sequences, n);
  if (place < 0) return;
  const DeviceSequence s(p.sequences, n);
  const bool from_state = starts_from_state(p.sequences, n);
  const int64_t all = s.length * p.channels;
  for (int64_t i = part * kThreads + threadIdx.x; i < all; i += int64_t{parts} * kThreads) {
    const int64_t t = p.along_channels ? i / p.channels : i % s.length,
                  channel = p.along_channels ? i % p.channels : i / s.length;
    C sum = p.bias.data ? p.bias.template at<T>(channel) : C(0);
    for (int64_t w = 0; w < p.taps; ++w)
      sum += p.weight.template at<T>(channel, w) * input_at<T>(p, s, place, from_state, channel, t - p.taps + 1 + w);
    place_in<T>(p.y, s, channel, t)[0] = cuda::convert<T>(p.silu ? silu(sum) : sum);
  }
}

/// The last inputs of every sequence, a thread a channel; a state may be written where it was read.
template <class T>
__global__ void __launch_bounds__(kThreads) conv_state_kernel(const __grid_constant__ ConvArgs p, unsigned parts) {
  const int64_t n = blockIdx.x / parts, channel = int64_t{blockIdx.x % parts} * kThreads + threadIdx.x;
  const int64_t place = place_of(p.sequences, n);
  if (place < 0 || channel >= p.channels) return;
  const DeviceSequence s(p.sequences, n);
  const bool from_state = starts_from_state(p.sequences, n);
  T* to = static_cast<T*>(p.last.data) + place * p.last.place + channel * p.last.head;
  for (int64_t j = 0; j + 1 < p.taps; ++j)  // reads ahead of what it writes
    to[j * p.last.row] = cuda::convert<T>(input_at<T>(p, s, place, from_state, channel, s.length - p.taps + 1 + j));
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
  const C root = C(1) / sqrt(square / static_cast<C>(length) + static_cast<C>(epsilon));
  const C most = sizeof(C) == sizeof(float) ? static_cast<C>(FLT_MAX) : static_cast<C>(DBL_MAX);
  const C inverse = root > most ? most : root;  // a row of zeros stays zero; NaN stays
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
  if (wide(x) && wide(gate) && wide(y)) return go.template operator()<cuda::kVector<T>>();
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

void conv_cuda(const Conv& c) {
  constexpr const char* kOp = "causal_conv1d";
  const Device device = c.x.device();
  const cuda::DeviceGuard guard(device);
  ConvArgs p{};
  p.sequences = device_sequences(kOp, c.x, c.sequences, c.steps, c.cu_seqlens, c.state_indices, c.has_initial,
                                 c.last.shape(0), c.first.defined());
  zero_unclaimed_cuda(kOp, p.sequences, c.y, c.channels);
  if (c.sequences == 0) return;
  const auto rows = [](const Tensor& x) { return Rows{x.raw(), x.stride(0), x.stride(1), x.stride(2), 0}; };
  const auto states = [](const Tensor& x) {
    return x.defined() ? States{x.raw(), x.stride(0), x.stride(1), x.stride(2), 0} : States{};
  };
  p.x = rows(c.x), p.y = rows(c.y), p.first = states(c.first), p.last = states(c.last);
  p.weight = parameter(c.weight), p.bias = parameter(c.bias);
  p.channels = c.channels, p.taps = c.taps, p.silu = c.silu;
  p.along_channels = c.x.stride(1) == 1 && c.x.stride(2) != 1;
  core::visit_float(c.x.dtype(), [&]<class T>() {
    const auto parts = static_cast<unsigned>(std::clamp<int64_t>(c.steps * c.channels / kThreads / 4, 1, 4096));
    if (c.steps > 0)
      cuda::launch(kOp, conv_kernel<T>, {dim3(blocks_of(kOp, parts, 1, c.sequences)), dim3(kThreads)}, device, p,
                   parts);
    const auto a_state = static_cast<unsigned>((c.channels + kThreads - 1) / kThreads);
    if (c.taps > 1)
      cuda::launch(kOp, conv_state_kernel<T>, {dim3(blocks_of(kOp, a_state, 1, c.sequences)), dim3(kThreads)}, device,
                   p, a_state);
  });
}

void gated_rms_norm_cuda(const Tensor& x, const Tensor& gate, const Tensor& gamma, double epsilon, const Tensor& y) {
  if (x.numel() == 0) return;
  const cuda::DeviceGuard guard(x.device());
  core::visit_float(x.dtype(), [&]<class T>() { run_norm<T>(x, gate, gamma, epsilon, y); });
}

}  // namespace tenor::delta
