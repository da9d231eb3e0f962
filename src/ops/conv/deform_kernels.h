// Deformable convolution's kernels of the CPU.
#pragma once

#include "src/ops/conv/deform_problem.h"

namespace tenor::conv {

void deform_sample_cpu(const DeformProblem& p);
/// Every gradient of these images, written whole.
void deform_gradient_cpu(const DeformProblem& p);

}  // namespace tenor::conv
