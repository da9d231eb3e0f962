// unique on CUDA of integers that lie close together: a bin for each value there may be, and no sort.
#include <cub/device/device_scan.cuh>

#include "src/core/visit.h"
#include "src/ops/sort/bins.cuh"
#include "src/ops/sort/sort_cuda.h"

namespace tenor::cuda {
namespace {

constexpr auto kOp = "unique";
constexpr uint64_t kMostBins = 1 << 20;

/// The least key, and the least complement of a key.
struct Extremes {
  unsigned long long low, high;
};

template <class K>
__global__ void range_kernel(const K* __restrict__ x, int64_t count, core::KeyCode code, Extremes* extremes) {
  unsigned long long low = ~0ull, high = ~0ull;
  for_each_item(count, [&](int64_t i) {
    const unsigned long long key = core::encode(x[i], code);
    low = min(low, key);
    high = min(high, ~key);
  });
  for (int mask = 16; mask > 0; mask /= 2) {
    low = min(low, __shfl_xor_sync(~0u, low, mask));
    high = min(high, __shfl_xor_sync(~0u, high, mask));
  }
  if (threadIdx.x % 32 != 0) return;
  atomicMin(&extremes->low, low);
  atomicMin(&extremes->high, high);
}

__global__ void flag_kernel(const int64_t* __restrict__ counts, int64_t bins, int64_t* flags) {
  for_each_item(bins, [&](int64_t b) { flags[b] = counts[b] > 0; });
}

/// What is not wanted is null.
template <class T>
__global__ void write_bins_kernel(const int64_t* __restrict__ counts, const int64_t* __restrict__ numbers, int64_t bins,
                                  uint64_t low, T* values, int64_t* sizes) {
  for_each_item(bins, [&](int64_t b) {
    if (counts[b] == 0) return;
    values[numbers[b] - 1] = static_cast<T>(low + static_cast<uint64_t>(b));
    if (sizes) sizes[numbers[b] - 1] = counts[b];
  });
}

template <class T>
__global__ void inverse_kernel(const T* __restrict__ x, int64_t count, uint64_t low,
                               const int64_t* __restrict__ numbers, int64_t* inverse) {
  for_each_item(count, [&](int64_t i) { inverse[i] = numbers[static_cast<uint64_t>(x[i]) - low] - 1; });
}

/// x's least and greatest element, as keys; waits for them.
Extremes range_of(const Tensor& x) {
  const Tensor extremes = Tensor::empty({2}, uint64, x.device());
  check(cudaMemsetAsync(extremes.raw(), 0xFF, sizeof(Extremes), current_stream(x.device()).handle), kOp);
  core::visit_size(x.dtype(), [&]<class K>() {
    launch(kOp, range_kernel<K>, stride_grid(x.numel(), x.device()), x.device(), x.data<K>(), x.numel(),
           core::key_code(x.dtype()), reinterpret_cast<Extremes*>(extremes.raw()));
  });
  const Tensor host = extremes.to(kCpu);
  return {host.data<uint64_t>()[0], ~host.data<uint64_t>()[1]};
}

void number_bins(Groups& groups) {
  const Device device = groups.bins.device();
  const int64_t bins = groups.bins.numel();
  groups.numbers = Tensor::empty({bins}, int64, device);
  int64_t* numbers = groups.numbers.data<int64_t>();
  launch(kOp, flag_kernel, stride_grid(bins, device), device, groups.bins.data<int64_t>(), bins, numbers);
  size_t bytes = 0;
  const auto scan = [&](void* workspace) {
    check(cub::DeviceScan::InclusiveSum(workspace, bytes, numbers, numbers, bins, current_stream(device).handle), kOp);
  };
  scan(nullptr);
  const Tensor workspace = Tensor::empty({static_cast<int64_t>(std::max<size_t>(bytes, 1))}, uint8, device);
  scan(workspace.raw());
  groups.count = groups.numbers.with_layout({1}, {1}, groups.numbers.offset() + bins - 1).to(kCpu).item_int();
}

}  // namespace

bool bin_integers(const Tensor& x, Groups& groups) {
  if (is_float(x.dtype()) || x.dtype() == boolean) return false;
  const DeviceGuard guard(x.device());
  const Extremes range = range_of(x);
  const uint64_t span = range.high - range.low;
  if (span >= std::min<uint64_t>(kMostBins, static_cast<uint64_t>(x.numel()))) return false;
  const int64_t bins = static_cast<int64_t>(span) + 1;
  groups.bins = Tensor::empty({bins}, int64, x.device());
  launch(kOp, zero_kernel, stride_grid(bins, x.device()), x.device(), groups.bins.data<int64_t>(), bins);
  Grid grid = stride_grid(x.numel(), x.device());
  grid.shared = bins <= kOwnBins ? static_cast<size_t>(bins) * sizeof(uint32_t) : 0;
  core::visit_integer(x.dtype(), [&]<class T>() {
    using K = std::make_unsigned_t<T>;
    const T low = static_cast<T>(core::decode(static_cast<K>(range.low), core::key_code(x.dtype())));
    groups.low = static_cast<uint64_t>(low);
    launch(kOp, count_kernel<T>, grid, x.device(), x.data<T>(), x.numel(), low, bins,
           reinterpret_cast<unsigned long long*>(groups.bins.raw()));
  });
  number_bins(groups);
  return true;
}

void write_bins(const Tensor& x, const Groups& groups, const Tensor& values, const Tensor& inverse,
                const Tensor& counts) {
  const DeviceGuard guard(x.device());
  const int64_t bins = groups.bins.numel();
  const int64_t *sizes = groups.bins.data<int64_t>(), *numbers = groups.numbers.data<int64_t>();
  core::visit_integer(x.dtype(), [&]<class T>() {
    launch(kOp, write_bins_kernel<T>, stride_grid(bins, x.device()), x.device(), sizes, numbers, bins, groups.low,
           values.data<T>(), counts.defined() ? counts.data<int64_t>() : nullptr);
    if (inverse.defined())
      launch(kOp, inverse_kernel<T>, stride_grid(x.numel(), x.device()), x.device(), x.data<T>(), x.numel(), groups.low,
             numbers, inverse.data<int64_t>());
  });
}

}  // namespace tenor::cuda
