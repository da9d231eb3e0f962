#include "src/core/numeric.h"
#include "src/core/visit.h"
#include "src/cuda/copy.h"
#include "src/cuda/launch.h"
#include "src/cuda/layout.h"
#include "src/cuda/pointwise.cuh"
#include "src/cuda/runs.cuh"
#include "src/cuda/transpose.cuh"

namespace tenor::cuda {
namespace {

constexpr int kThreads = 256;

/// Converts; the target dtype is chosen at run time, alike for every thread, so that 15 kernels serve 210 conversions.
template <class From>
__global__ void convert_kernel(const From* src, void* dst, DType to, const __grid_constant__ Layout<2> layout) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < layout.count; i += step) {
    int64_t at[2];
    offsets(layout, i, at);
    const From value = src[at[0]];
    core::visit(to, [&]<class To>() { static_cast<To*>(dst)[at[1]] = core::cast<To>(value); });
  }
}

/// Dense float32 to 16-bit floats, a vector a thread: the engine's choices cost a tenth of the time.
template <class To>
__global__ void __launch_bounds__(kThreads)
    narrow_kernel(const float* __restrict__ src, To* __restrict__ dst, int64_t count) {
  constexpr int V = kVector<float>;
  const int64_t i = (blockIdx.x * int64_t{kThreads} + threadIdx.x) * V;
  if (i + V <= count) {
    store_pack(dst + i, convert_pack<To>(load_pack<V>(src + i).at));
  } else {
    for (int64_t k = i; k < count; ++k) dst[k] = convert<To>(src[k]);
  }
}
bool narrow_dense(const Tensor& src, const Tensor& dst, const Layout<2>& layout) {
  constexpr int64_t kEach = kThreads * kVector<float>;
  const int64_t blocks = (layout.count + kEach - 1) / kEach;
  if (src.dtype() != float32 || !layout.is_dense(0) || !layout.is_dense(1) || blocks > INT32_MAX ||
      !is_aligned(src.raw(), 0, 1) || !is_aligned(dst.raw(), 0, 1))
    return false;
  const auto run = [&]<class To>() {
    launch("copy", narrow_kernel<To>, {dim3(static_cast<unsigned>(blocks)), dim3(kThreads)}, dst.device(),
           static_cast<const float*>(src.raw()), static_cast<To*>(dst.raw()), layout.count);
    return true;
  };
  if (dst.dtype() == bfloat16) return run.template operator()<BFloat16>();
  return dst.dtype() == float16 && run.template operator()<Float16>();
}

PointwiseCall copy_call(const Tensor& src, const Tensor& dst, DType from, DType to) {
  PointwiseCall call{"copy", {}, 1, dst, to};
  call.in[0] = {src.raw(), from, src.strides()};
  return call;
}

template <class T>
void convert_within(const Tensor& src, const Tensor& dst) {
  run_pointwise<T, T, 1>(copy_call(src, dst, src.dtype(), dst.dtype()), [] __device__(T v) { return v; });
}

constexpr int kAtOnce = 8;  // elements of a thread that are under way together

/// Element by element, neighbouring threads on neighbouring elements of the target: what has no runs.
template <class U>
__global__ void __launch_bounds__(kThreads)
    strided_kernel(const U* __restrict__ src, U* __restrict__ dst, const __grid_constant__ Layout<2> layout,
                   const __grid_constant__ RowBlocks<2> blocks) {
  const auto p = unit_place(layout, blocks, kThreads * kAtOnce);
  U held[kAtOnce];
  int64_t to[kAtOnce];
#pragma unroll
  for (int k = 0; k < kAtOnce; ++k) {
    if (p.unit + k * kThreads >= p.end) break;
    int64_t at[2];
    if (blocks.linear) {
#pragma unroll
      for (int t = 0; t < 2; ++t) at[t] = p.at[t] + k * kThreads * blocks.unit_stride[t];
    } else {
      scattered_offsets(layout, blocks, p.unit + k * kThreads, at);
    }
    held[k] = src[at[0]];
    to[k] = at[1];
  }
#pragma unroll
  for (int k = 0; k < kAtOnce; ++k)
    if (p.unit + k * kThreads < p.end) dst[to[k]] = held[k];
}

template <class U>
void move(const Tensor& src, const Tensor& dst, const Layout<2>& layout) {
  const int dim = turned_dim(layout);
  const auto* from = static_cast<const U*>(src.raw());
  auto* to = static_cast<U*>(dst.raw());
  if (dim >= 0) return turn("copy", layout, dim, from, to, dst.device());
  if (move_runs("copy", layout, from, to, sizeof(U), dst.device())) return;
  const int last = layout.ndim - 1;
  if (last < 0 || layout.stride[0][last] == 0)
    return run_pointwise<U, U, 1>(copy_call(src, dst, core::kDTypeOf<U>, core::kDTypeOf<U>),
                                  [] __device__(U v) { return v; });
  RowBlocks<2> blocks;
  const auto grid = static_cast<unsigned>(lay_blocks(layout, kThreads * kAtOnce, blocks));
  launch("copy", strided_kernel<U>, Grid{dim3(grid), dim3(kThreads)}, dst.device(), from, to, layout, blocks);
}

void move_elements(const Tensor& src, const Tensor& dst, const Layout<2>& layout) {
  if (layout.is_dense(0) && layout.is_dense(1)) {
    const size_t bytes = static_cast<size_t>(layout.count) * item_size(dst.dtype());
    return check(cudaMemcpyAsync(dst.raw(), src.raw(), bytes, cudaMemcpyDeviceToDevice, stream_of(dst)), "copy");
  }
  core::visit_size(dst.dtype(), [&]<class U>() { move<U>(src, dst, layout); });
}

void convert_elements(const Tensor& src, const Tensor& dst, const Layout<2>& layout) {
  if (narrow_dense(src, dst, layout)) return;
  // The common ones at vector speed: what the engine reads and writes in one compute type.
  if (is_stored<float>(src.dtype()) && is_stored<float>(dst.dtype())) return convert_within<float>(src, dst);
  const Grid grid{dim3(blocks_for(layout.count, kThreads, dst.device())), dim3(kThreads)};
  core::visit(src.dtype(), [&]<class From>() {
    launch("copy", convert_kernel<From>, grid, dst.device(), static_cast<const From*>(src.raw()), dst.raw(),
           dst.dtype(), layout);
  });
}

}  // namespace

void copy_strided(const Tensor& src, const Tensor& dst) {
  if (dst.numel() == 0) return;
  const DeviceGuard guard(dst.device());
  const Layout<2> layout = collapse("copy", dst.shape(), {src.strides(), dst.strides()}, 1);
  if (src.dtype() == dst.dtype())
    move_elements(src, dst, layout);
  else
    convert_elements(src, dst, layout);
}

}  // namespace tenor::cuda
