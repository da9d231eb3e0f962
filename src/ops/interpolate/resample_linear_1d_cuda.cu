// Linear: 2 taps along width.
#include "src/core/visit.h"
#include "src/ops/interpolate/resample_cuda.h"
#include "src/ops/interpolate/resample_fixed_launch.cuh"

namespace tenor::cuda {

void resample_linear_1d(const ResampleProblem& p) {
  core::visit_float(p.from.dtype(), [&]<class T>() { launch_layouts<T, false, 1, 1, 2, sizeof(T) == 8 ? 2 : 4>(p); });
}

}  // namespace tenor::cuda
