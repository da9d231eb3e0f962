// The CUDA strategy that takes every problem: one thread an element of what is written, its sum over taps and channels
// in ascending order. A weight gradient's sum over all pixels is cut in ranges of image rows, as the sizes alone say,
// whose sums a second kernel adds in ascending order.
#include <algorithm>

#include "src/core/type_name.h"
#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/ops/conv/conv_cuda.h"
#include "src/ops/conv/conv_direct_cuda.h"
#include "src/ops/conv/conv_elements.cuh"
#include "src/ops/conv/conv_sizes.h"
#include "tenor/tensor.h"

namespace tenor::conv {
namespace {

constexpr int kThreads = 256;

template <class T, bool kForward>
__global__ void __launch_bounds__(kThreads) direct_image(const __grid_constant__ ConvProblem p, int64_t count) {
  const Image& image = kForward ? p.output : p.input;
  const int64_t channels = kForward ? p.out_channels : p.channels;
  int64_t size[kSpatial];
#pragma unroll
  for (int d = 0; d < kSpatial; ++d) size[d] = kForward ? p.window[d].output : p.window[d].input;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count; i += int64_t{gridDim.x} * kThreads) {
    const Place to = place_of(i, channels, size, image.channel == 1);
    store_sum<T>(p, image, to, kForward ? forward_sum<T>(p, to) : data_sum<T>(p, to));
  }
}

/// What a range of image rows adds to each element: sums[range, element].
template <class T>
__global__ void __launch_bounds__(kThreads) direct_weight_sums(const __grid_constant__ ConvProblem p, int64_t count,
                                                               int64_t rows_per_range, core::Compute<T>* sums) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= count) return;
  const WeightPlace w = weight_place(p, i);
  const int64_t rows = p.batch * p.window[0].output * p.window[1].output, first = blockIdx.y * rows_per_range;
  core::Compute<T> sum = 0;
  for (int64_t row = first; row < min(first + rows_per_range, rows); ++row) sum = add_row<T>(sum, p, w, row);
  sums[blockIdx.y * count + i] = sum;
}

template <class T>
__global__ void __launch_bounds__(kThreads) direct_weight_finish(const __grid_constant__ ConvProblem p, int64_t count,
                                                                 int64_t ranges, const core::Compute<T>* sums) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= count) return;
  core::Compute<T> sum = 0;
  for (int64_t range = 0; range < ranges; ++range) sum += sums[range * count + i];
  const WeightPlace w = weight_place(p, i);
  reinterpret_cast<T*>(p.weight.data)[offset_of(p.weight, w)] = cuda::convert<T>(sum);
}

unsigned blocks_of(int64_t count) { return div_up<unsigned>(count, kThreads); }

template <class T>
void direct_weight_backward(const ConvProblem& p) {
  using Sum = core::Compute<T>;
  constexpr int64_t kEnough = 1 << 19;  // threads that fill any device
  const int64_t count = p.out_channels * p.group_channels() * p.taps();
  const int64_t rows = p.batch * p.window[0].output * p.window[1].output;
  const int64_t wanted = std::clamp<int64_t>(kEnough / count, 1, std::min<int64_t>(rows, 65535));
  const int64_t per_range = div_up<int64_t>(rows, wanted), ranges = div_up<int64_t>(rows, per_range);
  const Tensor sums = Tensor::empty({ranges * count}, core::kDTypeOf<Sum>, p.device);
  cuda::launch("conv_weight_backward", direct_weight_sums<T>,
               {dim3(blocks_of(count), static_cast<unsigned>(ranges)), kThreads}, p.device, p, count, per_range,
               sums.data<Sum>());
  cuda::launch("conv_weight_backward", direct_weight_finish<T>, {blocks_of(count), kThreads}, p.device, p, count,
               ranges, sums.data<Sum>());
}

}  // namespace

void cuda_direct_run(const ConvProblem& p) {
  const cuda::DeviceGuard guard(p.device);
  if (depthwise_stride_run(p)) return;
  if (depthwise_takes(p)) return depthwise_run(p);
  if (grouped_takes(p)) return grouped_run(p);
  core::visit_float(p.dtype, [&]<class T>() {
    if (p.direction == Direction::kWeightBackward) return direct_weight_backward<T>(p);
    const bool forward = p.direction == Direction::kForward;
    const int64_t count = p.batch * (forward ? p.out_channels * p.output_pixels() : p.channels * p.input_pixels());
    const cuda::Grid grid{cuda::blocks_for(count, kThreads, p.device, 64), kThreads};
    if (forward)
      cuda::launch("conv_forward", direct_image<T, true>, grid, p.device, p, count);
    else
      cuda::launch("conv_data_backward", direct_image<T, false>, grid, p.device, p, count);
  });
}

}  // namespace tenor::conv
