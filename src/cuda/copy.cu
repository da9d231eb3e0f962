#include "src/cuda/copy.h"

#include <algorithm>

#include "src/core/numeric.h"
#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/cuda/layout.h"

namespace tenor::cuda {
namespace {

constexpr int kThreads = 256;

/// Moves elements of one size.
template <class T>
__global__ void move_kernel(const T* __restrict__ src, T* __restrict__ dst, const __grid_constant__ Layout<2> layout) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < layout.count; i += step) {
    int64_t at[2];
    offsets(layout, i, at);
    dst[at[1]] = src[at[0]];
  }
}

/// Converts; the target dtype is chosen at run time, alike for every thread, so that 15 kernels serve 210 conversions.
template <class From>
__global__ void convert_kernel(const From* __restrict__ src, void* __restrict__ dst, DType to, const __grid_constant__ Layout<2> layout) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < layout.count; i += step) {
    int64_t at[2];
    offsets(layout, i, at);
    const From value = src[at[0]];
    core::visit(to, [&]<class To>() { static_cast<To*>(dst)[at[1]] = core::cast<To>(value); });
  }
}

}  // namespace

void copy_strided(const Tensor& src, const Tensor& dst) {
  if (dst.numel() == 0) return;
  const DeviceGuard guard(dst.device());
  const Layout<2> layout = collapse("copy", dst.shape(), {src.strides(), dst.strides()}, 1);
  const Grid grid{blocks_for(layout.count, kThreads, dst.device(), 8), kThreads};
  if (src.dtype() == dst.dtype()) {
    const size_t size = item_size(dst.dtype());
    if (layout.is_dense(0) && layout.is_dense(1)) {
      check(cudaMemcpyAsync(dst.raw(), src.raw(), layout.count * size, cudaMemcpyDeviceToDevice, stream_of(dst)), "copy");
      return;
    }
    core::visit_size(dst.dtype(), [&]<class T>() { launch("copy", move_kernel<T>, grid, dst.device(), static_cast<const T*>(src.raw()), static_cast<T*>(dst.raw()), layout); });
  } else {
    core::visit(src.dtype(), [&]<class From>() {
      launch("copy", convert_kernel<From>, grid, dst.device(), src.data<From>(), dst.raw(), dst.dtype(), layout);
    });
  }
}

}  // namespace tenor::cuda
