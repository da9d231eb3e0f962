// interpolate on a GPU: which kernel takes a problem.
#include "src/ops/interpolate/interpolate_cuda.h"

#include "src/cuda/runtime.h"
#include "src/ops/interpolate/resample_cuda.h"

namespace tenor::cuda {

void resample(const ResampleProblem& p) {
  if (p.to.numel() == 0) return;
  const DeviceGuard guard(p.to.device());
  if (p.moves()) return resample_nearest(p);
  const int taps = core::fixed_taps(p.axes[2]);
  if (p.transposed || taps == 0) return resample_windowed(p);
  if (taps == 4) return resample_cubic(p);
  // Dims that the image has not are identities of the nearest kind.
  if (core::fixed_taps(p.axes[0]) == 2) return resample_linear_3d(p);
  if (core::fixed_taps(p.axes[1]) == 2) return resample_linear_2d(p);
  resample_linear_1d(p);
}

}  // namespace tenor::cuda
