#include "src/ops/index/index_one_hot_cuda.h"

#include "src/core/backend.h"
#include "src/cuda/launch.h"
#include "src/cuda/reduce.cuh"
#include "src/ops/index/index_entries.cuh"

namespace tenor::index {

namespace {

constexpr int kThreads = 256;

/// Two results a thread.
__global__ void one_hot_kernel(Entries entries, int64_t classes, int64_t count, int64_t* out) {
  const int64_t at = (blockIdx.x * int64_t{kThreads} + threadIdx.x) * 2;
  longlong2 two{0, 0};
  for (int k = 0; k < 2; ++k) {
    if (at + k >= count) break;
    const int64_t i = count <= UINT32_MAX ? static_cast<uint32_t>(at + k) / static_cast<uint32_t>(classes) : (at + k) / classes;
    const int64_t is_one = raw_entry(entries, i) == at + k - i * classes;
    (k == 0 ? two.x : two.y) = is_one;
    if (at + k == i * classes) place_of(entries, i);  // one thread an entry looks whether it is in range
  }
  if (at + 1 < count && reinterpret_cast<uintptr_t>(out) % 16 == 0) {
    *reinterpret_cast<longlong2*>(out + at) = two;
  } else {
    if (at < count) out[at] = two.x;
    if (at + 1 < count) out[at + 1] = two.y;
  }
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
  if (out.numel() == 0) return;
  const cuda::DeviceGuard guard(out.device());
  const int64_t classes = out.shape(-1), count = out.numel();
  cuda::launch("one_hot", one_hot_kernel, cuda::Grid{static_cast<unsigned>((count + 2 * kThreads - 1) / (2 * kThreads)), kThreads}, out.device(),
               entries_of({"one_hot", "class"}, index, classes, true), classes, count, out.data<int64_t>());
}

int64_t greatest_entry_on_device(const char* op, const Tensor& index) {
  core::Backend& backend = core::backend(index.device());
  backend.check_may_wait(op, index.device());
  const cuda::DeviceGuard guard(index.device());
  const Tensor greatest = Tensor::empty({1}, int64, index.device());
  int64_t host = INT64_MIN;
  backend.fill(greatest, &host);
  const cuda::Grid grid{cuda::blocks_for(index.numel(), kThreads, index.device(), 8), kThreads};
  cuda::launch(op, greatest_kernel, grid, index.device(), entries_of({"one_hot", "class"}, index, 0), index.numel(), static_cast<long long*>(greatest.raw()));
  backend.copy_bytes(&host, kCpu, greatest.raw(), greatest.device(), sizeof(host));
  return host;
}

}  // namespace tenor::index
