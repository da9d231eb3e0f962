// The launches of resample_halved, and of resample_doubled for gradients of halving.
#pragma once

#include "src/ops/interpolate/resample_doubled_launch.cuh"
#include "src/ops/interpolate/resample_halved_channels_cuda.cuh"
#include "src/ops/interpolate/resample_launch.h"

namespace tenor::cuda {

/// Elements of the windows by which an axis halves its dim, or with `transposed` adds up the gradient of doubling it; 0
/// where these do not lie regularly.
[[maybe_unused]] static int halving_taps(const core::ResampleAxis& a, bool transposed) {
  const bool sizes = transposed ? a.out == 2 * a.in : a.in == 2 * a.out;
  if (!sizes || a.align_corners) return 0;
  if (a.kind == core::ResampleKind::kArea) return 2;
  if (core::resample_step(a) != (transposed ? 0.5 : 2.0) || a.antialias == transposed) return 0;
  switch (a.kind) {
    case core::ResampleKind::kLinear:
      return 4;
    case core::ResampleKind::kCubic:
      return 8;
    case core::ResampleKind::kLanczos:
      return 0;
    default:
      return 2;
  }
}

/// K, where the halving kernels may take the problem: images of two dims; else 0.
[[maybe_unused]] static int halved_taps(const ResampleProblem& p) {
  const int taps = halving_taps(p.axes[2], p.transposed);
  const bool takes = taps > 0 && halving_taps(p.axes[1], p.transposed) == taps && p.from.shape(2) == 1 &&
                     p.to.shape(2) == 1 && p.to.shape(3) / kHalvedStrip * 2 < 65535;
  return takes ? taps : 0;
}
/// Whether that of rows does: they are dense and as long as whole accesses.
template <class T>
bool halves_rows(const ResampleProblem& p, int taps) {
  const int outputs = taps == 8 ? kHalvedOutputs<T, 8> : kHalvedOutputs<T, 2>;
  return fits_vectors(p.to, 4, outputs) && fits_vectors(p.from, 4, std::min(2 * outputs, kVector<T>));
}
/// Whether that of channels does: they lie side by side, in whole accesses. (Eight taps of eight channels each do not
/// fit the registers.)
template <class T>
bool halves_channels(const ResampleProblem& p, int taps) {
  return (taps < 8 || sizeof(T) == 4) && lies_by_channel(p) && fits_vectors(p.from, 1, kVector<T>) &&
         fits_vectors(p.to, 1, kVector<T>);
}

/// The weights of an axis' windows, worked out in float64.
template <int K>
HalvedAxis halved_axis(const core::ResampleAxis& a, bool transposed) {
  constexpr int kEdge = kHalvedEdge<K>;
  HalvedAxis out{};
  out.size = transposed ? a.in : a.out;
  const auto fill = [&](int64_t r, float* weight) {
    if (r < 0 || r >= out.size) return;
    const core::ResampleTaps taps = core::resample_taps(a, transposed ? 0 : r);
    for (int k = 0; k < K; ++k) {
      const int64_t place = 2 * r - (K / 2 - 1) + k, tap = place - taps.first;
      if (transposed)
        weight[k] = place >= 0 && place < a.out ? static_cast<float>(core::reader_weight(a, place, r)) : 0;
      else
        weight[k] = tap >= 0 && tap < taps.count ? static_cast<float>(core::tap_weight(a, taps, tap)) : 0;
    }
  };
  fill(kEdge, out.inner);
  for (int e = 0; e < kEdge; ++e) fill(e, out.first[e]), fill(out.size - 1 - e, out.last[e]);
  return out;
}

template <class T, int K>
void launch_halved(const char* op, const ResampleProblem& problem) {
  const Device device = problem.to.device();
  HalvedResample p{image_of(problem.from), image_of(problem.to), halved_axis<K>(problem.axes[1], problem.transposed),
                   halved_axis<K>(problem.axes[2], problem.transposed)};
  p.channels = problem.to.shape(1);
  p.planes = problem.to.shape(0) * p.channels;
  p.groups = problem.to.shape(4) / kHalvedOutputs<T, K>;
  const int64_t units = p.planes * p.groups, rows = problem.to.shape(3);
  p.strip = strip_of(rows, (units + kResampleThreads - 1) / kResampleThreads, 1, K / 2, kHalvedStrip, device);
  launch(op, resample_halved<T, K>, strips_grid(units, kResampleThreads, rows, p.strip, 1), device, p);
}
/// `taps`: of halved_taps.
template <class T>
void launch_halved(const char* op, int taps, const ResampleProblem& problem) {
  if (taps == 2) return launch_halved<T, 2>(op, problem);
  if (taps == 4) return launch_halved<T, 4>(op, problem);
  launch_halved<T, 8>(op, problem);
}

/// Results of a strip, of `columns` blocks each: those that take the least time in whole waves of `slots` blocks.
[[maybe_unused]] static int even_strip(int64_t rows, int64_t columns, int64_t slots, int taps) {
  int best = 1;
  int64_t least = INT64_MAX;
  for (int strip = kHalvedStrip; strip >= kHalvedStrip / 2; --strip) {
    const int64_t blocks = (rows + strip - 1) / strip * columns,
                  time = (blocks + slots - 1) / slots * (2 * strip + taps - 2);
    if (time < least) least = time, best = strip;
  }
  return static_cast<int>(std::min<int64_t>(best, rows));
}
template <class T, int K>
void launch_halved_channels(const char* op, const ResampleProblem& problem) {
  constexpr int kPixels = kHalvedPixels<T, K>;
  const Device device = problem.to.device();
  HalvedResample p{image_of(problem.from), image_of(problem.to), halved_axis<K>(problem.axes[1], problem.transposed),
                   halved_axis<K>(problem.axes[2], problem.transposed)};
  p.channels = problem.to.shape(1);
  p.planes = problem.to.shape(0) * ((problem.to.shape(4) + kPixels - 1) / kPixels);
  p.groups = p.channels / kVector<T>;
  const int64_t units = p.planes * p.groups, rows = problem.to.shape(3);
  p.strip = even_strip(rows, (units + kResampleThreads - 1) / kResampleThreads,
                       int64_t{kHalvedBlocks<T, K>} * multiprocessors(device), K);
  launch(op, resample_halved_channels<T, K>, strips_grid(units, kResampleThreads, rows, p.strip, 1), device, p);
}
template <class T>
void launch_halved_channels(const char* op, int taps, const ResampleProblem& problem) {
  if (taps == 2) return launch_halved_channels<T, 2>(op, problem);
  if (taps == 4) return launch_halved_channels<T, 4>(op, problem);
  if constexpr (sizeof(T) == 4) launch_halved_channels<T, 8>(op, problem);
}

/// K, where the doubling kernel takes the gradient of halving by windows of 2 K; else 0.
template <class T>
int halving_gradient_taps(const ResampleProblem& p) {
  const int taps = p.transposed ? halving_taps(p.axes[2], false) / 2 : 0;
  const int64_t least = 2 * kDoubledEdge<4> + 1;  // with results that are at no edge
  const bool takes = taps > 0 && halving_taps(p.axes[1], false) == 2 * taps && fits_doubling<T>(p) &&
                     p.from.shape(3) >= least && p.from.shape(4) >= least;
  return takes ? taps : 0;
}

template <class T, int K>
void launch_halving_gradient(const char* op, const ResampleProblem& problem) {
  DoubledGradient g{};
  for (int dim = 0; dim < 2; ++dim) {
    const HalvedAxis axis = halved_axis<2 * K>(problem.axes[1 + dim], false);
    for (int k = 0; k < K; ++k) g.early[k] = axis.inner[2 * (K - k) - 1], g.late[k] = axis.inner[2 * (K - k) - 2];
    for (int e = 0; e < kDoubledEdge<K>; ++e) {
      g.first[dim][e] = axis.first[e][K - 1] / axis.inner[K - 1];
      g.last[dim][e] = axis.last[e][K - 1] / axis.inner[K - 1];
    }
  }
  launch_doubled<T, K, true>(op, problem, g);
}
/// `taps`: of halving_gradient_taps.
template <class T>
void launch_halving_gradient(const char* op, int taps, const ResampleProblem& problem) {
  if (taps == 1) return launch_halving_gradient<T, 1>(op, problem);
  if (taps == 2) return launch_halving_gradient<T, 2>(op, problem);
  launch_halving_gradient<T, 4>(op, problem);
}

}  // namespace tenor::cuda
