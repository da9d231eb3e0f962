// The launch of resample_halved.
#pragma once

#include "src/ops/interpolate/resample_halved_cuda.cuh"
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

/// K, where the halving kernel takes the problem: images of two dims whose rows are dense and as long as whole
/// accesses; else 0.
template <class T>
int halved_taps(const ResampleProblem& p) {
  const int taps = halving_taps(p.axes[2], p.transposed);
  const int outputs = taps == 8 ? kHalvedOutputs<T, 8> : kHalvedOutputs<T, 2>;
  const bool takes = taps > 0 && halving_taps(p.axes[1], p.transposed) == taps && p.from.shape(2) == 1 &&
                     p.to.shape(2) == 1 && fits_vectors(p.to, 4, outputs) &&
                     fits_vectors(p.from, 4, std::min(2 * outputs, kVector<T>)) && p.to.shape(3) / kHalvedStrip < 65535;
  return takes ? taps : 0;
}

template <class T, int K>
void launch_halved(const char* op, const ResampleProblem& problem, const WindowResample& window) {
  const Device device = problem.to.device();
  HalvedResample q{window, problem.to.shape(0) * problem.to.shape(1)};
  WindowResample& p = q.window;
  p.groups = problem.to.shape(4) / kHalvedOutputs<T, K>;
  p.units = q.planes * p.groups;
  const int64_t rows = problem.to.shape(3);
  p.strip = strip_of(rows, (p.units + kResampleThreads - 1) / kResampleThreads, 1, K / 2, kHalvedStrip, device);
  launch(op, resample_halved<T, K>, strips_grid(p.units, kResampleThreads, rows, p.strip, 1), device, q);
}
/// `taps`: of halved_taps.
template <class T>
void launch_halved(const char* op, int taps, const ResampleProblem& problem, const WindowResample& window) {
  if (taps == 2) return launch_halved<T, 2>(op, problem, window);
  if (taps == 4) return launch_halved<T, 4>(op, problem, window);
  launch_halved<T, 8>(op, problem, window);
}

}  // namespace tenor::cuda
