// cubic: 1 taps along depth, 4 along height, 4 along width.
#include "src/core/visit.h"
#include "src/ops/interpolate/resample_cuda.h"
#include "src/ops/interpolate/resample_fixed_launch.cuh"

namespace tenor::cuda {

void resample_cubic(const ResampleProblem& p) {
  core::visit_float(p.from.dtype(), [&]<class T>() { launch_layouts<T, false, 1, 4, 4, sizeof(T) == 8 ? 2 : 4>(p); });
}

}  // namespace tenor::cuda
