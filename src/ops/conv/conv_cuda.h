// The family's CUDA kernels, behind plain functions. They run on the device's current stream, take workspace by
// Tensor::empty and never wait. Problems are checked and not empty: batch, channels of both sides, pixels and taps > 0.
#pragma once

#include <string>
#include <vector>

#include "src/core/compute_capability.h"
#include "src/core/step.h"
#include "src/ops/conv/conv_problem.h"
#include "src/ops/conv/deform_problem.h"

namespace tenor::conv {

using core::kHopper;

// What they take is known in every build, for `explain`. Each speaks for all directions: p.direction says which.
std::string cuda_implicit_gemm_why_not(const ConvProblem& p);
std::string cuda_vendor_why_not(const ConvProblem& p);
/// Takes everything.
std::string cuda_direct_why_not(const ConvProblem& p);

/// The copies that cuda_implicit_gemm_run makes of operands which do not lie as it gathers them.
std::vector<core::Copy> cuda_implicit_gemm_copies(const ConvProblem& p);

void cuda_implicit_gemm_run(const ConvProblem& p);
/// Bytes of workspace that it takes on the problem's device for the sums of a weight gradient's ranges of pixels.
int64_t cuda_implicit_gemm_workspace(const ConvProblem& p);
/// The same by the kernels for any device, which other devices than Hopper take: 16-bit floats.
void cuda_portable_gemm_run(const ConvProblem& p);
void cuda_direct_run(const ConvProblem& p);
/// Of a problem that lies on the device, or is empty: why cuDNN does not take it.
std::string cudnn_why_not(const ConvProblem& p);
/// Which cuDNN, engine and workspace compute it.
std::string cudnn_note(const ConvProblem& p);
/// By the engine that was measured to be the fastest where autotuning is on, measuring now where none was; else by the
/// heuristics' first.
void cuda_vendor_run(const ConvProblem& p);
/// Sums those results again, on the current device, that a kernel made NaN by zeros which it put on padding
/// (conv_plain.h); `everywhere`: elements of a weight gradient whatever their tap.
void cuda_mend(const ConvProblem& p, bool everywhere = false);

// Deformable convolution, of at least one image, channel and pixel.
void cuda_deform_sample(const DeformProblem& p);
void cuda_deform_gradient(const DeformProblem& p);

}  // namespace tenor::conv
