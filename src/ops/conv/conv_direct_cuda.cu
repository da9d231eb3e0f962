// The CUDA strategy that takes every problem: one thread an element of what is written, its sum over taps and channels
// in ascending order. A weight gradient's sum over all pixels is cut in ranges of image rows, as the sizes alone say,
// whose sums a second kernel adds in ascending order.
#include <algorithm>

#include "src/core/type_name.h"
#include "src/core/visit.h"
#include "src/cuda/convert.cuh"
#include "src/cuda/launch.h"
#include "src/ops/conv/conv_cuda.h"
#include "src/ops/conv/conv_direct_cuda.h"
#include "tenor/tensor.h"

namespace tenor::conv {
namespace {

constexpr int kThreads = 256;

struct Place {
  int64_t n, channel, at[kSpatial];
};

/// Element i of an image [N, channels, *sizes], channels innermost where `channels_last`.
__device__ __forceinline__ Place place_of(int64_t i, int64_t channels, const int64_t (&size)[kSpatial],
                                          bool channels_last) {
  Place x;
  if (channels_last) x.channel = i % channels, i /= channels;
#pragma unroll
  for (int d = kSpatial - 1; d >= 0; --d) x.at[d] = i % size[d], i /= size[d];
  if (!channels_last) x.channel = i % channels, i /= channels;
  x.n = i;
  return x;
}

__device__ __forceinline__ int64_t offset_of(const Image& image, const Place& x) {
  return x.n * image.batch + x.channel * image.channel + x.at[0] * image.spatial[0] + x.at[1] * image.spatial[1] +
         x.at[2] * image.spatial[2];
}

/// sum + the products along `count` channels.
template <class T, class Sum>
__device__ __forceinline__ Sum add_products(Sum sum, const T* x, int64_t x_step, const T* w, int64_t w_step,
                                            int64_t count) {
  for (int64_t c = 0; c < count; ++c)
    sum = fma(static_cast<Sum>(cuda::widen(x[c * x_step])), static_cast<Sum>(cuda::widen(w[c * w_step])), sum);
  return sum;
}

template <class T>
__device__ __forceinline__ void store_sum(const ConvProblem& p, const Image& image, const Place& to,
                                          core::Compute<T> sum) {
  if (p.bias) sum += cuda::widen(reinterpret_cast<const T*>(p.bias)[to.channel * p.bias_stride]);
  reinterpret_cast<T*>(image.data)[offset_of(image, to)] = cuda::convert<T>(sum);
}

template <class T>
__global__ void __launch_bounds__(kThreads) direct_forward(const __grid_constant__ ConvProblem p, int64_t count) {
  const int64_t size[] = {p.window[0].output, p.window[1].output, p.window[2].output};
  const T *const input = reinterpret_cast<const T*>(p.input.data), *const weight =
                                                                       reinterpret_cast<const T*>(p.weight.data);
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count; i += int64_t{gridDim.x} * kThreads) {
    const Place to = place_of(i, p.out_channels, size, p.output.channel == 1);
    const int64_t group = to.channel / p.group_outputs();
    const T* const x = input + to.n * p.input.batch + group * p.group_channels() * p.input.channel;
    const T* const w = weight + to.channel * p.weight.out;
    const core::WindowRange d = p.window[0].taps(to.at[0]), h = p.window[1].taps(to.at[1]),
                            v = p.window[2].taps(to.at[2]);
    core::Compute<T> sum = 0;
    for (int64_t kd = d.first; kd < d.last; ++kd)
      for (int64_t kh = h.first; kh < h.last; ++kh)
        for (int64_t kw = v.first; kw < v.last; ++kw)
          sum = add_products(sum,
                             x + p.window[0].position(to.at[0], kd) * p.input.spatial[0] +
                                 p.window[1].position(to.at[1], kh) * p.input.spatial[1] +
                                 p.window[2].position(to.at[2], kw) * p.input.spatial[2],
                             p.input.channel,
                             w + kd * p.weight.spatial[0] + kh * p.weight.spatial[1] + kw * p.weight.spatial[2],
                             p.weight.in, p.group_channels());
    store_sum<T>(p, p.output, to, sum);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) direct_data_backward(const __grid_constant__ ConvProblem p, int64_t count) {
  const int64_t size[] = {p.window[0].input, p.window[1].input, p.window[2].input};
  const T *const grad = reinterpret_cast<const T*>(p.output.data), *const weight =
                                                                       reinterpret_cast<const T*>(p.weight.data);
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count; i += int64_t{gridDim.x} * kThreads) {
    const Place to = place_of(i, p.channels, size, p.input.channel == 1);
    const int64_t group = to.channel / p.group_channels(), first = group * p.group_outputs();
    const T* const y = grad + to.n * p.output.batch + first * p.output.channel;
    const T* const w = weight + first * p.weight.out + (to.channel - group * p.group_channels()) * p.weight.in;
    core::Compute<T> sum = 0;
    for (int64_t kd = 0; kd < p.window[0].kernel; ++kd) {
      const int64_t od = p.window[0].output_at(to.at[0], kd);
      if (od < 0) continue;
      for (int64_t kh = 0; kh < p.window[1].kernel; ++kh) {
        const int64_t oh = p.window[1].output_at(to.at[1], kh);
        if (oh < 0) continue;
        for (int64_t kw = 0; kw < p.window[2].kernel; ++kw) {
          const int64_t ow = p.window[2].output_at(to.at[2], kw);
          if (ow < 0) continue;
          sum = add_products(sum, y + od * p.output.spatial[0] + oh * p.output.spatial[1] + ow * p.output.spatial[2],
                             p.output.channel,
                             w + kd * p.weight.spatial[0] + kh * p.weight.spatial[1] + kw * p.weight.spatial[2],
                             p.weight.out, p.group_outputs());
        }
      }
    }
    store_sum<T>(p, p.input, to, sum);
  }
}

/// One element of the weight.
struct WeightPlace {
  int64_t out, in, tap[kSpatial];
};
__device__ __forceinline__ WeightPlace weight_place(const ConvProblem& p, int64_t i) {
  WeightPlace w;
  const bool depthwise = p.group_channels() == 1;  // then neighbours are groups, else channels
  if (depthwise)
    w.in = 0, w.out = i % p.out_channels, i /= p.out_channels;
  else
    w.in = i % p.group_channels(), i /= p.group_channels();
#pragma unroll
  for (int d = kSpatial - 1; d >= 0; --d) w.tap[d] = i % p.window[d].kernel, i /= p.window[d].kernel;
  if (!depthwise) w.out = i;
  return w;
}

/// What a range of image rows adds to each element: sums[range, element].
template <class T>
__global__ void __launch_bounds__(kThreads) direct_weight_sums(const __grid_constant__ ConvProblem p, int64_t count,
                                                               int64_t rows_per_range, core::Compute<T>* sums) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= count) return;
  const WeightPlace w = weight_place(p, i);
  const core::WindowDim &D = p.window[0], &H = p.window[1], &W = p.window[2];
  const int64_t channel = w.out / p.group_outputs() * p.group_channels() + w.in;
  const T* const x = reinterpret_cast<const T*>(p.input.data) + channel * p.input.channel;
  const T* const y = reinterpret_cast<const T*>(p.output.data) + w.out * p.output.channel;
  const int64_t rows = p.batch * D.output * H.output, first = blockIdx.y * rows_per_range;
  const core::WindowRange across = W.outputs(w.tap[2]);
  core::Compute<T> sum = 0;
  for (int64_t row = first; row < min(first + rows_per_range, rows); ++row) {
    const int64_t oh = row % H.output, od = row / H.output % D.output, n = row / H.output / D.output;
    const int64_t id = D.position(od, w.tap[0]), ih = H.position(oh, w.tap[1]);
    if (id < 0 || id >= D.input || ih < 0 || ih >= H.input || across.empty()) continue;
    sum = add_products(sum,
                       x + n * p.input.batch + id * p.input.spatial[0] + ih * p.input.spatial[1] +
                           W.position(across.first, w.tap[2]) * p.input.spatial[2],
                       W.stride * p.input.spatial[2],
                       y + n * p.output.batch + od * p.output.spatial[0] + oh * p.output.spatial[1] +
                           across.first * p.output.spatial[2],
                       p.output.spatial[2], across.count());
  }
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
  reinterpret_cast<T*>(p.weight.data)[w.out * p.weight.out + w.in * p.weight.in + w.tap[0] * p.weight.spatial[0] +
                                      w.tap[1] * p.weight.spatial[1] + w.tap[2] * p.weight.spatial[2]] =
      cuda::convert<T>(sum);
}

int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
unsigned blocks_of(int64_t count) { return static_cast<unsigned>(div_up(count, int64_t{kThreads})); }

template <class T>
void direct_weight_backward(const ConvProblem& p) {
  using Sum = core::Compute<T>;
  constexpr int64_t kEnough = 1 << 19;  // threads that fill any device
  const int64_t count = p.out_channels * p.group_channels() * p.taps();
  const int64_t rows = p.batch * p.window[0].output * p.window[1].output;
  const int64_t wanted = std::clamp<int64_t>(kEnough / count, 1, std::min<int64_t>(rows, 65535));
  const int64_t per_range = div_up(rows, wanted), ranges = div_up(rows, per_range);
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
      cuda::launch("conv_forward", direct_forward<T>, grid, p.device, p, count);
    else
      cuda::launch("conv_data_backward", direct_data_backward<T>, grid, p.device, p, count);
  });
}

}  // namespace tenor::conv
