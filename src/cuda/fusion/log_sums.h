// log-sum-exp as the eager kernels form it, in steps that fused kernels have.
#pragma once

#include "src/fusion/program.h"

namespace tenor::cuda {

/// The program with each log-sum-exp as the maximum, the exponentials about it, their sum and its logarithm; another
/// program as it is.
fusion::Program without_log_sums(const fusion::Program& program);

}  // namespace tenor::cuda
