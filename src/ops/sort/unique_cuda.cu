// unique on CUDA: an order, the places where a new element (or slice) starts, and their running number.
#include <cub/device/device_merge_sort.cuh>
#include <cub/device/device_scan.cuh>

#include "src/core/visit.h"
#include "src/cuda/stride_loop.cuh"
#include "src/ops/sort/sort_cuda.h"

namespace tenor::cuda {
namespace {

constexpr auto kOp = "unique";

/// Slices of `length` elements side by side.
template <class K>
struct Slices {
  const K* x;
  int64_t length;
  core::KeyCode code;

  __device__ K key(int64_t slice, int64_t i) const { return core::encode(x[slice * length + i], code); }
  /// -1, 0 or 1, lexicographically.
  __device__ int compare(int64_t a, int64_t b) const {
    for (int64_t i = 0; i < length; ++i) {
      const K u = key(a, i), v = key(b, i);
      if (u != v) return u < v ? -1 : 1;
    }
    return 0;
  }
  __device__ bool has_nan(int64_t slice) const {
    if (code.kind != core::KeyKind::kFloat) return false;
    for (int64_t i = 0; i < length; ++i)
      if (key(slice, i) == core::nan_key<K>(code)) return true;
    return false;
  }
};

/// The order of slices, whatever the element's width: one comparison for the merge sort, which is slow to compile.
struct SliceOrder {
  const void* x;
  int64_t length;
  core::KeyCode code;
  size_t width;

  template <class K>
  __device__ int compare(int64_t a, int64_t b) const {
    return Slices<K>{static_cast<const K*>(x), length, code}.compare(a, b);
  }
  __device__ bool operator()(int64_t a, int64_t b) const {
    const int order = width == 1   ? compare<uint8_t>(a, b)
                      : width == 2 ? compare<uint16_t>(a, b)
                      : width == 4 ? compare<uint32_t>(a, b)
                                   : compare<uint64_t>(a, b);
    return order != 0 ? order < 0 : a < b;
  }
};

__global__ void count_up(int64_t* order, int64_t count) {
  for_each_item(count, [&](int64_t i) { order[i] = i; });
}

/// starts[p] = 1 where slice order[p] differs from the one before it; NaN differ from all.
template <class K>
__global__ void start_kernel(Slices<K> slices, const int64_t* __restrict__ order, int64_t count, int64_t* starts) {
  for_each_item(count, [&](int64_t p) {
    starts[p] = p == 0 || slices.compare(order[p - 1], order[p]) != 0 || slices.has_nan(order[p]);
  });
}

/// numbers[p] counts the groups up to place p. What is not wanted is null.
template <class K>
__global__ void write_kernel(Slices<K> slices, const int64_t* __restrict__ order, const int64_t* __restrict__ numbers,
                             int64_t count, K* values, int64_t* inverse, int64_t* starts) {
  for_each_item(count, [&](int64_t p) {
    const int64_t group = numbers[p] - 1, slice = order[p];
    if (inverse) inverse[slice] = group;
    if (p > 0 && numbers[p - 1] == numbers[p]) return;
    if (starts) starts[group] = p;
    for (int64_t i = 0; i < slices.length; ++i) values[group * slices.length + i] = slices.x[slice * slices.length + i];
  });
}

/// counts[g], which held where group g starts, becomes the number of its members.
__global__ void count_kernel(const int64_t* __restrict__ starts, int64_t groups, int64_t count, int64_t* counts) {
  for_each_item(groups, [&](int64_t g) { counts[g] = (g + 1 < groups ? starts[g + 1] : count) - starts[g]; });
}

template <class F>
void with_workspace(Device device, F&& fn) {
  size_t bytes = 0;
  check(fn(nullptr, bytes), kOp);
  const Tensor workspace = Tensor::empty({static_cast<int64_t>(std::max<size_t>(bytes, 1))}, uint8, device);
  check(fn(workspace.raw(), bytes), kOp);
}

template <class K>
Slices<K> slices_of(const Tensor& data, int64_t length) {
  return {data.data<K>(), length, core::key_code(data.dtype())};
}

Tensor order_of(const Tensor& data, int64_t count, int64_t length) {
  const Device device = data.device();
  const Tensor order = Tensor::empty({count}, int64, device);
  if (length == 1) {
    order_rows(kOp, data.with_layout({count}, {1}, data.offset()), 0, core::key_code(data.dtype()), count, {}, order);
    return order;
  }
  const DeviceGuard guard(device);
  launch(kOp, count_up, stride_grid(count, device), device, order.data<int64_t>(), count);
  const SliceOrder before{data.raw(), length, core::key_code(data.dtype()), item_size(data.dtype())};
  with_workspace(device, [&](void* workspace, size_t& bytes) {
    return cub::DeviceMergeSort::SortKeys(workspace, bytes, order.data<int64_t>(), count, before,
                                          current_stream(device).handle);
  });
  return order;
}

}  // namespace

Groups group_slices(const Tensor& data, int64_t count, int64_t length) {
  backend().check_may_wait(kOp, data.device());
  Groups groups;
  if (count == 0 || (length == 1 && bin_integers(data, groups))) return groups;
  const Device device = data.device();
  groups.order = order_of(data, count, length);
  groups.numbers = Tensor::empty({count}, int64, device);
  const DeviceGuard guard(device);
  int64_t* numbers = groups.numbers.data<int64_t>();
  core::visit_size(data.dtype(), [&]<class K>() {
    launch(kOp, start_kernel<K>, stride_grid(count, device), device, slices_of<K>(data, length),
           groups.order.data<int64_t>(), count, numbers);
  });
  with_workspace(device, [&](void* workspace, size_t& bytes) {
    return cub::DeviceScan::InclusiveSum(workspace, bytes, numbers, numbers, count, current_stream(device).handle);
  });
  groups.count = groups.numbers.with_layout({1}, {1}, groups.numbers.offset() + count - 1).to(kCpu).item_int();
  return groups;
}

void write_groups(const Tensor& data, int64_t length, const Groups& groups, const Tensor& values, const Tensor& inverse,
                  const Tensor& counts) {
  if (groups.count == 0) return;
  if (groups.bins.defined()) return write_bins(data, groups, values, inverse, counts);
  const Device device = data.device();
  const int64_t count = groups.order.numel();
  const Tensor starts = counts.defined() ? Tensor::empty({groups.count}, int64, device) : Tensor();
  const auto numbers_of = [](const Tensor& x) { return x.defined() ? x.data<int64_t>() : nullptr; };
  const DeviceGuard guard(device);
  core::visit_size(data.dtype(), [&]<class K>() {
    launch(kOp, write_kernel<K>, stride_grid(count, device), device, slices_of<K>(data, length),
           groups.order.data<int64_t>(), groups.numbers.data<int64_t>(), count, values.data<K>(), numbers_of(inverse),
           numbers_of(starts));
  });
  if (counts.defined())
    launch(kOp, count_kernel, stride_grid(groups.count, device), device, starts.data<int64_t>(), groups.count, count,
           counts.data<int64_t>());
}

}  // namespace tenor::cuda
