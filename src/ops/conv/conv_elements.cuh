// What one element of a direction is, in CUDA: where element i lies, and its sum over the taps that lie on inputs, taps
// and channels ascending.
#pragma once

#include "src/cuda/convert.cuh"
#include "src/ops/conv/conv_problem.h"

namespace tenor::conv {

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

/// The sum of one output, without the bias.
template <class T>
__device__ __forceinline__ core::Compute<T> forward_sum(const ConvProblem& p, const Place& to) {
  const int64_t group = to.channel / p.group_outputs();
  const T* const x =
      reinterpret_cast<const T*>(p.input.data) + to.n * p.input.batch + group * p.group_channels() * p.input.channel;
  const T* const w = reinterpret_cast<const T*>(p.weight.data) + to.channel * p.weight.out;
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
  return sum;
}

/// The sum of one input's gradient, without the bias.
template <class T>
__device__ __forceinline__ core::Compute<T> data_sum(const ConvProblem& p, const Place& to) {
  const int64_t group = to.channel / p.group_channels(), first = group * p.group_outputs();
  const T* const y = reinterpret_cast<const T*>(p.output.data) + to.n * p.output.batch + first * p.output.channel;
  const T* const w = reinterpret_cast<const T*>(p.weight.data) + first * p.weight.out +
                     (to.channel - group * p.group_channels()) * p.weight.in;
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
  return sum;
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

__device__ __forceinline__ int64_t offset_of(const Filter& weight, const WeightPlace& w) {
  return w.out * weight.out + w.in * weight.in + w.tap[0] * weight.spatial[0] + w.tap[1] * weight.spatial[1] +
         w.tap[2] * weight.spatial[2];
}

/// sum + what row `row` of the outputs (batch, depth and height) adds to an element of the weight.
template <class T>
__device__ __forceinline__ core::Compute<T> add_row(core::Compute<T> sum, const ConvProblem& p, const WeightPlace& w,
                                                    int64_t row) {
  const core::WindowDim &D = p.window[0], &H = p.window[1], &W = p.window[2];
  const int64_t oh = row % H.output, od = row / H.output % D.output, n = row / H.output / D.output;
  const int64_t id = D.position(od, w.tap[0]), ih = H.position(oh, w.tap[1]);
  const core::WindowRange across = W.outputs(w.tap[2]);
  if (id < 0 || id >= D.input || ih < 0 || ih >= H.input || across.empty()) return sum;
  const int64_t channel = w.out / p.group_outputs() * p.group_channels() + w.in;
  return add_products(sum,
                      reinterpret_cast<const T*>(p.input.data) + n * p.input.batch + channel * p.input.channel +
                          id * p.input.spatial[0] + ih * p.input.spatial[1] +
                          W.position(across.first, w.tap[2]) * p.input.spatial[2],
                      W.stride * p.input.spatial[2],
                      reinterpret_cast<const T*>(p.output.data) + n * p.output.batch + w.out * p.output.channel +
                          od * p.output.spatial[0] + oh * p.output.spatial[1] + across.first * p.output.spatial[2],
                      p.output.spatial[2], across.count());
}

}  // namespace tenor::conv
