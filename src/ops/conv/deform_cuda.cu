// Deformable convolution on CUDA: what its columns sample, and what flows back through them, without atomics.
#include <limits>

#include "src/core/type_name.h"
#include "src/core/visit.h"
#include "src/cuda/convert.cuh"
#include "src/cuda/launch.h"
#include "src/ops/conv/conv_cuda.h"
#include "tenor/tensor.h"

namespace tenor::conv {
namespace {

constexpr int kThreads = 256, kWarp = 32;

/// One tap of one offset group of one image at one pixel of the output.
struct Sampling {
  int64_t image, group, tap, pixel;
};
__device__ __forceinline__ Sampling sampling_of(const DeformProblem& p, int64_t i) {
  Sampling s;
  s.pixel = i % p.pixels(), i /= p.pixels();
  s.tap = i % p.taps(), i /= p.taps();
  s.group = i % p.offset_groups, s.image = i / p.offset_groups;
  return s;
}

/// Where an image with channels per tap has one at a pixel of the output.
__device__ __forceinline__ int64_t pixel_at(const DeformProblem& p, const Image& x, const Sampling& s,
                                            int64_t channel) {
  const int64_t width = p.window[2].output;
  return s.image * x.batch + channel * x.channel + s.pixel / width * x.spatial[1] + s.pixel % width * x.spatial[2];
}

template <class S>
__device__ __forceinline__ core::Compute<S> value_at(const DeformProblem& p, const Image& x, const Sampling& s,
                                                     int64_t channel) {
  return cuda::widen(reinterpret_cast<const S*>(x.data)[pixel_at(p, x, s, channel)]);
}

/// In an image with these strides.
template <class S>
__device__ __forceinline__ Corners<core::Compute<S>> corners_at(const DeformProblem& p, const Sampling& s, int64_t row,
                                                                int64_t col) {
  using T = core::Compute<S>;
  const core::WindowDim &H = p.window[1], &W = p.window[2];
  const int64_t h = s.pixel / W.output, w = s.pixel % W.output, channel = 2 * (s.group * p.taps() + s.tap);
  const T y = static_cast<T>(H.position(h, s.tap / W.kernel)) + value_at<S>(p, p.offset, s, channel);
  const T x = static_cast<T>(W.position(w, s.tap % W.kernel)) + value_at<S>(p, p.offset, s, channel + 1);
  return corners_of<T>(y, x, H.input, W.input, row, col);
}

template <class S>
__device__ __forceinline__ core::Compute<S> mask_at(const DeformProblem& p, const Sampling& s) {
  return p.mask.data ? value_at<S>(p, p.mask, s, s.group * p.taps() + s.tap) : core::Compute<S>(1);
}

/// The four values around a point, 0 for those outside.
template <class S, class T>
__device__ __forceinline__ void values_at(const S* plane, const Corners<T>& c, T (&v)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = c.at[i] >= 0 ? cuda::widen(plane[c.at[i]]) : T(0);
}
/// A thread a point, for all channels of its offset group.
template <class S>
__global__ void __launch_bounds__(kThreads) deform_sample(const __grid_constant__ DeformProblem p, int64_t points) {
  using T = core::Compute<S>;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < points; i += int64_t{gridDim.x} * kThreads) {
    const Sampling s = sampling_of(p, i);
    const Corners<T> corners = corners_at<S>(p, s, p.input.spatial[1], p.input.spatial[2]);
    const T mask = mask_at<S>(p, s);
    for (int64_t c = s.group * p.group_channels(); c < (s.group + 1) * p.group_channels(); ++c) {
      T v[4];
      values_at(plane_of<S>(p, s.image, c), corners, v);
      column_row<T>(p, s.image, c, s.tap)[s.pixel] = sampled(corners, v) * mask;
    }
  }
}

/// The gradients to a point's offsets and mask: sums over the channels, ascending.
template <class S>
__global__ void __launch_bounds__(kThreads) deform_points(const __grid_constant__ DeformProblem p, int64_t points) {
  using T = core::Compute<S>;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < points; i += int64_t{gridDim.x} * kThreads) {
    const Sampling s = sampling_of(p, i);
    const Corners<T> c = corners_at<S>(p, s, p.input.spatial[1], p.input.spatial[2]);
    const T mask = mask_at<S>(p, s);
    PointSums<T> sums;
    for (int64_t channel = s.group * p.group_channels(); channel < (s.group + 1) * p.group_channels(); ++channel) {
      const T grad = column_row<T>(p, s.image, channel, s.tap)[s.pixel];
      T v[4];
      values_at(plane_of<S>(p, s.image, channel), c, v);
      sums.add(grad, c, v);
    }
    const T bad = c.nan ? std::numeric_limits<T>::quiet_NaN() : T(0);
    const int64_t tap = s.group * p.taps() + s.tap;
    S* const offset = reinterpret_cast<S*>(p.grad_offset.data);
    offset[pixel_at(p, p.grad_offset, s, 2 * tap)] = cuda::convert<S>(sums.y * mask + bad);
    offset[pixel_at(p, p.grad_offset, s, 2 * tap + 1)] = cuda::convert<S>(sums.x * mask + bad);
    if (p.grad_mask.data)
      reinterpret_cast<S*>(p.grad_mask.data)[pixel_at(p, p.grad_mask, s, tap)] = cuda::convert<S>(sums.mask);
  }
}

