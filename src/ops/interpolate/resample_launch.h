// How the CUDA kernels of resampling are laid over a problem.
#pragma once

#include <algorithm>
#include <numeric>

#include "src/cuda/image.h"
#include "src/cuda/launch.h"
#include "src/ops/interpolate/resample_problem.h"

namespace tenor::cuda {

/// Whether threads take channels: they lie side by side on both sides, and columns do not.
[[maybe_unused]] static bool lies_by_channel(const ResampleProblem& p) {
  const bool dense = p.from.stride(1) == 1 && p.to.stride(1) == 1 && p.from.shape(1) > 1;
  return dense && !(p.to.stride(4) == 1 && p.to.shape(4) > 1);
}

/// Output rows of a block: many where there are blocks enough, for rows at a strip's end are made twice.
[[maybe_unused]] static int strip_of(int64_t rows, int64_t blocks, int64_t depth, int taps, int most, Device device) {
  const int64_t wanted =
      std::max<int64_t>(int64_t{16} * multiprocessors(device) / std::max<int64_t>(blocks * depth, 1), 1);
  const int64_t strip = std::max<int64_t>((rows + wanted - 1) / wanted, 2 * taps);
  return static_cast<int>(std::clamp<int64_t>(strip, 1, std::min<int64_t>(most, rows)));
}

[[maybe_unused]] static Grid strips_grid(int64_t units, int threads, int64_t rows, int strip, int64_t depth,
                                         size_t shared = 0) {
  const auto blocks = static_cast<unsigned>((units + threads - 1) / threads);
  return {dim3(blocks, static_cast<unsigned>(std::min<int64_t>((rows + strip - 1) / strip, 65535)),
               static_cast<unsigned>(std::min<int64_t>(depth, 65535))),
          dim3(static_cast<unsigned>(threads)), shared};
}

}  // namespace tenor::cuda
