// bincount on CUDA.
#include "src/core/visit.h"
#include "src/ops/sort/bins.cuh"
#include "src/ops/sort/sort_cuda.h"

namespace tenor::cuda {
namespace {

/// What bincount must know of x before it has a result.
struct Extremes {
  long long most;                 ///< the largest element
  unsigned long long refused_at;  ///< the first that is negative, or beyond int64
};

__global__ void begin_extremes(Extremes* e) { *e = {-1, ~0ull}; }

template <class T>
__global__ void extremes_kernel(const T* __restrict__ x, int64_t count, Extremes* e) {
  long long most = -1;
  for_each_item(count, [&](int64_t i) {
    const long long value = static_cast<long long>(x[i]);
    most = max(most, value);
    if (value < 0) atomicMin(&e->refused_at, static_cast<unsigned long long>(i));
  });
  for (int mask = 16; mask > 0; mask /= 2) most = max(most, __shfl_xor_sync(~0u, most, mask));
  if (threadIdx.x % 32 == 0 && most >= 0) atomicMax(&e->most, most);
}

/// A thread a bin: the weights of its elements, whose places `order` holds one after another, in index order.
template <class T>
__global__ void weigh_kernel(const T* __restrict__ x, const int64_t* __restrict__ order,
                             const double* __restrict__ weights, int64_t count, int64_t bins, double* sums) {
  for_each_item(bins, [&](int64_t bin) {
    int64_t low = 0;
    for (int64_t left = count; left > 0;) {
      const int64_t half = left / 2;
      const bool after = static_cast<int64_t>(x[order[low + half]]) < bin;
      low = after ? low + half + 1 : low;
      left = after ? left - half - 1 : half;
    }
    double sum = 0;
    for (; low < count && static_cast<int64_t>(x[order[low]]) == bin; ++low) sum += weights[order[low]];
    sums[bin] = sum;
  });
}

}  // namespace

int64_t largest_count(const Tensor& x, int64_t* refused_at) {
  backend().check_may_wait("bincount", x.device());
  const Tensor extremes = Tensor::empty({2}, int64, x.device());
  const DeviceGuard guard(x.device());
  launch("bincount", begin_extremes, Grid{1, 1}, x.device(), extremes.data<Extremes>());
  if (x.numel() > 0)
    core::visit_integer(x.dtype(), [&]<class T>() {
      launch("bincount", extremes_kernel<T>, stride_grid(x.numel(), x.device()), x.device(), x.data<T>(), x.numel(),
             extremes.data<Extremes>());
    });
  const Tensor host = extremes.to(kCpu);
  *refused_at = host.data<int64_t>()[1];
  return host.data<int64_t>()[0];
}

void count_bins(const Tensor& x, const Tensor& counts) {
  const int64_t bins = counts.numel();
  if (bins == 0) return;
  const DeviceGuard guard(x.device());
  launch("bincount", zero_kernel, stride_grid(bins, x.device()), x.device(), counts.data<int64_t>(), bins);
  if (x.numel() == 0) return;
  Grid grid = stride_grid(x.numel(), x.device());
  grid.shared = bins <= kOwnBins ? static_cast<size_t>(bins) * sizeof(uint32_t) : 0;
  core::visit_integer(x.dtype(), [&]<class T>() {
    launch("bincount", count_kernel<T>, grid, x.device(), x.data<T>(), x.numel(), T(0), bins,
           counts.data<unsigned long long>());
  });
}

void weigh_bins(const Tensor& x, const Tensor& order, const Tensor& weights, const Tensor& sums) {
  if (sums.numel() == 0) return;
  const DeviceGuard guard(x.device());
  core::visit_integer(x.dtype(), [&]<class T>() {
    launch("bincount", weigh_kernel<T>, stride_grid(sums.numel() * 4, x.device()), x.device(), x.data<T>(),
           order.data<int64_t>(), weights.data<double>(), x.numel(), sums.numel(), sums.data<double>());
  });
}

}  // namespace tenor::cuda
