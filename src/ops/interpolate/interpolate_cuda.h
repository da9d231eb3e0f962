// Entry point of the CUDA kernels of this family.
#pragma once

#include "src/ops/interpolate/resample_problem.h"

namespace tenor::cuda {

void resample(const ResampleProblem& problem);

}  // namespace tenor::cuda
