// Deformable convolution on the CPU: what its columns sample, and what flows back through them.
#include <algorithm>
#include <limits>
#include <vector>

#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/ops/conv/deform_kernels.h"

namespace tenor::conv {
namespace {

constexpr int64_t kBlock = 64;  // pixels whose corners are computed at once, for all channels of an offset group

constexpr int64_t kChannels = 8;  // whose gradients share the computation of corners

/// One tap of one offset group of one image.
struct Sampling {
  int64_t image, group, tap;
};

/// A position's element of an image with `channels` per tap, at a pixel of the output.
template <class S>
S at_pixel(const Image& x, int64_t image, int64_t channel, int64_t h, int64_t w) {
  return reinterpret_cast<const S*>(
      x.data)[image * x.batch + channel * x.channel + h * x.spatial[1] + w * x.spatial[2]];
}

template <class S, class T>
Corners<T> corners_at(const DeformProblem& p, const Sampling& s, int64_t pixel) {
  const core::WindowDim &H = p.window[1], &W = p.window[2];
  const int64_t h = pixel / W.output, w = pixel % W.output, channel = 2 * (s.group * p.taps() + s.tap);
  const T y =
      static_cast<T>(H.position(h, s.tap / W.kernel)) + core::cast<T>(at_pixel<S>(p.offset, s.image, channel, h, w));
  const T x = static_cast<T>(W.position(w, s.tap % W.kernel)) +
              core::cast<T>(at_pixel<S>(p.offset, s.image, channel + 1, h, w));
  return corners_of<T>(y, x, H.input, W.input, p.input.spatial[1], p.input.spatial[2]);
}

template <class S, class T>
T mask_at(const DeformProblem& p, const Sampling& s, int64_t pixel) {
  if (!p.mask.data) return 1;
  const int64_t width = p.window[2].output;
  return core::cast<T>(at_pixel<S>(p.mask, s.image, s.group * p.taps() + s.tap, pixel / width, pixel % width));
}

/// The four values around a point, 0 for those outside.
template <class S, class T>
void values_at(const S* plane, const Corners<T>& c, T (&v)[4]) {
  for (int i = 0; i < 4; ++i) v[i] = c.at[i] >= 0 ? core::cast<T>(plane[c.at[i]]) : T(0);
}

/// fn(sampling, first pixel, count) for every block of pixels of every tap, in parallel.
template <class F>
void for_each_block(const DeformProblem& p, F&& fn) {
  const int64_t blocks = (p.pixels() + kBlock - 1) / kBlock, taps = p.taps();
  cpu::parallel_for(p.images * p.offset_groups * taps * blocks, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t pixel = i % blocks * kBlock, s = i / blocks;
      fn(Sampling{s / (taps * p.offset_groups), s / taps % p.offset_groups, s % taps}, pixel,
         std::min(kBlock, p.pixels() - pixel));
    }
  });
}

template <class S>
void sample(const DeformProblem& p) {
  using T = core::Compute<S>;
  for_each_block(p, [&](const Sampling& s, int64_t first, int64_t count) {
    Corners<T> corners[kBlock];
    T mask[kBlock], v[4];
    for (int64_t i = 0; i < count; ++i)
      corners[i] = corners_at<S, T>(p, s, first + i), mask[i] = mask_at<S, T>(p, s, first + i);
    for (int64_t c = s.group * p.group_channels(); c < (s.group + 1) * p.group_channels(); ++c) {
      const S* plane = plane_of<S>(p, s.image, c);
      T* to = column_row<T>(p, s.image, c, s.tap) + first;
      for (int64_t i = 0; i < count; ++i) {
        values_at(plane, corners[i], v);
        to[i] = sampled(corners[i], v) * mask[i];
      }
    }
  });
}

