// im2col on CUDA: a thread an element of the columns, outputs fastest.
#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/ops/conv/columns_kernels.h"

namespace tenor::conv {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads) im2col_kernel(const __grid_constant__ Columns c, int64_t count) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count; i += int64_t{gridDim.x} * kThreads) {
    int64_t rest = i, to = 0, from = 0, output[kSpatial];
    const auto next = [&](int64_t size) {
      const int64_t at = rest % size;
      rest /= size;
      return at;
    };
    bool inside = true;
#pragma unroll
    for (int d = kSpatial - 1; d >= 0; --d) output[d] = next(c.window[d].output), to += output[d] * c.to_output[d];
#pragma unroll
    for (int d = kSpatial - 1; d >= 0; --d) {
      const int64_t tap = next(c.window[d].kernel), at = c.window[d].position(output[d], tap);
      to += tap * c.to_tap[d], from += at * c.image.spatial[d];
      inside = inside && at >= 0 && at < c.window[d].input;
    }
    const int64_t channel = next(c.channels);
    to += channel * c.to_channel + rest * c.to_batch;
    from += channel * c.image.channel + rest * c.image.batch;
    reinterpret_cast<T*>(c.columns)[to] = inside ? reinterpret_cast<const T*>(c.image.data)[from] : T{};
  }
}

}  // namespace

void im2col_cuda(const Columns& c) {
  const cuda::DeviceGuard guard(c.device);
  const int64_t count = c.batch * c.channels * c.window[0].kernel * c.window[1].kernel * c.window[2].kernel *
                        c.window[0].output * c.window[1].output * c.window[2].output;
  core::visit_size(c.dtype, [&]<class T>() {
    cuda::launch("im2col", im2col_kernel<T>, {cuda::blocks_for(count, kThreads, c.device, 64), kThreads}, c.device, c,
                 count);
  });
}

}  // namespace tenor::conv
