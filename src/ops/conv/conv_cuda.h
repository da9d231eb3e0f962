// The family's CUDA kernels, behind plain functions. They run on the device's current stream, take workspace by
// Tensor::empty and never wait. Problems are checked and not empty: batch, channels of both sides, pixels and taps > 0.
#pragma once

#include <string>
#include <vector>

#include "src/core/step.h"
#include "src/ops/conv/conv_problem.h"
#include "src/ops/conv/deform_problem.h"

namespace tenor::conv {

// What they take is known in every build, for `explain`. Each speaks for all directions: p.direction says which.
std::string cuda_implicit_gemm_why_not(const ConvProblem& p);
std::string cuda_vendor_why_not(const ConvProblem& p);
/// Takes everything.
std::string cuda_direct_why_not(const ConvProblem& p);

/// The copies that cuda_implicit_gemm_run makes of operands which do not lie as it gathers them.
std::vector<core::Copy> cuda_implicit_gemm_copies(const ConvProblem& p);

void cuda_implicit_gemm_run(const ConvProblem& p);
void cuda_direct_run(const ConvProblem& p);

// Deformable convolution, of at least one image, channel and pixel.
void cuda_deform_sample(const DeformProblem& p);
void cuda_deform_gradient(const DeformProblem& p);

}  // namespace tenor::conv
