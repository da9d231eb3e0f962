#include "src/core/backend.h"
#include "src/cuda/launch.h"
#include "src/cuda/reduce.cuh"
#include "src/ops/index/index_entries.cuh"
#include "src/ops/index/index_one_hot_cuda.h"

namespace tenor::index {

namespace {

constexpr int kThreads = 256;

/// The ones among zeros.
__global__ void ones_kernel(Entries entries, int64_t count, int64_t* out) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= count) return;
  const int64_t place = place_of(entries, i);
  if (place >= 0) out[i * entries.size + place] = 1;
}

__global__ void greatest_kernel(Entries entries, int64_t count, long long* greatest) {
  __shared__ long long shared[kThreads / cuda::kWarp];
  long long most = INT64_MIN;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count; i += int64_t{gridDim.x} * kThreads)
    most = max(most, static_cast<long long>(raw_entry(entries, i)));
  most = cuda::block_reduce<kThreads>(most, shared, [](long long a, long long b) { return max(a, b); });
  if (threadIdx.x == 0) atomicMax(greatest, most);
}

}  // namespace

void one_hot_on_device(const Tensor& index, const Tensor& out) {
  if (index.numel() == 0) return;
  const cuda::DeviceGuard guard(out.device());
  const int64_t count = index.numel();
  cuda::check(cudaMemsetAsync(out.raw(), 0, out.numel() * sizeof(int64_t), cuda::stream_of(out)), "one_hot");
  cuda::launch("one_hot", ones_kernel, cuda::Grid{static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads},
               out.device(), entries_of({"one_hot", "class"}, index, out.shape(-1), true), count, out.data<int64_t>());
}

int64_t greatest_entry_on_device(const char* op, const Tensor& index) {
  core::Backend& backend = core::backend(index.device());
  backend.check_may_wait(op, index.device());
  const cuda::DeviceGuard guard(index.device());
  const Tensor greatest = Tensor::empty({1}, int64, index.device());
  int64_t host = INT64_MIN;
  backend.fill(greatest, &host);
  const cuda::Grid grid{cuda::blocks_for(index.numel(), kThreads, index.device(), 8), kThreads};
  cuda::launch(op, greatest_kernel, grid, index.device(), entries_of({"one_hot", "class"}, index, 0), index.numel(),
               static_cast<long long*>(greatest.raw()));
  backend.copy_bytes(&host, kCpu, greatest.raw(), greatest.device(), sizeof(host));
  return host;
}

}  // namespace tenor::index
