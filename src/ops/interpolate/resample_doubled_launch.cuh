// The launch of resample_doubled.
#pragma once

#include "src/ops/interpolate/resample_doubled_cuda.cuh"
#include "src/ops/interpolate/resample_launch.h"

namespace tenor::cuda {

/// Whether the axis doubles its dim.
[[maybe_unused]] static bool doubles(const core::ResampleAxis& a) {
  return a.out == 2 * a.in && !a.align_corners && core::resample_step(a) == 0.5;
}

/// Whether the doubling kernel takes these images: of two dims, whose rows are dense and as long as whole accesses.
template <class T>
bool fits_doubling(const ResampleProblem& p) {
  constexpr int kOutputs = kDoubledOutputs<T>;
  return p.from.shape(2) == 1 && p.to.shape(2) == 1 && fits_vectors(p.from, 4, kOutputs / 2) &&
         fits_vectors(p.to, 4, kOutputs) && p.from.shape(3) / kDoubledStrip<1> < 65535;
}

template <class T>
bool can_double(const ResampleProblem& p) {
  return doubles(p.axes[1]) && doubles(p.axes[2]) && fits_doubling<T>(p);
}

/// `gradient`: of halving, where that is what is doubled.
template <class T, int K, bool Gradient = false>
void launch_doubled(const char* op, const ResampleProblem& problem, const DoubledGradient& gradient = {}) {
  const Device device = problem.to.device();
  DoubledResample p{image_of(problem.from), image_of(problem.to)};
  p.channels = problem.from.shape(1);
  p.planes = problem.from.shape(0) * p.channels;
  p.height = problem.from.shape(3), p.columns = problem.from.shape(4);
  p.gradient = gradient;
  p.groups = problem.to.shape(4) / kDoubledOutputs<T>;
  const int64_t units = p.planes * p.groups, pairs = p.height + kPairsAbove<K, Gradient>,
                blocks = (units + kResampleThreads - 1) / kResampleThreads;
  p.strip = strip_of(pairs, blocks, 1, K, kDoubledStrip<K>, device);
  launch(op, resample_doubled<T, K, Gradient>, strips_grid(units, kResampleThreads, pairs, p.strip, 1), device, p);
}

}  // namespace tenor::cuda
