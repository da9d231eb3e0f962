// The nearest kinds: elements are moved as they lie.
#include "src/core/visit.h"
#include "src/ops/interpolate/resample_cuda.h"
#include "src/ops/interpolate/resample_doubled_launch.cuh"
#include "src/ops/interpolate/resample_fixed_launch.cuh"

namespace tenor::cuda {

void resample_nearest(const ResampleProblem& p) {
  core::visit_size(p.from.dtype(), [&]<class T>() {
    if (can_double<T>(p)) return launch_doubled<T, 1>("interpolate", p);
    launch_layouts<T, true, 1, 1, 1, std::max<int>(1, kVector<T> / 2)>(p);
  });
}

}  // namespace tenor::cuda