/// Adds each lane's value to its element (none where negative), lanes that share one in ascending order.
template <class T>
__device__ __forceinline__ void add_in_order(T* plane, int64_t at, T value) {
  const unsigned same = __match_any_sync(0xffffffffu, static_cast<long long>(at));
  const unsigned lane = threadIdx.x % kWarp;
  const int rank = at < 0 ? -1 : __popc(same & ((1u << lane) - 1));
  for (int round = 0; __any_sync(0xffffffffu, rank >= round); ++round) {
    if (rank == round) plane[at] += value;
    __syncwarp();
  }
}

/// The gradient to the input, a channel's plane a warp: taps in order, pixels in order, 32 at a time.
template <class S>
__global__ void __launch_bounds__(kWarp)
    deform_input(const __grid_constant__ DeformProblem p, core::Compute<S>* scratch) {
  using T = core::Compute<S>;
  const core::WindowDim &H = p.window[1], &W = p.window[2];
  const int64_t plane_size = H.input * W.input, pixels = p.pixels();
  const int64_t image = blockIdx.x / p.channels, channel = blockIdx.x % p.channels;
  T* const plane = scratch + blockIdx.x * plane_size;
  for (int64_t i = threadIdx.x; i < plane_size; i += kWarp) plane[i] = 0;
  __syncwarp();
  for (int64_t tap = 0; tap < p.taps(); ++tap) {
    const T* const grads = column_row<T>(p, image, channel, tap);
    for (int64_t first = 0; first < pixels; first += kWarp) {
      const int64_t pixel = first + threadIdx.x;
      const Sampling s{image, channel / p.group_channels(), tap, min(pixel, pixels - 1)};
      const Corners<T> c = corners_at<S>(p, s, W.input, 1);
      const T grad = grads[s.pixel] * mask_at<S>(p, s);
#pragma unroll
      for (int k = 0; k < 4; ++k) add_in_order(plane, pixel < pixels ? c.at[k] : -1, c.weight[k] * grad);
    }
  }
  S* const to = reinterpret_cast<S*>(p.grad_input.data) + image * p.grad_input.batch + channel * p.grad_input.channel;
  for (int64_t i = threadIdx.x; i < plane_size; i += kWarp)
    to[i / W.input * p.grad_input.spatial[1] + i % W.input * p.grad_input.spatial[2]] = cuda::convert<S>(plane[i]);
}

int64_t points_of(const DeformProblem& p) { return p.images * p.offset_groups * p.taps() * p.pixels(); }

cuda::Grid grid_of(const DeformProblem& p) {
  return {cuda::blocks_for(points_of(p), kThreads, p.device, 64), kThreads};
}

}  // namespace

void cuda_deform_sample(const DeformProblem& p) {
  const cuda::DeviceGuard guard(p.device);
  core::visit_float(p.dtype, [&]<class S>() {
    cuda::launch("deform_conv2d", deform_sample<S>, grid_of(p), p.device, p, points_of(p));
  });
}

void cuda_deform_gradient(const DeformProblem& p) {
  constexpr const char* kOp = "deform_conv2d_backward";
  const cuda::DeviceGuard guard(p.device);
  core::visit_float(p.dtype, [&]<class S>() {
    using T = core::Compute<S>;
    const int64_t planes = p.images * p.channels;
    const Tensor scratch = Tensor::empty({planes, p.window[1].input * p.window[2].input}, core::kDTypeOf<T>, p.device);
    cuda::launch(kOp, deform_points<S>, grid_of(p), p.device, p, points_of(p));
    cuda::launch(kOp, deform_input<S>, {static_cast<unsigned>(planes), kWarp}, p.device, p, scratch.data<T>());
  });
}

}  // namespace tenor::conv
