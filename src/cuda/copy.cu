#include "src/cuda/copy.h"

#include "src/core/numeric.h"
#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/cuda/layout.h"
#include "src/cuda/pointwise.cuh"
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

PointwiseCall copy_call(const Tensor& src, const Tensor& dst, DType from, DType to) {
  PointwiseCall call{"copy", {}, 1, dst, to};
  call.in[0] = {src.raw(), from, src.strides()};
  return call;
}

template <class T>
void convert_within(const Tensor& src, const Tensor& dst) {
  run_pointwise<T, T, 1>(copy_call(src, dst, src.dtype(), dst.dtype()), [] __device__(T v) { return v; });
}

template <class U>
void move(const Tensor& src, const Tensor& dst, const Layout<2>& layout) {
  const int dim = turned_dim(layout);
  if (dim >= 0) return turn("copy", layout, dim, static_cast<const U*>(src.raw()), static_cast<U*>(dst.raw()), dst.device());
  run_pointwise<U, U, 1>(copy_call(src, dst, core::kDTypeOf<U>, core::kDTypeOf<U>), [] __device__(U v) { return v; });
}

void move_elements(const Tensor& src, const Tensor& dst, const Layout<2>& layout) {
  if (layout.is_dense(0) && layout.is_dense(1)) {
    const size_t bytes = static_cast<size_t>(layout.count) * item_size(dst.dtype());
    return check(cudaMemcpyAsync(dst.raw(), src.raw(), bytes, cudaMemcpyDeviceToDevice, stream_of(dst)), "copy");
  }
  core::visit_size(dst.dtype(), [&]<class U>() { move<U>(src, dst, layout); });
}

void convert_elements(const Tensor& src, const Tensor& dst, const Layout<2>& layout) {
  // The common ones at vector speed: what the engine reads and writes in one compute type.
  if (is_stored<float>(src.dtype()) && is_stored<float>(dst.dtype())) return convert_within<float>(src, dst);
  const Grid grid{dim3(blocks_for(layout.count, kThreads, dst.device())), dim3(kThreads)};
  core::visit(src.dtype(), [&]<class From>() {
    launch("copy", convert_kernel<From>, grid, dst.device(), static_cast<const From*>(src.raw()), dst.raw(), dst.dtype(), layout);
  });
}

}  // namespace

void copy_strided(const Tensor& src, const Tensor& dst) {
  if (dst.numel() == 0) return;
  const DeviceGuard guard(dst.device());
  const Layout<2> layout = collapse("copy", dst.shape(), {src.strides(), dst.strides()}, 1);
  if (src.dtype() == dst.dtype()) move_elements(src, dst, layout);
  else convert_elements(src, dst, layout);
}

}  // namespace tenor::cuda
