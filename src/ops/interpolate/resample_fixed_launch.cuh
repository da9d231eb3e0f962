// Launches of resample_fixed, of which a file instantiates some.
#pragma once

#include "src/ops/interpolate/resample_fixed_cuda.cuh"
#include "src/ops/interpolate/resample_launch.h"

namespace tenor::cuda {

/// Offsets along W in 32 bits.
[[maybe_unused]] static bool has_short_rows(const Tensor& x) {
  return x.shape(4) * std::max<int64_t>(x.stride(4), 1) < (int64_t{1} << 31);
}

template <class G, class T, bool Move, int KD, int KH, int KW>
void launch_fixed(const ResampleProblem& problem, bool by_channel) {
  constexpr int V = G::kWide;
  FixedResample p{image_of(problem.from),           image_of(problem.to),
                  core::with_step(problem.axes[0]), core::with_step(problem.axes[1]),
                  core::with_step(problem.axes[2]), problem.from.shape(1)};
  const int64_t n = problem.to.shape(0), columns = problem.to.shape(4);
  p.groups = by_channel ? p.channels / V : columns / V;
  p.units = by_channel ? n * columns * p.groups : n * p.channels * p.groups;
  const int64_t blocks = (p.units + kResampleThreads - 1) / kResampleThreads;
  p.strip = strip_of(p.height.out, blocks, p.depth.out, KH, KH == 4 ? kMostStrip : kMostStrip / 2, problem.to.device());
  launch(problem.transposed ? "interpolate_backward" : "interpolate", resample_fixed<G, T, Move, KD, KH, KW>,
         strips_grid(p.units, kResampleThreads, p.height.out, p.strip, p.depth.out), problem.to.device(), p);
}

/// Wide: outputs that a thread takes along W.
template <class T, bool Move, int KD, int KH, int KW, int Wide>
void launch_layouts(const ResampleProblem& p) {
  constexpr int kChannels = kVector<T>;
  if (lies_by_channel(p)) {
    if (fits_vectors(p.from, 1, kChannels) && fits_vectors(p.to, 1, kChannels))
      return launch_fixed<Channels<T, KW, kChannels, int64_t>, T, Move, KD, KH, KW>(p, true);
    return launch_fixed<Channels<T, KW, 1, int64_t>, T, Move, KD, KH, KW>(p, true);
  }
  if (fits_vectors(p.to, 4, Wide) && has_short_rows(p.from))
    return launch_fixed<Columns<T, KW, Wide, int32_t>, T, Move, KD, KH, KW>(p, false);
  launch_fixed<Columns<T, KW, 1, int64_t>, T, Move, KD, KH, KW>(p, false);
}

}  // namespace tenor::cuda
