// affine_grid on a GPU: a thread a place.
#include "src/core/visit.h"
#include "src/cuda/convert.cuh"
#include "src/cuda/launch.h"
#include "src/ops/grid_sample/grid_sample_cuda.h"

namespace tenor::cuda {
namespace {

constexpr int kThreads = 256;

struct AffineProblem {
  const void* theta;
  void* grid;
  int64_t theta_n, theta_row, theta_column, n, d, h, w, c;  // strides
  int64_t batch, depth, height, width;
  int dims;
  bool align_corners;
};

/// Pixel i of n in -1..1.
template <class C>
__device__ C pixel_place(int64_t i, int64_t n, bool align) {
  return n == 1 ? C(0) : static_cast<C>(2 * i + 1 - n) / static_cast<C>(align ? n - 1 : n);
}

template <class T>
__global__ void __launch_bounds__(kThreads) affine_kernel(const __grid_constant__ AffineProblem p) {
  using C = core::Compute<T>;
  const int64_t places = p.depth * p.height * p.width, step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < p.batch * places; i += step) {
    const int64_t n = i / places, s = i - n * places, row = s / p.width, w = s - row * p.width, d = row / p.height,
                  h = row - d * p.height;
    const C at[3] = {pixel_place<C>(w, p.width, p.align_corners), pixel_place<C>(h, p.height, p.align_corners),
                     pixel_place<C>(d, p.depth, p.align_corners)};
    const T* theta = static_cast<const T*>(p.theta) + n * p.theta_n;
    T* to = static_cast<T*>(p.grid) + n * p.n + d * p.d + h * p.h + w * p.w;
    for (int r = 0; r < p.dims; ++r, theta += p.theta_row) {
      C sum = widen(theta[p.dims * p.theta_column]);
      for (int k = p.dims; k-- > 0;) sum += widen(theta[k * p.theta_column]) * at[k];
      to[r * p.c] = convert<T>(sum);
    }
  }
}

}  // namespace

void affine_grid(const Tensor& theta, const Tensor& grid, bool align_corners) {
  if (grid.numel() == 0) return;
  const DeviceGuard guard(grid.device());
  const AffineProblem p{
      theta.raw(),    grid.raw(),     theta.stride(0), theta.stride(1), theta.stride(2),
      grid.stride(0), grid.stride(1), grid.stride(2),  grid.stride(3),  grid.stride(4),
      grid.shape(0),  grid.shape(1),  grid.shape(2),   grid.shape(3),   static_cast<int>(grid.shape(4)),
      align_corners};
  core::visit_float(theta.dtype(), [&]<class T>() {
    launch("affine_grid", affine_kernel<T>,
           Grid{dim3(blocks_for(p.batch * p.depth * p.height * p.width, kThreads, grid.device())), dim3(kThreads)},
           grid.device(), p);
  });
}

}  // namespace tenor::cuda
