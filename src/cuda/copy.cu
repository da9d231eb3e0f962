#include "src/cuda/copy.h"

#include <algorithm>

#include "src/core/numeric.h"
#include "src/core/visit.h"
#include "src/cuda/layout.h"
#include "src/cuda/runtime.h"

namespace tenor::cuda {
namespace {

constexpr int kThreads = 256;

/// Offsets of element i of a collapsed pair.
__device__ __forceinline__ void offsets(const PairLayout& layout, int64_t i, int64_t& a, int64_t& b) {
  a = b = 0;
  for (int d = layout.ndim - 1; d > 0; --d) {
    const int64_t next = i / layout.size[d], at = i - next * layout.size[d];
    a += at * layout.a[d];
    b += at * layout.b[d];
    i = next;
  }
  if (layout.ndim > 0) {
    a += i * layout.a[0];
    b += i * layout.b[0];
  }
}

/// Moves elements of one size.
template <class T>
__global__ void move_kernel(const T* __restrict__ src, T* __restrict__ dst, const __grid_constant__ PairLayout layout) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < layout.count; i += step) {
    int64_t a, b;
    offsets(layout, i, a, b);
    dst[b] = src[a];
  }
}

/// Converts; the target dtype is chosen at run time, alike for every thread, so that 15 kernels serve 210 conversions.
template <class From>
__global__ void convert_kernel(const From* __restrict__ src, void* __restrict__ dst, DType to, const __grid_constant__ PairLayout layout) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < layout.count; i += step) {
    int64_t a, b;
    offsets(layout, i, a, b);
    const From value = src[a];
    core::visit(to, [&]<class To>() { static_cast<To*>(dst)[b] = core::cast<To>(value); });
  }
}

int blocks_for(int64_t count, Device device) {
  return static_cast<int>(std::min<int64_t>((count + kThreads - 1) / kThreads, multiprocessors(device) * 8));
}

}  // namespace

void copy_strided(const Tensor& src, const Tensor& dst) {
  if (dst.numel() == 0) return;
  const DeviceGuard guard(dst.device());
  const PairLayout layout = collapse(dst.shape(), src.strides(), dst.strides());
  const cudaStream_t stream = stream_of(dst);
  const int blocks = blocks_for(layout.count, dst.device());
  if (src.dtype() == dst.dtype()) {
    const size_t size = item_size(dst.dtype());
    if (layout.ndim == 0 || (layout.ndim == 1 && layout.a[0] == 1 && layout.b[0] == 1)) {
      check(cudaMemcpyAsync(dst.raw(), src.raw(), layout.count * size, cudaMemcpyDeviceToDevice, stream), "copy");
      return;
    }
    core::visit_size(dst.dtype(), [&]<class T>() { move_kernel<<<blocks, kThreads, 0, stream>>>(src.data<T>(), dst.data<T>(), layout); });
  } else {
    core::visit(src.dtype(), [&]<class From>() {
      convert_kernel<<<blocks, kThreads, 0, stream>>>(src.data<From>(), dst.raw(), dst.dtype(), layout);
    });
  }
  check(cudaGetLastError(), "copy");
}

}  // namespace tenor::cuda
