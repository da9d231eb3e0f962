// Bicubic: 4 taps along height and width.
#include "src/core/visit.h"
#include "src/ops/interpolate/resample_cuda.h"
#include "src/ops/interpolate/resample_doubled_launch.cuh"
#include "src/ops/interpolate/resample_staged_launch.cuh"

namespace tenor::cuda {

void resample_cubic(const ResampleProblem& p) {
  core::visit_float(p.from.dtype(), [&]<class T>() {
    if constexpr (sizeof(T) <= 4) {
      if (can_double<T>(p)) return launch_doubled<T, 4>("interpolate", p);
      if (can_stage<T>(p)) return launch_staged<T, 4>(p);
    }
    launch_layouts<T, false, 1, 4, 4, sizeof(T) == 8 ? 2 : 4>(p);
  });
}

}  // namespace tenor::cuda
