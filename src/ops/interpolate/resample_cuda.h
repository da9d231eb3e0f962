// The kernels of resampling behind plain functions, a file each.
#pragma once

#include "src/ops/interpolate/resample_problem.h"

namespace tenor::cuda {

void resample_nearest(const ResampleProblem& p);
void resample_linear_1d(const ResampleProblem& p);
void resample_linear_2d(const ResampleProblem& p);
void resample_linear_3d(const ResampleProblem& p);
void resample_cubic(const ResampleProblem& p);
/// Any number of taps, and every gradient.
void resample_windowed(const ResampleProblem& p);

}  // namespace tenor::cuda
