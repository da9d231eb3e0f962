#include "src/core/numeric.h"
#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/cuda/layout.h"
#include "src/cuda/vector.cuh"
#include "src/ops/create/create_cuda.h"

namespace tenor::create {

namespace {

using cuda::Grid;
using cuda::launch;
using cuda::Layout;

constexpr int kThreads = 256;

unsigned blocks_of(int64_t threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }

/// The dtype is chosen at run time, alike for every thread.
__global__ void arange_kernel(void* to, DType dtype, int64_t stride, int64_t count, int64_t start, int64_t step) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= count) return;
  core::visit(dtype, [&]<class T>() { static_cast<T*>(to)[i * stride] = core::cast<T>(start + i * step); });
}

__global__ void spaced_kernel(void* to, DType dtype, int64_t stride, int64_t count, double start, double step,
                              int64_t middle, double end) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= count) return;
  // The ends themselves, lest 0 times an infinite step be NaN.
  double value = i < middle ? start : end;
  if (i < middle && i > 0) value = start + static_cast<double>(i) * step;
  if (i >= middle && i < count - 1) value = end - static_cast<double>(count - 1 - i) * step;
  core::visit(dtype, [&]<class T>() { static_cast<T*>(to)[i * stride] = core::cast<T>(value); });
}

/// Matrices [*, rows, columns]: which elements stay.
struct Triangle {
  int64_t rows, columns, diagonal;
  bool lower;

  __device__ bool keeps(int64_t row, int64_t column) const {
    return lower ? column - row <= diagonal : column - row >= diagonal;
  }
};

/// N elements of one row a thread, both sides row-major and aligned for N > 1. What does not stay is not read.
template <class T, int N>
__global__ void triangle_kernel(const T* x, T* target, Triangle triangle, const __grid_constant__ Layout<2> layout) {
  const int64_t i = (blockIdx.x * int64_t{kThreads} + threadIdx.x) * N;
  if (i >= layout.count) return;
  const int64_t line = layout.count <= UINT32_MAX ? static_cast<uint32_t>(i) / static_cast<uint32_t>(triangle.columns)
                                                  : i / triangle.columns;
  const int64_t column = i - line * triangle.columns;
  const int64_t row =
      line <= UINT32_MAX ? static_cast<uint32_t>(line) % static_cast<uint32_t>(triangle.rows) : line % triangle.rows;
  int64_t at[2] = {i, i};
  if constexpr (N == 1) offsets(layout, i, at);
  cuda::Pack<T, N> pack{};
  if (triangle.keeps(row, column) || triangle.keeps(row, column + N - 1)) pack = cuda::load_pack<N>(x + at[0]);
#pragma unroll
  for (int k = 0; k < N; ++k)
    if (!triangle.keeps(row, column + k)) pack.at[k] = T{};
  cuda::store_pack(target + at[1], pack);
}

}  // namespace

void arange_on_device(const char* op, const Tensor& target, int64_t start, int64_t step) {
  if (target.numel() == 0) return;
  const cuda::DeviceGuard guard(target.device());
  launch(op, arange_kernel, Grid{blocks_of(target.numel()), kThreads}, target.device(), target.raw(), target.dtype(),
         target.stride(0), target.numel(), start, step);
}

void spaced_on_device(const char* op, const Tensor& target, double start, double step, int64_t middle, double end) {
  if (target.numel() == 0) return;
  const cuda::DeviceGuard guard(target.device());
  launch(op, spaced_kernel, Grid{blocks_of(target.numel()), kThreads}, target.device(), target.raw(), target.dtype(),
         target.stride(0), target.numel(), start, step, middle, end);
}

void triangle_on_device(const char* op, const Tensor& x, const Tensor& target, bool lower, int64_t diagonal) {
  if (target.numel() == 0) return;
  const cuda::DeviceGuard guard(target.device());
  const Triangle triangle{x.shape(-2), x.shape(-1), diagonal, lower};
  const Layout<2> layout = cuda::collapse(op, x.shape(), {x.strides(), target.strides()}, -1);
  core::visit_size(x.dtype(), [&]<class T>() {
    constexpr int kN = cuda::kVector<T>;
    const auto* from = static_cast<const T*>(x.raw());
    auto* to = static_cast<T*>(target.raw());
    const bool packs = layout.is_dense(0) && layout.is_dense(1) && triangle.columns % kN == 0 &&
                       cuda::is_aligned(from, 0, sizeof(T)) && cuda::is_aligned(to, 0, sizeof(T));
    if (packs)
      return launch(op, triangle_kernel<T, kN>, Grid{blocks_of(layout.count / kN), kThreads}, x.device(), from, to,
                    triangle, layout);
    launch(op, triangle_kernel<T, 1>, Grid{blocks_of(layout.count), kThreads}, x.device(), from, to, triangle, layout);
  });
}

}  // namespace tenor::create
