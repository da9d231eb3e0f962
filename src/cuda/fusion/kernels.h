// The writers of fused kernels, by what they reduce.
#pragma once

#include "src/cuda/fusion/generate.h"

namespace tenor::cuda {

FusedKernel loop_kernel(const fusion::Program& program, const FusedOptions& options);

/// Of a program with reductions: why not, or the kernel.
std::string why_no_row_kernel(const fusion::Program& program);
FusedKernel row_kernel(const fusion::Program& program, const FusedOptions& options);
/// Likewise of reductions down columns.
std::string why_no_column_kernel(const fusion::Program& program);
FusedKernel column_kernel(const fusion::Program& program, const FusedOptions& options);

}  // namespace tenor::cuda
