// The launch of resample_doubled.
#pragma once

#include "src/ops/interpolate/resample_doubled_cuda.cuh"
#include "src/ops/interpolate/resample_launch.h"

namespace tenor::cuda {

/// Whether the axis doubles its dim.
[[maybe_unused]] static bool doubles(const core::ResampleAxis& a) {
  return a.out == 2 * a.in && !a.align_corners && core::resample_step(a) == 0.5;
}

/// Whether the doubling kernel takes it: images of two dims whose rows are dense and as long as whole accesses.
template <class T>
bool can_double(const ResampleProblem& p) {
  constexpr int kOutputs = kDoubledOutputs<T>;
  return p.from.shape(2) == 1 && p.to.shape(2) == 1 && doubles(p.axes[1]) && doubles(p.axes[2]) &&
         fits_vectors(p.from, 4, kOutputs / 2) && fits_vectors(p.to, 4, kOutputs) &&
         p.from.shape(3) / kDoubledStrip<1> < 65535;
}

template <class T, int K>
void launch_doubled(const ResampleProblem& problem) {
  const Device device = problem.to.device();
  DoubledResample p{image_of(problem.from), image_of(problem.to)};
  p.channels = problem.from.shape(1);
  p.planes = problem.from.shape(0) * p.channels;
  p.height = problem.from.shape(3);
  p.groups = problem.to.shape(4) / kDoubledOutputs<T>;
  const int64_t units = p.planes * p.groups, pairs = p.height + (K == 4 ? 1 : 0),
                blocks = (units + kResampleThreads - 1) / kResampleThreads;
  p.strip = strip_of(pairs, blocks, 1, K, kDoubledStrip<K>, device);
  launch("interpolate", resample_doubled<T, K>, strips_grid(units, kResampleThreads, pairs, p.strip, 1), device, p);
}

}  // namespace tenor::cuda
