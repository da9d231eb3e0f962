// silu_mul and gelu_mul: one pass, an access of 16 bytes an operand and thread. Where the result is rounded to 16 bits,
// the hardware's approximate exponential and reciprocal serve: their errors of some 2^-21 do not reach it.
#include <cmath>

#include "src/core/visit.h"
#include "src/cuda/convert.cuh"
#include "src/cuda/gelu.cuh"
#include "src/cuda/launch.h"
#include "src/cuda/layout.h"
#include "src/cuda/vector.cuh"
#include "src/ops/activation/activation_cuda.h"

namespace tenor::cuda {
namespace {

constexpr int kThreads = 256;

/// above / (1 + e), e = exp(-|v|): the sigmoid of v without overflow, and without loss in its far tail.
template <bool kFast, class T>
__device__ __forceinline__ T sigmoid(T v) {
  if constexpr (kFast) {
    const float e = __expf(-fabsf(v));
    return __fdividef(v < 0 ? e : 1.0f, 1.0f + e);
  }
  const T e = exp(-fabs(v));
  return (v < T(0) ? e : T(1)) / (T(1) + e);
}

/// v * weight, where the weight falls to 0 at -inf faster than v grows.
template <class T>
__device__ __forceinline__ T weighted(T v, T weight) {
  return v == -static_cast<T>(INFINITY) ? T(0) : v * weight;
}

struct Silu {
  template <bool kFast, class T>
  static __device__ T of(T v) {
    return weighted(v, sigmoid<kFast>(v));
  }
};
struct Gelu {
  template <bool kFast, class T>
  static __device__ T of(T v) {
    if constexpr (kFast) return gelu_short(v);
    return weighted(v, normcdf(v));
  }
};
/// (1 + tanh(u)) / 2 is sigmoid(2 u), which does not cancel where tanh nears -1.
struct GeluTanh {
  template <bool kFast, class T>
  static __device__ T of(T v) {
    return weighted(v, sigmoid<kFast>(T(1.5957691216057308) * (T(0.044715) * (v * v * v) + v)));
  }
};

/// The layout counts units of V elements, one a thread; its tensors are gate, up, out. All the threads that a
/// multiprocessor takes are needed for the memory's speed.
template <class Activation, class T, int V>
__global__ void __launch_bounds__(kThreads, sizeof(T) == 2 ? 8 : 4)
    gated_kernel(const T* gate, const T* up, T* out, const __grid_constant__ Layout<3> layout,
                 const __grid_constant__ RowBlocks<3> blocks) {
  using C = core::Compute<T>;
  const UnitPlace<3> p = unit_place(layout, blocks, kThreads);
  if (p.unit >= p.end) return;
  int64_t at[3] = {p.at[0], p.at[1], p.at[2]};
  if (!blocks.linear) scattered_offsets(layout, blocks, p.unit, at);
  C values[V], scale[V];
  widen_pack(load_pack<V>(gate + at[0]), values);
  widen_pack(load_pack<V>(up + at[1]), scale);
#pragma unroll
  for (int j = 0; j < V; ++j) values[j] = Activation::template of<sizeof(T) == 2>(values[j]) * scale[j];
  store_pack(out + at[2], convert_pack<T>(values));
}

/// Whether the innermost dim is dense and cut into whole, aligned accesses of `width` elements.
bool fits(const Layout<3>& layout, const Tensor& x, int t, int width) {
  const size_t item = item_size(x.dtype());
  const int last = layout.ndim - 1, bytes = width * static_cast<int>(item);
  if (last < 0 || layout.size[last] % width != 0 || layout.stride[t][last] != 1 || !is_aligned(x.raw(), 0, item, bytes))
    return false;
  for (int d = 0; d < last; ++d)
    if (!is_aligned(nullptr, layout.stride[t][d], item, bytes)) return false;
  return true;
}

template <class Activation, class T>
void run(const char* op, const Tensor& gate, const Tensor& up, const Tensor& out) {
  Layout<3> layout = collapse(op, out.shape(), {gate.strides(), up.strides(), out.strides()}, 2);
  constexpr int kWide = kVector<T>;
  const auto go = [&]<int V>() {
    RowBlocks<3> by_rows;
    const Grid grid{dim3(static_cast<unsigned>(lay_blocks(layout, kThreads, by_rows))), dim3(kThreads)};
    launch(op, gated_kernel<Activation, T, V>, grid, out.device(), gate.data<T>(), up.data<T>(), out.data<T>(), layout,
           by_rows);
  };
  if (!fits(layout, gate, 0, kWide) || !fits(layout, up, 1, kWide) || !fits(layout, out, 2, kWide))
    return go.template operator()<1>();
  group_innermost(layout, kWide);
  go.template operator()<kWide>();
}

template <class Activation>
void gated(const char* op, const Tensor& gate, const Tensor& up, const Tensor& out) {
  if (out.numel() == 0) return;
  const DeviceGuard guard(out.device());
  core::visit_float(out.dtype(), [&]<class T>() { run<Activation, T>(op, gate, up, out); });
}

}  // namespace

void silu_mul(const char* op, const Tensor& gate, const Tensor& up, const Tensor& out) {
  gated<Silu>(op, gate, up, out);
}
void gelu_mul(const char* op, const Tensor& gate, const Tensor& up, const Tensor& out) {
  gated<Gelu>(op, gate, up, out);
}
void gelu_tanh_mul(const char* op, const Tensor& gate, const Tensor& up, const Tensor& out) {
  gated<GeluTanh>(op, gate, up, out);
}

}  // namespace tenor::cuda
