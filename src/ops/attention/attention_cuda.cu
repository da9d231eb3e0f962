// What the CUDA strategies share on the host, and merge_states.
#include <cmath>

#include "src/core/visit.h"
#include "src/cuda/content_kind.h"
#include "src/cuda/convert.cuh"
#include "src/cuda/launch.h"
#include "src/cuda/layout.h"
#include "src/ops/attention/attention_cuda.h"
#include "src/ops/attention/attention_device.cuh"

namespace tenor::attn {
namespace {

Offsets offsets_of(const Tensor& x, int op) {
  if (!x.defined()) return {};
  return {x.raw(), x.stride(0), x.dtype() == int64, op};
}

}  // namespace

DeviceProblem device_problem(const Problem& p) {
  static const int kOffsetsQ = cuda::content_op("attention_varlen", "cu_seqlens_q", cuda::ContentKind::kValue),
                   kOffsetsK = cuda::content_op("attention_varlen", "cu_seqlens_k", cuda::ContentKind::kValue);
  DeviceProblem d{};
  d.q = p.q, d.k = p.k, d.v = p.v, d.mask = p.mask, d.bias = p.bias, d.out = p.out, d.lse = p.lse;
  if (p.sinks.defined() && p.sinks.numel() > 0)
    d.sinks = p.sinks.raw(), d.sinks_stride = p.sinks.stride(0), d.sinks_float = p.sinks.dtype() == float32;
  d.bias_float = p.bias.dtype == float32;
  d.cu_q = offsets_of(p.cu_seqlens_q, kOffsetsQ), d.cu_k = offsets_of(p.cu_seqlens_k, kOffsetsK);
  if (d.cu_q.data) d.flag = cuda::content_error(current_stream(p.device));
  d.sequences = d.cu_q.data ? p.cu_seqlens_q.shape(0) : p.batch;
  d.queries = p.queries, d.keys = p.keys;
  d.kv_heads = p.kv_heads, d.group = p.group(), d.dim = p.dim, d.value_dim = p.value_dim;
  d.scale = p.scale, d.softcap = p.softcap, d.causal = p.causal, d.left = p.left, d.right = p.right;
  return d;
}

namespace {

constexpr int kThreads = 256;

/// What each side weighs, exp(lse - the larger): of an empty side nothing, of the only one exactly 1.
struct MergeWeights {
  double a, b, top;
  __device__ MergeWeights(float lse_a, float lse_b) : a(0), b(0), top(fmax(lse_a, lse_b)) {
    if (isnan(lse_a) || isnan(lse_b)) top = NAN;
    if (top == -INFINITY) return;
    a = exp(lse_a - top), b = exp(lse_b - top);
  }
};

/// Tensors of the layout: out_a, lse_a, out_b, lse_b, out; lse are repeated along a row.
template <class T>
__global__ void merge_values(const T* out_a, const float* lse_a, const T* out_b, const float* lse_b, T* out,
                             const __grid_constant__ cuda::Layout<5> layout) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < layout.count; i += int64_t{gridDim.x} * kThreads) {
    int64_t at[5];
    cuda::offsets(layout, i, at);
    const float a = lse_a[at[1]], b = lse_b[at[3]];
    if (a == -INFINITY || b == -INFINITY) {  // no keys on one side: the other as it is
      out[at[4]] = b == -INFINITY ? out_a[at[0]] : out_b[at[2]];
      continue;
    }
    const MergeWeights w(a, b);
    const double x =
        w.a * core::Compute<T>(cuda::widen(out_a[at[0]])) + w.b * core::Compute<T>(cuda::widen(out_b[at[2]]));
    out[at[4]] = cuda::convert<T>(static_cast<core::Compute<T>>(x / (w.a + w.b)));
  }
}

__global__ void merge_lse(const float* lse_a, const float* lse_b, float* lse,
                          const __grid_constant__ cuda::Layout<3> layout) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < layout.count; i += int64_t{gridDim.x} * kThreads) {
    int64_t at[3];
    cuda::offsets(layout, i, at);
    const float a = lse_a[at[0]], b = lse_b[at[1]];
    const MergeWeights w(a, b);
    lse[at[2]] = b == -INFINITY ? a : a == -INFINITY ? b : static_cast<float>(w.top + log(w.a + w.b));
  }
}

/// lse's strides with one more dim, along which it repeats.
Dims along_rows(const Tensor& lse) {
  Dims strides = lse.strides();
  strides.push_back(0);
  return strides;
}

}  // namespace

void merge_states_cuda(const Tensor& out_a, const Tensor& lse_a, const Tensor& out_b, const Tensor& lse_b,
                       const Tensor& out, const Tensor& lse) {
  constexpr const char* kOp = "merge_states";
  const Device device = out.device();
  const cuda::DeviceGuard guard(device);
  const auto grid = [&](int64_t count) {
    return cuda::Grid{dim3(cuda::blocks_for(count, kThreads, device)), dim3(kThreads)};
  };
  if (out.numel() > 0) {
    const auto layout = cuda::collapse<5>(
        kOp, out.shape(), {out_a.strides(), along_rows(lse_a), out_b.strides(), along_rows(lse_b), out.strides()}, 4);
    core::visit_float(out.dtype(), [&]<class T>() {
      cuda::launch(kOp, merge_values<T>, grid(layout.count), device, out_a.data<T>(), lse_a.data<float>(),
                   out_b.data<T>(), lse_b.data<float>(), out.data<T>(), layout);
    });
  }
  const auto rows = cuda::collapse<3>(kOp, lse.shape(), {lse_a.strides(), lse_b.strides(), lse.strides()}, 2);
  cuda::launch(kOp, merge_lse, grid(rows.count), device, lse_a.data<float>(), lse_b.data<float>(), lse.data<float>(),
               rows);
}

}  // namespace tenor::attn