/// The gradients to the offsets and the mask of a block: sums over the channels, ascending.
template <class S>
void gradient_of_points(const DeformProblem& p) {
  using T = core::Compute<S>;
  for_each_block(p, [&](const Sampling& s, int64_t first, int64_t count) {
    Corners<T> corners[kBlock];
    PointSums<T> sums[kBlock];
    T v[4];
    for (int64_t i = 0; i < count; ++i) corners[i] = corners_at<S, T>(p, s, first + i);
    for (int64_t channel = s.group * p.group_channels(); channel < (s.group + 1) * p.group_channels(); ++channel) {
      const T* grads = column_row<T>(p, s.image, channel, s.tap) + first;
      const S* plane = plane_of<S>(p, s.image, channel);
      for (int64_t i = 0; i < count; ++i) {
        values_at(plane, corners[i], v);
        sums[i].add(grads[i], corners[i], v);
      }
    }
    const int64_t width = p.window[2].output, tap = s.group * p.taps() + s.tap;
    const auto put = [&](const Image& x, int64_t channel, int64_t pixel, T value) {
      reinterpret_cast<S*>(x.data)[s.image * x.batch + channel * x.channel + pixel / width * x.spatial[1] +
                                   pixel % width * x.spatial[2]] = core::cast<S>(value);
    };
    for (int64_t i = 0; i < count; ++i) {
      const T mask = mask_at<S, T>(p, s, first + i);
      const T bad = corners[i].nan ? std::numeric_limits<T>::quiet_NaN() : T(0);
      put(p.grad_offset, 2 * tap, first + i, sums[i].y * mask + bad);
      put(p.grad_offset, 2 * tap + 1, first + i, sums[i].x * mask + bad);
      if (p.grad_mask.data) put(p.grad_mask, tap, first + i, sums[i].mask);
    }
  });
}

/// Adds what some channels of an image get through one tap to their planes, pixels in order.
template <class S, class T>
void add_tap(const DeformProblem& p, const Sampling& s, int64_t channel, int64_t channels, T* planes) {
  const int64_t plane = p.window[1].input * p.window[2].input;
  DeformProblem dense = p;  // corners count elements of a plane
  dense.input.spatial[1] = p.window[2].input, dense.input.spatial[2] = 1;
  const T* grads = column_row<T>(p, s.image, channel, s.tap);
  for (int64_t pixel = 0; pixel < p.pixels(); ++pixel) {
    const Corners<T> c = corners_at<S, T>(dense, s, pixel);
    const T mask = mask_at<S, T>(p, s, pixel);
    for (int64_t i = 0; i < channels; ++i) {
      const T grad = grads[i * p.taps() * p.pixels() + pixel] * mask;
      for (int k = 0; k < 4; ++k)
        if (c.at[k] >= 0) planes[i * plane + c.at[k]] += c.weight[k] * grad;
    }
  }
}

/// The gradient to the input, some channels of an offset group a thread; a plane's sum takes taps in order.
template <class S>
void gradient_of_input(const DeformProblem& p) {
  using T = core::Compute<S>;
  const core::WindowDim &H = p.window[1], &W = p.window[2];
  const int64_t plane = H.input * W.input, parts = (p.group_channels() + kChannels - 1) / kChannels;
  cpu::parallel_for(p.images * p.offset_groups * parts, 1, [&](int64_t begin, int64_t end) {
    std::vector<T> planes(static_cast<size_t>(plane * std::min(kChannels, p.group_channels())));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / (parts * p.offset_groups), group = i / parts % p.offset_groups;
      const int64_t first = i % parts * kChannels, channels = std::min(kChannels, p.group_channels() - first);
      const int64_t channel = group * p.group_channels() + first;
      std::fill(planes.begin(), planes.end(), T(0));
      for (int64_t tap = 0; tap < p.taps(); ++tap)
        add_tap<S>(p, Sampling{image, group, tap}, channel, channels, planes.data());
      for (int64_t c = 0; c < channels; ++c) {
        S* to =
            reinterpret_cast<S*>(p.grad_input.data) + image * p.grad_input.batch + (channel + c) * p.grad_input.channel;
        for (int64_t h = 0; h < H.input; ++h)
          for (int64_t w = 0; w < W.input; ++w)
            to[h * p.grad_input.spatial[1] + w * p.grad_input.spatial[2]] =
                core::cast<S>(planes[static_cast<size_t>(c * plane + h * W.input + w)]);
      }
    }
  });
}

}  // namespace

void deform_sample_cpu(const DeformProblem& p) {
  core::visit_float(p.dtype, [&]<class S>() { sample<S>(p); });
}

void deform_gradient_cpu(const DeformProblem& p) {
  core::visit_float(p.dtype, [&]<class S>() {
    gradient_of_points<S>(p);
    gradient_of_input<S>(p);
  });
}

}  // namespace tenor::conv
