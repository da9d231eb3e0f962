// The launch of resample_staged.
#pragma once

#include "src/ops/interpolate/resample_fixed_launch.cuh"
#include "src/ops/interpolate/resample_staged_cuda.cuh"

namespace tenor::cuda {

/// Whether the staged kernel takes it: images of two dims, rows dense on both sides that do not shrink.
template <class T>
bool can_stage(const ResampleProblem& p) {
  if (sizeof(T) > 4 || lies_by_channel(p) || p.from.stride(4) != 1 || p.to.stride(4) != 1) return false;
  return p.from.shape(2) == 1 && p.to.shape(2) == 1 && core::resample_step(p.axes[2]) <= 1 &&
         p.from.shape(4) < INT32_MAX && p.to.shape(4) >= 32 && p.to.shape(3) / kMostStrip < 65535;
}

template <class T, int K>
void launch_staged(const ResampleProblem& problem) {
  StagedResample q{};
  FixedResample& p = q.image;
  p = {image_of(problem.from),           image_of(problem.to),
       core::with_step(problem.axes[0]), core::with_step(problem.axes[1]),
       core::with_step(problem.axes[2]), problem.from.shape(1)};
  const Device device = problem.to.device();
  p.groups = (p.width.out + kStagedColumns - 1) / kStagedColumns;
  q.planes = problem.to.shape(0) * p.channels;
  q.pairs = fits_vectors(problem.to, 4, 2);
  p.strip = strip_of(p.height.out, q.planes * p.groups / kStagedWarps, 1, K, kMostStrip, device);
  const int64_t strips = (p.height.out + p.strip - 1) / p.strip, warps = q.planes * p.groups * strips;
  q.each = static_cast<int>(std::clamp<int64_t>(warps / (int64_t{32} * multiprocessors(device)), 1, kStagedPlanes));
  p.units = (q.planes + q.each - 1) / q.each * p.groups;
  const Grid grid{
      dim3(static_cast<unsigned>((p.units + kStagedWarps - 1) / kStagedWarps), static_cast<unsigned>(strips)),
      dim3(kResampleThreads)};
  // The piece that 256 outputs read: half as long where the image doubles.
  if (p.width.step <= 0.5)
    launch("interpolate", resample_staged<T, K, 5>, grid, device, q);
  else
    launch("interpolate", resample_staged<T, K, 9>, grid, device, q);
}

}  // namespace tenor::cuda
